"""Whether files ask which variants run where at least cost, for loads that are stated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.problems.applicability import ANOTHER, amount_field, no_application

if TYPE_CHECKING:
    from hetplan.planner.request import Request

__all__ = ["obstacles"]


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for variants."""
    if not request.apps:
        yield no_application()
    if request.goals not in ((), ("cost",)):
        text = "variants are scaled at least cost, and the objective says otherwise"
        yield Obstacle(text, "$.objective", 'Write "min cost", or leave it out.', essential=True)
    if not (any(one.saturation_qps is not None for one in request.choices()) or _batched(request)):
        text = "no run states its max_qps"
        remedy = "Measure the highest rate of each run; or name the question, and batch / latency is taken."
        yield Obstacle(text, "$.models", remedy, essential=True, ambiguous=True, file="profile")
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if app.candidates:
            text = f"{name} has candidate plans, which are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
        elif app.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.pipeline", ANOTHER, essential=True)
        if app.rate_qps is None:
            text = f"{name} states no load: rate_qps as a number"
            yield Obstacle(text, f"{at}.{amount_field(app)}", "Write the queries per second as rate_qps.")
        if app.streams is not None or app.balancing is not None:
            field = "streams" if app.streams is not None else "dispatch"
            yield Obstacle(f"{name} comes in streams, or to a load balancer that is there", f"{at}.{field}", ANOTHER)


def _batched(request: Request) -> bool:
    """Whether batches are put together by the server: every application's models were measured over batches."""
    apps = request.apps.values()
    runs = request.choices(variants=(name for app in apps for name in app.variants))
    sized = any(app.mix is not None for app in apps)
    return bool(runs) and not sized and all(one.is_timed and "batch" in one.open_axes for one in runs)
