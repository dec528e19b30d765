"""Percentiles over runs: exact where runs are short, with intervals that hold the truth where tails are heavy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.confidence import share_interval, student
from hetplan.simulator.figures import Together, estimate, estimate_of_share, responses_of

times = st.lists(st.sampled_from([5.0, 10.0, 20.0, 40.0, 80.0, math.inf]), min_size=1, max_size=30)


@settings(deadline=None)
@given(times, st.sampled_from([50.0, 80.0, 90.0, 95.0, 99.0]))
def test_of_alike_runs_the_percentile_is_that_of_each(found: list[float], percentile: float) -> None:
    """The least response that so many percent do not exceed, infinite where too many have no answer."""
    ordered = sorted(found)
    place = math.ceil(percentile / 100.0 * len(ordered) - 1e-9) - 1
    runs = [responses_of(ordered)] * 3
    assert Together(runs).percentile(percentile) == (ordered[place],) * 3


@settings(deadline=None)
@given(st.lists(times, min_size=2, max_size=6), st.sampled_from([50.0, 90.0, 99.0]))
def test_an_interval_holds_its_value_and_ends_at_responses_that_occurred(
    found: list[list[float]], percentile: float
) -> None:
    value, low, high = Together([responses_of(sorted(one)) for one in found]).percentile(percentile)
    assert low <= value <= high
    assert {value, low, high} <= {*(item for one in found for item in one), math.inf}
    # No more than the tail is beyond it on average over the runs, and more is beyond anything shorter.
    tail = 1.0 - percentile / 100.0

    def beyond(limit: float) -> float:
        return float(np.mean([np.mean(np.asarray(one) > limit) for one in found]))

    assert value == math.inf or beyond(value) <= tail + 1e-9
    assert beyond(np.nextafter(value, 0.0)) > tail - 1e-9


@given(st.integers(1, 20_000), st.integers(0, 1000))
def test_thinned_responses_say_how_many_are_beyond(count: int, seed: int) -> None:
    """Exact at what is kept and in the outermost two hundred, within a percent of the share elsewhere."""
    ordered = np.sort(np.random.default_rng(seed).exponential(10.0, count))
    thinned = responses_of(ordered)
    assert len(thinned.at_ms) < 4500
    for place in {0, count // 3, count - 1, max(count - 150, 0)}:
        longer = (count - 1 - place) / count
        found = thinned.share_beyond(float(ordered[place]))
        assert longer <= found + 1e-12
        assert found <= 1.01 * longer + 1e-9 or found - longer <= 0.011 * (1.0 - longer)
    assert thinned.share_beyond(0.0) == 1.0
    assert thinned.share_beyond(math.inf) == 0.0


def test_runs_without_queries_say_nothing() -> None:
    assert np.isnan(Together([]).percentile(99.0)).all()
    value, low, high = Together([responses_of([3.0, 4.0])]).percentile(50.0)
    assert value == 3.0
    assert np.isnan([low, high]).all()


def test_shares_have_intervals_between_nothing_and_all() -> None:
    low, high = share_interval([0.0, 0.004, 0.03], student(3))
    assert 0.0 < low < 0.034 / 3 < high < 1.0
    # As lopsided as a rare share is: further up than down, and the same seen from the other side.
    assert high - 0.034 / 3 > 0.034 / 3 - low
    assert share_interval([1.0, 0.996, 0.97], student(3)) == pytest.approx((1.0 - high, 1.0 - low))
    assert estimate_of_share([0.2], [0.1, 0.3]).value == 0.2
    assert np.isnan(estimate_of_share([math.nan]).value)


@pytest.mark.slow
def test_intervals_of_a_heavy_tail_hold_the_truth_more_often_than_those_around_the_mean() -> None:
    """Runs of few long stretches (ten of 100 responses, each exponential about its own level), five at a time."""
    rng = np.random.default_rng(1)
    level = rng.exponential(1.0, (3000, 10, 1))
    runs = np.sort((level * rng.exponential(1.0, (3000, 10, 100))).reshape(3000, -1))
    many = rng.exponential(1.0, 4_000_000) * rng.exponential(1.0, 4_000_000)
    truth = float(np.quantile(many, 0.99))
    held, around_mean = 0, 0
    for five in runs.reshape(600, 5, -1):
        _, low, high = Together([responses_of(one) for one in five]).percentile(99.0)
        held += low <= truth <= high
        plain = estimate([float(one[989]) for one in five])
        around_mean += plain.low <= truth <= plain.high
    assert around_mean / 600 < 0.92 < 0.93 < held / 600
