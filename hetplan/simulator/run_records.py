"""What goes into a run and what comes out of it: streams of queries, glances, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetplan.simulator.world import WorldBuilder
from hetplan.simulator.world_kernels import QUERY, Rows, World

__all__ = ["Columns", "Glance", "RunResult", "Stream", "query_rows", "result_of"]

LATE_SLACK_MS = 1e-6
"""A response this much above the limit is in time: ends minus arrivals are rounded numbers."""


@dataclass(frozen=True)
class Stream:
    """The queries of one application: when they come and of which class they are.

    With the application's `clients`, only so many are under way at once and `times_ms` beyond those are ignored.
    """

    app: str
    times_ms: NDArray[np.float64]
    kinds: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class Glance:
    """What an autoscaler sees of the machines of one stage.

    `wanted` have been asked for, `ready` of them serve; `use` is the mean over the ready ones of the share of their
    servers that was busy since the last glance, `jobs` how many queries wait or are served.
    """

    now_ms: float
    wanted: int
    ready: int
    use: float
    jobs: float


@dataclass(frozen=True)
class Columns:
    """Fields of the queries of a run, a column each: application by application, each in order of arrival.

    Queries that waiting clients never asked have no arrival (NaN), and come last.
    """

    starts: NDArray[np.int64]
    app: NDArray[np.int32]
    status: NDArray[np.int32]
    arrival: NDArray[np.float64]
    deadline: NDArray[np.float64]
    finish: NDArray[np.float64]
    quality: NDArray[np.float64]

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Which queries were answered by their deadline."""
        timely: NDArray[np.bool_] = (self.status == 1) & (self.finish <= self.deadline + LATE_SLACK_MS)
        return timely

    def of_app(self, app: int) -> slice:
        """Where the queries of an application are."""
        return slice(int(self.starts[app]), int(self.starts[app + 1]))


@dataclass(frozen=True)
class RunResult:
    """What happened: one record per query, and counts over time.

    `queries` has app, kind, arrival, deadline, finish (NaN while unfinished), status (0 unfinished, 1 served,
    2 dropped, 3 lost) and quality (of which only means say something: where a stage is not always reached, the queries
    that reach it count for those that do not). `waiting[g, b]` and `busy[g, b]` are means over time bucket b of jobs
    waiting and servers busy per group; `central[a, b]` of those in central queues per application. `paid_ms` says how
    long workers of each group were paid for, summed over workers.
    """

    apps: tuple[str, ...]
    groups: tuple[str, ...]
    queries: Rows
    events: int
    horizon_ms: float
    end_ms: float
    waiting: NDArray[np.float64]
    busy: NDArray[np.float64]
    central: NDArray[np.float64]
    open_servers: NDArray[np.float64]
    paid_ms: Mapping[str, float]
    served: Mapping[str, int]
    batches: Mapping[str, int]
    prices: Mapping[str, int]
    once_ms: Mapping[str, float] = field(default_factory=dict)
    """What a query of an application takes beside: between client and router. Its deadline is that much earlier."""

    @cached_property
    def columns(self) -> Columns:
        """The queries field by field, read once."""
        from hetplan.simulator.record_kernels import split

        count, starts = len(self.queries), np.zeros(len(self.apps) + 1, np.int64)
        app, status = np.empty(count, np.int32), np.empty(count, np.int32)
        arrival, deadline, finish, quality = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
        split(self.queries, starts, app, status, arrival, deadline, finish, quality)
        return Columns(starts, app, status, arrival, deadline, finish, quality)


def query_rows(streams: Sequence[Stream], builder: WorldBuilder, world: World) -> Rows:
    """The queries of all streams in order of arrival, those of waiting clients last; room for the books of joins."""
    from hetplan.simulator.record_kernels import fill

    opened = [stream for stream in streams if not builder.spec[stream.app].clients]
    closed = [stream for stream in streams if builder.spec[stream.app].clients]
    starts = np.cumsum([0, *(len(stream.times_ms) for stream in (*opened, *closed))])
    count, apps = int(starts[-1]), world.parts["app"]
    app, kind = np.empty(count, np.int32), np.empty(count, np.int32)
    arrival, deadline = np.empty(count), np.empty(count)
    for start, stream in zip(starts, (*opened, *closed), strict=False):
        part = slice(start, start + len(stream.times_ms))
        app[part] = builder.apps[stream.app]
        kind[part] = builder.kind0[stream.app] + (0 if stream.kinds is None else stream.kinds)
        arrival[part] = np.nan if builder.spec[stream.app].clients else stream.times_ms
        deadline[part] = arrival[part] + apps[builder.apps[stream.app]]["slo"]
    open_loop, order = int(starts[len(opened)]), np.arange(count)
    if len(opened) > 1 or (np.diff(arrival[:open_loop]) < 0).any():
        order[:open_loop] = np.argsort(arrival[:open_loop], kind="stable")
    queries = np.empty(count, QUERY)
    fill(queries, order, app, kind, arrival, deadline)
    world.clock[0]["open_loop"] = open_loop
    for start, stream in zip(starts[len(opened) :], closed, strict=False):
        apps[builder.apps[stream.app]]["next"] = start
        apps[builder.apps[stream.app]]["last"] = start + len(stream.times_ms)
    if apps["joins"].any():
        with_joins = apps["joins"][queries["app"]] == 1
        sizes = np.where(with_joins, apps["nodes"][queries["app"]], 0)
        start = builder.extend("numbers", np.zeros(4 * int(sizes.sum())))
        queries["joins"] = np.where(with_joins, start + 4 * (np.cumsum(sizes) - sizes), -1)
    return queries


def result_of(
    world: World,
    builder: WorldBuilder,
    *,
    horizon_ms: float,
    paid_ms: Mapping[str, float],
    open_steps: Sequence[tuple[float, str, int]],
) -> RunResult:
    """What a world holds when its run is over."""
    buckets, width = int(world.clock[0]["buckets"]), float(world.clock[0]["width"])
    start = int(world.clock[0]["marks"])
    marks = world.numbers[start : start + builder.rows * (buckets + 2) * 2].reshape(builder.rows, buckets + 2, 2)
    held = marks[:, :buckets, 0] + np.cumsum(marks[:, :buckets, 1], axis=1) * width
    means = held / width if buckets else held
    names = tuple(builder.crews)
    rows = [builder.crews[name].row for name in names]
    stations = world.parts["station"]

    def total(field: str) -> dict[str, int]:
        return {
            name: int(stations[field][[number for made in crew.stations for number in made]].sum())
            if crew.stations
            else 0
            for name, crew in builder.crews.items()
        }

    return RunResult(
        apps=tuple(builder.apps),
        groups=names,
        queries=world.queries,
        events=int(world.clock[0]["events"]),
        horizon_ms=horizon_ms,
        end_ms=float(world.clock[0]["now"]),
        waiting=means[rows],
        busy=means[[row + 1 for row in rows]],
        central=means[: len(builder.apps)],
        open_servers=_open_means(names, buckets, width, open_steps),
        paid_ms=dict(paid_ms),
        served=total("served"),
        batches=total("batches"),
        prices={name: crew.group.price_nanos for name, crew in builder.crews.items()},
        once_ms={name: builder.spec[name].once_ms for name in builder.apps},
    )


def _open_means(
    names: tuple[str, ...], buckets: int, width: float, steps: Sequence[tuple[float, str, int]]
) -> NDArray[np.float64]:
    """Mean number of open servers per group and bucket, from the steps by which they changed."""
    means = np.zeros((len(names), buckets))
    ends = (np.arange(buckets) + 1) * width
    for when, group, change in steps:
        if group in names:
            means[names.index(group)] += change * np.clip((ends - when) / width, 0.0, 1.0)
    return means
