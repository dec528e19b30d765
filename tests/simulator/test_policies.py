"""Model selection by table: the engine against a plain loop, and against the router's own look-up."""

from __future__ import annotations

import math
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetplan as hp
from hetplan.planner.promise_figures import Verdict
from hetplan.profiles.slo import Arrivals
from hetplan.serving.system import App, Group, Load, PolicyTable, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.demand import arrival_times, seeded
from hetplan.simulator.simulation import Simulation, Stream

SLO_MS = 60.0


def random_policy(seed: int, *, models: int = 3, queue_max: int = 6, slacks: int = 7) -> tuple[PolicyTable, Any]:
    """A table of random choices, batches of 0 among them, and latencies [model, batch - 1]."""
    rng = np.random.default_rng(seed)
    latency = rng.uniform(3.0, 9.0, models)[:, None] + rng.uniform(0.5, 3.0, models)[:, None] * np.arange(queue_max + 4)
    table = PolicyTable(
        np.concatenate([[0.0], np.sort(rng.uniform(1.0, SLO_MS, slacks - 2)), [SLO_MS]]),
        rng.integers(0, models, (queue_max, slacks)).astype(np.int32),
        rng.integers(0, np.arange(1, queue_max + 1)[:, None] + 1, (queue_max, slacks)).astype(np.int32),
        otherwise=int(rng.integers(models)),
        otherwise_batch=int(rng.integers(0, 4)),
    )
    return table, latency


def decide(table: PolicyTable, waiting: int, slack_ms: float) -> tuple[int, int]:
    if waiting > len(table.choice):
        return table.otherwise, min(waiting, table.otherwise_batch) if table.otherwise_batch else waiting
    place = max(bisect_right((table.slack_ms - 1e-6).tolist(), slack_ms) - 1, 0)
    return int(table.choice[waiting - 1, place]), int(table.batch[waiting - 1, place])


def plain_loop(table: PolicyTable, latency: Any, times: Any) -> list[float]:
    """One worker: at every end of service, look up and serve. Nothing else ever happens."""
    response = [math.inf] * len(times)
    head, now = 0, 0.0
    while head < len(times):
        now = max(now, times[head])
        waiting = int(np.searchsorted(times, now, side="right")) - head
        model, size = decide(table, waiting, times[head] + SLO_MS - now)
        if size == 0:
            head += 1
            continue
        size = min(size, latency.shape[1])
        now += latency[model, size - 1]
        for query in range(head, head + size):
            response[query] = now - times[query]
        head += size
    return response


def system(table: PolicyTable, latency: Any, *, workers: int = 1) -> System:
    loads = tuple(Load(f"m{n}", {"ask": Service(row[None, :])}) for n, row in enumerate(latency))
    return System(
        (App("ask", (Stage("s"),), slo_ms=SLO_MS),),
        (Group("w", loads, count=workers, policies=(table,)),),
        (Route("ask", "s", (Way("w", "m0"),), rule=Rule.ROUND_ROBIN),),
    )


def responses(made: System, times: Any) -> Any:
    queries = Simulation(made, [Stream("ask", times)]).run().queries
    return np.where(queries["status"] == 1, queries["finish"] - queries["arrival"], np.inf)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([60.0, 90.0, 200.0]))
def test_one_worker_does_what_a_plain_loop_does(seed: int, rate: float) -> None:
    table, latency = random_policy(seed)
    gamma = Arrivals(process="gamma", shape=3.0)
    times = arrival_times(gamma, rate_qps=rate, duration_s=10.0, random=seeded(seed)) * 1e3
    np.testing.assert_allclose(responses(system(table, latency), times), plain_loop(table, latency, times), atol=1e-8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_workers_in_turn_do_not_touch_each_other(seed: int) -> None:
    """Round robin over three: each is the plain loop on every third query."""
    table, latency = random_policy(seed)
    times = np.cumsum(np.random.default_rng(seed).exponential(5.0, 900))
    found = responses(system(table, latency, workers=3), times)
    for worker in range(3):
        np.testing.assert_allclose(found[worker::3], plain_loop(table, latency, times[worker::3]), atol=1e-8)


def test_the_router_decides_as_the_simulator_does() -> None:
    lookup = pytest.importorskip("hetplan.dispatch.policy_lookup")
    written = pytest.importorskip("hetplan.profiles.plan_policy").PolicyTable
    table, _ = random_policy(4)
    names = ["m0", "m1", "m2"]
    selector = lookup.PolicySelector(
        [
            written(
                workers="w",
                slo_ms=SLO_MS,
                rate_qps=100.0,
                queue_max=len(table.choice),
                slack_ms=tuple(table.slack_ms),
                models=tuple(names),
                choice=written.rows([[names[m] for m in row] for row in table.choice]),
                batch=written.rows(table.batch.tolist()),
                otherwise={"model": names[table.otherwise], "batch": table.otherwise_batch or "max"},
            )
        ]
    )
    for waiting in range(1, 9):
        for slack in [-5.0, *table.slack_ms, *(table.slack_ms - 1e-9), *(table.slack_ms - 1e-3), 100.0]:
            model, size = decide(table, waiting, slack)
            chosen = selector.select(waiting=waiting, slack_ms=float(slack), rate_qps=50.0)
            assert chosen.batch == size
            assert size == 0 or chosen.model == names[model]


@pytest.mark.slow
def test_a_shipped_policy_is_simulated_with_the_times_that_it_was_made_for():
    """Its plan names no routes and serves batches beyond the tables; other times than its own judge nothing."""
    example = Path(__file__).resolve().parents[2] / "examples" / "policy"
    files = (example / "profile.json", example / "slo.json")
    plan = hp.solve(*files, options={"grid": "fld:20"}).require()
    own = hp.simulate(plan, *files, noise="p95", seeds=3, duration_s=200.0)
    assert {line.verdict for line in own.lines if line.by == "simulation/1"} <= {Verdict.MET, Verdict.UNDECIDED}
    other = hp.simulate(plan, *files, noise="table", seeds=1, duration_s=20.0)
    assert {line.verdict for line in other.lines if line.by == "simulation/1"} == {Verdict.REPORTED}
