r"""How busy an instance may be and still answer in time, by a queueing formula.

An instance serves a batch of up to b queries in T, whenever it is free and someone waits; queries come as a Poisson
stream of rho b in T (rho is the use). With n waiting when a batch ends, the next leaves (n - b)^+ behind, so

    n' = (n - b)^+ + A,  A ~ Poisson(rho b)

has a stationary law, and a query that comes a share u of T after a batch began, with k full batches ahead of it, is
answered after T (1 - u) + k T + T. The use looked for is the highest at which the share of queries later than the SLO
is what its percentile allows. It depends on b, S / T and the percentile alone: three numbers, so a table per (b,
percentile) serves all variants. Several servers of one instance count as so many instances: they would wait less.

Where smaller batches take less, their times s(1), ..., s(b) decide (`batch_queue`).

**Instances that share a queue** wait less: so many do not have to be free. Of n of them each may be busy for

    rho_n = rho^(n^-0.7)

which is Erlang's C within a few percent from 2 to 16 servers, where 2% may wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.problems.batch_queue import busy_limit_of_law
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.serving.reading import answering

__all__ = ["busy_limit", "busy_together", "leaving_room_to_wait", "sharing_queues"]

Vector = NDArray[np.float64]

USES = np.concatenate([[0.0, 0.01, 0.03], np.arange(0.05, 0.951, 0.05)])
RATIOS = np.concatenate([np.arange(1.0, 4.0, 0.1), np.arange(4.0, 20.1, 1.0)])
"""S / T; beyond the last, as at the last."""
MOMENTS = 12
"""Of a batch's time, at whose middles queries are looked at."""
LEAST = 0.002
"""An instance is never taken for less useful than this share of its saturation."""
LARGEST = 64
"""Batches above this are taken to be always full: that is careful, and quick to work out."""
SETTLED = 1e-7
MOST_STEPS = 3000
POOLED = 0.7
ROUNDS = 16
"""By which the number of instances that share a load is found: each halves what is open."""


def busy_together(busy: float, instances: float) -> float:
    """How busy each of some instances may be that share a queue, where one alone may be so busy.

    >>> [round(busy_together(0.02, n), 2) for n in (1, 2, 4, 10)]
    [0.02, 0.09, 0.23, 0.46]
    """
    return math.pow(busy, math.pow(max(instances, 1.0), -POOLED))


def sharing_queues(v: Snapshot) -> Snapshot:
    """The same, each pair asked for what it may be busy with as many like it as would carry the load alone."""
    return replace(v, serves=tuple(_sharing_a_queue(v, pair) for pair in v.serves))


def _sharing_a_queue(v: Snapshot, pair: Serves) -> Serves:
    load, low, high = v.asked[pair.app].need_qps / pair.saturation_qps, 0.0, -math.log(pair.busy)
    for _ in range(ROUNDS):  # of busy = exp(-middle), by which load / busy instances share it
        middle = (low + high) / 2.0
        enough = busy_together(pair.busy, load * math.exp(middle)) >= math.exp(-middle)
        low, high = (low, middle) if enough else (middle, high)
    busy = math.exp(-high)
    return replace(pair, qps=pair.saturation_qps * busy, busy=busy)


def busy_limit(*, time_ms: float, batch: int, slo_ms: float, percentile: float) -> float:
    """The highest use at which this percentile of the response times is within the SLO.

    >>> round(busy_limit(time_ms=20, batch=1, slo_ms=200, percentile=99), 2)
    0.77
    >>> busy_limit(time_ms=20, batch=1, slo_ms=21, percentile=99) < 0.05
    True
    """
    limits = _limits(batch, percentile)
    return float(np.interp(slo_ms / time_ms, RATIOS, limits)) if slo_ms >= time_ms else 0.0


@lru_cache(maxsize=64)
def _limits(batch: int, percentile: float) -> Vector:
    """The limit at each of `RATIOS`."""
    late = np.array([np.zeros(RATIOS.size) if use == 0 else _late(use * batch, batch) for use in USES])
    late = np.maximum.accumulate(late, axis=0)
    allowed = 1.0 - percentile / 100.0
    return np.array([np.interp(allowed, column, USES) for column in late.T])


def _late(load: float, batch: int) -> Vector:
    """The share of queries that are later than each of `RATIOS`, where `load` come in a batch's time."""
    waiting = _waiting(load, batch)
    left = np.concatenate([[waiting[: batch + 1].sum()], waiting[batch + 1 :]])
    idle = waiting[0] / (load + waiting[0])
    late = np.zeros(RATIOS.size)
    for u in (np.arange(MOMENTS) + 0.5) / MOMENTS:
        ahead = np.convolve(left, _poisson(load * u, waiting.size))
        by_batches = np.bincount(np.arange(ahead.size) // batch, weights=ahead)
        beyond = np.append(np.cumsum(by_batches[::-1])[::-1], 0.0)  # so many batches ahead, or more
        # The highest k that is still in time; what rounding takes off an exact ratio is no lateness.
        most = np.floor(RATIOS - 2.0 + u + 1e-9).astype(np.int64)
        late += beyond[np.clip(most + 1, 0, by_batches.size)] / MOMENTS
    return np.asarray((1.0 - idle) * late)


def _waiting(load: float, batch: int) -> Vector:
    """The stationary law of how many wait when a batch ends."""
    size = int(3 * batch + 40 + 12 * np.sqrt(load) + batch / (batch - load))
    arrivals = _poisson(load, size)
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(MOST_STEPS):
        left = np.concatenate([[law[: batch + 1].sum()], law[batch + 1 :]])
        following = np.convolve(left, arrivals)[:size]
        following /= following.sum()
        change = float(np.abs(following - law).sum())
        law = following
        if change < SETTLED:
            break
    return law


def _poisson(mean: float, size: int) -> Vector:
    counts = np.arange(1, size)
    logs = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    return np.asarray(np.exp(logs))


def leaving_room_to_wait(v: Snapshot, until: Callable[[], bool] = lambda: False) -> Snapshot:
    """The same, each pair at the rate at which its queries are still in time; `until` ends the work."""
    serves = []
    for pair in v.serves:
        if until():
            raise Interrupted("the work was ended before it was known how busy instances may be")
        serves.append(_with_room(v, pair))
    return replace(v, serves=tuple(serves))


def _with_room(v: Snapshot, pair: Serves) -> Serves:
    if pair.late:
        return pair
    one, batch = v.asked[pair.app], v.kinds[pair.kind].batch
    wanted = [(target.limit_ms(), target.percentile) for target in one.targets]
    times = _times(v, pair) if batch <= LARGEST else ()
    use = min(
        busy_limit_of_law(times, slo_ms=limit_ms, percentile=percentile) if times and math.isfinite(limit_ms)
        else busy_limit(time_ms=pair.latency_ms, batch=batch, slo_ms=limit_ms, percentile=percentile)
        for limit_ms, percentile in wanted or [(math.inf, 99.0)]
    )  # fmt: skip
    at_once = max(1, round(pair.qps * pair.latency_ms / 1000.0 / batch))
    busy = max(min(1.0, use * at_once * batch * 1000.0 / pair.latency_ms / pair.qps), LEAST)
    return replace(pair, qps=pair.qps * busy, busy=busy)


def _times(v: Snapshot, pair: Serves) -> tuple[float, ...]:
    """What batches of 1, 2, ... take, as long as a full one takes `latency_ms`; none where all take as long."""
    kind, points = v.kinds[pair.kind], v.asked[pair.app].classes.points
    law = kind.choice.law
    if kind.batch == 1 or "batch" not in law.axes or any("batch" in point for point in points):
        return ()
    stat = answering(law.statistics, str(v.options.latency_stat))
    slowest = [max(law.ms(point, size, stat) for point in points) for size in range(1, kind.batch + 1)]
    times = np.maximum.accumulate(slowest) * pair.latency_ms / slowest[-1]
    return tuple(times.tolist()) if times[0] < times[-1] else ()
