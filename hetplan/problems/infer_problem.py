"""Finds the problem that files pose: hetplan's problems are tried in turn, the most specific first.

Each function says everything that keeps the files from asking its question; nothing where they may ask it. What it
looks at is in the question's room (`question.py`, `applicability.py`), read where a glance does not rule
the question out. Some obstacles are essential (the pipeline question without a pipeline is another question), the
others are one field that is missing or in the way. The first question without an obstacle is asked. Where there is
none, the nearest is the one with the fewest essential obstacles, then the fewest of all, then the most specific.

Every solve looks here, so nothing heavy is imported: no form, no engine, no numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from hetplan.planner.request import Request, read_request
from hetplan.planner.terms import Obstacle

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs

__all__ = [
    "LADDER",
    "compound",
    "fleet",
    "is_ruled_out",
    "llm",
    "of_no_fleet",
    "pipeline",
    "policy",
    "pool",
    "variants",
]


def llm(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for a fleet that makes text."""
    if not inputs.profile.engines:
        text = "no run of a model has the law of an engine that makes tokens"
        missing = Obstacle(text, "$.models", "Add the laws of engines.", essential=True, file="profile")
        wants_text = any(app.attainment is not None for app in read_request(inputs).apps.values())
        # Where no application says a word of text either, files are twice as far from it.
        return (missing,) if wants_text else (missing, replace(missing, why="no application states attainment"))
    from hetplan.problems.llm.applicability import obstacles

    return tuple(obstacles(read_request(inputs)))


def _beside(request: Request) -> Iterator[Obstacle]:
    """What only fleets are planned with, and only the question of text."""
    profile = request.profile
    for name, zone in profile.zones.items():
        if zone.quota:
            text = "only a fleet meets quotas of zones"
            yield Obstacle(text, f"$.zones.{name}.quota", "Take it out, or ask fleet.", file="profile")
    if profile.engines or any(app.attainment is not None for app in request.apps.values()):
        from hetplan.problems.llm.applicability import of_another_question

        yield from of_another_question(request)


_SAID_BY_QUESTION = {"policy", "pool"}
"""Rooms whose `question.py` says which files ask it."""


def _in_its_room(question: str, inputs: Inputs) -> tuple[Obstacle, ...]:
    file = "question" if question in _SAID_BY_QUESTION else "applicability"
    obstacles = import_module(f"hetplan.problems.{question}.{file}").obstacles
    request = read_request(inputs)
    return (*_beside(request), *obstacles(request))


compound, pipeline, policy, variants, pool = (
    partial(_in_its_room, question) for question in ("compound", "pipeline", "policy", "variants", "pool")
)
"""What keeps these files from asking for compound plans, pipelines, a policy, variants, a pool."""


def fleet(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for machines of several applications over time."""
    request = read_request(inputs)
    over_time = request.horizon.periods > 1 or request.shares or request.survive != type(request.survive)()
    named = (app.question is not None or app.series is not None for app in request.apps.values())
    if over_time or any(named):
        return tuple(of_no_fleet(request))
    text = "there is one period and nothing that may fail, so each application is a question for itself"
    one = Obstacle(text, "$.horizon.periods", "Name a question.", essential=True, ambiguous=True)
    return (one,) * len(LADDER)  # any other question is nearer


def of_no_fleet(request: Request) -> Iterator[Obstacle]:
    """Applications that can be no part of a fleet."""
    for name, app in request.apps.items():
        pipeline = request.pipeline(name)
        device = pipeline is not None and any(node.device for node in pipeline.nodes.values())
        said = {"candidates": app.candidates, "streams": app.streams is not None, "pipeline": device}
        for field in [one for one, stated in said.items() if stated][:1]:
            text = f"{name} asks for compound plans, which are no part of a fleet"
            remedy = "Take it out, or name another problem with --formulation."
            yield Obstacle(text, f"$.apps.{name}.{field}", remedy, essential=True)


LADDER: dict[str, Callable[[Inputs], tuple[Obstacle, ...]]] = {
    "fleet": fleet,
    "llm": llm,
    "compound": compound,
    "pipeline": pipeline,
    "policy": policy,
    "variants": variants,
    "pool": pool,
}
"""hetplan's own questions, the most specific first."""


def is_ruled_out(question: str, request: Request) -> bool:
    """Whether a glance shows that files do not ask a question; what is in the way, its function says."""
    apps = request.apps.values()
    if question == "compound":
        return not all(app.pipeline or app.candidates for app in apps)
    if question == "pipeline":
        return not all(app.pipeline for app in apps)
    if question == "policy":
        return request.budget is not None or not request.instances
    return question == "variants" and any(app.rate_qps is None for app in apps)
