"""Whether files ask for a pipeline of tasks, each done by variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.problems.applicability import ANOTHER, no_application, outcomes

if TYPE_CHECKING:
    from hetplan.planner.request import Request

__all__ = ["obstacles"]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for pipelines."""
    if not request.apps:
        yield no_application()
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if app.candidates:
            text = f"{name} has candidate plans, which are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
            continue
        if app.pipeline is None:
            text = f"{name} runs no pipeline"
            yield Obstacle(text, f"{at}.{app.answered_by}", 'Write "pipeline": "...".', essential=True)
            continue
        found = request.pipeline(name)
        if found is None or any(node.task is None for node in found.nodes.values()):
            text = f"the steps of {app.pipeline} are operators with knobs, not tasks with variants"
            yield Obstacle(text, f"{at}.pipeline", "Name a pipeline of tasks.", essential=True)
        yield from outcomes(request.profile, app.pipeline, "plans of pipelines")
        if app.streams is not None:
            text = f"{name} comes in streams, not at a rate"
            yield Obstacle(text, f"{at}.streams", 'Write "rate_qps" in its place.')
        if app.wants_max_rate:
            more = ' Or give the profile "offers": the question fleet finds the most rate.'
            sold = "" if request.profile.offers else more
            yield Obstacle("pipelines are planned for a rate", f"{at}.rate_qps", f"Write a number.{sold}")
