"""Figures, intervals, run lengths and verdicts."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from hetplan.errors import Cancelled
from hetplan.profiles.slo import Arrivals
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import (
    Estimate,
    estimate,
    figures_of,
    queries_needed,
    run_length_s,
    warm_up_queries,
)
from hetplan.simulator.replications import run_all, seed_of
from hetplan.simulator.report import Verdict, judge
from hetplan.simulator.simulate import simulate_system
from hetplan.simulator.simulation import Simulation, Stream
from hetplan.simulator.system import Late, Rule


def test_students_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    holds = 0
    for _ in range(2000):
        found = estimate(rng.normal(5.0, 2.0, 5).tolist())
        holds += found.low <= 5.0 <= found.high
    assert holds / 2000 == pytest.approx(0.95, abs=0.015)


def test_intervals_of_degenerate_samples() -> None:
    assert estimate([3.0]) == Estimate(3.0, 3.0, 3.0)
    assert estimate([3.0, 3.0]) == Estimate(3.0, 3.0, 3.0)
    assert estimate([2.0, float("inf")]).as_dict() == {"value": None, "interval": [2.0, None]}
    assert np.isnan(estimate([]).value)
    assert estimate([1.0, float("nan"), 3.0]).value == 2.0


def test_runs_are_never_too_short() -> None:
    """200 queries beyond the percentile, 200 limits' worth of time, and the warm-up on top."""
    assert queries_needed(99.0, rate_qps=10.0, slo_ms=100.0) == 20_000
    assert queries_needed(99.9, rate_qps=10.0, slo_ms=100.0) == 200_000
    assert queries_needed(50.0, rate_qps=2000.0, slo_ms=500.0) == 200_000
    for percentile in (50.0, 95.0, 99.0):
        for rate in (0.5, 20.0, 5000.0):
            for slo_ms in (5.0, 300.0, 5000.0):
                length = run_length_s(percentile, rate_qps=rate, slo_ms=slo_ms, arrivals=Arrivals())
                count = int(length * rate)
                warm = warm_up_queries(count, rate_qps=rate, slo_ms=slo_ms, arrivals=Arrivals())
                assert count - warm >= queries_needed(percentile, rate_qps=rate, slo_ms=slo_ms) - 2


def test_runs_hold_whole_days_and_many_stays() -> None:
    day = Arrivals(process="diurnal", peak=2.0, period_s=86_400.0)
    assert run_length_s(99.0, rate_qps=1000.0, slo_ms=50.0, arrivals=day) == 86_400.0
    assert warm_up_queries(10_000, rate_qps=1000.0, slo_ms=50.0, arrivals=day) == 0
    states = Arrivals(process="mmpp", relative_rates=(0.5, 1.5), stay_s=(300.0, 300.0))
    assert run_length_s(99.0, rate_qps=1000.0, slo_ms=50.0, arrivals=states) == 6000.0


def test_figures_by_hand(queues: Any) -> None:
    """One worker of 10 ms, limit 25: at 0, 0, 0, 0 and 100 responses are 10, 20, 30, 40, 10."""
    result = queues.run(queues.system(1, slo_ms=25.0), [0.0, 0.0, 0.0, 0.0, 100.0], horizon_ms=1000.0)
    figures = figures_of(result, "ask", percentiles=(50.0, 80.0, 100.0))
    assert figures.mean_ms == 22.0
    assert figures.percentiles_ms == {50.0: 20.0, 80.0: 30.0, 100.0: 40.0}
    assert (figures.in_time, figures.late, figures.dropped) == (0.6, 0.4, 0.0)
    assert figures.goodput_qps == pytest.approx(3.0)
    assert result.busy.sum() * (1000.0 / 120) == pytest.approx(50.0)


def test_a_query_without_an_answer_has_the_longest_response(queues: Any) -> None:
    system = queues.system(1, slo_ms=25.0, rule=Rule.SHARES, app={"late": Late.DROP})
    result = queues.run(system, [0.0, 0.0, 0.0, 0.0, 100.0], horizon_ms=1000.0)
    figures = figures_of(result, "ask", percentiles=(60.0, 61.0))
    assert figures.dropped == 0.4
    assert figures.percentiles_ms == {60.0: 20.0, 61.0: float("inf")}
    assert figures.mean_ms == pytest.approx(40.0 / 3)


def test_a_single_seed_is_cut_into_stretches(queues: Any) -> None:
    demand = AppDemand("ask", 0, 80.0, Arrivals(), 100.0, 99.0)
    one = simulate_system(queues.system(1), [demand], seeds=1, duration_s=500.0, noise="exponential")
    many = simulate_system(queues.system(1), [demand], seeds=10, duration_s=500.0, noise="exponential")
    single, several = one.apps["ask"].figures["mean_ms"], many.apps["ask"].figures["mean_ms"]
    assert single.low < 50.0 < single.high
    assert several.low < 50.0 < several.high
    assert several.high - several.low < single.high - single.low


def test_intervals_over_seeds_hold_the_truth(queues: Any) -> None:
    """M/M/1 at 0.7: of twenty reports most intervals hold the mean of 33.3 ms."""
    demand = AppDemand("ask", 0, 70.0, Arrivals(), 100.0, 99.0)
    holds = 0
    for seed in range(20):
        report = simulate_system(queues.system(1), [demand], seeds=4, seed=seed, duration_s=200.0, noise="exponential")
        found = report.apps["ask"].figures["mean_ms"]
        holds += found.low <= 100.0 / 3 <= found.high
    assert holds >= 16


def test_too_much_load_is_told(queues: Any) -> None:
    demand = AppDemand("ask", 0, 150.0, Arrivals(), 100.0, 99.0)
    report = simulate_system(queues.system(1), [demand], seeds=2, duration_s=100.0)
    codes = [code for code, _, _ in report.warnings]
    assert codes == ["W-short-run", "W-unstable"]
    calm = simulate_system(queues.system(3), [demand], seeds=2)
    assert calm.warnings == ()


def test_verdicts() -> None:
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.45) is Verdict.KEPT
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.55) is Verdict.UNDECIDED
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.65) is Verdict.BROKEN
    assert judge(Estimate(0.5, 0.4, 0.6), "=", 0.55) is Verdict.KEPT
    assert judge(Estimate(0.5, 0.4, 0.6), "=", 0.65) is Verdict.BROKEN
    assert judge(Estimate(float("inf"), float("inf"), float("inf")), "<=", 100.0) is Verdict.BROKEN
    assert judge(Estimate(float("nan"), float("nan"), float("nan")), "<=", 100.0) is Verdict.NOT_SIMULATED


def test_runs_go_on_in_order_and_tell_how_far_they_are() -> None:
    told = []

    def job(number: int) -> Any:
        def work(stop: threading.Event, share: Any) -> int:
            for step in range(4):
                time.sleep(0.03)
                share(step / 4)
            return number

        return work

    assert run_all([job(n) for n in range(5)], threads=2, on_event=lambda event: told.append(event.done)) == list(
        range(5)
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert [seed_of(1, n) for n in range(2)] == [1000003, 1000004]


def test_an_error_in_one_run_ends_all() -> None:
    def fails(stop: threading.Event, share: Any) -> None:
        raise ValueError("no")

    def waits(stop: threading.Event, share: Any) -> None:
        assert stop.wait(20.0)

    with pytest.raises(ValueError, match="no"):
        run_all([fails, waits], threads=2, cancel=threading.Event())


def test_cancelling_ends_a_run_soon(queues: Any) -> None:
    cancel = threading.Event()
    demand = AppDemand("ask", 0, 90.0, Arrivals(), 100.0, 99.0)
    seen = []

    def on_event(event: Any) -> None:
        seen.append(event.done)
        cancel.set()

    with pytest.raises(Cancelled):
        simulate_system(
            queues.system(1), [demand], seeds=2, duration_s=12_000.0, cancel=cancel, on_event=on_event, threads=2
        )
    assert seen
    assert seen[0] < 1.0


def test_a_run_can_be_cancelled_from_outside(queues: Any) -> None:
    cancel = threading.Event()
    cancel.set()
    run = Simulation(queues.system(1), [Stream("ask", np.arange(500_000.0) * 11.0)])
    with pytest.raises(Cancelled):
        run.run(cancel=cancel)
