"""A pool with given counts: formulation `fluid-lp` computes its rate and chooses no machines."""

from __future__ import annotations

from typing import cast

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible
from hetplan.planner.request import PLENTY
from hetplan.problems.faults import Faults
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.options_further import FluidAtOptions
from hetplan.problems.pool.rated import Chosen, rate_at
from hetplan.problems.pool.why import unaffordable

__all__ = ["fluid_lp", "given_counts"]


def fluid_lp(pool: Pool, ask: Ask) -> Chosen | Infeasible:
    """The fluid program at given counts."""
    counts = given_counts(pool)
    reason = unaffordable(pool, counts)
    return reason if reason is not None else Chosen(rate_at(pool, ask, counts))


def given_counts(pool: Pool) -> Counts:
    """The counts that `fluid-lp` is asked about, from its option or from limits that leave no choice."""
    faults = Faults.of(pool.inputs)
    stated = cast(FluidAtOptions, pool.options).counts
    counts = np.zeros(len(pool.offers), dtype=np.int64)
    offers = {offer.id: o for o, offer in enumerate(pool.offers) if offer.id is not None}
    per_type = {kind.hardware: t for t, kind in enumerate(pool.types)}
    if stated is None:
        stated = {}
        for kind in pool.request.machines:
            if kind.most != kind.least:
                faults.in_slo(
                    f"$.limits.instances.{kind.id}",
                    "fluid-lp rates a given pool, and this leaves a choice",
                    "Give option counts, or the same least and most for every hardware.",
                    value=[kind.least, None if kind.most >= PLENTY else kind.most],
                )
            stated[kind.id] = kind.least
    for name, count in stated.items():
        if count < 0 or (name not in offers and name not in per_type):
            faults.in_options(
                f"counts.{name}",
                "counts are of offers or hardware of this pool, none of them negative",
                f"Choose from {', '.join([*per_type, *offers])}.",
                value=count,
            )
        elif name in offers:
            counts[offers[name]] += count
        else:
            _fill(pool, counts, per_type[name], count, faults)
    faults.settle()
    return counts


def _fill(pool: Pool, counts: Counts, t: int, count: int, faults: Faults) -> None:
    """Instances of a type from its offers, cheapest first."""
    only = np.zeros(len(pool.types), dtype=np.int64)
    only[t] = count
    taken = pool.by_offer(only)
    counts += taken
    if left := count - int(taken.sum()):
        faults.in_options(
            f"counts.{pool.types[t].hardware}",
            "more than its offers have in stock",
            f"At most {count - left}.",
            value=count,
        )
