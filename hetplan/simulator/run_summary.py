"""What is kept of one run: figures of each application, of its machines, and a course over time.

Both kinds of server end here: machines that serve batches (`simulation`) and machines that make text (`token_run`).
Where a system has both, `joined` makes one summary of what each says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.simulator.demand import AppDemand, TextDemand
from hetplan.simulator.figures import (
    AppFigures,
    Times,
    cost_of,
    figures_of,
    mean_of,
    rates_of,
    stretch_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.simulator.run_records import RunResult
    from hetplan.simulator.token_run import TokenRun
    from hetplan.simulator.tokens import Played

__all__ = ["RunSummary", "Timeline", "joined", "summary_of", "summary_of_text", "timeline_of"]


@dataclass(frozen=True)
class Timeline:
    """Means over the seeds in equal stretches of time; `late` is the share of queries not answered in time."""

    width_s: float
    waiting: NDArray[np.float64]
    utilisation: NDArray[np.float64]
    late: NDArray[np.float64]
    rate_qps: NDArray[np.float64]
    workers: NDArray[np.float64]
    kv: NDArray[np.float64] | None = None
    batch: NDArray[np.float64] | None = None
    """Of machines that make text: the share of KV in use, and how many sequences decode at once."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("waiting", "utilisation", "late", "rate_qps", "workers", "kv", "batch")
        rows = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {"width_s": self.width_s} | {
            name: [round(float(value), 6) for value in values] for name, values in rows.items()
        }


@dataclass(frozen=True)
class RunSummary:
    """What is kept of one run: figures per application, of stretches of it where asked for, and courses over time."""

    apps: Mapping[str, AppFigures]
    stretches: Mapping[str, tuple[AppFigures, ...]]
    utilisation: Mapping[str, float]
    busiest: float
    """The most work of any group, as a share of what it does at full batches: one that takes whatever waits is nearly
    always busy, long before it has all the work that it can do."""
    busiest_of: Mapping[str, float]
    """By application: of the workers that its queries go to."""
    waiting: Mapping[str, float]
    batch: Mapping[str, float]
    """By group, the mean of what is served at once: queries of a batch, or tokens of an iteration."""
    cost_per_hour: float | None
    timeline: Timeline
    events: int
    overrun: float = 0.0
    most: Mapping[str, int] = field(default_factory=dict)
    """The most machines of a crew that makes text that served at a time."""


# Machines that serve batches


def summary_of(
    result: RunResult,
    demands: Sequence[AppDemand],
    percentiles: Sequence[float],
    *,
    stretches: int = 0,
    pooled: bool = False,
    serving: Mapping[str, Collection[str]],
    work_of: Callable[[str, float], float] = lambda _, __: 1.0,
) -> RunSummary:
    """The figures of one run, without its warm-up; `pooled` workers take their queries from one place, as one group.

    `serving` names the groups that an application's queries go to. `work_of` says which part of a group's busy time it
    would have needed at full batches, by the mean of its batches.
    """
    apps: dict[str, AppFigures] = {}
    parts: dict[str, tuple[AppFigures, ...]] = {}
    for demand in demands:
        whole = result.columns.of_app(result.apps.index(demand.app))
        warm = demand.warm_up(whole.stop - whole.start)
        apps[demand.app] = figures_of(result, demand.app, percentiles=percentiles, warm_up=warm)
        parts[demand.app] = tuple(
            figures_of(result, demand.app, percentiles=percentiles, warm_up=warm, part=(part, stretches))
            for part in range(stretches)
        )
    first = result.busy.shape[1] // 10 if all(demand.stationary for demand in demands) else 0
    busy, opened = result.busy[:, first:].sum(axis=1), result.open_servers[:, first:].sum(axis=1)
    use = _ratio(busy, opened)
    utilisation = {name: float(value) for name, value in zip(result.groups, use, strict=True)}
    batch = {name: result.served[name] / max(result.batches[name], 1) for name in result.groups}
    needed = busy * np.array([work_of(name, batch[name]) for name in result.groups])
    work = _ratio(needed, opened)
    work_by_name = {name: float(value) for name, value in zip(result.groups, work, strict=True)}
    together = float(needed.sum() / opened.sum()) if opened.sum() > 0 else 0.0
    paid = sum(result.paid_ms.get(name, 0.0) * result.prices[name] for name in result.prices)
    priced = any(result.prices.values())
    span = max(result.end_ms, result.horizon_ms)
    return RunSummary(
        apps=apps,
        stretches=parts,
        utilisation=utilisation,
        busiest=together if pooled else float(work.max(initial=0.0)),
        busiest_of={
            app: together if pooled else max((work_by_name.get(name, 0.0) for name in names), default=0.0)
            for app, names in serving.items()
        },
        waiting={
            name: float(value)
            for name, value in zip(result.groups, result.waiting[:, first:].mean(axis=1), strict=True)
        },
        batch=batch,
        cost_per_hour=cost_of(paid, span) if priced else None,
        timeline=_timeline(result),
        overrun=_overrun(_queued_until_ms(result, demands), result.horizon_ms),
        events=result.events,
    )


def _overrun(queued_until_ms: float, horizon_ms: float) -> float:
    """For how long queries queued after the last one came, as a share of the run."""
    return max(0.0, queued_until_ms - horizon_ms) / max(horizon_ms, 1e-9)


def _queued_until_ms(result: RunResult, demands: Sequence[AppDemand]) -> float:
    """When the last query was answered; streams ask as long as they are answered, and have no queue."""
    asked = [result.apps.index(demand.app) for demand in demands if not demand.clients]
    if len(asked) == len(demands):
        return result.end_ms
    ends = result.columns.finish[np.isin(result.columns.app, asked)]
    return result.end_ms if np.isnan(ends).any() else float(ends.max(initial=0.0))


def _timeline(result: RunResult) -> Timeline:
    buckets = result.busy.shape[1]
    width = result.horizon_ms / max(buckets, 1)
    every = result.columns
    coming = every.arrival < result.horizon_ms
    late_ones = every.arrival[coming & ~every.in_time]
    count, late = (
        np.bincount(np.minimum((some / width).astype(np.int64), buckets - 1), minlength=buckets).astype(np.float64)
        for some in (every.arrival[coming], late_ones)
    )
    opened = result.open_servers.sum(axis=0)
    return Timeline(
        width_s=width / 1000.0,
        waiting=result.waiting.sum(axis=0) + result.central.sum(axis=0),
        utilisation=_ratio(result.busy.sum(axis=0), opened),
        late=_ratio(late, count),
        rate_qps=count / width * 1000.0,
        workers=opened,
    )


# Machines that make text


def summary_of_text(
    run: TokenRun, demand: AppDemand, percentiles: Sequence[float], *, stretches: int = 0
) -> RunSummary:
    """The figures of a run of text, played to its end."""
    assert demand.text is not None  # it makes text
    played, asked = run.finish(), demand.text
    parts = [
        _figures_of_text(played, asked, percentiles, run.horizon_ms, (part, stretches)) for part in range(stretches)
    ]
    crews, priced = run.crews(played), any(crew.price_nanos for crew in run.system.crews)
    return RunSummary(
        apps={run.app: _figures_of_text(played, asked, percentiles, run.horizon_ms)},
        stretches={run.app: tuple(parts)},
        utilisation={name: crew.utilisation for name, crew in crews.items()},
        busiest=0.0,
        busiest_of={},
        waiting={name: crew.waiting for name, crew in crews.items()},
        batch={name: crew.batch for name, crew in crews.items()},
        cost_per_hour=run.cost_per_hour() if priced else None,
        timeline=_timeline_of_text(played, asked, run.open_ms()),
        events=int(played.rounds.sum()),
        overrun=_overrun(played.queued_until_ms, run.horizon_ms),
        most={name: crew.most for name, crew in crews.items()},
    )


def _figures_of_text(
    played: Played, asked: TextDemand, percentiles: Sequence[float], horizon_ms: float, part: tuple[int, int] = (0, 1)
) -> AppFigures:
    """In time is a request that keeps all limits at once; the first token and the answer pass the network once.

    `part` (i, n) is the i-th of n stretches of equal numbers of requests; what one has of KV is not known.
    """
    mine = stretch_of(played.judged(), part)
    arrival, response, good = played.arrival_ms[mine], played.response_ms[mine], played.within(asked.limits)[mine]
    hops = {"response": asked.hop_ms, "ttft": asked.hop_ms, "tpot": 0.0}
    gaps = played.gap_ms[mine] if played.gap_ms is not None else np.zeros(1)
    return AppFigures(
        len(arrival),
        {
            "goodput": mean_of(good),
            "violations": 1.0 - mean_of(good),
            **rates_of(arrival, good, horizon_ms, last=mine.stop == len(played.arrival_ms)),
            "mean_ms": mean_of(response[np.isfinite(response)]) + asked.hop_ms,
            "longest gap p95 ms": float(np.quantile(gaps, 0.95)) if len(gaps) else np.nan,
            "preemptions per request": mean_of(played.lost[mine]),
            "largest KV use": float(played.most_kv.max()) if part == (0, 1) else np.nan,
        },
        {of: Times.of(played.times_ms(of, mine) + hop_ms, percentiles) for of, hop_ms in hops.items()},
        shares=("goodput", "violations"),
    )


def _timeline_of_text(played: Played, asked: TextDemand, open_ms: NDArray[np.float64]) -> Timeline:
    """Besides what every timeline has, sequences that decode and the share of KV in use."""
    width, course = float(played.course[0, 0]), played.course[1:]
    place = np.minimum((played.arrival_ms / width).astype(np.int64), len(course) - 1)
    count = np.bincount(place, minlength=len(course)).astype(np.float64)
    late = np.bincount(place, weights=(~played.within(asked.limits)).astype(np.float64), minlength=len(course))
    busy = np.maximum(course[:, 0], 1e-9)
    return Timeline(
        width_s=width / 1000.0,
        waiting=course[:, 3] / width,
        utilisation=np.minimum(course[:, 0] / np.maximum(open_ms, 1e-9), 1.0),
        late=_ratio(late, count),
        rate_qps=count / width * 1000.0,
        workers=open_ms / width,
        kv=course[:, 2] / busy,
        batch=course[:, 1] / busy,
    )


# Several of them


def joined(summaries: Sequence[RunSummary]) -> RunSummary:
    """What runs side by side under one demand, as one; how busy the busiest are is known of queries alone."""
    if len(summaries) == 1:
        return summaries[0]

    def every(name: str) -> dict[str, Any]:
        return {key: value for one in summaries for key, value in getattr(one, name).items()}

    costs = [one.cost_per_hour for one in summaries if one.cost_per_hour is not None]
    names = ("apps", "stretches", "utilisation", "busiest_of", "waiting", "batch", "most")
    return RunSummary(
        **{name: every(name) for name in names},
        busiest=max(one.busiest for one in summaries),
        cost_per_hour=sum(costs) if costs else None,
        timeline=_side_by_side([one.timeline for one in summaries]),
        events=sum(one.events for one in summaries),
        overrun=max(one.overrun for one in summaries),
    )


def _side_by_side(timelines: Sequence[Timeline]) -> Timeline:
    """What happens in all applications together; shares are means over machines or queries."""
    rates, workers = (np.sum([getattr(one, name) for one in timelines], axis=0) for name in ("rate_qps", "workers"))
    late = np.sum([one.late * one.rate_qps for one in timelines], axis=0)
    use = np.sum([one.utilisation * one.workers for one in timelines], axis=0)
    waiting = np.sum([one.waiting for one in timelines], axis=0)
    return Timeline(timelines[0].width_s, waiting, _ratio(use, workers), _ratio(late, rates), rates, workers)


def timeline_of(runs: Sequence[RunSummary]) -> Timeline:
    """The mean course over the runs."""
    found = [run.timeline for run in runs]
    rows = {
        name: np.mean([getattr(one, name) for one in found], axis=0)
        for name in ("waiting", "utilisation", "late", "rate_qps", "workers", "kv", "batch")
        if getattr(found[0], name) is not None
    }
    return Timeline(found[0].width_s, **rows)


def _ratio(of: NDArray[Any], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nothing where there is nothing to divide by."""
    return np.asarray(np.divide(of, to, out=np.zeros(len(to)), where=to > 0))
