"""Same seed, same bits: whatever the threads, and whether or not the hot code is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.compiled import is_compiled
from hetplan.profiles.slo import Arrivals
from hetplan.serving.system import Noise
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.simulate import simulate_system

SCRIPT = """
import hashlib
import numpy as np
from hetplan.dispatch.matching import Matching
from hetplan.simulator.simulation import Simulation, Stream
from hetplan.serving.system import *

def load(first, **more):
    mean = np.array([[first, 1.5 * first], [2 * first, 2.4 * first]])
    return Load("x", {"ask": Service(mean, 0.3 * mean)}, **more)

stages = (Stage("a", (Edge("b", 1.6), Edge("c", 0.7))), Stage("b"), Stage("c"))
app = App("ask", stages, slo_ms=60.0, kinds=2, hop_ms=1.0, late=Late.DROP_LAST_TASK)
one = Load("x", {"ask": Service(np.array([[9.0], [14.0]]))})
costs = Matching(slo_ms=60.0, weight=(1.0, 0.5)).late_cost()
groups = (Group("g", (load(10.0, max_wait_ms=3.0),), count=3), Group("h", (load(12.0),), count=3),
          Group("m", (one,), count=2), Group("n", (one,), count=1))
routes = (
    Route("ask", "a", (Way("g", "x", 0.6), Way("h", "x", 0.4, inner=Inner.RANDOM))),
    Route("ask", "b", (Way("m", "x", late_cost=costs[0]), Way("n", "x", weight=0.5, late_cost=costs[1])),
          rule=Rule.CENTRAL, pull=Pull.MATCHING, limit_ms=58.8),
    Route("ask", "c", (Way("g", "x"), Way("h", "x")), rule=Rule.SHORTEST),
)
rng = np.random.default_rng(1)
times, kinds = np.cumsum(rng.exponential(9.0, 600)), rng.integers(0, 2, 600).astype(np.int32)
run = Simulation(System((app,), groups, routes), [Stream("ask", times, kinds)], noise=Noise.LOGNORMAL, seed=5,
                 mispredict=0.05)
run.at(2000.0, lambda: run.scale("g", 2))
run.at(3000.0, lambda: run.fail("h", 1))
result = run.run()
print(hashlib.sha256(result.queries.tobytes() + result.busy.tobytes() + result.waiting.tobytes()).hexdigest())
"""


def _digest(first: str = "", **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", first + SCRIPT],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.skipif(not is_compiled(), reason="there is only the plain code here")
@pytest.mark.slow
def test_compiled_and_plain_code_agree_bit_for_bit() -> None:
    compiled = _digest()
    assert compiled == _digest(NUMBA_DISABLE_JIT="1")
    assert compiled == _digest("import sys; sys.modules['numba'] = None\n"), "where numba is not installed"


def test_threads_change_nothing(queues: Any) -> None:
    demand = AppDemand("ask", 0, rate_qps=150.0, arrivals=Arrivals(), slo_ms=100.0, percentile=99.0)
    one, two = (
        simulate_system(queues.system(2), [demand], seeds=4, duration_s=20.0, noise="exponential", threads=threads)
        for threads in (1, 4)
    )
    assert one.as_dict() == two.as_dict()


def test_another_seed_is_another_run(queues: Any) -> None:
    times = queues.poisson_ms(0.1, 500)
    results = [queues.run(queues.system(2), times, noise=Noise.EXPONENTIAL, seed=seed) for seed in (1, 1, 2)]
    finishes = [result.queries["finish"] for result in results]
    np.testing.assert_array_equal(finishes[0], finishes[1])
    assert not np.array_equal(finishes[0], finishes[2])


def test_queries_meet_the_same_luck_under_another_rule(queues: Any) -> None:
    """With ample workers nobody waits, so every response is the query's own draw, whatever sends it where."""
    from hetplan.serving.system import Rule

    times = queues.poisson_ms(0.05, 500)
    responses = [
        queues.response_ms(queues.run(queues.system(60, rule=rule), times, noise=Noise.EXPONENTIAL))
        for rule in (Rule.CENTRAL, Rule.ROUND_ROBIN, Rule.SHORTEST)
    ]
    np.testing.assert_allclose(responses[0], responses[1])
    np.testing.assert_allclose(responses[0], responses[2])


def test_the_same_queries_in_every_run_leave_only_service_and_dispatch_to_chance(queues: Any) -> None:
    demand = AppDemand("ask", 0, rate_qps=150.0, arrivals=Arrivals(), slo_ms=100.0, percentile=99.0, queries_seed=7)
    first, second = (demand.stream(seed, 20.0) for seed in (1, 2))
    np.testing.assert_array_equal(first.times_ms, second.times_ms)
    np.testing.assert_array_equal(first.times_ms, replace(demand, queries_seed=None).stream(7, 20.0).times_ms)
    still = simulate_system(queues.system(2), [demand], seeds=3, duration_s=20.0, noise="mean").apps["ask"]
    noisy = simulate_system(queues.system(2), [demand], seeds=3, duration_s=20.0, noise="exponential").apps["ask"]
    assert still.figures["mean_ms"].low == still.figures["mean_ms"].high
    assert noisy.figures["mean_ms"].low < noisy.figures["mean_ms"].high
