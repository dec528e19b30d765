"""The exact fluid rate of every pool within the budget: `enumerate-lp`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan import InputError
from hetplan.extend import (
    Ask,
    Chosen,
    Configurations,
    Infeasibility,
    Pool,
    Rated,
    best_rated,
    cheapest_enough,
    flows,
    list_affordable,
    nothing_served,
    rated_by,
    rates_of,
    serves_all_classes,
    unbounded_claim,
)

__all__ = ["best_of", "enumerate_rates"]

Counts = NDArray[np.int64]

MOST_PROGRAMS = 100_000
"""So many linear programs take some minutes."""


def enumerate_rates(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """The best pool by the exact fluid rate of every configuration.

    What the program over whole counts is compared with. That nothing is better no certificate shows: no bound is said.
    """
    found = list_affordable(pool, ask)
    if isinstance(found, Infeasibility):
        return found
    if pool.fluid_target is None:
        # One instance more never lowers the rate: only what cannot be added to is worth a program.
        at = np.flatnonzero(_maximal(pool, found))
        _check_count(at.size)
        if not at.size:
            return nothing_served(pool, ask, np.zeros(len(pool.offers), dtype=np.int64))
        rated = best_of(pool, ask, found, at)
        return Chosen(rated, (unbounded_claim(pool, rated),))
    at = np.flatnonzero(serves_all_classes(pool, found))
    _check_count(at.size)
    enough = cheapest_enough(pool, ask, found, at[np.argsort(found.cost[at], kind="stable")])
    if isinstance(enough, Infeasibility):
        return enough
    return Chosen(enough, (unbounded_claim(pool, enough),))


def _check_count(count: int) -> None:
    if count > MOST_PROGRAMS:
        raise InputError.one(
            path="method.formulation",
            value=f"{count:,} configurations",
            why=f"one program each is worth it up to {MOST_PROGRAMS:,}",
            remedy="Use formulation pool-milp, or lower the budget or limits.instances.",
        )


def _maximal(pool: Pool, found: Configurations) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which configurations serve every class and have no other that holds one instance more."""
    keep = serves_all_classes(pool, found)
    if not len(found):
        return keep
    # A configuration is a number in mixed radix; "one more of t" is the number plus t's place value.
    radix = [int(column.max()) + 2 for column in found.counts]
    code, place = np.zeros(len(found), dtype=np.int64), 1
    places = []
    for column, size in zip(reversed(found.counts), reversed(radix), strict=True):
        code += column.astype(np.int64) * place
        places.append(place)
        place *= size
    there = np.sort(code)
    for step in places:
        at = np.minimum(np.searchsorted(there, code + step), there.size - 1)
        keep &= there[at] != code + step
    return keep


def best_of(pool: Pool, ask: Ask, found: Configurations, at: Counts) -> Rated:
    """Of some configurations the one of the highest fluid rate."""
    answers = rates_of(pool, ask, found.rows(at), about="fluid rate of each configuration")
    rates = [
        answer.value if answer.value is not None else flows(pool, found.row(int(i)))[0]
        for i, answer in zip(at, answers, strict=True)
    ]
    (best,) = best_rated(np.array(rates), found.cost[at], 1)
    return rated_by(pool, pool.by_offer(found.row(int(at[best]))), answers[int(best)])
