"""Wishes that need no solver to be impossible: too low a quality, classes late everywhere, a budget too small."""

from __future__ import annotations

import numpy as np

from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.repairs import cover_costs, let_in, looser_target, more_tolerance

__all__ = ["SHOWN", "impossible"]

SHOWN = 5
"""How many classes are named one by one."""

MOST_TOLERANCE = 0.5
"""Option violation_tolerance stays below it: a target that most queries miss is none."""


def impossible(pool: Pool) -> Infeasible | None:
    """What no solver is needed for: too low a quality, classes late everywhere, a budget for no pool at all."""
    if pool.wish.app.quality is None and not pool.least.any():
        return _late_everywhere(pool) or _cover_over_budget(pool)
    from hetplan.problems.pool.impossible_demands import minima_over_budget, too_poor

    return too_poor(pool) or _late_everywhere(pool) or minima_over_budget(pool) or _cover_over_budget(pool)


def _late_everywhere(pool: Pool) -> Infeasible | None:
    """Classes that no type to be had serves within a target, where these are more than the target leaves."""
    to_be_had = pool.rentable
    least = np.where(pool.served, pool.M, np.inf)[:, to_be_had].min(axis=1, initial=np.inf)
    why, repairs = [], list[Repair]()
    for k, (limit, allowed) in enumerate(pool.limits):
        late = np.isinf(least) | (least > limit)
        share = float(pool.p[late].sum())
        if share <= allowed * (1 + 1e-9) and not np.isinf(least).any():
            continue
        named = [f"{pool.class_label(int(s))} (share {pool.p[s]:.4g})" for s in np.flatnonzero(late)]
        listed = ", ".join(named[:SHOWN]) + (f" and {len(named) - SHOWN} more bins" if len(named) > SHOWN else "")
        why.append(f"late on every type that may be rented: {listed}; together a share of {share:.4g} of the queries")
        if np.isfinite(least).all():
            repairs.append(looser_target(pool, k, least))
            repairs += [more_tolerance(pool, share)] if k == len(pool.limits) - 1 and share < MOST_TOLERANCE else []
        repairs += let_in(pool, late, to_be_had)
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def _cover_over_budget(pool: Pool) -> Infeasible | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    if pool.wish.budget is None or pool.cover is None or pool.formulation == "fluid-lp":
        return None
    return cover_costs(pool, pool.cover, pool.wish.budget) if pool.cost(pool.cover) > pool.wish.budget else None
