"""The programs that bound what a plan of a pool claims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetplan.planner.certify import Bounding
from hetplan.problems.pool.bursts import bursts_of
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.program import fluid, fluid_at, minima
from hetplan.problems.pool.size import tolerant
from hetplan.profiles.plan import Claim, Plan

__all__ = ["bounding"]

LOOSE = ("relaxation", "problem")
"""What no plan does better than, nothing of the problem does."""


def bounding(pool: Pool, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The fluid program at the plan's machines, over all pools for the budget, or of the least cost for the rate.

    What simulation showed, or a formula says, is held against every dispatcher's best: with all the lateness that the
    target leaves, and with the bursts in which queries come.
    """
    simulated = any(one.quantity == "rate_qps" and one.model.startswith("simulation") for one in plan.promises)
    shown = simulated or pool.options.size == "estimated"
    rate, budget, known = pool.wish.rate_qps, pool.request.budget, (claim.about, claim.sense)
    if known == ("fluid_rate_qps", "max"):
        if claim.scope == "restriction" or (claim.scope == "problem" and pool.formulation == "fluid-lp"):
            return [Bounding(fluid_at(pool, _machines(pool, plan)), of_plans=True)]
        whole = claim.scope == "problem" and rate is None and budget is not None
        return [Bounding(fluid(pool, None), of_plans=True)] if whole else []
    if known == ("rate_qps", "max"):
        if budget is None or rate is not None:
            return []
        if shown:
            return [Bounding(fluid(tolerant(pool), None))] if claim.scope in LOOSE else []
        if claim.scope == "relaxation":
            return [_grouped(pool)]
        if claim.scope != "problem":
            return []
        return [Bounding(fluid(pool, None), scale=pool.options.derate, of_plans=True)]
    if known == ("cost_per_hour", "min"):
        if rate is None:
            return None if pool.wish.then_cheapest else []  # the least cost of the most rate, which no file says
        if rate == 0.0:
            return [Bounding(minima(pool), of_plans=True)] if claim.scope == "problem" else []
        loose = Bounding(fluid(tolerant(pool), rate))
        if shown:
            bursts = bursts_of(pool) if claim.scope in LOOSE else ()
            tighter = [Bounding(fluid(tolerant(pool), rate, bursts=bursts))] if bursts else []
            return [loose, *tighter] if claim.scope in LOOSE else []
        if claim.scope == "relaxation":
            return [loose, _grouped(pool)]
        return [Bounding(fluid(pool, pool.fluid_target), of_plans=True)] if claim.scope == "problem" else []
    return []


def _machines(pool: Pool, plan: Plan) -> Counts:
    """How many of each type the plan has."""
    counts = [sum(one.count for one in plan.workers if one.hardware == kind.hardware) for kind in pool.types]
    return np.array(counts, dtype=np.int64)


def _grouped(pool: Pool) -> Bounding:
    """Groups of alike classes, each as its fastest class; where classes are few, each by itself."""
    from hetplan.problems.pool.formulations import GROUPS, groups_of, merged, worth_merging

    least = pool
    if worth_merging(pool):
        least = merged(pool, groups_of(pool, GROUPS), fastest=True)
    return Bounding(fluid(least, pool.fluid_target), scale=1.0 if pool.fluid_target else pool.options.derate)
