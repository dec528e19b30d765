"""What things cost: exact, in whole counts of 1e-9 per hour (`NANO`).

One rule for every room. What one machine of a group costs is, in this order:

1. the prices of its loads' own runs (``price_per_hour`` of a run, times the load's instances), where any has one;
2. the price of the offer; where that is per unit of a resource, times the slices of it that the loads have (where each
   load says its slice: ``share``), else times all that the hardware provides of it;
3. 1 per hour where the profile knows no offers at all.

Nothing is known where there are offers and the worker names none, or where the hardware does not say how much it
provides of what is paid by the unit.

A product is rounded to a whole 1e-9 once per machine, half to even; a group costs its machines times that.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.profile import Hardware, Offer, Profile, Run
from hetplan.profiles.workers import Share

__all__ = [
    "SLICES",
    "Price",
    "instances_on",
    "machine_price",
    "price_of",
    "times",
]

SLICES = ("gpu", "cpu_cores")
"""Resources of which a load can have a slice (`Share`)."""


MOST_ON_ONE = 64
"""More instances on one machine are not planned."""


@dataclass(frozen=True)
class Price:
    """What one instance of a run costs, and the slice of its machine that is paid (None: the whole machine).

    A load must carry the slice as its `share`: by it every reader of the plan finds the same price.
    """

    nanos: int
    share: Share | None = None


def times(nanos: int, amount: float) -> int:
    """A price times an amount as it is written, to a whole 1e-9.

    >>> times(100_000_000, 0.35)
    35000000
    """
    return int((nanos * Decimal(repr(float(amount)))).to_integral_value(ROUND_HALF_EVEN))


def machine_price(offer: Offer, hardware: Hardware) -> int:
    """What a whole machine costs under an offer; InputError where its hardware does not say how much of it is paid."""
    if offer.per is None:
        return offer.price_per_hour
    if offer.per not in hardware.provides:
        raise InputError.one(
            file="profile", path=f"$.hardware.{offer.hardware}.provides", value=offer.per,
            why=f"it is paid per unit of {offer.per}, and does not say how much of that it provides",
            remedy=f'Add "{offer.per}" to it.',
        )  # fmt: skip
    return times(offer.price_per_hour, hardware.provides[offer.per])


def instances_on(run: Run, hardware: Hardware) -> int:
    """How many instances of a run one machine holds, side by side: one, unless resources say that there is room.

    More than one are only where all needs are listed, a GPU among them where the machine has one, and something to
    compute with besides memory; a run with a price by itself is paid by the instance.
    """
    provides, needs = hardware.provides, {name: amount for name, amount in run.needs.items() if amount > 0}
    computes = [name for name in needs if not name.endswith("_gib")]
    idle_gpu = provides.get("gpu", 0.0) > 0 and "gpu" not in needs
    if not computes or idle_gpu or run.price_per_hour is not None or not needs.keys() <= provides.keys():
        return 1
    return max(1, min(MOST_ON_ONE, *(int(provides[name] / amount + 1e-9) for name, amount in needs.items())))


def price_of(profile: Profile, run: Run, offer: str | None) -> Price:
    """What one instance of a run costs under an offer; the run's own price wins. InputError where nothing is known.

    A run that says how much it needs of a resource that is paid by the unit pays for that much; any other run pays for
    the machine. Without an offer (None) a machine costs 1 where the profile has no offers at all.
    """
    if run.price_per_hour is not None:
        return Price(run.price_per_hour)
    if offer is None:
        if profile.offers:
            raise InputError.one(
                file="profile", path="$.offers", value=run.hardware,
                why="the profile has offers, and none is named for this hardware", remedy="Add an offer of it.",
            )  # fmt: skip
        return Price(NANO)
    sold = profile.offers[offer]
    if sold.per in SLICES and sold.per in run.needs:
        amount = run.needs[sold.per]
        return Price(times(sold.price_per_hour, amount), share_of(sold.per, amount))
    return Price(machine_price(sold, profile.hardware[run.hardware]))


def share_of(resource: str, amount: float) -> Share:
    """A slice of a machine.

    >>> share_of("gpu", 0.5).gpu
    0.5
    """
    return Share(gpu=amount) if resource == "gpu" else Share(cpu_cores=amount)
