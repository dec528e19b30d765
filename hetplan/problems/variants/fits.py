"""Whether files ask which variants run where at least cost, for loads that are stated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.problems.fitting import ANOTHER, amount_field, no_application
from hetplan.profiles.slo import RateRange

if TYPE_CHECKING:
    from hetplan.planner.request import Request
    from hetplan.profiles.profile import Profile

__all__ = ["obstacles"]


def obstacles(request: Request, profile: Profile) -> Iterator[Obstacle]:
    """What keeps these files from asking for variants."""
    if not request.apps:
        yield no_application()
    if request.goals not in ((), ("cost",)):
        text = "variants are scaled at least cost, and the objective says otherwise"
        yield Obstacle(text, "$.objective", 'Write [{"min": "cost"}], or leave it out.', essential=True)
    runs = [run for variant in profile.variants.values() for run in variant.runs]
    if not (any(run.saturation_qps is not None for run in runs) or _batched(request, profile)):
        text = "no run states its saturation_qps"
        remedy = "Measure the highest rate of each run; or name the question, and batch / latency is taken."
        yield Obstacle(text, "$.variants", remedy, essential=True, ambiguous=True, file="profile")
    for name, app in request.apps.items():
        at, rate = f"$.apps.{name}", app.demand.rate_qps
        if app.candidates:
            text = f"{name} has candidate plans, which are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
        elif app.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.runs.pipeline", ANOTHER, essential=True)
        if rate is None or rate == "max" or isinstance(rate, RateRange):
            text = f"{name} states no load: demand.rate_qps as a number"
            yield Obstacle(text, f"{at}.demand.{amount_field(app)}", "Write the queries per second as rate_qps.")
        if app.demand.streams is not None or app.balancing is not None:
            field = "demand.streams" if app.demand.streams is not None else "balancing"
            yield Obstacle(f"{name} comes in streams, or under a balancing policy", f"{at}.{field}", ANOTHER)


def _batched(request: Request, profile: Profile) -> bool:
    """Whether batches are put together by the server: every application's models were measured over batches."""
    apps, variants = request.apps.values(), profile.variants
    names = [name for app in apps for name in app.variants]
    tables = [
        (run, profile.tables.get(run.latency or "")) for name in names
        for run in variants[name].runs
    ]  # fmt: skip
    return (
        bool(tables)
        and all(app.demand.mix is None for app in apps)
        and all(table is not None and "batch" in table.axes.keys() - run.at.keys() for run, table in tables)
    )
