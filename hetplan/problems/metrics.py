"""Which metrics a question can plan by."""

from __future__ import annotations

from hetplan.planner.request import Request
from hetplan.problems.faults import Faults

__all__ = ["higher_is_better"]


def higher_is_better(request: Request, faults: Faults) -> None:
    """Name every metric that is better when lower, for questions that look for the highest accuracy."""
    profile = request.profile
    tasks = {profile.variants[name].task for app in request.apps.values() for name in app.variants}
    whole = set[str | None]()
    for pipeline in filter(None, map(request.pipeline, request.apps)):
        tasks |= {node.task or "" for node in pipeline.nodes.values()}
        whole |= {pipeline.metric}
    named = whole | {profile.tasks[task].metric for task in tasks if task in profile.tasks}
    for name in sorted(name for name in named if name is not None and profile.metrics[name].better == "lower"):
        why = "the highest accuracy is looked for, and of this metric less is better"
        faults.in_profile(f"$.metrics.{name}.better", why, "State 1 - the error, or another metric.", value="lower")
