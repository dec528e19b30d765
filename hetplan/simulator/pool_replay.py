"""Runs of a pool: given queries, or drawn ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.parts import SPLIT_ABOVE, split_pool
from hetplan.dispatch.queue_rules import Earliest, Fcfs, Threshold, oracle_makespan_ms
from hetplan.dispatch.rules import Rule
from hetplan.dispatch.snapshot import Overheads
from hetplan.errors import InputError
from hetplan.simulator.pool import LATE_SLACK, Conditions, Draws, Floats, Integers, Pool, PoolRun, Queries, default_rule

__all__ = ["compile_kernels", "oracle_rate_qps", "replay", "simulate_pool"]

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
