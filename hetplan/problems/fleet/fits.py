"""Whether files ask for a fleet, beside what the ladder sees at once."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan.planner.contract import Obstacle
from hetplan.planner.request import Request

__all__ = ["obstacles"]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """Applications that can be no part of a fleet."""
    for name, app in request.apps.items():
        pipeline = request.pipeline(name)
        device = pipeline is not None and any(node.device for node in pipeline.nodes.values())
        said = {"candidates": app.candidates, "streams": app.streams is not None, "pipeline": device}
        for field in [one for one, stated in said.items() if stated][:1]:
            text = f"{name} asks for compound plans, which are no part of a fleet"
            remedy = "Take it out, or name another problem with --formulation."
            yield Obstacle(text, f"$.apps.{name}.{field}", remedy, essential=True)
