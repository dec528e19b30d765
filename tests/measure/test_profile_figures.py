"""Intervals from order statistics, the stopping rule, outliers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from hetplan.measure.measure_file import Repeats
from hetplan.measure.profile_cell import enough, figures_of, next_look, order_statistics


@pytest.mark.parametrize(("count", "quantile"), [(30, 0.5), (200, 0.9), (1000, 0.99)])
def test_intervals_hold_the_true_percentile_as_often_as_they_say(count: int, quantile: float) -> None:
    """Counted over 4000 samples of an exponential; the interval is exact, so it covers at least 95 %."""
    rng = np.random.default_rng(1)
    samples = np.sort(rng.exponential(size=(4000, count)), axis=1)
    low, high = order_statistics(count, quantile, 0.95)
    assert high is not None
    truth = -math.log(1 - quantile)
    covered = float(((samples[:, low] <= truth) & (truth < samples[:, high])).mean())
    assert 0.945 <= covered <= 0.985


def test_the_interval_is_the_narrowest_of_its_kind() -> None:
    from scipy.special import bdtr

    for count in (40, 333, 1200):
        low, high = order_statistics(count, 0.5, 0.95)
        assert high is not None
        # One place further in on either side would leave more than a fortieth outside.
        assert bdtr(low + 1, count, 0.5) > 0.025
        assert 1 - bdtr(high - 1, count, 0.5) > 0.025
        assert bdtr(low, count, 0.5) <= 0.025
        assert 1 - bdtr(high, count, 0.5) <= 0.025


def test_a_tail_that_was_not_reached_has_no_upper_end() -> None:
    assert order_statistics(100, 0.99, 0.95)[1] is None
    assert order_statistics(400, 0.99, 0.95)[1] is not None
    found = figures_of([1.0] * 100, [], Repeats())
    assert found.intervals["p99"] == (1.0, None)
    assert not found.converged


def test_stopping_waits_for_both_percentiles() -> None:
    rng = np.random.default_rng(0)
    steady = (1.0 + 0.001 * rng.random(1000)).tolist()
    assert enough(steady, Repeats())
    assert not enough(steady[:29], Repeats())
    assert enough(steady[:40], Repeats(p99_within=None))
    noisy = rng.lognormal(0.0, 1.0, 1000).tolist()
    assert not enough(noisy, Repeats())


def test_looks_are_a_fifth_apart() -> None:
    looks = [30]
    while looks[-1] < 1000:
        looks.append(next_look(looks[-1]))
    assert len(looks) < 25
    assert all(after <= math.ceil(1.2 * before) for before, after in pairwise(looks))


def test_outliers_are_marked_and_kept() -> None:
    samples = [1.0, 1.01, 0.99, 1.02] * 50 + [9.0, 12.0]
    found = figures_of(samples, [201, 7], Repeats())
    assert (found.outliers, found.outliers_ms) == (2, (12.0, 9.0))
    assert (found.preempted, found.outliers_preempted) == (2, 1)
    assert found.max == 12.0
    assert found.mean == pytest.approx(np.mean(samples), rel=1e-5)
