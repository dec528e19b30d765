"""Whether files ask for a policy: given workers, and queries that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.problems.fitting import ANOTHER, amount_field

if TYPE_CHECKING:
    from hetplan.planner.request import Application, Request

__all__ = ["obstacles"]

POLICY_OBJECTIVES = {"quality", "goodput", "violations", "machines"}


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for a policy."""
    terms = set(request.goals)
    if foreign := sorted(terms - POLICY_OBJECTIVES):
        text = f"a policy is judged by quality or goodput, not by {', '.join(foreign)}"
        yield Obstacle(text, "$.objective", 'Write "max goodput".', essential=True)
    own = bool(terms) or any(map(_is_of_a_policy, request.apps.values()))
    if not own and request.change != type(request.change)():
        text = "a policy is for given workers, and plans no change of them"
        yield Obstacle(text, "$.change", "Leave it out, or name the question.", essential=True)
    if not own and _is_of_lone_sizes(request):
        text = "every run states its saturation_qps for one batch size, and a policy decides how large a batch is"
        yield Obstacle(text, "$.tables", "Measure each run at two batch sizes.", essential=True, file="profile")
    if request.budget is not None:
        text = "a policy is for given workers, so it keeps no budget"
        yield Obstacle(text, "$.limits.cost_per_hour", "Leave it out.", essential=not own)
    if not request.instances:
        text = "a policy is for given workers: limits.instances names none"
        yield Obstacle(text, "$.limits.instances", 'Write {"HARDWARE": [1, 8]}.')
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if app.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.pipeline", ANOTHER, essential=True)
        if app.candidates or app.streams is not None or app.series is not None or app.mix is not None:
            text = f"{name} comes in streams, series, sizes or with candidates; a policy serves queries that are alike"
            yield Obstacle(text, f"{at}.{_unlike(app)}", ANOTHER, essential=True)
        if not app.targets:
            text = f"{name} has no response target, so there is no slack to decide by"
            yield Obstacle(text, f"{at}.latency", 'Write {"p99_ms": 150}.')
        if app.trace is None and app.rate_qps is None and app.range_qps is None:
            text = f"{name} has no load; a policy is made for one, or for a range"
            yield Obstacle(text, f"{at}.{amount_field(app)}", 'Write a rate_qps, or {"low": 60, "high": 300}.')
        if not terms and not _is_of_a_policy(app) and len(app.variants) < 2:
            text = f"{name} has one model and states no dispatch"
            yield Obstacle(text, f"{at}.dispatch", 'Write "dispatch": "round-robin".', essential=True)


def _is_of_a_policy(app: Application) -> bool:
    """Whether an application says what only a policy is asked."""
    return app.range_qps is not None or app.balancing is not None


def _is_of_lone_sizes(request: Request) -> bool:
    """Whether every run has a highest rate, and was measured at one batch size."""
    runs = request.choices()
    return bool(runs) and all(
        one.saturation_qps is not None
        and one.is_timed
        and ("batch" not in one.open_axes or len(one.own_table.axes["batch"]) < 2)
        for one in runs
    )


def _unlike(app: Application) -> str:
    """The field that makes an application's queries differ."""
    stated = {
        "candidates": app.candidates or None,
        "streams": app.streams,
        "rate_qps.series": app.series,
        "mix": app.mix,
    }
    return next(name for name, one in stated.items() if one is not None)
