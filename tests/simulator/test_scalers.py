"""Autoscalers as people run them: what they want of what they see, and what comes of it in a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.serving.system import Rule
from hetplan.simulator.run_records import Glance
from hetplan.simulator.scalers import Concurrency, Hpa, Scaled, Scaler, scaling
from hetplan.simulator.simulation import Simulation, Stream


def seen(now_s: float, use: float, wanted: int, ready: int | None = None, jobs: float = 0.0) -> Glance:
    return Glance(now_s * 1000.0, wanted, wanted if ready is None else ready, use, jobs)


def test_the_hpa_goes_up_at_once_and_down_after_its_window() -> None:
    """The rule of Kubernetes: ceil(ready x use / target), nothing within 10%, down to the largest wish of 300 s."""
    scaler = Hpa(0.5)
    assert scaler.wanted(seen(0.0, 0.8, 5)) == 8
    assert scaler.wanted(seen(15.0, 0.52, 8)) == 8
    assert scaler.wanted(seen(30.0, 0.1, 8)) == 8
    assert scaler.wanted(seen(60.0, 0.3, 8)) == 8
    assert scaler.wanted(seen(320.0, 0.1, 8)) == 5
    assert scaler.wanted(seen(700.0, 0.0, 5)) == 1


@pytest.mark.parametrize(
    ("use", "wanted", "ready", "counts"),
    [
        (0.9, 4, 4, 8),  # 7.2 of ready machines
        (0.9, 8, 4, 8),  # four more are on their way: with them idle, use is 0.45, and points down
        (1.0, 5, 4, 8),  # one on its way: 0.8 over five
        (1.0, 12, 4, 12),  # 0.33 over twelve
        (0.2, 8, 4, 2),  # down, by what is ready alone
        (0.0, 3, 0, 3),  # nothing reports
        (1.0, 2, 2, 4),
        (1.0, 1, 1, 2),
    ],
)
def test_machines_that_are_not_ready_count_as_idle(use: float, wanted: int, ready: int, counts: int) -> None:
    assert Hpa(0.5, down_window_s=0.0).wanted(seen(15.0, use, wanted, ready)) == counts


def test_the_hpa_adds_four_or_doubles_and_keeps_to_the_stock() -> None:
    assert Hpa(0.05).wanted(seen(15.0, 1.0, 2)) == 6
    assert Hpa(0.05).wanted(seen(15.0, 1.0, 10)) == 20
    assert Hpa(0.05, most=7).wanted(seen(15.0, 1.0, 4)) == 7


def test_concurrency_panics_up_and_comes_down_by_halves() -> None:
    scaler = Concurrency(2.0)
    steady = [scaler.wanted(seen(now, 0.0, 4, jobs=8.0)) for now in range(2, 62, 2)]
    assert steady == [4] * 30
    # The mean of three looks is (8 + 40 + 40) / 3: eight machines and more are twice what is ready.
    assert [scaler.wanted(seen(now, 0.0, 4, jobs=40.0)) for now in (62.0, 64.0)] == [10, 15]
    assert scaler.wanted(seen(100.0, 0.0, 15, jobs=0.0)) == 15, "no way down in a panic"
    assert scaler.wanted(seen(200.0, 0.0, 16, jobs=0.0)) == 8
    keda = Concurrency(2.0, panic_s=0.0)
    assert [keda.wanted(seen(now, 0.0, 4, jobs=jobs)) for now, jobs in ((2.0, 8.0), (4.0, 40.0))] == [4, 12]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("scaler", "highest"), [(Hpa(0.7), 29), (Concurrency(0.7), 1000)])
def test_a_slow_start_under_a_constant_load_is_not_answered_with_ever_more(
    queues: Any, scaler: Scaler, highest: int
) -> None:
    """14 of work, begun on 10 machines that take 60 s to start: 20 at 70% use, 29 while the backlog keeps all busy.

    Were those that start counted as busy, the first minute would ask for 42. Who counts queries under way asks for
    a machine for all that wait, and comes back when they are served.
    """
    system = queues.system(10, rule=Rule.SHORTEST, load=queues.load(1000.0), slo_ms=3000.0)
    system = replace(system, groups=(replace(system.groups[0], ready_ms=60_000.0),))
    run = Simulation(system, [Stream("ask", queues.poisson_ms(0.014, 14 * 1200))], horizon_ms=1.2e6)
    scaling([Scaled(("gpu",), (1000,), scaler)])(run)
    most = list[int]()
    for now_s in range(20, 1200, 20):
        run.at(now_s * 1000.0, lambda: most.append(run.workers("gpu")))
    result = run.run()
    assert max(most[:15]) <= highest
    assert 18 <= most[-1] <= 24
    assert np.mean(result.queries["finish"][-1000:] <= result.queries["deadline"][-1000:]) > 0.95


def test_more_than_the_stock_is_never_asked_for(queues: Any) -> None:
    system = queues.system(1, rule=Rule.SHORTEST, load=queues.load(1000.0))
    run = Simulation(system, [Stream("ask", queues.poisson_ms(0.014, 14 * 200))], horizon_ms=2e5)
    scaling([Scaled(("gpu",), (5,), Hpa(0.7, most=5))])(run)
    most = list[int]()
    for now_s in range(20, 200, 20):
        run.at(now_s * 1000.0, lambda: most.append(run.workers("gpu")))
    run.run()
    assert max(most) == 5


def test_a_glance_sees_what_is_ready_busy_and_waiting(queues: Any) -> None:
    """Two of three serve: one was busy for all of the second, the other for none of it; one query waits at nobody."""
    system = queues.system(1, rule=Rule.SHORTEST, load=queues.load(5000.0))
    run = Simulation(system, [Stream("ask", np.array([0.0, 100.0]))], horizon_ms=1e4)
    found = list[Glance]()
    run.at(1000.0, lambda: run.glance(["gpu"]))
    run.at(1000.0, lambda: run.scale("gpu", 2, ready_ms=0.0))
    run.at(1000.0, lambda: run.scale("gpu", 3, ready_ms=60_000.0))
    run.at(2000.0, lambda: found.append(run.glance(["gpu"])))
    run.run()
    assert found == [Glance(2000.0, wanted=3, ready=2, use=0.5, jobs=2.0)]
