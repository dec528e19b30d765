"""Which metrics a question can plan by."""

from __future__ import annotations

from hetplan.problems.faults import Faults
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.who_answers import pipeline_of
from hetplan.serving.runs import variants_of

__all__ = ["higher_is_better"]


def higher_is_better(inputs: Inputs, faults: Faults) -> None:
    """Name every metric that is better when lower, for questions that look for the highest accuracy."""
    profile, slo = inputs.profile, inputs.slo
    tasks = {profile.variants[name].task for app in slo.apps.values() for name in variants_of(profile, app.runs)}
    whole = set[str | None]()
    for app in slo.apps.values():
        pipeline = pipeline_of(profile, app)
        tasks |= {node.task or "" for node in pipeline.nodes.values()} if pipeline is not None else set()
        whole |= {pipeline.metric} if pipeline is not None else set()
    named = whole | {profile.tasks[task].metric for task in tasks if task in profile.tasks}
    for name in sorted(name for name in named if name is not None and profile.metrics[name].better == "lower"):
        why = "the highest accuracy is looked for, and of this metric less is better"
        faults.in_profile(f"$.metrics.{name}.better", why, "State 1 - the error, or another metric.", value="lower")
