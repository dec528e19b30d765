"""Whether files ask for compound plans: looked at for every question, so nothing heavy is loaded for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs

__all__ = ["why_not_compound"]


def why_not_compound(inputs: Inputs) -> str:
    """Why these files do not ask for compound plans ("" when they may)."""
    if not inputs.slo.apps:
        return ""
    for name, app in inputs.slo.apps.items():
        if app.candidates:
            continue
        pipeline = inputs.profile.pipelines.get(app.runs.pipeline or "") if app.runs is not None else None
        if pipeline is None:
            return f"{name} has neither candidate plans nor a pipeline"
        if not any(node.device for node in pipeline.nodes.values()):
            return f"the pipeline of {name} has tasks with variants, no operators on devices"
    return ""
