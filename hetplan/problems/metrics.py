"""Which metrics a question can plan by."""

from __future__ import annotations

from hetplan.planner.request import Request
from hetplan.problems.faults import Faults

__all__ = ["higher_is_better"]


def higher_is_better(request: Request, faults: Faults) -> None:
    """Name every metric that is better when lower, for questions that look for the highest accuracy."""
    profile = request.profile
    named = set(request.known.metrics(name for app in request.apps.values() for name in app.variants))
    for pipeline in filter(None, map(request.pipeline, request.apps)):
        tasks = (profile.tasks.get(node.task or "") for node in pipeline.nodes.values())
        named |= {str(one.metric) for one in (pipeline, *tasks) if one is not None}
    for name in sorted(name for name in named & profile.metrics.keys() if profile.metrics[name].better == "lower"):
        why = "the highest accuracy is looked for, and of this metric less is better"
        faults.in_profile(f"$.metrics.{name}.better", why, "State 1 - the error, or another metric.", value="lower")
