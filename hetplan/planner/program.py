r"""The program over machines: what is rented, from whom, when and at which price.

A sub-problem (a pool, an LLM fleet, ...) says how many machines of each type it takes to carry its queries, and knows
neither prices nor limits. These are said here, once for all of them: for one period (`rent`), and for several
(`rent_by_period`, `pay_starts`, `limit_moves`, `lose`).

==========  ======================================================================================
letter      meaning
==========  ======================================================================================
t, o, p     machine type; offer, a price at which machines of one type are rented; period of l_p hours
N_op        machines rented under o in p, whole
R_o         machines of o committed: paid for ahead, and there in every period
c_o, c'_o   price of a rented, of a committed machine per hour
u_tp        machines of type t that the sub-problems use, an expression in columns of their own
S_op        machines that start before p, each paid for the s_o hours that it takes
==========  ======================================================================================

::

    min  sum_p l_p (sum_o c'_o R_o + c_o N_op) + sum_op s_o c_o S_op    or another objective of the sub-problems
    (1)  u_tp <= sum_{o of t} R_o + N_op                   every type: what is used is rented
    (2)-(5)  limits on R_o + N_op                          `machine_limits`: stock, counts, budget, resources, shares
    (6)  sum_{o of T} N_o >= 1                             every set T of types of which somebody needs one
    (7)  S_op >= N_op - N_o,p-1                            the first period follows the last, or what runs
    (8)  sum_g new_g <= limits.changes,  new_g >= count_g - running_g         groups g: who runs what
    (9)  lost = - min(k, sum of machines)                  k machines may fail: what is used is used of the others, too

One period has no R and no S: it is the special case with a direct way, `rent`. Where u_t is a count of whole machines,
and nothing says that more must be there, it is N itself: no column, no row (1).

Every row that a user stated is elastic and names its field: from these rows alone a refusal says what contradicts what.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.forms.milp import Builder, Elastic
from hetplan.planner.machine_limits import PRICE_OF_SLACK, MachineLimit, machine_limits
from hetplan.planner.request import PLENTY, MachineType, Offer, Request
from hetplan.profiles.fields import NANO

__all__ = [
    "NOTHING",
    "Expression",
    "Rented",
    "Uses",
    "bill",
    "grant",
    "limit_moves",
    "lose",
    "machines_rented",
    "pay_starts",
    "rent",
    "rent_by_period",
    "weighted_sum",
]

Columns = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    offers, ones = request.offers, np.ones(len(request.offers))
    bought = _bought_offers(request, uses)
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

    def add(row: int, places: Iterable[int], each: Floats) -> None:
        for place in places:
            m.add(row, rented[place].columns, np.multiply(rented[place].coefficients, each[place]))

    of: dict[str, list[int]] = {kind.id: [] for kind in request.machines}
    for place, offer in enumerate(offers):
        of[offer.machine].append(place)
    used = {name: one for name, one in uses.machines.items() if not uses.is_rented(request.of(name))}
    least = [-np.inf if uses.may_idle(machine) else 0.0 for machine in used]
    rows = m.rows("capacity", list(used), lower=least, upper=0.0, unit="machines", equation="(1)")
    for row, (machine, one) in zip(rows, used.items(), strict=True):
        m.add(row, one.columns, one.coefficients)
        add(row, of[machine], -ones)
    fees = np.rint(np.ravel(uses.fees.coefficients) * NANO).astype(np.int64)
    limits = machine_limits(request, fees=int(np.gcd.reduce(fees, initial=np.int64(0))), slip=slip)
    for row, limit in limit_rows(m, limits):
        add(row, np.flatnonzero(limit.total).tolist(), limit.total)
        if limit.name == "budget":
            m.add(row, uses.fees.columns, uses.fees.coefficients)
    if uses.somebody:
        sets = [" or ".join(sorted(one)) for one in uses.somebody]
        rows = m.rows("somebody", sets, lower=1.0, unit="machines", equation="(6)")
        for row, wanted in zip(rows, uses.somebody, strict=True):
            add(row, [place for machine in sorted(wanted) for place in of[machine]], ones)
    return n


def limit_rows(m: Builder, limits: Iterable[MachineLimit], about: str = "") -> Iterator[tuple[int, MachineLimit]]:
    """Add a row for each limit, those of one name together; who asked puts in what the machines are."""
    for (name, elastic, equation), alike in groupby(limits, lambda one: (one.name, one.elastic, one.equation)):
        several = list(alike)
        rows = m.rows(
            f"{name}{about}",
            [one.label for one in several],
            lower=[one.lower for one in several],
            upper=[one.upper for one in several],
            unit=elastic.unit if elastic is not None else "",
            equation=equation,
            elastic=elastic,
        )
        yield from zip(rows.tolist(), several, strict=True)


@dataclass(frozen=True)
class Rented:
    """Columns of committed machines, and of each period those rented and the rows that cover what is in use."""

    committed: Columns
    hourly: Mapping[int, Columns]
    cover: Mapping[int, Columns]
    most: Floats
    """How many of each offer may be there."""


def rent_by_period(
    m: Builder,
    offers: Sequence[Offer],
    limits: Sequence[MachineLimit],
    hours: Mapping[int, float],
    *,
    most: tuple[Floats, Floats],
    whole: bool,
) -> Rented:
    """Add R and, of each period with its hours, N, what they cost, and every limit over both.

    `most` of each offer may be committed, and rented. The rows of cover are R + N >= 0: who asked puts in, with a
    minus, what applications use.
    """
    names, ones = [offer.name for offer in offers], np.ones(len(offers))
    ahead = np.array([offer.reserved_price or 0.0 for offer in offers]) * sum(hours.values())
    committed = m.columns("committed", names, upper=most[0], cost=ahead, whole=whole, unit="machines")
    hourly, cover = dict[int, Columns](), dict[int, Columns]()
    for p, length in hours.items():
        price = np.array([offer.price for offer in offers]) * length
        hourly[p] = m.columns(f"rented in {p}", names, upper=most[1], cost=price, whole=whole, unit="machines")
        cover[p] = m.rows(f"machines in {p}", names, lower=0.0, unit="machines")
        m.add(cover[p], committed, ones)
        m.add(cover[p], hourly[p], ones)
        for row, limit in limit_rows(m, limits, f" in {p}"):
            m.add(row, committed, limit.total + limit.ahead)
            m.add(row, hourly[p], limit.total)
    return Rented(committed, hourly, cover, most[0] + most[1])


def pay_starts(
    m: Builder, offers: Sequence[Offer], counts: Expression, places: Columns, running: ArrayLike, *,
    share: float, about: str, most: ArrayLike = np.inf,
) -> None:  # fmt: skip
    """Add that machines beyond those that run are paid while they start, that `share` of the times, at `most` so many.

    `places` has the offer of each column of `counts`.
    """
    each = np.array([share * offer.start_hours * offer.price for offer in offers])
    started = m.columns(f"started {about}", [offer.name for offer in offers], upper=most, cost=each)
    _add_new_machines(m, f"starts {about}", started, counts, places, running)


def _add_new_machines(
    m: Builder, name: str, new: Columns, counts: Expression, groups: Columns, running: ArrayLike
) -> None:
    """Add new >= counts - running, of each group."""
    rows = m.rows(name, str, size=new.size, upper=np.asarray(running, dtype=float))
    m.add(rows[groups], counts.columns, counts.coefficients)
    m.add(rows, new, -1.0)


def _bought_offers(request: Request, uses: Uses) -> list[int]:
    """The offers that have a column: those of which what is in use is not what is rented."""
    return [place for place, offer in enumerate(request.offers) if not uses.is_rented(request.of(offer.machine))]


def machines_rented(request: Request, uses: Uses, n: Columns) -> list[Expression]:
    """The machines rented under each offer; `n` are the columns that `rent` has made."""
    own = dict(zip(_bought_offers(request, uses), n.tolist(), strict=True))
    return [
        Expression(np.array([own[place]])) if place in own else uses.machines.get(offer.machine, NOTHING)
        for place, offer in enumerate(request.offers)
    ]


def bill(request: Request, uses: Uses, n: Columns) -> Expression:
    """What all machines that are rented, and all fees, cost per hour."""
    rented = machines_rented(request, uses, n)
    prices = [offer.price for offer in request.offers]
    return weighted_sum([*zip(rented, prices, strict=True), (uses.fees, 1.0)])


def weighted_sum(parts: Iterable[tuple[Expression, float]]) -> Expression:
    """The weighted sum of expressions."""
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


def limit_moves(
    m: Builder, counts: Expression, groups: Columns, running: ArrayLike, most: float | None, *,
    unit: str = "instances", cost: float = 0.0, about: str = "",
) -> Columns:  # fmt: skip
    """Add that no more is new than may be: what each group has beyond what runs of it; returns the new ones.

    `groups` has the group of each column of `counts`, from 0 on.
    """
    now = np.asarray(running, dtype=float)
    new = m.columns(f"new{about}", str, size=now.size, unit=unit, cost=cost)
    elastic = Elastic(PRICE_OF_SLACK, "slo.limits.changes", unit="changes", whole=True)
    top, elastic_too = (np.inf, None) if most is None else (most, elastic)
    m.add(m.rows(f"moves{about}", ["all"], upper=top, elastic=elastic_too), new, 1.0)
    _add_new_machines(m, f"new{about}", new, counts, groups, now)
    return new


def lose(m: Builder, machines: Columns, count: int, most: float, about: str) -> Columns:
    """Add (9): a column of 0 or less, -min(count, machines) at the most, of at most so many machines."""
    k = float(count)
    lost = m.columns(f"lost of {about}", ["machines"], lower=-k, upper=0.0)
    if count == 0:
        return lost
    many = m.columns(f"more than lost of {about}", ["yes"], upper=1.0, whole=True)
    rows = m.rows(f"losing {about}", ["all k", "all there are", "few"], upper=[0.0, 0.0, k])
    m.add(rows[0], [*lost, *many], [1.0, k])  # where there are more, k are lost
    m.add(rows[1], [*lost, *machines, *many], [1.0, *np.ones(len(machines)), -most])  # else all
    m.add(rows[2], [*machines, *many], [*np.ones(len(machines)), -most])
    return lost


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
