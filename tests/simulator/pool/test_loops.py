"""The compiled loops against the decisions they are made of, a simulator of someone else, and themselves uncompiled."""

from __future__ import annotations

import heapq
from types import ModuleType

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.queue_rules import Threshold
from hetplan.dispatch.rules import Rule
from hetplan.dispatch.snapshot import Snapshot
from hetplan.simulator import pool_kernels
from hetplan.simulator.pool import (
    Conditions,
    Draws,
    Pool,
    PoolRun,
    Queries,
    default_rule,
    oracle_rate_qps,
    replay,
    simulate_pool,
)

RULES = ("matching", "fcfs", "earliest", "threshold")


def made(rule: str, pool: Pool) -> Rule:
    return Threshold(1.5, pool.base) if rule == "threshold" else default_rule(rule, pool)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Pool, Queries]:
    types, bins, count = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 14))
    time = st.integers(1, 9).map(float) if draw(st.booleans()) else st.floats(0.5, 9.0)
    latency = [draw(st.lists(time, min_size=bins, max_size=bins)) for _ in range(types)]
    counts = [draw(st.integers(1, 2)) for _ in range(types)]
    pool = Pool.of(latency, counts, draw(st.sampled_from([6.0, 12.0, 30.0])))
    gaps = draw(st.lists(st.one_of(st.just(0.0), time), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(0, bins - 1), min_size=count, max_size=count))
    return pool, Queries.of(pool, arrival_ms=np.cumsum(gaps), bins=sizes)


def by_decisions(pool: Pool, queries: Queries, rule: Rule) -> list[float]:
    """Event by event in plain Python, asking the public decision each time."""
    kind = np.repeat(np.arange(len(pool.counts)), pool.counts)
    ends: list[float | None] = [None] * kind.size
    response, waiting, ahead = [np.nan] * queries.bins.size, [], list(range(queries.bins.size))
    while ahead or waiting:
        times = [queries.arrival_ms[ahead[0]]] if ahead else []
        now = min(times + [end for end in ends if end is not None])
        ends = [None if end is not None and end <= now else end for end in ends]
        while ahead and queries.arrival_ms[ahead[0]] <= now:
            waiting.append(ahead.pop(0))
        snapshot = Snapshot.of(
            waited_ms=[now - queries.arrival_ms[query] for query in waiting],
            service_ms=np.array([pool.latency_ms[:, queries.bins[query]] for query in waiting]).reshape(
                -1, len(pool.counts)
            ),
            kind=kind,
            busy_ms=[0.0 if end is None else end - now for end in ends],
            size=[pool.sizes[queries.bins[query]] for query in waiting],
        )
        sent = []
        for pair in rule.decide(snapshot):
            query = waiting[pair.query]
            ends[pair.instance] = now + pool.latency_ms[kind[pair.instance], queries.bins[query]]
            response[query] = ends[pair.instance] - queries.arrival_ms[query]
            sent.append(query)
        waiting = [query for query in waiting if query not in sent]
    return response


def queued_by_decisions(pool: Pool, queries: Queries, rule: Rule) -> list[float]:
    """The same for a rule that sends each query at its arrival, to a queue at the instance."""
    kind = np.repeat(np.arange(len(pool.counts)), pool.counts)
    ends, response = np.zeros(kind.size), []
    for now, size in zip(queries.arrival_ms, queries.bins, strict=True):
        busy = np.maximum(ends - now, 0.0)
        (pair,) = rule.decide(
            Snapshot.of(waited_ms=[0.0], service_ms=[pool.latency_ms[:, size]], kind=kind, busy_ms=busy)
        )
        ends[pair.instance] = max(ends[pair.instance], now) + pool.latency_ms[kind[pair.instance], size]
        response.append(ends[pair.instance] - now)
    return response


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_what_is_simulated_is_what_the_decision_says(rule: str, case: tuple[Pool, Queries]) -> None:
    pool, queries = case
    if rule == "threshold" and len(pool.counts) == 1:
        return
    chosen = made(rule, pool)
    expected = (queued_by_decisions if rule == "earliest" else by_decisions)(pool, queries, chosen)
    exact = (pool.latency_ms == np.floor(pool.latency_ms)).all() and (queries.arrival_ms % 1 == 0).all()
    answered = replay(pool, queries, chosen).response_ms.tolist()
    assert answered == (expected if exact else pytest.approx(expected, rel=1e-9))


def with_simpy(pool: Pool, queries: Queries) -> list[float]:
    """First come, first served in simpy: one store of idle instances, the most preferred first."""
    environment, response = simpy.Environment(), [np.nan] * queries.bins.size
    idle = simpy.PriorityStore(environment)
    kind = np.repeat(np.arange(len(pool.counts)), pool.counts).tolist()
    for place, of_type in enumerate(kind):
        idle.put(simpy.PriorityItem(place, of_type))

    def query(number: int):  # type: ignore[no-untyped-def]
        yield environment.timeout(queries.arrival_ms[number])
        instance = yield idle.get()
        yield environment.timeout(pool.latency_ms[instance.item, queries.bins[number]])
        response[number] = environment.now - queries.arrival_ms[number]
        idle.put(instance)

    for number in range(queries.bins.size):
        environment.process(query(number))
    environment.run()
    return response


@pytest.mark.parametrize("seed", range(6))
def test_fcfs_is_that_of_simpy(seed: int) -> None:
    pool = Pool.of([[10.0, 40.0], [20.0, 200.0], [13.0, 90.0]], (2, 1 + seed % 3, seed % 2), 100)
    queries = Draws([0.75, 0.25], seed=seed).queries(pool, rate_qps=60.0 + 30.0 * seed, count=400)
    assert replay(pool, queries, "fcfs").response_ms == pytest.approx(with_simpy(pool, queries), rel=1e-9)


def test_the_oracle_is_that_of_a_heap() -> None:
    pool = Pool.of([[10.0, 20.0, 40.0], [12.0, 60.0, 200.0]], (2, 3), 100)
    queries = Draws([0.5, 0.3, 0.2], seed=4).queries(pool, rate_qps=1, count=3000)
    sizes = sorted(queries.bins.tolist())
    free, end = [(0.0, kind) for kind in (0, 0, 1, 1, 1)], 0.0
    while sizes:
        now, kind = heapq.heappop(free)
        size = sizes[-1] if kind == 0 else sizes[0]
        if pool.latency_ms[kind, size] > pool.qos_ms:
            continue
        sizes.pop() if kind == 0 else sizes.pop(0)
        done = now + pool.latency_ms[kind, size]
        heapq.heappush(free, (done, kind))
        end = max(end, done)
    assert oracle_rate_qps(pool, queries) == pytest.approx(3_000_000 / end, rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("noisy", [False, True])
def test_the_same_bits_without_numba(
    interpreted: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, rule: str, noisy: bool
) -> None:
    rng = np.random.default_rng(11)
    noise = Conditions(noise="lognormal", std_ms=np.full((2, 3), 9.0), misprediction=0.2) if noisy else Conditions()

    def run(seed: int) -> PoolRun:
        pool = Pool.of([[10, 20, 40], [12, 60, 200]], (1 + seed % 2, 1 + seed % 4), 100)
        return simulate_pool(
            pool,
            [0.5, 0.3, 0.2],
            rate_qps=40.0 + 20.0 * seed,
            rule=made(rule, pool),
            seed=seed,
            count=120,
            conditions=noise,
            most_late=int(rng.integers(5, 60)) if seed % 3 == 0 else None,
        )

    compiled = [run(seed) for seed in range(8)]
    rng = np.random.default_rng(11)
    for name in ("run_queues", "run_earliest", "run_matching"):
        monkeypatch.setattr(pool_kernels, name, getattr(interpreted["pool_kernels"], name))
    assert not hasattr(pool_kernels.run_matching, "py_func")
    for one, other in zip(compiled, [run(seed) for seed in range(8)], strict=True):
        assert one.response_ms.tobytes() == other.response_ms.tobytes()
        assert one.served_by.tolist() == other.served_by.tolist()
        assert (one.late, one.served, one.makespan_ms) == (other.late, other.served, other.makespan_ms)


def test_the_oracle_without_numba(interpreted: dict[str, ModuleType]) -> None:
    from hetplan.dispatch.rule_kernels import run_oracle

    rng = np.random.default_rng(2)
    for turn in range(20):
        tables = np.sort(rng.uniform(1, 120, (5, 3)), axis=0)
        rows, kind = np.sort(rng.integers(0, 5, 40)), np.repeat(np.arange(3), [1, 2, turn % 3])
        plain = interpreted["rule_kernels"].run_oracle(rows, tables, tables, kind, 1, 110.0)
        assert plain == run_oracle(rows, tables, tables, kind, 1, 110.0)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_every_query_is_served_once_and_no_instance_twice_at_a_time(rule: str, case: tuple[Pool, Queries]) -> None:
    pool, queries = case
    if rule == "threshold" and len(pool.counts) == 1:
        return
    run = replay(pool, queries, made(rule, pool))
    assert run.served == run.queries == queries.bins.size
    service = pool.latency_ms[run.served_by, queries.bins]
    assert (run.response_ms >= service * (1 - 1e-9)).all()
    assert run.late == (run.response_ms > pool.qos_ms * (1 + 1e-9)).sum()
    ends = queries.arrival_ms + run.response_ms
    for kind, instances in enumerate(pool.counts):
        mine = run.served_by == kind
        moments = sorted(
            [(e, -1) for e in ends[mine]] + [(e - s + 1e-9, 1) for e, s in zip(ends[mine], service[mine], strict=True)]
        )
        assert max(np.cumsum([step for _, step in moments]), default=0) <= instances


@pytest.mark.parametrize("rule", RULES)
def test_a_run_stops_past_the_allowed_lateness_and_only_then(rule: str) -> None:
    pool = Pool.of([[10, 40], [20, 200]], (1, 2), 60)
    full = simulate_pool(pool, [0.75, 0.25], rate_qps=70, rule=made(rule, pool), count=3000)
    assert full.late > 10
    at = simulate_pool(pool, [0.75, 0.25], rate_qps=70, rule=made(rule, pool), count=3000, most_late=full.late)
    assert not at.stopped
    assert at.response_ms.tobytes() == full.response_ms.tobytes()
    below = simulate_pool(pool, [0.75, 0.25], rate_qps=70, rule=made(rule, pool), count=3000, most_late=full.late - 1)
    assert below.stopped
    assert full.late - 1 < below.late <= full.late
    early = simulate_pool(pool, [0.75, 0.25], rate_qps=70, rule=made(rule, pool), count=3000, most_late=5)
    assert early.stopped
    assert early.served < 3000
    known = ~np.isnan(early.response_ms)
    assert (early.response_ms[known] == full.response_ms[known]).all()


def test_a_divided_pool_is_its_parts() -> None:
    pool = Pool.of([[10, 40], [20, 200]], (2, 6), 100)
    queries = Draws([0.75, 0.25], seed=0).queries(pool, rate_qps=200, count=2000)
    divided = replay(pool, queries, split_above=4)
    half = Pool.of([[10, 40], [20, 200]], (1, 3), 100)
    for which in (0, 1):
        part = Queries.of(half, arrival_ms=queries.arrival_ms[which::2], bins=queries.bins[which::2])
        assert divided.response_ms[which::2].tolist() == replay(half, part).response_ms.tolist()


def test_merging_alike_instances_changes_little() -> None:
    pool = Pool.of([[10, 40], [20, 200]], (2, 10), 100)
    weight = weights(pool.latency_ms)
    late = [
        simulate_pool(
            pool, [0.75, 0.25], rate_qps=330, rule=Matching(slo_ms=100, weight=weight, merge=merge), count=100_000
        ).late_share
        for merge in (True, False)
    ]
    assert late[0] == pytest.approx(late[1], abs=0.002)
    assert late[0] > 0.001
