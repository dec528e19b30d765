"""A pool in which every instance serves one query at a time: what is simulated, and what came of it.

This is the fast path of the simulator, for the question `pool` and its dispatch rules; `hetplan.simulator` has the
general engine. `replay` runs given queries, `simulate_pool` draws them, and
`pool_allowable.allowable_rate` finds the highest rate at which nearly all are in time.

Queries are given, or drawn: arrivals, batch sizes, service noise and prediction errors, each from its own stream. Every
stream depends on the seed alone and starts the same however long it becomes, so that all rates, pools and rules are
tried on the same queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.parts import SPLIT_ABOVE, split_pool
from hetplan.dispatch.queue_rules import Earliest, Fcfs, Threshold, oracle_makespan_ms
from hetplan.dispatch.rules import Rule, rule_name
from hetplan.dispatch.snapshot import Overheads
from hetplan.errors import InputError

__all__ = [
    "LATE_SLACK",
    "Conditions",
    "Draws",
    "Pool",
    "PoolRun",
    "Queries",
    "checked_pmf",
    "compile_kernels",
    "default_rule",
    "oracle_rate_qps",
    "replay",
    "simulate_pool",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Arrivals = Callable[[float, int, int], Floats]

LATE_SLACK = 1e-9
"""Relative slack of the latency target when a simulated response is judged: ends minus arrivals are rounded numbers."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Instances of several types and the mean service time of each batch-size bin on each type.

    `latency_ms` has a row per type and a column per bin, `counts` the instances of each type, `base` the base type.
    `sizes` are the bins' batch sizes (1, 2, ... by default); only thresholds are compared with them.
    """

    latency_ms: Floats
    counts: tuple[int, ...]
    qos_ms: float
    base: int
    sizes: tuple[float, ...]

    @classmethod
    def of(
        cls,
        latency_ms: ArrayLike,
        counts: Sequence[int],
        qos_ms: float,
        *,
        base: int = 0,
        sizes: Sequence[float] | None = None,
    ) -> Pool:
        """A checked pool.

        >>> Pool.of([[10, 40], [20, 200]], (1, 1), 100).sizes
        (1.0, 2.0)
        """
        latency = np.ascontiguousarray(np.asarray(latency_ms, dtype=np.float64))
        if latency.ndim != 2 or not latency.size:
            _refuse("latency_ms", latency.shape, "needs a row per type and a column per batch-size bin")
        if not (np.isfinite(latency).all() and (latency > 0.0).all()):
            _refuse("latency_ms", latency.tolist(), "must be finite and greater than 0")
        if len(counts) != latency.shape[0] or any(count < 0 or count != int(count) for count in counts):
            _refuse("counts", list(counts), f"needs a whole number, not negative, for each of {latency.shape[0]} types")
        if not sum(counts):
            _refuse("counts", list(counts), "there is no instance at all")
        if not 0.0 < qos_ms < np.inf:
            _refuse("qos_ms", qos_ms, "must be finite and greater than 0")
        if not 0 <= base < latency.shape[0]:
            _refuse("base", base, f"must name a type, 0 to {latency.shape[0] - 1}")
        bins = tuple(float(size) for size in (range(1, latency.shape[1] + 1) if sizes is None else sizes))
        if len(bins) != latency.shape[1] or any(low >= high for low, high in pairwise(bins)):
            _refuse("sizes", list(bins), f"needs {latency.shape[1]} strictly increasing batch sizes")
        return cls(latency, tuple(int(count) for count in counts), float(qos_ms), base, bins)


@dataclass(frozen=True, eq=False)
class Conditions:
    """What a run assumes besides the pool and its rule.

    `noise` is ``mean`` (service times are their means) or ``lognormal`` (of that mean and `std_ms`, cut at `max_ms`;
    both by type and bin). `misprediction` is the standard deviation of the dispatch's relative error about a query on
    a type. `arrivals` is ``poisson`` (exponential gaps), ``integer-poisson`` (gaps of whole milliseconds, Poisson
    distributed: smoother, as Kairos' published code draws them), or a function of (rate in qps, count, seed) that
    returns times in ms.
    Above `split_above` instances a pool under the matching rule is divided and each part dispatched on its own (0:
    never), as plans state it: an undivided pool would serve a few percent more.
    """

    noise: Literal["mean", "lognormal"] = "mean"
    std_ms: ArrayLike | None = None
    max_ms: ArrayLike | None = None
    misprediction: float = 0.0
    overheads: Overheads = field(default_factory=Overheads)
    arrivals: Literal["poisson", "integer-poisson"] | Arrivals = "poisson"
    split_above: int = SPLIT_ABOVE

    def __post_init__(self) -> None:
        if self.noise not in ("mean", "lognormal"):
            _refuse("noise", self.noise, "is neither mean nor lognormal")
        if self.noise == "lognormal" and self.std_ms is None:
            _refuse("std_ms", None, "lognormal noise needs the standard deviation of each type and bin")
        if not 0.0 <= self.misprediction < 1.0:
            _refuse("misprediction", self.misprediction, "must be in [0, 1)")
        if not callable(self.arrivals) and self.arrivals not in ("poisson", "integer-poisson"):
            _refuse("arrivals", self.arrivals, "is neither poisson nor integer-poisson nor a function")
        if self.split_above < 0:
            _refuse("split_above", self.split_above, "must not be negative")


@dataclass(frozen=True, eq=False)
class PoolRun:
    """What came of a run: response time and serving type of each query, in order of arrival.

    A run that was `stopped` early holds NaN and -1 where a query was not served any more.
    """

    response_ms: Floats
    served_by: Integers
    late: int
    served: int
    makespan_ms: float
    stopped: bool
    utilisation: tuple[float, ...]

    @property
    def queries(self) -> int:
        """How many queries there were."""
        return int(self.response_ms.size)

    @property
    def late_share(self) -> float:
        """The share of queries that were answered late (a lower bound when the run was stopped)."""
        return self.late / max(self.queries, 1)


def default_rule(name: str, pool: Pool) -> Rule:
    """The rule of that name with the parameters that follow from the pool: target, weights, base type preferred.

    >>> default_rule("kairos", Pool.of([[10, 40], [20, 200]], (1, 1), 100)).weight
    (1.0, 0.2)
    """
    found = rule_name(name)
    if found == Matching.name:
        return Matching(slo_ms=pool.qos_ms, weight=weights(pool.latency_ms, base=pool.base))
    if found == Fcfs.name:
        return Fcfs(prefer=(pool.base,))
    if found == Earliest.name:
        return Earliest()
    _refuse("rule", name, "has a threshold of its own: make it with Threshold(threshold=...)")
    raise AssertionError


def _refuse(field_name: str, value: object, why: str) -> None:
    raise InputError.one(file="simulation", path=field_name, value=value, why=why, remedy="See hetplan.simulator.pool.")


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries in order of arrival; query i finds its times in row ``rows[i]`` of the tables, a column per type."""

    arrival_ms: Floats
    bins: Integers
    rows: Integers
    actual_ms: Floats
    predicted_ms: Floats

    @classmethod
    def of(
        cls,
        pool: Pool,
        *,
        arrival_ms: ArrayLike,
        bins: ArrayLike,
        actual_ms: ArrayLike | None = None,
        predicted_ms: ArrayLike | None = None,
    ) -> Queries:
        """Checked queries of a pool.

        `actual_ms` is what each query takes on each type (a row per query), `predicted_ms` what the dispatch believes;
        both are the pool's means by default.
        """
        arrivals = np.ascontiguousarray(np.asarray(arrival_ms, dtype=np.float64))
        bin_of = np.ascontiguousarray(np.asarray(bins, dtype=np.int64))
        if arrivals.ndim != 1 or not np.isfinite(arrivals).all() or (np.diff(arrivals, prepend=0.0) < 0.0).any():
            _refuse_queries("arrival_ms", arrivals.tolist()[:5], "must ascend from 0 and be finite")
        if bin_of.shape != arrivals.shape or (bin_of.size and not 0 <= bin_of.min() <= bin_of.max() < len(pool.sizes)):
            _refuse_queries("bins", bin_of.tolist()[:5], f"needs a bin, 0 to {len(pool.sizes) - 1}, for each query")
        mean = pool.latency_ms.T
        if actual_ms is None and predicted_ms is None:
            return cls(arrivals, bin_of, bin_of, mean, mean)
        per_query = []
        for name, given in (("actual_ms", actual_ms), ("predicted_ms", predicted_ms)):
            table = mean[bin_of] if given is None else np.asarray(given, dtype=np.float64)
            if table.shape != (bin_of.size, mean.shape[1]) or not (np.isfinite(table).all() and (table > 0.0).all()):
                _refuse_queries(name, table.shape, "needs a time greater than 0 for each query and type")
            per_query.append(table)
        return cls(arrivals, bin_of, np.arange(bin_of.size, dtype=np.int64), per_query[0], per_query[1])

    def part(self, which: int, parts: int) -> Queries:
        """Every `parts`-th query, from the one numbered `which`."""
        if parts == 1:
            return self
        mine = slice(which, None, parts)
        return Queries(
            np.ascontiguousarray(self.arrival_ms[mine]),
            np.ascontiguousarray(self.bins[mine]),
            np.ascontiguousarray(self.rows[mine]),
            self.actual_ms,
            self.predicted_ms,
        )


def _refuse_queries(field_name: str, value: object, why: str) -> None:
    raise InputError.one(file="simulation", path=field_name, value=value, why=why, remedy="See Queries.of.")


_ARRIVALS, _SIZES, _SERVICE, _PREDICTION = range(4)


class Draws:
    """The queries of one seed; longer streams are drawn when asked for.

    >>> pool = Pool.of([[10, 40], [20, 200]], (1, 1), 100)
    >>> draws = Draws([0.75, 0.25], seed=1)
    >>> few, many = (draws.queries(pool, rate_qps=50, count=count) for count in (3, 900))
    >>> bool((few.arrival_ms == many.arrival_ms[:3]).all())
    True
    """

    def __init__(self, pmf: ArrayLike, *, seed: int) -> None:
        self.seed = seed
        self._upto = np.cumsum(checked_pmf(pmf))
        self._bins = np.zeros(0, dtype=np.int64)
        self._arrivals = np.zeros(0)
        self._normals: dict[int, Floats] = {}

    def queries(self, pool: Pool, *, rate_qps: float, count: int, conditions: Conditions | None = None) -> Queries:
        """So many queries at that rate."""
        given = conditions or Conditions()
        bins = self.bins(count)
        arrival_ms = self._arrival_ms(rate_qps, count, given)
        actual = None if given.noise == "mean" else self._actual_ms(pool, bins, given)
        predicted = None if given.misprediction == 0.0 else self._predicted_ms(pool, bins, given)
        return Queries.of(pool, arrival_ms=arrival_ms, bins=bins, actual_ms=actual, predicted_ms=predicted)

    def bins(self, count: int) -> Integers:
        """The batch-size bin of each query."""
        if self._bins.size < count:
            uniform = self._stream(_SIZES).random(count)
            place = np.searchsorted(self._upto, uniform * self._upto[-1], side="right")
            self._bins = np.minimum(place, self._upto.size - 1).astype(np.int64)
        return self._bins[:count]

    def _arrival_ms(self, rate_qps: float, count: int, conditions: Conditions) -> Floats:
        if callable(conditions.arrivals):
            return conditions.arrivals(rate_qps, count, self.seed)
        if conditions.arrivals == "integer-poisson":
            return np.cumsum(self._stream(_ARRIVALS).poisson(1000.0 / rate_qps, count)).astype(np.float64)
        if self._arrivals.size < count:
            self._arrivals = np.cumsum(self._stream(_ARRIVALS).standard_exponential(count))
        return self._arrivals[:count] * (1000.0 / rate_qps)

    def _actual_ms(self, pool: Pool, bins: Integers, conditions: Conditions) -> Floats:
        mean = pool.latency_ms.T
        std, cap = _by_bin(conditions.std_ms, pool, "std_ms"), _by_bin(conditions.max_ms, pool, "max_ms")
        square = np.log1p((std / mean) ** 2)
        normal = self._normal(_SERVICE, bins.size, 1)
        drawn: Floats = np.exp((np.log(mean) - 0.5 * square)[bins] + np.sqrt(square)[bins] * normal)
        return drawn if conditions.max_ms is None else np.minimum(drawn, cap[bins])

    def _predicted_ms(self, pool: Pool, bins: Integers, conditions: Conditions) -> Floats:
        factor = 1.0 + conditions.misprediction * self._normal(_PREDICTION, bins.size, len(pool.counts))
        # However wrong, a prediction stays above nothing.
        believed: Floats = pool.latency_ms.T[bins] * np.maximum(factor, 0.01)
        return believed

    def _normal(self, stream: int, count: int, columns: int) -> Floats:
        held = self._normals.get(stream)
        if held is None or held.shape[0] < count or held.shape[1] != columns:
            held = self._normals[stream] = self._stream(stream).standard_normal((count, columns))
        return held[:count]

    def _stream(self, which: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, which))


def checked_pmf(pmf: ArrayLike) -> NDArray[np.float64]:
    """The shares, which must sum to 1 within 1e-6, made to sum to 1."""
    share = np.asarray(pmf, dtype=np.float64)
    if share.ndim != 1 or not share.size or not np.isfinite(share).all() or (share < 0.0).any():
        why = "must be a list of finite numbers, none negative"
    elif abs(share.sum() - 1.0) > 1e-6:
        why = f"must sum to 1, sums to {share.sum():.9g}"
    else:
        normalised: NDArray[np.float64] = share / share.sum()
        return normalised
    raise InputError.one(file="simulation", path="pmf", value=share.tolist(), why=why, remedy="Give a share per bin.")


def _by_bin(table: ArrayLike | None, pool: Pool, name: str) -> Floats:
    values = np.zeros_like(pool.latency_ms) if table is None else np.asarray(table, dtype=np.float64)
    if values.shape != pool.latency_ms.shape or not (values >= 0.0).all():
        raise InputError.one(
            file="simulation",
            path=name,
            value=values.shape,
            why=f"needs a number, not negative, for each type and bin: shape {pool.latency_ms.shape}",
            remedy="See hetplan.simulator.pool.Conditions.",
        )
    return values.T


# Runs of given queries, or of drawn ones

_NEVER = 2**62  # more late queries than any run has: it is not stopped


@dataclass(frozen=True, eq=False)
class _Layout:
    """A pool laid out for the loops: instances type by type, the most preferred type first; tables in that order."""

    order: tuple[int, ...]
    first: Integers
    kind: Integers

    @classmethod
    def of(cls, counts: tuple[int, ...], rule: Rule, base: int) -> _Layout:
        foremost = rule if isinstance(rule, Fcfs) else Fcfs((rule.base if isinstance(rule, Threshold) else base,))
        order = foremost.order(len(counts))
        placed = [counts[kind] for kind in order]
        first = np.concatenate(([0], np.cumsum(placed))).astype(np.int64)
        return cls(order, first, np.repeat(np.arange(len(placed)), placed).astype(np.int64))

    def table(self, service_ms: Floats, extra_ms: float) -> Floats:
        """A table of service times with its columns in this order."""
        return np.ascontiguousarray(service_ms[:, list(self.order)] + extra_ms)


def replay(
    pool: Pool,
    queries: Queries,
    rule: Rule | str = "matching/1",
    *,
    overheads: Overheads | None = None,
    split_above: int = SPLIT_ABOVE,
    most_late: int | None = None,
) -> PoolRun:
    """Serve these queries; with `most_late`, stop when more queries than that were late.

    >>> pool = Pool.of([[10, 40], [20, 200]], (1, 1), 100)
    >>> run = replay(pool, Queries.of(pool, arrival_ms=[0, 1, 2, 30], bins=[0, 1, 0, 1]))
    >>> run.response_ms.tolist(), run.served_by.tolist(), run.makespan_ms
    ([20.0, 40.0, 38.0, 51.0], [1, 0, 1, 0], 81.0)
    """
    chosen = default_rule(rule, pool) if isinstance(rule, str) else rule
    if isinstance(chosen, Matching) and len(chosen.weight) != len(pool.counts):
        raise InputError.one(
            file="dispatch",
            path="weight",
            value=chosen.weight,
            why=f"needs a weight for each of {len(pool.counts)} types",
            remedy="See hetplan.dispatch.matching.weights.",
        )
    allowed = _NEVER if most_late is None else most_late
    parts: tuple[tuple[int, ...], ...] = (pool.counts,)
    if split_above > 0 and isinstance(chosen, Matching):
        parts = split_pool(pool.counts, weight=chosen.weight, most=split_above)
    count = queries.bins.size
    response_ms, served_by = np.full(count, np.nan), np.full(count, -1, dtype=np.int64)
    late, served, end_ms = 0, 0, 0.0
    for which, counts in enumerate(parts):
        mine, layout = queries.part(which, len(parts)), _Layout.of(counts, chosen, pool.base)
        answered, by = np.full(mine.bins.size, np.nan), np.full(mine.bins.size, -1, dtype=np.int64)
        outcome = _loop(pool, chosen, layout, mine, overheads or Overheads(), allowed, (answered, by))
        response_ms[which :: len(parts)] = answered
        served_by[which :: len(parts)] = np.where(by >= 0, np.asarray(layout.order)[by], -1)
        late, served, end_ms = late + outcome[0], served + outcome[1], max(end_ms, outcome[2])
    return PoolRun(
        response_ms=response_ms,
        served_by=served_by,
        late=late,
        served=served,
        makespan_ms=end_ms,
        stopped=late > allowed,
        utilisation=_utilisation(pool, queries, served_by, end_ms),
    )


def _loop(
    pool: Pool,
    rule: Rule,
    layout: _Layout,
    queries: Queries,
    overheads: Overheads,
    allowed: int,
    into: tuple[Floats, Integers],
) -> tuple[int, int, float]:
    """Play the queries; their response times, and who served each, are written `into` two columns."""
    from hetplan.simulator import pool_kernels

    # Where instances fetch queries, an overhead keeps the instance itself; in queues at instances it does not.
    extra_ms = 0.0 if isinstance(rule, Earliest) else overheads.occupied_ms
    actual, late_ms = layout.table(queries.actual_ms, extra_ms), pool.qos_ms * (1.0 + LATE_SLACK)
    play = pool_kernels.Play(queries.arrival_ms, queries.rows, actual, layout.kind, late_ms, allowed, *into)
    if isinstance(rule, Earliest):
        believed = layout.table(queries.predicted_ms, extra_ms)
        return pool_kernels.run_earliest(play, believed, overheads.lead_ms, overheads.tail_ms)
    if isinstance(rule, Matching):
        from hetplan.dispatch.matching_kernels import scratch

        believed, order = layout.table(queries.predicted_ms, extra_ms), list(layout.order)
        weight = np.asarray(rule.weight, dtype=np.float64)[order]
        costs = (weight, rule.late_cost()[order], rule.limit_ms, rule.merges)
        room = scratch(layout.kind.size, 2 * layout.kind.size)
        return pool_kernels.run_matching(play, believed, layout.first, costs, room)
    if isinstance(rule, Threshold):
        small = (np.asarray(pool.sizes) <= rule.threshold).astype(np.int64)
        group, bounds = small[queries.bins], layout.first[[0, 1, -1]]
    elif isinstance(rule, Fcfs):
        group, bounds = np.zeros(queries.bins.size, dtype=np.int64), layout.first[[0, -1]]
    else:
        raise InputError.one(
            file="simulation", path="rule", value=rule.name, why="has no fast path", remedy="Use the general engine."
        )
    return pool_kernels.run_queues(play, group, bounds)


def simulate_pool(
    pool: Pool,
    pmf: ArrayLike,
    *,
    rate_qps: float,
    rule: Rule | str = "matching/1",
    seed: int = 0,
    count: int = 20_000,
    conditions: Conditions | None = None,
    most_late: int | None = None,
    draws: Draws | None = None,
) -> PoolRun:
    """Draw queries of that mix and rate and serve them.

    >>> pool = Pool.of([[10, 40], [20, 200]], (1, 3), 100)
    >>> simulate_pool(pool, [0.75, 0.25], rate_qps=20, count=1000).late_share < 0.05
    True
    """
    given = conditions or Conditions()
    if not 0.0 < rate_qps < np.inf:
        raise InputError.one(
            file="simulation", path="rate_qps", value=rate_qps, why="must be greater than 0", remedy="Give a rate."
        )
    drawn = draws or Draws(pmf, seed=seed)
    queries = drawn.queries(pool, rate_qps=rate_qps, count=count, conditions=given)
    return replay(pool, queries, rule, overheads=given.overheads, split_above=given.split_above, most_late=most_late)


def oracle_rate_qps(pool: Pool, queries: Queries) -> float:
    """Queries over the time in which the oracle serves them all; 0 when it cannot serve them in time.

    >>> pool = Pool.of([[10, 40], [20, 200]], (1, 1), 100)
    >>> oracle_rate_qps(pool, Queries.of(pool, arrival_ms=[0, 1, 2, 30], bins=[0, 1, 0, 1]))
    50.0
    """
    by_size = np.argsort(queries.bins, kind="stable")
    rows = queries.rows[by_size]
    makespan_ms = oracle_makespan_ms(
        queries.actual_ms[rows],
        pool.counts,
        slo_ms=pool.qos_ms * (1.0 + LATE_SLACK),
        base=pool.base,
        predicted_ms=pool.latency_ms.T[queries.bins[by_size]],
    )
    return 1000.0 * by_size.size / makespan_ms if makespan_ms > 0.0 else 0.0


def _utilisation(pool: Pool, queries: Queries, served_by: Integers, end_ms: float) -> tuple[float, ...]:
    """The share of the run for which each type's instances were serving; 0 for a type without instances."""
    done = served_by >= 0
    service_ms = queries.actual_ms[queries.rows[done], served_by[done]]
    busy_ms = np.bincount(served_by[done], weights=service_ms, minlength=len(pool.counts))
    return tuple((busy_ms / np.maximum(np.asarray(pool.counts) * end_ms, 1e-300)).tolist())


def compile_kernels() -> None:
    """Serve two queries under every rule, so that everything is compiled that a pool needs."""
    pool = Pool.of([[10.0, 40.0], [20.0, 200.0]], (1, 1), 100.0)
    queries = Queries.of(pool, arrival_ms=[0.0, 1.0], bins=[0, 1])
    for rule in ("matching/1", "fcfs/1", "earliest/1"):
        replay(pool, queries, rule)
    oracle_rate_qps(pool, queries)
