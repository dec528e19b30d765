"""The fleet as a choice from menus: a program that joins applications and periods, its prices, and a bound.

Machines of an offer are committed for the whole horizon (R) or rented by the period (N); applications take theirs from
these by choices y from their menus. Without the costs of starting and without limits on moves (both only make a fleet
dearer) and with y continuous::

    min  L sum_o cR_o R_o + sum_p l_p sum_o c_o N_op
    R_o + N_op >= sum_{a, choices} x_o y_ap,choice              every offer and period     (its price: pi_op)
    sum_choices y_ap = 1                                        every application and period
    limits over T_op = R_o + N_op: stock, quotas, budget, resources, instances, offers

Take any prices that no column R or N undercuts. The sum over applications and periods of the cheapest choice at these
prices, with what the limits are worth, is no more than any fleet costs: the bound. It is true for whole machines,
because each cheapest choice is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Builder, Elastic
from hetplan.problems.fleet.wish import HUGE, Wish
from hetplan.profiles.fields import NANO

__all__ = ["Floor", "Limit", "add_machines", "floors_of", "limits_of"]

Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Limit:
    """One limit of a period: lower <= sum of T_o total_o + sum of R_o committed_o <= upper."""

    name: str
    label: str
    total: Floats
    committed: Floats
    lower: float = -np.inf
    upper: float = np.inf
    elastic: Elastic | None = None


@dataclass(frozen=True)
class Floor:
    """An end of a limit on offers that no slack of its row says: the fewest machines, or a share of all."""

    limit: Limit
    field: str
    verb: str
    stated: float

    @property
    def whole(self) -> bool:
        """Whether it counts machines."""
        return self.limit.name == "offers"

    def at(self, wish: Wish, to: float) -> Limit:
        """The limit with another number there."""
        if self.whole:
            return replace(self.limit, lower=to)
        return replace(self.limit, total=self.limit.total + (self.stated - to) * np.ones(len(wish.offers)))


def floors_of(limit: Limit) -> Iterator[Floor]:
    """The floors of a limit on offers."""
    if limit.name == "offers" and limit.lower > 0:
        yield Floor(limit, f"slo.limits.offers.{limit.label}.least", "lower", limit.lower)
    if limit.name == "share":
        kind, _, end = limit.label.rpartition(" at ")
        place, verb = (0, "lower") if end == "least" else (1, "raise")
        yield Floor(limit, f"slo.limits.offers.{kind}.share[{place}]", verb, -float(limit.total.min(initial=0.0)))


def limits_of(wish: Wish) -> Iterator[Limit]:
    """What the files limit in each period, over all machines that are committed or rented."""
    asked, profile, count = wish.request, wish.inputs.profile, len(wish.offers)
    ones, none = np.ones(count), np.zeros(count)
    for number, offer in enumerate(wish.offers):
        sold = profile.offers[offer.name].stock
        if sold is not None:
            field = f"profile.offers.{offer.name}.stock"
            yield Limit("stock", offer.name, _one(count, number), none, upper=float(sold),
                        elastic=Elastic(1.0, field, whole=True, unit="machines"))  # fmt: skip
    provides = [profile.hardware[offer.hardware].provides for offer in wish.offers]
    for zone, held in profile.zones.items():
        for resource, amount in held.quota.items():
            takes = np.array([
                (1.0 if resource == "machines" else given.get(resource, 0.0)) * (offer.zone == zone)
                for offer, given in zip(wish.offers, provides, strict=True)
            ])  # fmt: skip
            field = f"profile.zones.{zone}.quota.{resource}"
            yield Limit("quota", f"{resource} in {zone}", takes, none, upper=amount, elastic=Elastic(1.0, field))
    for resource, amount in asked.resources.items():
        takes = np.array([given.get(resource, 0.0) for given in provides])
        yield Limit("resources", resource, takes, none, upper=amount,
                    elastic=Elastic(1.0, f"slo.limits.resources.{resource}"))  # fmt: skip
    for hardware, (least, most) in asked.instances.items():
        mine = np.array([float(offer.hardware == hardware) for offer in wish.offers])
        field = f"slo.limits.instances.{hardware}"
        if most is not None:
            yield Limit("most", hardware, mine, none, upper=float(most),
                        elastic=Elastic(1.0, f"{field}[1]", whole=True, unit="machines"))  # fmt: skip
        if least:
            yield Limit("least", hardware, mine, none, lower=float(least),
                        elastic=Elastic(1.0, f"{field}[0]", verb="lower", whole=True, unit="machines"))  # fmt: skip
    if asked.budget is not None:
        saved = np.where(np.isfinite(wish.committed), wish.committed - wish.prices, 0.0)
        yield Limit("budget", "hour", wish.prices, saved, upper=asked.budget / NANO,
                    elastic=Elastic(1.0, "slo.limits.cost_per_hour", unit=asked.currency))  # fmt: skip
    for name, limit in wish.request.shares.items():
        total, committed = _of_kind(wish, name)
        field = f"slo.limits.offers.{name}"
        if limit.most is not None or limit.least:
            top = np.inf if limit.most is None else float(limit.most)
            give = None if limit.most is None else Elastic(1.0, f"{field}.most", whole=True, unit="machines")
            yield Limit("offers", name, total, committed, float(limit.least), top, give)
        if limit.share is not None:
            low, high = limit.share
            if low > 0:
                yield Limit("share", f"{name} at least", total - low * ones, committed, lower=0.0)
            if high < 1:
                yield Limit("share", f"{name} at most", total - high * ones, committed, upper=0.0)


def _one(count: int, number: int) -> Floats:
    found = np.zeros(count)
    found[number] = 1.0
    return found


def _of_kind(wish: Wish, name: str) -> tuple[Floats, Floats]:
    """Which machines an offer, or a way to buy, is: of all machines, and of those committed."""
    count = len(wish.offers)
    if name == "committed":
        return np.zeros(count), np.ones(count)
    if name in ("spot", "on-demand"):
        return np.array([float(offer.spot == (name == "spot")) for offer in wish.offers]), np.zeros(count)
    return np.array([float(offer.name == name) for offer in wish.offers]), np.zeros(count)


def add_machines(
    m: Builder, wish: Wish, limits: Sequence[Limit], periods: Sequence[int], *, whole: bool, stocked: bool = True
) -> tuple[Index, Mapping[int, Index], Mapping[int, Index]]:
    """Columns R and, per period, N; the rows of every limit. Returns R, N and the rows of cover, per period."""
    names, count = [offer.name for offer in wish.offers], len(wish.offers)
    sold = np.isfinite(wish.committed) & wish.commits
    most = np.array([float(offer.stock if stocked else HUGE) for offer in wish.offers])
    pay = np.where(sold, wish.committed, 0.0) * sum(wish.length(p) for p in periods)
    committed = m.columns("committed", names, upper=np.where(sold, most, 0.0), cost=pay, whole=whole, unit="machines")
    rented, cover = dict[int, Index](), dict[int, Index]()
    barred = np.array([offer.spot and not wish.spot for offer in wish.offers])
    rentable = np.where(barred, 0.0, most)
    for p in periods:
        rented[p] = m.columns(
            f"rented in {p}", names, upper=rentable, cost=wish.prices * wish.length(p), whole=whole, unit="machines"
        )
        cover[p] = m.rows(f"machines in {p}", names, lower=0.0, unit="machines")
        m.add(cover[p], committed, np.ones(count))
        m.add(cover[p], rented[p], np.ones(count))
        for limit in limits:
            row = m.rows(f"{limit.name} in {p}", [limit.label], lower=limit.lower, upper=limit.upper,
                         elastic=limit.elastic)  # fmt: skip
            m.add(row, committed, limit.total + limit.committed)
            m.add(row, rented[p], limit.total)
    return committed, rented, cover
