"""What a promise may say by a model that is more than arithmetic, and what it must show."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hetplan.profiles.plan import Promise
from hetplan.profiles.tables import STATISTICS
from hetplan.verifier.facts import Facts, own_table

__all__ = ["model_faults"]

_ARITHMETIC = ("no-queueing", "fluid")
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
_MODELS = (*_ARITHMETIC, "stationary", "simulation", "measured")


def model_faults(facts: Facts, promise: Promise, questions: Collection[str]) -> Iterator[str]:
    """A model says only what it knows, and shows what it rests on; `questions` are those of hetplan."""
    model, options = promise.model.partition("/")[0], facts.plan.method.options
    if model not in _MODELS:
        yield f"unknown model {promise.model}"
    if model in _ARITHMETIC and promise.percentile is not None:
        yield f"a percentile of {promise.quantity} by the model {promise.model}, which knows no queueing"
    if promise.percentile is not None and not promise.quantity.endswith("_ms"):
        yield f"a percentile of {promise.quantity}, which is no time"
    if model == "simulation" and (not promise.seeds or promise.interval is None):
        yield f"{promise.quantity} by simulation, without the seeds and the interval that it rests on"
    # Outside compound a search may measure the rate of a pool, and nothing else is ever measured.
    by_search = facts.plan.inputs.measured or options.get("evaluator") == "evaluate"
    is_rate = promise.quantity == "rate_qps" and by_search
    if model == "measured" and facts.plan.question in {*questions} - {"compound"} and not is_rate:
        yield f"{promise.quantity} is said to be measured, which plans of this question are not"
    if model == "stationary" and facts.plan.question in {*questions} - {"policy", "compound"}:
        yield f"{promise.quantity} by the stationary model, which is one of policies and of operators with a rate"
    # Measurements come with the inputs, or are described in words; a search may also have been handed a way to measure.
    said = facts.plan.inputs.measured or promise.basis or options.get("evaluator") == "evaluate"
    if model == "measured" and not said:
        yield f"{promise.quantity} is said to be measured, and nothing says what was"
    if promise.quantity == "response_ms" and promise.percentile is not None and promise.relation == "<=":
        least = least_alone(facts, promise)
        if promise.value < least:
            yield f"p{promise.percentile:g} within {promise.value:g} ms, and of service times alone it is {least:g} ms"


def least_alone(facts: Facts, promise: Promise) -> float:
    """A time that the promised percentile cannot be below, by the tables of whatever may serve the application first.

    Of each cell the highest percentile that is stated there and not above it, of these the least. It is 0 where nothing
    is stated of how long a cell's times may be: there simulation takes them to be constant.
    """
    app = facts.inputs.slo.apps.get(promise.app or "")
    named = app.pipeline if app is not None else None
    pipeline = facts.inputs.profile.pipelines.get(named or "")
    inner = {edge.to for edge in pipeline.edges} if pipeline is not None else set[str]()
    found: list[float] = []
    for seat in facts.seats.values():
        if seat.load.app not in (None, promise.app) or seat.load.node in inner:
            continue
        table = own_table(facts.inputs.profile, seat.run) if seat.run is not None and seat.run.latency else None
        grids = [list(_flat(grid)) for name in STATISTICS if (grid := getattr(table, name, None)) is not None]
        stated = [
            list(_flat(grid))
            for name, percentile in _PERCENTILES.items()
            if percentile <= (promise.percentile or 0.0) and (grid := getattr(table, name, None)) is not None
        ]
        measured = [place for place, cells in enumerate(zip(*grids, strict=True)) if any(cells)]
        found.append(min((max((grid[place] for grid in stated), default=0.0) for place in measured), default=0.0))
    return min(found, default=0.0)


def _flat(grid: Any) -> Iterator[float]:
    """The cells of a table, 0 where nothing was measured."""
    if isinstance(grid, tuple):
        for row in grid:
            yield from _flat(row)
    else:
        yield grid or 0.0
