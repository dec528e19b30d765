"""What a load takes of its machine."""

from __future__ import annotations

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load
from hetplan.serving.loads import fitting_runs
from hetplan.serving.price import SLICES

__all__ = ["load_s_of", "needs_of"]


def needs_of(inputs: Inputs, load: Load, hardware: str) -> dict[str, float]:
    """What all instances of a load take: what its run needs (an operator: its step), and no less than its slice.

    Nothing is known of a load that fits no run, or two.
    """
    needs: dict[str, float] = {}
    if load.variant is not None:
        runs = fitting_runs(inputs.profile, load, hardware)
        needs = dict(runs[0].needs) if len(runs) == 1 else {}
    elif load.node is not None:
        pipeline = pipeline_of(inputs.profile, inputs.slo.apps.get(load.app or ""))
        node = pipeline.nodes.get(load.node) if pipeline is not None else None
        needs = dict(node.needs) if node is not None else {}
    for resource in SLICES:
        part = getattr(load.share, resource, None)
        if part is not None:
            needs[resource] = max(needs.get(resource, 0.0), part)
    return {resource: load.instances * amount for resource, amount in needs.items()}


def load_s_of(inputs: Inputs, load: Load, hardware: str) -> float:
    """How long a load takes to become active on a machine that is up; 0 where no run says."""
    runs = fitting_runs(inputs.profile, load, hardware)
    return max((run.load_s for run in runs), default=0.0)
