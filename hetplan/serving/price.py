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

from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.workers import Share
from hetplan.serving.runs import machine_price, times

__all__ = ["SLICES", "Price", "has_prices", "price_of"]

SLICES = ("gpu", "cpu_cores")
"""Resources of which a load can have a slice (`Share`)."""


@dataclass(frozen=True)
class Price:
    """What one instance of a run costs, and the slice of its machine that is paid (None: the whole machine).

    A load must carry the slice as its `share`: by it every reader of the plan finds the same price.
    """

    nanos: int
    share: Share | None = None


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
                why="the profile has prices, and none is named for this machine type", remedy="Add its price_per_hour.",
            )  # fmt: skip
        return Price(NANO)
    sold = profile.offers[offer]
    if sold.per in SLICES and sold.per in run.needs:
        amount = run.needs[sold.per]
        return Price(times(sold.price_per_hour, amount), share_of(sold.per, amount))
    return Price(machine_price(sold, profile.hardware[run.hardware]))


def has_prices(profile: Profile) -> bool:
    """Whether anything costs money. Where nothing does machines are counted, and no sum of money is shown."""
    own = any(run.price_per_hour is not None for variant in profile.variants.values() for run in variant.runs)
    return own or bool(profile.offers)


def share_of(resource: str, amount: float) -> Share:
    """A slice of a machine.

    >>> share_of("gpu", 0.5).gpu
    0.5
    """
    return Share(gpu=amount) if resource == "gpu" else Share(cpu_cores=amount)
