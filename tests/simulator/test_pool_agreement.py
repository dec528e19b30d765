"""The engine and the pool's own fast loops are written apart: on what both can do they agree query by query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetplan.dispatch.earliest import Earliest
from hetplan.dispatch.fcfs import Fcfs
from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.threshold import Threshold
from hetplan.simulator.pool import Pool
from hetplan.simulator.pool_queries import Queries
from hetplan.simulator.pool_replay import replay
from hetplan.simulator.simulation import Simulation, Stream
from hetplan.simulator.system import App, Group, Load, Pull, Route, Rule, Service, Stage, System, Way

HAND = ([[10.0, 40.0], [20.0, 200.0]], 100.0)
THREE = ([[10.0, 20.0, 40.0], [10.0, 60.0, 200.0], [20.0, 200.0, 400.0]], 100.0)


def engine(
    latency: Any, counts: tuple[int, ...], qos_ms: float, rule: Any, times: Any, bins: Any
) -> np.ndarray[Any, Any]:
    table = np.asarray(latency)
    loads = [Load("m", {"q": Service(row[:, None])}) for row in table]
    groups = tuple(
        Group(f"t{n}", (load,), count=count) for n, (load, count) in enumerate(zip(loads, counts, strict=True))
    )
    live = [n for n, count in enumerate(counts) if count]
    app = App("q", (Stage("s"),), slo_ms=qos_ms, kinds=table.shape[1])
    if isinstance(rule, Matching):
        late = rule.late_cost()
        ways = tuple(Way(f"t{n}", "m", weight=rule.weight[n], late_cost=late[n]) for n in live)
        routes = (Route("q", "s", ways, Rule.CENTRAL, Pull.MATCHING, limit_ms=rule.limit_ms, merge=rule.merges),)
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
    rng = np.random.default_rng(seed)
    bins = rng.choice(table.shape[1], 1500, p=[0.75, 0.25] if table.shape[1] == 2 else [0.5, 0.25, 0.25])
    capacity = sum(count / table[n].mean() for n, count in enumerate(counts))
    times = np.cumsum(rng.exponential(1.0 / (load * capacity), len(bins)))
    fast = replay(pool, Queries.of(pool, arrival_ms=times, bins=bins), rules[name]).response_ms
    np.testing.assert_allclose(engine(latency, counts, qos_ms, rules[name], times, bins), fast, rtol=0, atol=1e-7)
