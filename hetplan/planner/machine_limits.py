"""What limits the machines that are rented: each limit of the files as one row over counts of offers.

Of offer o there are T_o machines, of which R_o are committed, that is paid for ahead and there in every period. In each
period every limit is a row ::

    lower <= sum_o total_o T_o + sum_o ahead_o R_o <= upper

============  =============================================================  ======================================
limit         total                                                          ahead
============  =============================================================  ======================================
stock, hosts  1 for offers that draw on one stock                            0
least, most   1 for machines of one hardware                                 0
quota         what a machine takes of a zone's quota                         0
resources     what a machine provides, used or not                           0
budget        its price per hour                                             what it costs less, or more, paid ahead
offers        1 for machines of an offer, or bought so (spot, on demand)     1 for those committed
share         the same, less that share of all machines                      the same
============  =============================================================  ======================================

A row that a user stated as one number is elastic and names its field. A fewest, and a share, have no slack that says
what to change them to: they are `Floor` (`floors_of`), and what would do is tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Elastic
from hetplan.planner.request import PLENTY, MachineType, Offer, Request
from hetplan.planner.tolerances import SLIP
from hetplan.profiles.fields import NANO

__all__ = [
    "PRICE_OF_SLACK",
    "Floor",
    "MachineLimit",
    "budget_in_whole_machines",
    "floors_of",
    "keeps",
    "machine_limits",
]

Floats = NDArray[np.float64]

PRICE_OF_SLACK = 1.0
"""What a unit of slack costs in a row that gives way: repairs are tried one by one, so only their order hangs on it."""


@dataclass(frozen=True)
class MachineLimit:
    """One limit of a period; see the module."""

    name: str
    label: str
    total: Floats
    ahead: Floats
    lower: float = -np.inf
    upper: float = np.inf
    elastic: Elastic | None = None
    """Of all limits of one name that have it in common; its field says `{label}`."""
    equation: str = ""
    stated: float = 0.0
    """Of a share: the number that the SLO states."""


@dataclass(frozen=True)
class Floor:
    """An end of a limit on offers that no slack of its row says: the fewest machines, or a share of all."""

    limit: MachineLimit
    field: str
    verb: str
    stated: float

    @property
    def whole(self) -> bool:
        """Whether it counts machines."""
        return self.limit.name == "offers"

    def at(self, to: float) -> MachineLimit:
        """The limit with another number there."""
        if self.whole:
            return replace(self.limit, lower=to)
        return replace(self.limit, total=self.limit.total + (self.stated - to), stated=to)


def floors_of(limit: MachineLimit) -> Iterator[Floor]:
    """The floors of a limit on offers."""
    if limit.name == "offers" and limit.lower > 0:
        yield Floor(limit, f"{_field(limit.label)}.min", "lower", limit.lower)
    if limit.name == "share":
        kind, _, end = limit.label.rpartition(" at ")
        share, verb = ("min_share", "lower") if end == "least" else ("max_share", "raise")
        yield Floor(limit, f"{_field(kind)}.{share}", verb, limit.stated)


def _field(name: str) -> str:
    """The limit on an offer, or on a way to buy, as a field of the SLO."""
    from hetplan.profiles.fleet_fields import place_of

    return ".".join(("slo", *place_of(name)))


def machine_limits(
    request: Request, offers: Sequence[Offer] | None = None, *, fees: int = 0, slip: float = 0.0, commits: bool = False
) -> Iterator[MachineLimit]:
    """All limits on machines of these offers (all of the request); those of one name come one after the other.

    Where nobody `commits`, no machine is paid for ahead. `fees` is what everything that is paid beside machines is a
    multiple of, a count of 1e-9. `slip` tightens the budget by that share: the way out where a solver's tolerance let a
    plan through that is a hair too dear.
    """
    offers = request.offers if offers is None else offers
    kinds = [request.of(offer.machine) for offer in offers]
    none = np.zeros(len(offers))
    yield from _stocks(offers)
    yield from _counts(request, kinds)
    for zone, quota in request.quotas.items():
        here = np.array([float(offer.zone == zone) for offer in offers])
        for resource, amount in quota.items():
            takes = np.array([1.0 if resource == "machines" else kind.provides.get(resource, 0.0) for kind in kinds])
            elastic = Elastic(PRICE_OF_SLACK, f"profile.zones.{zone}.quota.{resource}")
            yield MachineLimit("quota", f"{resource} in {zone}", takes * here, none, upper=amount, elastic=elastic)
    elastic = Elastic(PRICE_OF_SLACK, "slo.limits.provides.{label}")
    for resource, amount in request.resources.items():
        provided = np.array([kind.provides.get(resource, 0.0) for kind in kinds])
        yield MachineLimit("resources", resource, provided, none, upper=amount, elastic=elastic, equation="(5)")
    if request.budget is not None:
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.cost_per_hour", unit=request.currency)
        prices = np.array([offer.price for offer in offers])
        ahead = [offer.reserved_price if commits else None for offer in offers]
        saved = np.array([0.0 if paid is None else paid - price for paid, price in zip(ahead, prices, strict=True)])
        upper = budget_in_whole_machines(request, fees, commits=commits) / NANO * (1.0 - slip)
        yield MachineLimit("budget", "hour", prices, saved, upper=upper, elastic=elastic, equation="(4)")
    yield from _bought(request, offers)


def keeps(limits: Iterable[MachineLimit], total: Sequence[float] | Floats, ahead: Floats | None = None) -> bool:
    """Whether so many machines of each offer, of which some are committed, keep these limits.

    >>> kind = MachineType("gpu", (Offer("spot", "gpu", 1, stock=2), Offer("gpu", "gpu", 3)), most=4)
    >>> [keeps(machine_limits(Request((kind,))), counts) for counts in ([2, 2], [3, 0], [1, 4])]
    [True, False, False]
    """
    counts = np.asarray(total, dtype=float)
    for limit in limits:
        used = float(limit.total @ counts) + (float(limit.ahead @ ahead) if ahead is not None else 0.0)
        if not limit.lower - SLIP <= used <= limit.upper + SLIP * max(1.0, abs(limit.upper)):
            return False
    return True


def _stocks(offers: Sequence[Offer]) -> Iterator[MachineLimit]:
    """What there is of each offer, or of known hosts under it."""
    none = np.zeros(len(offers))
    for name, at in (("stock", "profile.offers.{label}.stock"), ("hosts", "profile.hosts (under {label})")):
        elastic = Elastic(PRICE_OF_SLACK, at, unit="machines", whole=True)
        places = defaultdict[str, list[int]](list)
        for place, offer in enumerate(offers):
            if offer.stock < PLENTY and bool(offer.hosts) == (name == "hosts"):
                places[offer.name].append(place)
        for label, mine in places.items():
            ones = none.copy()
            ones[mine] = 1.0
            stock = float(offers[mine[0]].stock)
            yield MachineLimit(name, label, ones, none, upper=stock, elastic=elastic, equation="(2)")


def _counts(request: Request, kinds: Sequence[MachineType]) -> Iterator[MachineLimit]:
    """The fewest and the most machines of each hardware; what must be there of a hardware that nobody sells is, too."""
    hardware, none = np.array([kind.hardware for kind in kinds]), np.zeros(len(kinds))
    limited = {name: (least, PLENTY) for name, (least, _) in request.instances.items() if name not in hardware}
    for name in dict.fromkeys(kind.hardware for kind in kinds):  # the types of one hardware are limited together
        alike = [kind for kind in kinds if kind.hardware == name]
        limited[name] = max(kind.least for kind in alike), min(kind.most for kind in alike)
    for place, (name, verb) in enumerate((("least", "lower"), ("most", "raise"))):
        at = f"slo.limits.instances.{{label}}[{place}]"
        elastic = Elastic(PRICE_OF_SLACK, at, verb=verb, unit="machines", whole=True)
        for label, (least, most) in limited.items():
            mine = (hardware == label).astype(float)
            if name == "least" and least > 0:
                yield MachineLimit(name, label, mine, none, float(least), np.inf, elastic, "(3)")
            if name == "most" and most < PLENTY:
                yield MachineLimit(name, label, mine, none, -np.inf, float(most), elastic, "(3)")


def _bought(request: Request, offers: Sequence[Offer]) -> Iterator[MachineLimit]:
    """What may be of an offer, or of a way to buy, as counts or as a share of all machines."""
    for name, limit in request.shares.items():
        total, ahead = _of_kind(offers, name)
        if limit.max is not None or limit.min:
            top, give = np.inf, None
            if limit.max is not None:
                at = f"{_field(name)}.max"
                top, give = float(limit.max), Elastic(PRICE_OF_SLACK, at, whole=True, unit="machines")
            yield MachineLimit("offers", name, total, ahead, float(limit.min), top, give)
        low, high = limit.min_share, limit.max_share
        if low > 0:
            yield MachineLimit("share", f"{name} at least", total - low, ahead, lower=0.0, stated=low)
        if high < 1:
            yield MachineLimit("share", f"{name} at most", total - high, ahead, upper=0.0, stated=high)


def _of_kind(offers: Sequence[Offer], name: str) -> tuple[Floats, Floats]:
    """Which machines an offer, or a way to buy, is: of all machines, and of those committed."""
    none, ones = np.zeros(len(offers)), np.ones(len(offers))
    if name == "reserved":
        return none, ones
    if name in ("spot", "on_demand"):
        return np.array([float(offer.spot == (name == "spot")) for offer in offers]), none
    return np.array([float(offer.name == name) for offer in offers]), none


def budget_in_whole_machines(request: Request, fees: int = 0, *, commits: bool = False) -> int:
    """The budget, lowered to what whole machines can cost at all: a multiple of what all prices are multiples of.

    That is far coarser than a solver's tolerance; so no plan that costs a hair too much passes the row. `fees` is what
    all of these are multiples of. A price that is paid at the beginning of a term is no whole number per hour.
    """
    budget = request.budget or 0
    ahead = [offer.ahead for offer in request.offers if offer.ahead is not None and commits]
    step = gcd(fees, *(offer.nanos for offer in request.offers), *(one.nanos for one in ahead))
    return budget // step * step if step and not any(one.upfront for one in ahead) else budget
