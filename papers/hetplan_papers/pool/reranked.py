"""The best pools by Eq. 15, ranked again by their exact fluid rates: `eq15-rerank`."""

from __future__ import annotations

from typing import cast

import numpy as np

from hetplan.extend import (
    Ask,
    Chosen,
    Infeasibility,
    Pool,
    best_rated,
    cheapest_enough,
    eq15_numbers,
    estimate_rates,
    list_affordable,
    missing_base,
    with_estimate,
)
from hetplan_papers.pool.enumeration import best_of
from hetplan_papers.pool.options import RerankOptions

__all__ = ["rerank_by_rate"]

ROOM = 1.25
"""For how much more than the rate pools are listed: more than the estimate was seen to fall short."""

UNDERESTIMATES = 0.85
"""The estimate was measured up to 13.2% below the exact fluid rate: what is so far below may still do."""


def rerank_by_rate(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """The best by the estimate, ranked again by their exact fluid rates."""
    numbers, found = eq15_numbers(pool), list_affordable(pool, ask, with_base=True, room=ROOM)
    if isinstance(found, Infeasibility) or not len(found):
        return found if isinstance(found, Infeasibility) else missing_base(pool)
    keep = cast(RerankOptions, pool.options).keep
    rates = estimate_rates(numbers, found.counts)
    if pool.fluid_target is None:
        best = best_rated(rates, found.cost, keep)
        rated = best_of(pool, ask, found, best)
    else:
        near = np.flatnonzero(rates >= UNDERESTIMATES * pool.fluid_target)
        order = near[np.argsort(found.cost[near], kind="stable")][:keep]
        enough = cheapest_enough(pool, ask, found, order)
        if isinstance(enough, Infeasibility):
            return enough
        rated = enough
    return with_estimate(pool, rated, numbers)
