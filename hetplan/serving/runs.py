"""Which runs there are, by (variant, hardware, `at`); which of them a load is; what a whole machine holds and costs."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.errors import InputError
from hetplan.profiles.profile import Hardware, Offer, Profile, Run
from hetplan.profiles.slo import App

__all__ = ["at_of", "instances_on", "machine_price", "runs_on", "times", "variants_of"]


MOST_ON_ONE = 64
"""More instances on one machine are not planned."""


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


def instances_on(run: Run, hardware: Hardware, *, times_as_large: int = 1) -> int:
    """How many instances of a run one machine holds, side by side: one, unless resources say that there is room.

    More than one are only where all needs are listed, a GPU among them where the machine has one, and something to
    compute with besides memory; a run with a price by itself is paid by the instance.
    """
    provides, needs = hardware.provides, {name: amount for name, amount in run.needs.items() if amount > 0}
    computes = [name for name in needs if not name.endswith("_gib")]
    idle_gpu = provides.get("gpu", 0.0) > 0 and "gpu" not in needs
    if not computes or idle_gpu or run.price_per_hour is not None or not needs.keys() <= provides.keys():
        return 1
    room = (int(times_as_large * provides[name] / amount + 1e-9) for name, amount in needs.items())
    return max(1, min(MOST_ON_ONE, *room))


def times(nanos: int, amount: float) -> int:
    """A price times an amount as it is written, to a whole 1e-9.

    >>> times(100_000_000, 0.35)
    35000000
    """
    return int((nanos * Decimal(repr(float(amount)))).to_integral_value(ROUND_HALF_EVEN))


def variants_of(profile: Profile, apps: Mapping[str, App]) -> dict[str, tuple[str, ...]]:
    """The variants that each application may run."""
    of_family, of_task = dict[str | None, list[str]](), dict[str, list[str]]()
    every = sorted(profile.variants)
    for name in every:
        of_family.setdefault(profile.variants[name].family, []).append(name)
        of_task.setdefault(profile.variants[name].task, []).append(name)

    def of(app: App) -> list[str]:
        if app.candidates:
            return every
        if app.named_models is not None:
            return sorted(app.named_models)
        if app.families is not None:
            return sorted(name for family in dict.fromkeys(app.families) for name in of_family.get(family, ()))
        return of_task.get(app.task or "", [])

    return {id_: tuple(of(app)) for id_, app in apps.items()}


def runs_on(profile: Profile, variant: str | None, hardware: str) -> tuple[Run, ...]:
    """The runs of a variant on one hardware, in one order; none where the profile knows no such variant."""
    known = profile.variants.get(variant or "")
    return tuple(run for _, run in known.in_order if run.hardware == hardware) if known is not None else ()


def at_of(run: Run) -> dict[str, float]:
    """The `at` by which a load names this run.

    >>> at_of(Run(hardware="gpu", latency="t", at={"batch": 8}))
    {'batch': 8.0}
    """
    return dict(run.at)
