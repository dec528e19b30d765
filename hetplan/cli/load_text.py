"""The part of `hetplan load` that sends requests for text, by streaming."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hetplan.measure.load_report import LoadReport
    from hetplan.planner.contract import Event
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["TextLoad", "text_load"]


@dataclass(frozen=True)
class TextLoad:
    """What is sent, where, for how long."""

    endpoint: str
    duration_s: float
    seed: int = 0
    timeout_s: float = 60.0
    arrivals: str | None = None
    trace: NDArray[np.float64] | None = None
    template: Mapping[str, Any] | None = None
    fields: tuple[tuple[str, str], ...] = ()
    tolerance: float = 0.1
    simulate: bool = True


def text_load(
    plan: Plan, inputs: Inputs, how: TextLoad, *, on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> LoadReport:  # fmt: skip
    """Send a plan its requests, play the very same in the simulator, and compare."""
    from dataclasses import replace

    from hetplan.measure.load_send import send_load
    from hetplan.measure.load_text import text_of, text_report, text_target
    from hetplan.serving.tokens import demand_of, fleet_of_plan, limits_of
    from hetplan.simulator.demand import arrivals_named, checked_trace
    from hetplan.simulator.runs import seed_of
    from hetplan.simulator.token_report import as_recorded, rate_of
    from hetplan.simulator.tokens import draw, play

    app, wanted = next(iter(inputs.slo.apps.items()))
    demand = demand_of(wanted, rate_of(plan, app, wanted.demand.rate_qps))
    if how.arrivals is not None:
        demand = replace(demand, arrivals=arrivals_named(how.arrivals))
    count = max(round(demand.rate_qps * how.duration_s), 1)
    coming = draw(demand, seed=seed_of(how.seed, 0), count=count)
    if how.trace is not None:
        recorded = checked_trace(how.trace, app=app)
        coming = as_recorded(coming, recorded[recorded <= how.duration_s])
    url = how.endpoint.rstrip("/")
    url = f"{url}/v1/completions" if url.count("/") == 2 else url
    target = text_target(
        app, url, coming.arrival_ms / 1e3, coming.requests, seed=how.seed, template=how.template, fields=how.fields
    )
    (sent,) = send_load([target], timeout_s=how.timeout_s, on_event=on_event, cancel=cancel)
    found, limits = text_of(sent), limits_of(wanted)
    simulated: dict[tuple[str, float | None], float] = {}
    count = len(coming.arrival_ms)
    judged = slice(count // 10, count - count // 20)
    if how.simulate:
        played = play(fleet_of_plan(plan, inputs, app), coming, gaps=True, seed=how.seed)
        judged = played.judged()
        simulated = {("goodput", None): played.goodput(limits), **_percentiles(played, judged, limits)}
    return text_report(
        plan, app, found, simulated, limits, goodput=wanted.goodput, duration_s=how.duration_s,
        tolerance=how.tolerance, judged=judged,
    )  # fmt: skip


def _percentiles(played: Any, judged: slice, limits: Any) -> dict[tuple[str, float | None], float]:
    from hetplan.measure.load_text import SHOWN, percentile

    asked = dict.fromkeys([*((limit.of, limit.percentile) for limit in limits), *SHOWN])
    return {(of, at): percentile(getattr(played, f"{of}_ms")[judged], at) for of, at in asked}
