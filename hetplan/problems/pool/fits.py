"""Whether files ask for a pool: one application, one variant, and a budget or a rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle

if TYPE_CHECKING:
    from hetplan.planner.request import Application, Request

__all__ = ["obstacles"]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for a pool."""
    if len(request.apps) != 1:
        text = f"a pool serves one application; the SLO has {len(request.apps)}"
        yield Obstacle(text, "$.apps", "Give one app per file.", essential=True)
    if foreign := sorted({"quality", "changes"} & set(request.goals)):
        text = f"a pool gives the most rate for a budget, or the least cost for a rate, and knows no {foreign[0]}"
        yield Obstacle(text, "$.objective", 'Write "min cost", or leave it out.')
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if request.budget is not None and app.rate_qps is not None:
            text = f"a budget and a rate ({app.rate_qps:g} qps) are both given, and a pool is chosen for one of them"
            remedy = 'Remove it for the least cost of that rate, or set rate_qps to "max" for the most rate it buys.'
            yield Obstacle(text, "$.limits.cost_per_hour", remedy)
        if app.pipeline is not None:
            text = "a pool runs one model, not a pipeline"
            yield Obstacle(text, f"{at}.pipeline", 'Write "model": "..." in its place.', essential=True)
            continue
        if app.candidates:
            text = "a pool chooses its instances itself, candidates are for packing"
            yield Obstacle(
                text, f"{at}.candidates", "Take it out, or name another question with --question.", essential=True
            )
            continue
        names = app.variants
        if len(names) != 1:
            text = f"a pool runs one variant; {len(names)} may be run here"
            yield Obstacle(text, f"{at}.{app.answered_by}", 'Name one: "model": "...".', essential=True)
        if app.range_qps is not None:
            text = "a pool is sized for one rate, not for a range"
            yield Obstacle(text, f"{at}.rate_qps", 'Write a number, or "max".')
        if (field := _over_time(request, app)) is not None:
            text = "a pool is sized for one period with a rate in queries per second"
            yield Obstacle(text, field, 'Write "rate_qps" in its place.')
        if app.mix is None and any(one.open_axes for one in request.choices(variants=names[:1])):
            text = "a pool needs mix, the sizes of queries and their shares"
            remedy = 'Write {"axes": ["batch"], "bins": [[16], [64]], "share": [0.7, 0.3]}.'
            yield Obstacle(text, f"{at}.mix", remedy)


def _over_time(request: Request, app: Application) -> str | None:
    """The field that asks for more than one rate."""
    if app.streams is not None:
        return f"$.apps.{app.id}.streams"
    if app.series is not None:
        return f"$.apps.{app.id}.rate_qps.series"
    return "$.horizon.periods" if request.horizon.periods > 1 else None
