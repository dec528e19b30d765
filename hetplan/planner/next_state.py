"""The state in which a plan leaves what it manages: its workers, and what its rules count from one look to the next.

Some rules decide on what held several times in a row (a variant is scaled down only after so many looks at which it
could have been). What they count is in the plan, under `extensions`, in the shape of the state's observations; who
plans again hands it back as part of the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetplan.profiles.state import Observed, State

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan

__all__ = ["COUNTERS", "USED", "next_state"]

COUNTERS = "hetplan.counters"
"""Where a plan keeps, per load, the counters of its rules."""
USED = "hetplan.used"
"""Where a plan of variants keeps the share of its saturation that an instance is asked for, where it is not all."""


def next_state(plan: Plan) -> State:
    """What runs once the plan is applied, for the next plan to start from.

    >>> from hetplan.profiles.plan import InputHashes, Method, Plan
    >>> from hetplan.profiles.workers import Load, Worker
    >>> worker = Worker(id="w1", hardware="cpu", loads=(Load(id="w1.a", variant="m"),))
    >>> plan = Plan(
    ...     question="variants", method=Method(formulation="greedy"), inputs=InputHashes(profile="", slo=""),
    ...     workers=(worker,), extensions={COUNTERS: {"w1.a": {"scale_down": 3}, "gone": {"scale_down": 1}}},
    ... )
    >>> next_state(plan).observed["w1.a"].counters
    {'scale_down': 3}
    """
    loads = {load.id for worker in plan.workers for load in worker.loads}
    kept = plan.extensions.get(COUNTERS, {})
    observed = {load: Observed(counters=counters) for load, counters in kept.items() if load in loads}
    return State(workers=plan.workers, observed=observed)
