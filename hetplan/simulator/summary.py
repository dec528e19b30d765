"""From the records of a run to its figures, and from the figures of several runs to one report's parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.serving.system import System
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import LATE_SLACK_MS, AppFigures, Estimate, estimate, estimate_of_one, figures_of
from hetplan.simulator.report import GroupReport, Timeline, cost_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.simulator.simulation import RunResult

__all__ = ["RunSummary", "group_reports", "summary_of", "timeline_of"]


@dataclass(frozen=True)
class RunSummary:
    """What is kept of one run: figures per application, of stretches of it where asked for, and courses over time."""

    apps: Mapping[str, AppFigures]
    stretches: Mapping[str, tuple[AppFigures, ...]]
    utilisation: Mapping[str, float]
    busiest: float
    busiest_of: Mapping[str, float]
    """By application: of the workers that its queries go to."""
    waiting: Mapping[str, float]
    batch: Mapping[str, float]
    cost_per_hour: float | None
    timeline: Timeline
    overrun: float
    events: int


def summary_of(
    result: RunResult,
    demands: Sequence[AppDemand],
    percentiles: Sequence[float],
    *,
    stretches: int = 0,
    pooled: bool = False,
    serving: Mapping[str, Collection[str]],
) -> RunSummary:
    """The figures of one run, without its warm-up; `pooled` workers take their queries from one place, as one group.

    `serving` names the groups that an application's queries go to.
    """
    apps: dict[str, AppFigures] = {}
    parts: dict[str, tuple[AppFigures, ...]] = {}
    for demand in demands:
        count = int((result.queries["app"] == result.apps.index(demand.app)).sum())
        warm = demand.warm_up(count)
        apps[demand.app] = figures_of(result, demand.app, percentiles=percentiles, warm_up=warm)
        parts[demand.app] = tuple(
            figures_of(result, demand.app, percentiles=percentiles, warm_up=warm, part=(part, stretches))
            for part in range(stretches)
        )
    first = result.busy.shape[1] // 10 if all(demand.stationary for demand in demands) else 0
    busy, opened = result.busy[:, first:].sum(axis=1), result.open_servers[:, first:].sum(axis=1)
    use = np.divide(busy, opened, out=np.zeros(len(busy)), where=opened > 0)
    utilisation = {name: float(value) for name, value in zip(result.groups, use, strict=True)}
    together = float(busy.sum() / opened.sum()) if opened.sum() > 0 else 0.0
    paid = sum(result.paid_ms.get(name, 0.0) * result.prices[name] for name in result.prices)
    priced = any(result.prices.values())
    span = max(result.end_ms, result.horizon_ms)
    return RunSummary(
        apps=apps,
        stretches=parts,
        utilisation=utilisation,
        busiest=together if pooled else float(use.max(initial=0.0)),
        busiest_of={
            app: together if pooled else max((utilisation.get(name, 0.0) for name in names), default=0.0)
            for app, names in serving.items()
        },
        waiting={
            name: float(value)
            for name, value in zip(result.groups, result.waiting[:, first:].mean(axis=1), strict=True)
        },
        batch={name: result.served[name] / max(result.batches[name], 1) for name in result.groups},
        cost_per_hour=cost_of(paid, span) if priced else None,
        timeline=_timeline(result),
        overrun=max(0.0, result.end_ms - result.horizon_ms) / max(result.horizon_ms, 1e-9),
        events=result.events,
    )


def _timeline(result: RunResult) -> Timeline:
    buckets = result.busy.shape[1]
    width = result.horizon_ms / max(buckets, 1)
    coming = result.queries[result.queries["arrival"] < result.horizon_ms]
    place = np.minimum((coming["arrival"] / width).astype(np.int64), buckets - 1)
    count = np.bincount(place, minlength=buckets).astype(np.float64)
    on_time = (coming["status"] == 1) & (coming["finish"] <= coming["deadline"] + LATE_SLACK_MS)
    late = np.bincount(place, weights=(~on_time).astype(np.float64), minlength=buckets)
    opened = result.open_servers.sum(axis=0)
    return Timeline(
        width_s=width / 1000.0,
        waiting=result.waiting.sum(axis=0) + result.central.sum(axis=0),
        utilisation=np.divide(result.busy.sum(axis=0), opened, out=np.zeros(buckets), where=opened > 0),
        late=np.divide(late, count, out=np.zeros(buckets), where=count > 0),
        rate_qps=count / width * 1000.0,
        workers=opened,
    )


def timeline_of(runs: Sequence[RunSummary]) -> Timeline:
    """The mean course over the runs."""

    def mean(name: str) -> NDArray[np.float64]:
        return np.asarray(np.mean([getattr(run.timeline, name) for run in runs], axis=0))

    return Timeline(
        runs[0].timeline.width_s, mean("waiting"), mean("utilisation"), mean("late"), mean("rate_qps"), mean("workers")
    )


def group_reports(runs: Sequence[RunSummary], system: System) -> dict[str, GroupReport]:
    """The figures of every group that any run had."""
    names = list(dict.fromkeys(name for run in runs for name in run.utilisation))
    counts = {group.id: group.count for group in system.groups}
    return {
        name: GroupReport(
            id=name,
            workers=counts.get(name, 0),
            utilisation=_over_runs([run.utilisation.get(name, 0.0) for run in runs]),
            waiting=_over_runs([run.waiting.get(name, 0.0) for run in runs]),
            batch=_over_runs([run.batch.get(name, 0.0) for run in runs]),
        )
        for name in names
    }


def _over_runs(values: Sequence[float]) -> Estimate:
    """The interval over the runs; one run shows no spread, so its interval is unknown."""
    found = estimate(values) if len(values) > 1 else estimate_of_one(values[0], [])
    return replace(found, low=max(found.low, 0.0)) if found.value >= 0.0 and len(values) > 1 else found
