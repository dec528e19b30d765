"""What the operators of a plan take on the machines that it puts them on, from the measurements: for a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.planner.plan import Plan
from hetplan.planner.plan_compound import ChosenPlanDispatch
from hetplan.profiles.inputs import Inputs

__all__ = ["operator_bytes", "operator_ms"]


def operator_ms(plan: Plan, inputs: Inputs) -> dict[str, float]:
    """Milliseconds per load: seconds on the reference x relative time of its tier, over its share of the GPU."""
    times: dict[str, float] = {}
    for worker in plan.workers:
        hardware = inputs.profile.hardware[worker.hardware]
        for load in worker.loads:
            entry = _entry(plan, inputs, load.app)
            if entry is None or load.node is None or load.app is None:
                continue
            app = inputs.slo.apps[load.app]
            relative = hardware.relative_time or 1.0
            if app.device is not None and app.device.relative_time and hardware.tier == inputs.profile.tiers[0]:
                relative = app.device.relative_time
            pipeline = inputs.profile.pipelines[app.runs.pipeline or ""] if app.runs is not None else None
            by_share = pipeline is None or pipeline.nodes[load.node].share_law == "flops"
            share = load.share.gpu if load.share is not None and load.share.gpu and by_share else 1.0
            times[load.id] = 1000.0 * entry["seconds"][load.node] * relative / share
    return times


def operator_bytes(plan: Plan, inputs: Inputs) -> dict[str, float]:
    """Bytes that each load passes on."""
    return {
        load.id: float(entry["bytes"][load.node])
        for worker in plan.workers
        for load in worker.loads
        if (entry := _entry(plan, inputs, load.app)) is not None and load.node is not None
    }


def _entry(plan: Plan, inputs: Inputs, app: str | None) -> Mapping[str, Any] | None:
    """The measurement of the knobs that an application runs with."""
    rule = plan.dispatch.get(app or "")
    if not isinstance(rule, ChosenPlanDispatch) or inputs.measured is None:
        return None
    plans = inputs.measured.get("apps", {}).get(app, ())
    return next((one for one in plans if one.get("knobs") == dict(rule.knobs) and "seconds" in one), None)
