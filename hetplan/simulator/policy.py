"""Simulation of model-selection policies: what a table really gives, query by query.

Every query has its own deadline; latencies are the table's (its percentile), or resampled around it. Under round robin
one worker with its own inter-arrival times is the exact marginal, since workers do not touch one another; everything
else runs all workers. Baselines that keep one queue for all (`shared_fifo`) run that. Seeds give intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess
from hetplan.profiles.slo import Arrivals
from hetplan.simulator.demand import arrival_times
from hetplan.simulator.figures import estimate

__all__ = ["Balancing", "PolicyRun", "compile_kernels", "simulate_policy"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Balancing = Literal["round_robin", "shortest_queue", "shared_fifo", "random"]

_NO_DRAWS = np.zeros(0)
_MANY_DRAWS = 1 << 16
_TURNS, _LONGEST = 20, 4
"""Turns of all states of stated bursts that are played, while that takes no more than so many times the queries."""
_PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True)
class _Traffic:
    """How queries come to the whole group."""

    load_qps: float = 0.0
    shape: float = 1.0
    times_s: Floats | None = None
    piece_qps: Floats | None = None
    piece_s: float = 10.0
    bursts: Arrivals | None = None

    @property
    def steady(self) -> bool:
        """Drawn at one rate, neither recorded nor changing."""
        return self.times_s is None and self.piece_qps is None and self.bursts is None

    def draw(self, queries: int, rng: np.random.Generator) -> Floats:
        """Arrival times of so many queries; of all of them where they are recorded or given by pieces."""
        if self.times_s is not None:
            return np.asarray(self.times_s - self.times_s[0], dtype=np.float64)
        if self.bursts is not None and self.piece_qps is None:
            # Long enough for many turns of its states, within reason.
            turns_s = _TURNS * sum(self.bursts.stay_s or ())
            span_s = min(max(queries / self.load_qps, turns_s), _LONGEST * queries / self.load_qps)
            return arrival_times(self.bursts, rate_qps=self.load_qps, duration_s=span_s, random=rng)
        if self.piece_qps is None:
            return np.asarray(np.cumsum(rng.gamma(self.shape, 1.0 / (self.shape * self.load_qps), queries)))
        # Time runs through the pieces at the speed of their rates: unit-rate arrivals, bent.
        reached = np.concatenate([[0.0], np.cumsum(self.piece_qps * self.piece_s)])
        count = int(reached[-1] + 10 * np.sqrt(reached[-1]) + 100)
        unit = np.cumsum(rng.gamma(self.shape, 1.0 / self.shape, count))
        unit = unit[unit < reached[-1]]
        return np.asarray(np.interp(unit, reached, self.piece_s * np.arange(reached.size)))

    def own(self, unit_gaps: Floats) -> Floats:
        """Arrival times at one of the workers under round robin: the sum of `workers` gamma gaps is a gamma gap."""
        return np.asarray(np.cumsum(unit_gaps * (1.0 / (self.shape * self.load_qps))))


@lru_cache(maxsize=8)
def _unit_gaps(seed: int, shape: float, queries: int) -> Floats:
    """Gamma gaps of scale 1; kept, because the policies of one plan are tried on the same draws at many loads."""
    gaps = np.random.default_rng(seed).standard_gamma(shape, queries)
    gaps.setflags(write=False)
    return gaps


@dataclass(frozen=True)
class PolicyRun:
    """What came of it. `goodput` is accuracy per query that came; intervals are 95 % over the seeds."""

    queries: int
    goodput: float
    accuracy: float
    violation: float
    dropped: float
    utilisation: float
    over: float
    goodput_interval: tuple[float, float]
    accuracy_interval: tuple[float, float]
    violation_interval: tuple[float, float]
    response_s: dict[float, float]
    """Percentile -> response time of the queries served."""
    model_share: tuple[float, ...]
    seeds: int
    rates_by_queue: Floats = field(default_factory=lambda: np.zeros(0))
    """Under `shortest_queue`: arrivals per second during services that began with n waiting (NaN where none did)."""


def simulate_policy(
    form: QueueProcess,
    policies: Sequence[QueuePolicy],
    *,
    workers: int,
    load_qps: float = 0.0,
    shape: float = 1.0,
    times_s: Floats | None = None,
    piece_qps: Floats | None = None,
    piece_s: float = 10.0,
    bursts: Arrivals | None = None,
    balancing: Balancing = "round_robin",
    loads_qps: Sequence[float] = (),
    window_s: float = 0.5,
    spread: Floats | None = None,
    every_worker: bool = False,
    queries: int = 1_000_000,
    warm: int = 1000,
    seeds: Sequence[int] = (1, 2, 3),
) -> PolicyRun:
    """Run a policy, or a set of them by load, on traffic to the whole group.

    Queries come with gamma inter-arrival times of this shape at `load_qps`; at the rates `piece_qps`, one per piece of
    `piece_s` seconds; as `bursts` of mmpp say; or at recorded times. With several policies `loads_qps` are their loads,
    ascending, and each decision takes the lowest one at or above the moving average of the load. `spread` (per model
    and batch, the standard deviation of the logarithm) resamples latencies around the table; without it they are the
    table's. `every_worker` runs all workers under round robin, too.
    """
    tables = _Tables.of(form, policies, spread)
    traffic = _Traffic(load_qps, shape, times_s, piece_qps, piece_s, bursts)
    alone = balancing == "round_robin" and not every_worker and len(policies) == 1 and traffic.steady
    runs = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        draws = _NO_DRAWS if spread is None else rng.standard_normal(_MANY_DRAWS)
        if alone and spread is None:
            arrivals = traffic.own(_unit_gaps(seed, shape * workers, queries))
        elif alone:
            arrivals = traffic.own(rng.standard_gamma(shape * workers, queries))
        else:
            arrivals = traffic.draw(queries, rng)
        which, tick_s = np.zeros(1, dtype=np.int64), 1e9
        if len(policies) > 1:
            tick_s = 0.01
            which = _by_load(arrivals, np.asarray(loads_qps, dtype=float), window_s, tick_s)
        warm_s = float(arrivals[min(warm, arrivals.size - 1)]) if warm > 0 else -1.0
        count = 1 if alone else workers
        runs.append(_run(form, tables, _Fed(arrivals, which, tick_s, warm_s, draws), count, balancing))
    return _together(runs)


@dataclass(frozen=True)
class _Tables:
    model: Integers
    batch: Integers
    most: int
    spread: Floats

    @classmethod
    def of(cls, form: QueueProcess, policies: Sequence[QueuePolicy], spread: Floats | None) -> _Tables:
        model = np.stack([policy.model for policy in policies]).astype(np.int64)
        batch = np.stack([policy.batch for policy in policies]).astype(np.int64)
        still = np.zeros_like(form.latency_s)
        return cls(model, batch, form.latency_s.shape[1], still if spread is None else spread)


@dataclass(frozen=True)
class _Fed:
    """What one run is fed: when queries come, which policy holds at each tick, from when on they count, and draws."""

    arrivals: Floats
    which: Integers
    tick_s: float
    warm_s: float
    draws: Floats


@dataclass(frozen=True)
class _One:
    tally: Floats
    served: Floats
    response_s: Floats
    span_s: float
    workers: int
    rates: Floats


def _run(form: QueueProcess, tables: _Tables, fed: _Fed, workers: int, balancing: Balancing) -> _One:
    from hetplan.simulator import policy_kernels as kernels

    arrivals, warm_s = fed.arrivals, fed.warm_s
    tally, served = np.zeros(7), np.zeros(form.models)
    response, rates = np.zeros(arrivals.size), np.zeros(0)
    timing = (form.latency_s, tables.spread, fed.draws, form.accuracy, form.slo_s)
    rows = (form.grid_s, tables.model, tables.batch, tables.most)
    clock, counts = (fed.which, fed.tick_s, warm_s), (tally, served, response)
    if balancing == "shared_fifo":
        # The table's first slack column with most waiting says model and cap; it is the same everywhere.
        one_model, cap = tables.model[:, -1, 0].copy(), tables.batch[:, -1, 0].copy()
        written = kernels.run_shared(arrivals, workers, timing, one_model, cap, clock, counts)
    elif balancing == "shortest_queue":
        came, stayed = np.zeros(form.queue + 2), np.zeros(form.queue + 2)
        written = kernels.run_shortest(arrivals, workers, timing, rows, clock, counts, (came, stayed))
        rates = np.where(stayed > 0, came / np.maximum(stayed, 1e-300), np.nan)
    else:
        written = 0
        chosen = np.arange(arrivals.size) % workers
        if balancing == "random":
            chosen = np.random.default_rng(arrivals.size).integers(workers, size=arrivals.size)
        for worker in range(workers):
            own = arrivals[chosen == worker]
            written = kernels.run_worker(own, timing, rows, clock, counts, written)
    return _One(tally, served, response[:written], float(arrivals[-1]) - max(warm_s, 0.0), workers, rates)


def _by_load(arrivals: Floats, loads_qps: Floats, window_s: float, tick_s: float) -> Integers:
    """Per tick, the lowest policy for at least the average load of the window before it; the top one beyond."""
    ticks = np.arange(0.0, float(arrivals[-1]) + 2 * tick_s, tick_s)
    seen = np.searchsorted(arrivals, ticks) - np.searchsorted(arrivals, ticks - window_s)
    estimate = seen / np.minimum(np.maximum(ticks, 0.5 * window_s), window_s)
    return np.asarray(np.minimum(np.searchsorted(loads_qps, estimate), loads_qps.size - 1), dtype=np.int64)


def _together(runs: Sequence[_One]) -> PolicyRun:
    from hetplan.simulator import policy_kernels as kernels

    total = np.sum([run.tally for run in runs], axis=0)
    served = np.sum([run.served for run in runs], axis=0)
    responses = np.concatenate([run.response_s for run in runs])
    rates = [run.rates for run in runs if run.rates.size]

    def share(what: Callable[[Floats], float]) -> tuple[float, tuple[float, float]]:
        found = estimate([what(run.tally) for run in runs])
        half = found.high - found.value
        return what(total), (what(total) - half, what(total) + half)

    goodput, goodput_interval = share(lambda t: float(t[kernels.ACCURACY] / max(t[kernels.QUERIES], 1.0)))
    accuracy, accuracy_interval = share(
        lambda t: float(t[kernels.ACCURACY] / max(t[kernels.QUERIES] - t[kernels.LATE] - t[kernels.DROPPED], 1.0))
    )
    violation, violation_interval = share(
        lambda t: float((t[kernels.LATE] + t[kernels.DROPPED]) / max(t[kernels.QUERIES], 1.0))
    )
    busy = sum(run.tally[kernels.BUSY] for run in runs) / max(sum(run.span_s * run.workers for run in runs), 1e-300)
    return PolicyRun(
        queries=int(total[kernels.QUERIES]),
        goodput=goodput,
        accuracy=accuracy,
        violation=violation,
        dropped=float(total[kernels.DROPPED] / max(total[kernels.QUERIES], 1.0)),
        utilisation=float(busy),
        over=float(total[kernels.OVER] / max(total[kernels.DECISIONS], 1.0)),
        goodput_interval=goodput_interval,
        accuracy_interval=accuracy_interval,
        violation_interval=violation_interval,
        response_s=dict(zip(_PERCENTILES, np.percentile(responses, _PERCENTILES).tolist(), strict=True))
        if responses.size
        else {},
        model_share=tuple(float(x) for x in served / max(served.sum(), 1.0)),
        seeds=len(runs),
        rates_by_queue=_mean_rates(rates),
    )


def _mean_rates(rates: Sequence[Floats]) -> Floats:
    """Means over the seeds that saw a queue of that length; NaN where none did."""
    if not rates:
        return np.zeros(0)
    seen = np.isfinite(rates).sum(axis=0)
    return np.asarray(np.where(seen > 0, np.nansum(rates, axis=0) / np.maximum(seen, 1), np.nan))


def compile_kernels() -> None:
    """Serve a few queries under every balancing, so that everything is compiled that a simulated policy needs."""
    latency, grid = np.array([[0.1, 0.2]]), np.array([0.0, 1.0])
    form = QueueProcess(latency, np.array([0.5]), grid, 1, np.array([1.0]))
    policy = QueuePolicy(np.zeros((1, 2), dtype=np.int64), np.ones((1, 2), dtype=np.int64))
    for balancing in get_args(Balancing):
        simulate_policy(form, [policy], workers=1, load_qps=1.0, balancing=balancing, queries=3, warm=0, seeds=(1,))
