r"""The program over machines: what is rented, from whom and at which price, and what limits it.

A sub-problem (a pool, an LLM fleet, ...) says how many machines of each type it takes to carry its queries, and knows
neither prices nor limits. These are said here, once for all of them.

==========  ======================================================================================
letter      meaning
==========  ======================================================================================
t, o        machine type; offer, a price at which machines of one type are rented
N_o         machines rented under o, whole
c_o         price of one of them per hour
u_t         machines of type t that the sub-problems use, an expression in columns of their own
a_tr        what a machine of type t provides of resource r
==========  ======================================================================================

::

    min  sum_o c_o N_o                                or another objective of the sub-problems
    (1)  u_t <= sum_{o of t} N_o                      every type: what is used is rented
    (2)  N_o <= stock_o                               offers of one name draw on one stock
    (3)  least_h <= sum_{o of h} N_o <= most_h        limits.instances, of each hardware
    (4)  sum_o c_o N_o + fees <= budget               limits.cost_per_hour
    (5)  sum_o a_tr N_o <= total_r                    limits.resources: of what is rented, used or not
    (6)  sum_{o of T} N_o >= 1                        every set T of types of which a sub-problem needs some machine

Where u_t is a count of whole machines, and nothing says that more must be there, it is N itself: no column, no row (1).

Every row that a user stated is elastic and names its field: from these rows alone a refusal says what contradicts what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.forms.milp import Builder, Elastic
from hetplan.planner.request import PLENTY, MachineType, Offer, Request
from hetplan.profiles.fields import NANO

__all__ = [
    "NOTHING",
    "PRICE_OF_SLACK",
    "Expression",
    "Uses",
    "bill",
    "budget_in_whole_machines",
    "grant",
    "limit_moves",
    "machines_rented",
    "rent",
    "weighted",
]

Columns = NDArray[np.int64]

PRICE_OF_SLACK = 1.0
"""What a unit of slack costs in a row that gives way: repairs are tried one by one, so only their order hangs on it."""


@dataclass(frozen=True)
class Expression:
    """Columns of a program, each times its coefficient."""

    columns: Columns
    coefficients: ArrayLike = 1.0


NOTHING = Expression(np.zeros(0, dtype=np.int64), np.zeros(0))
"""No column."""


@dataclass(frozen=True)
class Uses:
    """All that the program sees of a sub-problem: machines in use per type, and of which types it needs some.

    `most` says of a type how many machines can be of use at all; it bounds the program's columns. Where machines (of
    all types, or some) may not stand `idle`, all that are rented are in use: (1) is an equality. Of the types `counted`
    the machines in use are whole. `fees` are what is paid per hour beside machines: for runs that have a price of their
    own.
    """

    machines: Mapping[str, Expression]
    somebody: tuple[frozenset[str], ...] = ()
    most: Mapping[str, float] = field(default_factory=dict)
    idle: bool | frozenset[str] = True
    counted: frozenset[str] = frozenset()
    fees: Expression = NOTHING

    def may_idle(self, machine: str) -> bool:
        """Whether machines of this type may be there that nobody uses."""
        return self.idle if isinstance(self.idle, bool) else machine in self.idle

    def is_rented(self, kind: MachineType) -> bool:
        """Whether the machines in use are those rented: whole, of one offer, and none must be there beside them."""
        beside = kind.least > 0 and self.may_idle(kind.id)
        return kind.id in self.counted and len(kind.offers) == 1 and not beside


def rent(m: Builder, request: Request, uses: Uses, *, priced: bool, slip: float = 0.0, whole: bool = True) -> Columns:
    """Add N and the rows on it; returns its columns, in the order of `request.offers`.

    `priced` puts (4)'s left side into the objective. `slip` tightens the budget by that share: the way out where a
    solver's tolerance let a plan through that is a hair too dear. Where machines need not be `whole` the program is a
    relaxation.
    """
    offers = request.offers
    bought = _bought(request, uses)
    n = m.columns(
        "n",
        _names(offers[place] for place in bought),
        upper=[_most_of_use(request, uses, place) for place in bought],
        whole=whole,
        unit="machines",
    )
    rented = machines_rented(request, uses, n)
    spent = bill(request, uses, n)
    if priced:
        m.pay(spent.columns, spent.coefficients)

    def add(row: int, places: Iterable[int], each: Sequence[float] | None = None) -> None:
        for place in places:
            one = rented[place]
            m.add(row, one.columns, one.coefficients if each is None else np.multiply(one.coefficients, each[place]))

    of: dict[str, list[int]] = {kind.id: [] for kind in request.machines}
    for place, offer in enumerate(offers):
        of[offer.machine].append(place)
    used = {name: one for name, one in uses.machines.items() if not uses.is_rented(request.of(name))}
    least = [-np.inf if uses.may_idle(machine) else 0.0 for machine in used]
    rows = m.rows("capacity", list(used), lower=least, upper=0.0, unit="machines", equation="(1)")
    for row, (machine, one) in zip(rows, used.items(), strict=True):
        m.add(row, one.columns, one.coefficients)
        add(row, of[machine], [-1.0] * len(offers))
    _limit_counts(m, request, add)
    if request.budget is not None:
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.cost_per_hour", unit=request.currency)
        fees = np.rint(np.ravel(uses.fees.coefficients) * NANO).astype(np.int64)
        upper = budget_in_whole_machines(request, int(np.gcd.reduce(fees, initial=np.int64(0)))) / NANO * (1.0 - slip)
        row = m.rows(
            "budget", ["hour"], upper=upper, unit=f"{request.currency}/h", equation="(4)", elastic=elastic
        )  # fmt: skip
        m.add(row, spent.columns, spent.coefficients)
    if request.resources:
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.resources.{label}")
        totals = list(request.resources.values())
        rows = m.rows("resources", list(request.resources), upper=totals, equation="(5)", elastic=elastic)
        for row, resource in zip(rows, request.resources, strict=True):
            add(row, range(len(offers)), [request.of(offer.machine).provides.get(resource, 0.0) for offer in offers])
    if uses.somebody:
        sets = [" or ".join(sorted(one)) for one in uses.somebody]
        rows = m.rows("somebody", sets, lower=1.0, unit="machines", equation="(6)")
        for row, wanted in zip(rows, uses.somebody, strict=True):
            add(row, [place for machine in sorted(wanted) for place in of[machine]])
    return n


def _bought(request: Request, uses: Uses) -> list[int]:
    """The offers that have a column: those of which what is in use is not what is rented."""
    return [place for place, offer in enumerate(request.offers) if not uses.is_rented(request.of(offer.machine))]


def machines_rented(request: Request, uses: Uses, n: Columns) -> list[Expression]:
    """The machines rented under each offer; `n` are the columns that `rent` has made."""
    own = dict(zip(_bought(request, uses), n.tolist(), strict=True))
    return [
        Expression(np.array([own[place]])) if place in own else uses.machines.get(offer.machine, NOTHING)
        for place, offer in enumerate(request.offers)
    ]


def bill(request: Request, uses: Uses, n: Columns) -> Expression:
    """What all machines that are rented, and all fees, cost per hour."""
    rented = machines_rented(request, uses, n)
    prices = [offer.price for offer in request.offers]
    return weighted([*zip(rented, prices, strict=True), (uses.fees, 1.0)])


def weighted(parts: Iterable[tuple[Expression, float]]) -> Expression:
    """The sum of expressions, each times a weight."""
    several = [
        (one.columns, np.broadcast_to(np.multiply(one.coefficients, by), one.columns.shape)) for one, by in parts
    ]
    if not several:
        return NOTHING
    return Expression(np.concatenate([columns for columns, _ in several]), np.concatenate([by for _, by in several]))


def _names(offers: Iterable[Offer]) -> list[str]:
    """What offers are called; the second of a name by its machine type."""
    found = dict[str, None]()
    for offer in offers:
        found[offer.machine if offer.name in found else offer.name] = None
    return list(found)


def grant(m: Builder, uses: Uses, machines: Mapping[str, float]) -> Columns:
    """Add (1) with machines that are there instead of rented ones; returns its rows, as `uses.machines` has them."""
    there = [float(machines.get(machine, 0.0)) for machine in uses.machines]
    rows = m.rows("capacity", list(uses.machines), upper=there, unit="machines", equation="(1)")
    for row, used in zip(rows, uses.machines.values(), strict=True):
        m.add(row, used.columns, used.coefficients)
    return rows


def limit_moves(m: Builder, counts: Expression, groups: Columns, running: ArrayLike, most: float) -> Columns:
    """Add that no more instances are new than may be: those of each group beyond what runs of it; returns the new ones.

    `groups` has the group of each column of `counts`, from 0 on.
    """
    now = np.asarray(running, dtype=float)
    new = m.columns("new", str, size=now.size, unit="instances")
    elastic = Elastic(PRICE_OF_SLACK, "slo.limits.moves", unit="moves", whole=True)
    m.add(m.rows("moves", ["all"], upper=most, elastic=elastic), new, 1.0)
    rows = m.rows("new", str, size=now.size, upper=now)
    m.add(rows[groups], counts.columns, counts.coefficients)
    m.add(rows, new, -1.0)
    return new


def budget_in_whole_machines(request: Request, fees: int = 0) -> int:
    """The budget, lowered to what whole machines can cost at all: a multiple of what all prices are multiples of.

    That is far coarser than a solver's tolerance; so no plan that costs a hair too much passes the row. `fees` is what
    all of these are multiples of.
    """
    budget, step = request.budget or 0, math.gcd(fees, *(offer.nanos for offer in request.offers))
    return budget // step * step if step else budget


def _most_of_use(request: Request, uses: Uses, place: int) -> float:
    """The most machines of an offer that a plan can make use of: an end that cuts off no plan, also of loosened rows.

    Stock, `limits.instances` and the budget are rows, which may give way; they are ends only where nothing else is one.
    """
    offer = request.offers[place]
    if offer.machine in uses.most:
        return uses.most[offer.machine]
    if request.budget is not None and offer.nanos > 0:
        return float(request.budget // offer.nanos)
    return min((float(one) for one in (offer.stock, request.of(offer.machine).most) if one < PLENTY), default=math.inf)


def _limit_counts(m: Builder, request: Request, add: Callable[[int, Iterable[int]], None]) -> None:
    """Rows (2) and (3), where they are stated."""
    for hosts in (False, True):
        stocked: dict[str, list[int]] = {}
        for place, offer in enumerate(request.offers):
            if offer.stock < PLENTY and bool(offer.hosts) == hosts:
                stocked.setdefault(offer.name, []).append(place)
        at = "profile.hosts (under {label})" if hosts else "profile.offers.{label}.stock"
        elastic = Elastic(PRICE_OF_SLACK, at, unit="machines", whole=True)
        stock = [float(request.offers[places[0]].stock) for places in stocked.values()]
        rows = m.rows("hosts" if hosts else "stock", list(stocked), upper=stock, unit="machines", equation="(2)",
                      elastic=elastic) if stocked else ()  # fmt: skip
        for row, places in zip(rows, stocked.values(), strict=True):
            add(row, places)
    for name, verb, side in (("least", "lower", 0), ("most", "raise", 1)):
        stated = {kind.hardware: kind for kind in request.machines
                  if (kind.most < PLENTY if side else kind.least > 0)}  # fmt: skip
        if not stated:
            continue
        limit = [float(kind.most if side else kind.least) for kind in stated.values()]
        field_ = f"slo.limits.instances.{{label}}[{side}]"
        rows = m.rows(
            name,
            list(stated),
            lower=-np.inf if side else limit,
            upper=limit if side else np.inf,
            unit="machines",
            equation="(3)",
            elastic=Elastic(PRICE_OF_SLACK, field_, verb=verb, unit="machines", whole=True),
        )
        hardware = [request.of(offer.machine).hardware for offer in request.offers]
        for row, one in zip(rows, stated, strict=True):
            add(row, [place for place, name in enumerate(hardware) if name == one])
