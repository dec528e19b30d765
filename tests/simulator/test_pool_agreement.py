"""The engine and the pool's own fast loops are written apart: on what both can do they agree query by query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.parts import SPLIT_ABOVE, parts_of_pool
from hetplan.dispatch.queue_rules import Earliest, Fcfs, Threshold
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import App, Group, Load, Pull, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.pool import Pool, Queries, replay
from hetplan.simulator.simulation import Simulation, Stream

HAND = ([[10.0, 40.0], [20.0, 200.0]], 100.0)
THREE = ([[10.0, 20.0, 40.0], [10.0, 60.0, 200.0], [20.0, 200.0, 400.0]], 100.0)


def engine(
    latency: Any, counts: tuple[int, ...], qos_ms: float, rule: Any, times: Any, bins: Any, parts: int = 1
) -> np.ndarray[Any, Any]:
    table = np.asarray(latency)
    loads = [Load("m", {"q": Service(row[:, None])}) for row in table]
    groups = tuple(
        Group(f"t{n}", (load,), count=count, hardware=f"t{n}")
        for n, (load, count) in enumerate(zip(loads, counts, strict=True))
    )
    live = [n for n, count in enumerate(counts) if count]
    app = App("q", (Stage("s"),), slo_ms=qos_ms, kinds=table.shape[1])
    if isinstance(rule, Matching):
        late = rule.late_cost()
        ways = tuple(Way(f"t{n}", "m", weight=rule.weight[n], late_cost=late[n]) for n in live)
        how: dict[str, Any] = {"limit_ms": rule.limit_ms, "merge": rule.merges, "parts": parts}
        routes = (Route("q", "s", ways, Rule.CENTRAL, Pull.MATCHING, **how),)
    elif isinstance(rule, Threshold):
        small = tuple(kind for kind in range(app.kinds) if kind + 1 <= rule.threshold)
        large = tuple(kind for kind in range(app.kinds) if kind not in small)
        routes = (
            Route("q", "s", tuple(Way(f"t{n}", "m") for n in live if n == rule.base), Rule.CENTRAL, kinds=large),
            Route(
                "q", "s", tuple(Way(f"t{n}", "m") for n in live if n != rule.base), Rule.CENTRAL, kinds=small, name="s"
            ),
        )
    else:
        kind = Rule.EARLIEST if isinstance(rule, Earliest) else Rule.CENTRAL
        routes = (Route("q", "s", tuple(Way(f"t{n}", "m") for n in live), kind),)
    stream = Stream("q", np.asarray(times, dtype=float), np.asarray(bins, dtype=np.int32))
    queries = Simulation(System((app,), groups, routes), [stream]).run().queries
    return np.asarray(queries["finish"] - queries["arrival"])


@pytest.mark.parametrize(
    ("rule", "responses"),
    [
        (Matching(slo_ms=100, weight=(1.0, 0.2)), [20.0, 40.0, 38.0, 51.0]),
        (Fcfs(), [10.0, 200.0, 18.0, 40.0]),
        (Earliest(), [10.0, 49.0, 20.0, 60.0]),
    ],
)
def test_the_specifications_four_queries(rule: Any, responses: list[float]) -> None:
    """Kairos specification, G11."""
    assert engine(*_args(HAND, (1, 1)), rule, [0.0, 1.0, 2.0, 30.0], [0, 1, 0, 1]).tolist() == responses


def _args(case: tuple[Any, float], counts: tuple[int, ...]) -> tuple[Any, tuple[int, ...], float]:
    return case[0], counts, case[1]


def drawn(case: Any, counts: tuple[int, ...], load: float, seed: int, count: int = 1500) -> tuple[Any, Any]:
    """Arrivals and bins at so much of what the pool's types do on average."""
    table = np.asarray(case[0])
    rng = np.random.default_rng(seed)
    bins = rng.choice(table.shape[1], count, p=[0.75, 0.25] if table.shape[1] == 2 else [0.5, 0.25, 0.25])
    capacity = sum(count / table[n].mean() for n, count in enumerate(counts))
    return np.cumsum(rng.exponential(1.0 / (load * capacity), len(bins))), bins


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [0.4, 0.9, 1.3])
@pytest.mark.parametrize(("case", "counts"), [(HAND, (1, 3)), (THREE, (2, 2, 3)), (THREE, (1, 0, 4))])
@pytest.mark.parametrize("name", ["matching", "lexicographic", "fcfs", "earliest", "threshold"])
def test_both_engines_end_every_query_at_the_same_time(
    name: str, case: Any, counts: tuple[int, ...], load: float, seed: int
) -> None:
    latency, qos_ms = case
    pool = Pool.of(latency, counts, qos_ms)
    table = np.asarray(latency)
    rules = {
        "matching": Matching(slo_ms=qos_ms, weight=weights(table)),
        "lexicographic": Matching(slo_ms=qos_ms, weight=weights(table), penalty="lexicographic"),
        "fcfs": Fcfs(),
        "earliest": Earliest(),
        "threshold": Threshold(threshold=1.0),
    }
    times, bins = drawn(case, counts, load, seed)
    fast = replay(pool, Queries.of(pool, arrival_ms=times, bins=bins), rules[name]).response_ms
    np.testing.assert_allclose(engine(latency, counts, qos_ms, rules[name], times, bins), fast, rtol=0, atol=1e-7)


@pytest.mark.parametrize("load", [0.4, 0.9, 1.3])
@pytest.mark.parametrize(("case", "counts", "parts"), [(HAND, (2, 9), 2), (THREE, (3, 4, 8), 3), (THREE, (0, 5, 8), 4)])
def test_both_engines_divide_a_pool_alike(case: Any, counts: tuple[int, ...], parts: int, load: float) -> None:
    latency, qos_ms = case
    pool, rule = Pool.of(latency, counts, qos_ms), Matching(slo_ms=qos_ms, weight=weights(latency))
    most = -(-sum(counts) // parts)
    assert parts_of_pool(counts, weight=rule.weight, most=most) == parts
    times, bins = drawn(case, counts, load, seed=parts)
    queries = Queries.of(pool, arrival_ms=times, bins=bins)
    fast = replay(pool, queries, rule, split_above=most).response_ms
    np.testing.assert_allclose(engine(*_args(case, counts), rule, times, bins, parts), fast, rtol=0, atol=1e-7)
    assert (replay(pool, queries, rule, split_above=0).response_ms != fast).any()


def test_a_plan_is_played_as_its_pool_was_simulated(plans: Any) -> None:
    """Two base and sixty others, these in two groups: the engine plays what the plan states, query by query."""
    times, bins = drawn(HAND, (2, 60), 0.4, seed=5)
    pool, rule = Pool.of(HAND[0], (2, 60), HAND[1]), Matching(slo_ms=HAND[1], weight=(1.0, 0.2))
    queries = Queries.of(pool, arrival_ms=times, bins=bins)

    def played(split_above: int | None) -> np.ndarray[Any, Any]:
        dispatch = {"rule": "matching/1", "slo_ms": 100.0, "weight": {"base": 1.0, "aux": 0.2}}
        plan, inputs = plans.pool((2, 37), dispatch={**dispatch, "split_above": split_above})
        first, second = plan.workers
        loads = (second.loads[0].model_copy(update={"id": "w3.m"}),)
        other = second.model_copy(update={"id": "w3", "count": 23, "loads": loads})
        (period,) = planned_systems(plan.model_copy(update={"workers": (first, second, other)}), inputs, noise="mean")
        found = Simulation(period.system, [Stream("rank", times, bins.astype(np.int32))]).run().queries
        return np.asarray(found["finish"] - found["arrival"])

    for split_above in (SPLIT_ABOVE, None):
        fast = replay(pool, queries, rule, split_above=split_above or 0).response_ms
        np.testing.assert_allclose(played(split_above), fast, rtol=0, atol=1e-7)
    assert (played(SPLIT_ABOVE) != played(None)).any()
    assert played(62).tolist() == played(None).tolist()
