"""Says why files do not ask for a fleet that makes text, and why other questions do not fit files that do.

Read where a profile has engines, or an SLO states attainment; `problems/infer_problem.py` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from hetplan.planner.contract import Obstacle

if TYPE_CHECKING:
    from hetplan.planner.request import Application, Request

__all__ = ["obstacles", "of_another_question"]

AXES = ("input_tokens", "output_tokens")
LENGTHS = '{"axes": ["input_tokens", "output_tokens"], "bins": [[512, 128], [4096, 512]], "share": [0.7, 0.3]}'


def of_another_question(request: Request) -> Iterator[Obstacle]:
    """What only the question `llm` plans with."""
    for name, app in request.apps.items():
        if app.attainment is not None:
            text = f"{name} states attainment, which only fleets that make text are planned for"
            yield Obstacle(text, f"$.apps.{name}.attainment", "Take it out.", essential=True)
        for variant in _making_tokens(request, app)[:1]:
            text = f"{variant} makes tokens by the law of an engine"
            yield Obstacle(
                text, f"$.models.{variant}.runs", "Name a model with measured times.", essential=True, file="profile"
            )


def _making_tokens(request: Request, app: Application) -> list[str]:
    return [one.variant for one in request.choices(variants=app.variants) if one.engine is not None]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for a fleet that makes text."""
    if not request.profile.engines:
        text = "no run of a model has the law of an engine that makes tokens"
        yield Obstacle(text, "$.models", "Add the laws of engines.", essential=True, file="profile")
    if len(request.apps) != 1:
        text = f"a fleet that makes text serves one application; the SLO has {len(request.apps)}"
        yield Obstacle(text, "$.apps", "Give one app per file.", essential=True)
    if request.goals not in ((), ("cost",)):
        text = f"a fleet that makes text is planned at least cost, not by {', '.join(filter(None, request.goals))}"
        yield Obstacle(text, "$.objective", 'Write "min cost", or leave it out.')
    for name, app in request.apps.items():
        yield from _app(request, name, app)
    yield from _limits(request)


def _app(request: Request, name: str, app: Application) -> Iterator[Obstacle]:
    at = f"$.apps.{name}"
    if app.pipeline is not None or app.candidates:
        field = app.answered_by
        yield Obstacle(
            f"{name} is answered by no model alone", f"{at}.{field}", 'Write "model": "...".', essential=True
        )
        return
    if not _making_tokens(request, app):
        text = f"no model that {name} may run has a run with a law"
        known = any(one.engine is not None for one in request.choices())
        where = f"{at}.{app.answered_by}" if known else "$.models"
        file: Literal["slo", "profile"] = "slo" if known else "profile"
        yield Obstacle(text, where, 'Name a model with "law" in its runs.', essential=True, file=file)
    mix = app.mix
    if mix is None or not set(AXES) <= set(mix.axes):
        text = f"{name} does not say how long its requests are: mix over input_tokens and output_tokens"
        yield Obstacle(text, f"{at}.mix", f"Write {LENGTHS}.")
    elif set(mix.axes) - {*AXES, "cached_tokens"}:
        text = "requests have input_tokens, output_tokens and cached_tokens, and no other axis"
        yield Obstacle(text, f"{at}.mix.axes", "Drop the others.")
    if app.rate_qps is None or app.rate_qps <= 0:
        text = f"{name} states no rate of requests as a number above 0"
        yield Obstacle(text, f"{at}.rate_qps", "Write the requests per second.")
    amounts = {"streams": app.streams, "rate_qps.series": app.series, "rate_qps.history": app.history}
    for field, stated in amounts.items():
        if stated is not None:
            text = f"a fleet is sized for one rate, not for {field.removeprefix('rate_qps.')}"
            yield Obstacle(text, f"{at}.{field}", "Take it out.")
    if app.device is not None:
        text = "device is nothing that fleets of text are planned with"
        yield Obstacle(text, f"{at}.device", 'Take it out; "attainment" states a share of requests within all limits.')
    if app.late not in (None, "serve"):
        text = "requests are refused as they come, or served however late, never dropped later"
        yield Obstacle(text, f"{at}.late", 'Write "serve", or leave it out.')
    if app.dispatch in ("earliest", "threshold"):
        text = f"{app.dispatch} goes by the times of single queries, which requests of an LLM do not have"
        yield Obstacle(text, f"{at}.dispatch", 'Write "fewest-requests", or leave it out.')
    if app.ceiling is not None:
        yield Obstacle("an LLM meets a least quality, not a highest one", f"{at}.quality.max", 'Write "min".')
    if not app.latency:
        text = f"{name} states no limit on ttft, tpot or response"
        yield Obstacle(text, f"{at}.latency", 'Write {"ttft_p95_ms": 500}.')


def _limits(request: Request) -> Iterator[Obstacle]:
    for name, zone in request.profile.zones.items():
        if zone.quota:
            text = "only a fleet meets quotas of zones"
            yield Obstacle(text, f"$.zones.{name}.quota", "Take it out, or ask fleet.", file="profile")
    if request.survive.machines or request.survive.zones:
        text = "fleets that make text are not planned for losses yet"
        yield Obstacle(text, "$.limits.survive", "Take it out, and raise the rate by what the loss would take.")
    if request.only_listed:
        text = "fleets that make text are rented, not placed on listed machines"
        yield Obstacle(text, "$.limits.only_listed", "Take it out, and give offers a stock.")
    for field, value in (("provides", request.resources), ("changes", request.changes)):
        if value not in (None, {}):
            yield Obstacle(
                f"{field} is nothing that fleets of text are planned with", f"$.limits.{field}", "Take it out."
            )
    if request.horizon.periods > 1:
        yield Obstacle("a fleet is sized for one period", "$.horizon.periods", "Write 1.")
