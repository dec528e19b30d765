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
    (2)  N_o <= stock_o
    (3)  least_t <= sum_{o of t} N_o <= most_t        limits.instances
    (4)  sum_o c_o N_o <= budget                      limits.cost_per_hour
    (5)  sum_o a_tr N_o <= total_r                    limits.resources: of what is rented, used or not
    (6)  sum_{o of T} N_o >= 1                        every set T of types of which a sub-problem needs some machine

Every row that a user stated is elastic and names its field: from these rows alone a refusal says what contradicts what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.forms.milp import Builder, Elastic
from hetplan.planner.request import PLENTY, Request
from hetplan.profiles.fields import NANO

__all__ = ["PRICE_OF_SLACK", "Expression", "Uses", "budget_in_whole_machines", "grant", "rent"]

Columns = NDArray[np.int64]

PRICE_OF_SLACK = 1.0
"""What a unit of slack costs in a row that gives way: repairs are tried one by one, so only their order hangs on it."""


@dataclass(frozen=True)
class Expression:
    """Columns of a program, each times its coefficient."""

    columns: Columns
    coefficients: ArrayLike = 1.0


@dataclass(frozen=True)
class Uses:
    """All that the program sees of a sub-problem: machines in use per type, and of which types it needs some.

    `most` says of a type how many machines can be of use at all; it bounds the program's columns. Where machines may
    not stand `idle`, all that are rented are in use: (1) is an equality.
    """

    machines: Mapping[str, Expression]
    somebody: tuple[frozenset[str], ...] = ()
    most: Mapping[str, float] = field(default_factory=dict)
    idle: bool = True


def rent(m: Builder, request: Request, uses: Uses, *, priced: bool, slip: float = 0.0) -> Columns:
    """Add N and the rows on it; returns its columns, in the order of `request.offers`.

    `priced` puts (4)'s left side into the objective. `slip` tightens the budget by that share: the way out where a
    solver's tolerance let a plan through that is a hair too dear.
    """
    offers = request.offers
    price = np.array([offer.price for offer in offers])
    n = m.columns(
        "n",
        [offer.name for offer in offers],
        upper=[_most_of_use(request, uses, place) for place in range(len(offers))],
        cost=price if priced else 0.0,
        whole=True,
        unit="machines",
    )
    of = {kind.id: n[[offer.machine == kind.id for offer in offers]] for kind in request.machines}
    least = -np.inf if uses.idle else 0.0
    rows = m.rows("capacity", list(uses.machines), lower=least, upper=0.0, unit="machines", equation="(1)")
    for row, (machine, used) in zip(rows, uses.machines.items(), strict=True):
        m.add(row, used.columns, used.coefficients)
        m.add(row, of[machine], -1.0)
    _limit_counts(m, request, n, of)
    if request.budget is not None:
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.cost_per_hour", unit=request.currency)
        upper = budget_in_whole_machines(request) / NANO * (1.0 - slip)
        row = m.rows(
            "budget", ["hour"], upper=upper, unit=f"{request.currency}/h", equation="(4)", elastic=elastic
        )  # fmt: skip
        m.add(row, n, price)
    if request.resources:
        elastic = Elastic(PRICE_OF_SLACK, "slo.limits.resources.{label}")
        totals = list(request.resources.values())
        rows = m.rows("resources", list(request.resources), upper=totals, equation="(5)", elastic=elastic)
        for row, resource in zip(rows, request.resources, strict=True):
            m.add(row, n, [request.of(offer.machine).provides.get(resource, 0.0) for offer in offers])
    if uses.somebody:
        sets = [" or ".join(sorted(one)) for one in uses.somebody]
        rows = m.rows("somebody", sets, lower=1.0, unit="machines", equation="(6)")
        for row, wanted in zip(rows, uses.somebody, strict=True):
            m.add(row, np.concatenate([of[machine] for machine in sorted(wanted)]), 1.0)
    return n


def grant(m: Builder, uses: Uses, machines: Mapping[str, float]) -> Columns:
    """Add (1) with machines that are there instead of rented ones; returns its rows, as `uses.machines` has them."""
    there = [float(machines.get(machine, 0.0)) for machine in uses.machines]
    rows = m.rows("capacity", list(uses.machines), upper=there, unit="machines", equation="(1)")
    for row, used in zip(rows, uses.machines.values(), strict=True):
        m.add(row, used.columns, used.coefficients)
    return rows


def budget_in_whole_machines(request: Request) -> int:
    """The budget, lowered to what whole machines can cost at all: a multiple of what all prices are multiples of.

    That is far coarser than a solver's tolerance; so no plan that costs a hair too much passes the row.
    """
    budget, step = request.budget or 0, math.gcd(*(offer.nanos for offer in request.offers))
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


def _limit_counts(m: Builder, request: Request, n: Columns, of: Mapping[str, Columns]) -> None:
    """Rows (2) and (3), where they are stated."""
    stocked = [place for place, offer in enumerate(request.offers) if offer.stock < PLENTY]
    if stocked:
        elastic = Elastic(PRICE_OF_SLACK, "profile.offers.{label}.stock", unit="machines", whole=True)
        names = [request.offers[place].name for place in stocked]
        stock = [float(request.offers[place].stock) for place in stocked]
        m.add(m.rows("stock", names, upper=stock, unit="machines", equation="(2)", elastic=elastic), n[stocked], 1.0)
    for name, verb, side in (("least", "lower", 0), ("most", "raise", 1)):
        stated = [kind for kind in request.machines if (kind.most < PLENTY if side else kind.least > 0)]
        if not stated:
            continue
        limit = [float(kind.most if side else kind.least) for kind in stated]
        field_ = f"slo.limits.instances.{{label}}[{side}]"
        rows = m.rows(
            name,
            [kind.id for kind in stated],
            lower=-np.inf if side else limit,
            upper=limit if side else np.inf,
            unit="machines",
            equation="(3)",
            elastic=Elastic(PRICE_OF_SLACK, field_, verb=verb, unit="machines", whole=True),
        )
        for row, kind in zip(rows, stated, strict=True):
            m.add(row, of[kind.id], 1.0)
