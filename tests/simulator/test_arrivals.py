"""Arrival processes: the mean asked for, the variation that the process has, the shape that a trace had."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.errors import InputError
from hetplan.profiles.slo import Arrivals, Mix
from hetplan.simulator.demand import (
    AppDemand,
    arrival_times,
    arrivals_named,
    checked_trace,
    draw_kinds,
    scaled_trace,
    seeded,
)

PROCESSES = [
    Arrivals(),
    Arrivals(process="gamma", shape=0.3),
    Arrivals(process="gamma", shape=4.0),
    Arrivals(process="mmpp", relative_rates=(0.5, 1.5), stay_s=(5.0, 5.0)),
    Arrivals(process="diurnal", peak=1.8, period_s=400.0),
    Arrivals(process="diurnal", peak=4.0, period_s=400.0),
    Arrivals(process="deterministic"),
]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: f"{process.process}-{process.shape or process.peak}")
def test_times_are_sorted_within_the_run_and_of_the_mean_rate(process: Arrivals) -> None:
    times = arrival_times(process, rate_qps=40.0, duration_s=4000.0, random=seeded(1))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 4000.0
    assert len(times) / 4000.0 == pytest.approx(40.0, rel=0.03)
    again = arrival_times(process, rate_qps=40.0, duration_s=4000.0, random=seeded(1))
    np.testing.assert_array_equal(times, again)
    if process.process != "deterministic":
        assert not np.array_equal(
            times[:9], arrival_times(process, rate_qps=40.0, duration_s=99.0, random=seeded(2))[:9]
        )


@pytest.mark.parametrize(("shape", "variation"), [(0.3, 1 / 0.3), (1.0, 1.0), (4.0, 0.25)])
def test_gamma_gaps_vary_as_their_shape_says(shape: float, variation: float) -> None:
    times = arrival_times(Arrivals(process="gamma", shape=shape), rate_qps=50.0, duration_s=4000.0, random=seeded(2))
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(variation, rel=0.03)


def test_poisson_counts_are_poisson() -> None:
    times = arrival_times(Arrivals(), rate_qps=50.0, duration_s=4000.0, random=seeded(3))
    counts = np.bincount(times.astype(int), minlength=4000)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)


def test_mmpp_counts_spread_more_than_poisson_by_what_theory_says() -> None:
    """Two states, mean stay tau each, rates (1 -+ d) r: the index of dispersion over long windows is 1 + r d^2 tau."""
    rate, swing, stay = 20.0, 0.5, 2.0
    process = Arrivals(process="mmpp", relative_rates=(1 - swing, 1 + swing), stay_s=(stay, stay))
    times = arrival_times(process, rate_qps=rate, duration_s=100_000.0, random=seeded(4))
    counts = np.bincount((times / 100.0).astype(int))[:1000]
    assert counts.var() / counts.mean() == pytest.approx(1.0 + rate * swing**2 * stay, rel=0.2)


@pytest.mark.parametrize("peak", [1.3, 1.9, 3.0, 6.0])
def test_a_day_has_its_peak(peak: float) -> None:
    process = Arrivals(process="diurnal", peak=peak, period_s=100.0)
    times = arrival_times(process, rate_qps=100.0, duration_s=4000.0, random=seeded(5))
    hours = np.bincount((times % 100.0 / 2.0).astype(int), minlength=50) / (2.0 * 40)
    assert hours.max() == pytest.approx(100.0 * peak, rel=0.06)
    assert np.argmax(hours) in (23, 24, 25, 26)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 12.0), st.integers(0, 99))
def test_scaling_a_trace_keeps_its_shape(factor: float, seed: int) -> None:
    recorded = np.sort(np.random.default_rng(seed).random(4000) ** 2 * 200.0)
    span = float(recorded[-1] - recorded[0])
    scaled = scaled_trace(recorded, rate_qps=factor * 4000 / span, duration_s=span, random=seeded(seed))
    assert (np.diff(scaled) >= 0).all()
    assert len(scaled) == pytest.approx(factor * 4000, rel=0.15)
    before = np.histogram(recorded - recorded[0], 10, (0, span))[0] / 4000
    after = np.histogram(scaled, 10, (0, span))[0] / len(scaled)
    # Five standard errors of a share among so many kept at random.
    np.testing.assert_allclose(after, before, atol=2.5 / np.sqrt(len(scaled)) + 0.005)


def test_a_trace_at_its_own_rate_is_itself_and_repeats() -> None:
    recorded = np.array([0.0, 1.0, 1.5, 3.0])
    cycle = 4.0
    once = scaled_trace(recorded, rate_qps=4 / cycle, duration_s=4.0, random=seeded(0))
    np.testing.assert_allclose(once, recorded)
    twice = scaled_trace(recorded, rate_qps=4 / cycle, duration_s=8.0, random=seeded(0))
    np.testing.assert_allclose(twice, np.r_[recorded, recorded + cycle])


def test_copies_laid_over_each_other_do_not_arrive_together() -> None:
    scaled = scaled_trace(np.arange(500.0), rate_qps=3.0, duration_s=500.0, random=seeded(0))
    assert len(np.unique(scaled)) == len(scaled)


def test_kinds_follow_the_shares() -> None:
    mix = Mix(axes=("batch",), bins=((1.0,), (8.0,), (32.0,)), share=(0.7, 0.2, 0.1))
    counts = np.bincount(draw_kinds(mix, 50_000, seeded(1)), minlength=3) / 50_000
    np.testing.assert_allclose(counts, [0.7, 0.2, 0.1], atol=0.01)
    seen = Mix(axes=("batch",), bins=((1.0,), (8.0,)), observed=((1.0,), (3.0,), (8.0,), (1.0,)))
    assert np.bincount(draw_kinds(seen, 10_000, seeded(1)))[1] == pytest.approx(5000, abs=200)


def test_nothing_comes_of_no_rate() -> None:
    assert len(arrival_times(Arrivals(), rate_qps=0.0, duration_s=9.0, random=seeded(0))) == 0
    with pytest.raises(InputError, match="no trace"):
        arrival_times(Arrivals(process="empirical"), rate_qps=1.0, duration_s=9.0, random=seeded(0))


@pytest.mark.parametrize("text", ["poisson", "gamma:2", "diurnal:1.8,3600", "mmpp:0.5,10/1.5,10", "deterministic"])
def test_processes_by_name(text: str) -> None:
    assert arrivals_named(text).process == text.split(":")[0]


@pytest.mark.parametrize(
    "text", ["", "poison", "gamma", "gamma:-1", "mmpp:1", "diurnal:0.5", "poisson:3", "mmpp:1,2/3,4"]
)
def test_a_wrong_name_says_what_is_right(text: str) -> None:
    with pytest.raises(InputError, match="Write poisson"):
        arrivals_named(text)


def test_the_demand_of_successive_periods() -> None:
    demand = AppDemand("a", 0, 15.0, Arrivals(), 100.0, 99.0, series_qps=(10.0, 20.0, 15.0), period_s=100.0)
    times = demand.stream(3, demand.length_s()).times_ms / 1000.0
    counts = np.histogram(times, 3, (0, 300.0))[0] / 100.0
    np.testing.assert_allclose(counts, [10.0, 20.0, 15.0], rtol=0.12)
    assert demand.peak_qps() == 20.0


def test_the_peak_of_a_trace_is_its_busiest_ten_seconds() -> None:
    recorded = np.r_[np.linspace(0.0, 9.9, 50), np.linspace(10.0, 19.9, 200), np.linspace(20.0, 39.0, 40)]
    demand = AppDemand("a", 0, 290 / 39, Arrivals(), 100.0, 99.0, trace_s=recorded, as_recorded=True)
    assert demand.peak_qps() == pytest.approx(20.0)


def test_the_burstiest_gamma_process_ends() -> None:
    with pytest.raises(InputError, match="one instant"):
        arrival_times(Arrivals(process="gamma", shape=1e-9), rate_qps=10.0, duration_s=10.0, random=seeded(0))
    times = arrival_times(Arrivals(process="gamma", shape=0.01), rate_qps=10.0, duration_s=10_000.0, random=seeded(0))
    assert len(times) == pytest.approx(100_000, rel=0.2)


@pytest.mark.parametrize("described", [{"process": "gamma"}, {"process": "diurnal", "peak": 0.5, "period_s": 9}])
def test_a_process_described_wrongly_is_bad_input(described: dict[str, object]) -> None:
    with pytest.raises(InputError, match="Write poisson") as caught:
        arrivals_named(described)
    assert "validation error" not in str(caught.value)


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ([], "too short"),
        ([1.0], "too short"),
        ([2.0, 2.0, 2.0], "too short"),
        ([[0.0, 1.0]], "too short"),
        ([0.0, 2.0, 1.0], "arrival 2 is before"),
        ([0.0, float("nan"), 1.0], "arrival 1 is no finite"),
        ([0.0, float("inf")], "arrival 1 is no finite"),
        ([-1.0, 1.0], "from 0"),
        (["a", "b"], "arrival times"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(trace: list[object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        checked_trace(trace, app="a")
    assert checked_trace([0, 1, 1, 3], app="a").tolist() == [0.0, 1.0, 1.0, 3.0]
