"""Whether files ask for compound plans: candidates, or a pipeline of operators on devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.problems.applicability import outcomes

if TYPE_CHECKING:
    from hetplan.planner.request import Request

__all__ = ["obstacles"]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for compound plans."""
    for name, app in request.apps.items():
        if app.candidates:
            continue
        at = f"$.apps.{name}"
        found = request.pipeline(name)
        if found is None:
            text = f"{name} has neither candidate plans nor a pipeline"
            yield Obstacle(text, at, 'Write "candidates", or "pipeline": "...".', essential=True)
        elif not any(node.device for node in found.nodes.values()):
            text = f"the pipeline of {name} has tasks with variants, no operators on devices"
            yield Obstacle(text, f"{at}.pipeline", "Name a pipeline of operators.", essential=True)
        yield from outcomes(request.profile, app.pipeline, "compound plans")
