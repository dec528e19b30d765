r"""How busy an instance may be and still answer in time: by a queueing formula (`estimated`), or by simulation.

`estimated`. An instance serves a batch of up to b queries in T, whenever it is free and someone waits; queries come as
a Poisson stream of rho b in T (rho is the use). With n waiting when a batch ends, the next leaves (n - b)^+ behind, so

    n' = (n - b)^+ + A,  A ~ Poisson(rho b)

has a stationary law, and a query that comes a share u of T after a batch began, with k full batches ahead of it, is
answered after T (1 - u) + k T + T. The use looked for is the highest at which the share of queries later than the SLO
is what its percentile allows. It depends on b, S / T and the percentile alone: three numbers, so a table per (b,
percentile) serves all variants. Several servers of one instance count as so many instances: they would wait less.

`simulated`. It begins where the formula leads, so that few plans need to be simulated; whoever is late asks less of
its instances, until nobody is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.draft import Draft, Infeasible
from hetplan.problems.simulated import check_simulator, plan_to_simulate, shown_by, with_shown
from hetplan.problems.variants.wish import Serves, Snapshot

__all__ = ["busy_limit", "leaving_room_to_wait", "sized"]

Vector = NDArray[np.float64]
Way = Callable[[Snapshot, Ask], Draft | Infeasible]

USES = np.concatenate([[0.0, 0.01, 0.03], np.arange(0.05, 0.951, 0.05)])
RATIOS = np.concatenate([np.arange(1.0, 4.0, 0.1), np.arange(4.0, 20.1, 1.0)])
"""S / T; beyond the last, as at the last."""
MOMENTS = 12
"""Of a batch's time, at whose middles queries are looked at."""
LESS = 0.85
"""What a late application still asks of the instances that it uses, each time."""
LEAST = 0.002
"""An instance is never taken for less useful than this share of its saturation."""
SETTLED = 1e-7
MOST_STEPS = 3000


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
        batches = np.arange(ahead.size) // batch
        # The highest k that is still in time; what rounding takes off an exact ratio is no lateness.
        most = np.floor(RATIOS - 2.0 + u + 1e-9)
        late += np.array([ahead[batches > k].sum() for k in most]) / MOMENTS
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


def leaving_room_to_wait(v: Snapshot) -> Snapshot:
    """The same, each pair at the rate at which its queries are still in time."""
    return replace(v, serves=tuple(_with_room(v, pair) for pair in v.serves))


def _with_room(v: Snapshot, pair: Serves) -> Serves:
    if pair.late:
        return pair
    one, batch = v.asked[pair.app], v.kinds[pair.kind].batch
    percentile = max((t.percentile for t in one.app.latency if t.of == "response"), default=99.0)
    use = busy_limit(time_ms=pair.latency_ms, batch=batch, slo_ms=one.slo_ms, percentile=percentile)
    at_once = max(1, round(pair.qps * pair.latency_ms / 1000.0 / batch))
    busy = max(min(1.0, use * at_once * batch * 1000.0 / pair.latency_ms / pair.qps), LEAST)
    return replace(pair, qps=pair.qps * busy, busy=busy)


def sized(v: Snapshot, ask: Ask, way: Way, tools: Tools, formulation: str) -> Draft | Infeasible:
    """The plan by this way whose applications are in time in simulation."""
    check_simulator(tools)
    now, turn = v, 0
    while True:
        made = way(now, ask)
        if isinstance(made, Infeasible) or not made.routing:
            return made
        turn += 1
        shown = shown_by(tools, v.inputs, plan_to_simulate("variants", formulation, made), ask)
        ask.note(Event("simulated", f"{len(shown.late)} applications late", done=turn / v.options.evaluations))
        tried = replace(with_shown(made, shown), searched=True)
        if not shown.late:
            return tried
        if turn >= v.options.evaluations or ask.remaining <= 0:
            named = ", ".join(sorted(shown.late)[:5])
            return replace(
                tried, target_missed=f"late in simulation however little of each instance was asked: {named}"
            )
        now = replace(now, serves=tuple(_less_busy(now, made, pair, shown.late) for pair in now.serves))


def _less_busy(v: Snapshot, made: Draft, pair: Serves, late: tuple[str, ...]) -> Serves:
    """A pair by which an application was late, asked for less."""
    kind, one = v.kinds[pair.kind], v.asked[pair.app]
    used = any(
        load.variant == kind.variant and worker.hardware == kind.hardware and load.app in (None, one.id)
        for worker in made.workers
        for load in worker.loads
    )
    if one.id not in late or not used or pair.late:
        return pair
    return replace(pair, qps=pair.qps * LESS, busy=pair.busy * LESS)
