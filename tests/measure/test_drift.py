"""The test of drift holds however often one looks, and finds a fall soon."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.drift import alarms, most_found, same_as_one_by_one
from hetplan.measure.drift import HORIZON, DriftTest, staked


def test_no_bet_grows_on_average_while_nothing_has_changed() -> None:
    """Over all ways that ten samples can come, weighed by their chance: what is won is no more than what is staked."""
    stakes = sum(map(staked, range(10)))
    total = 0.0
    for way in product((0.0, 1.0), repeat=10):
        test = DriftTest(0.7, fall=0.3)
        test.add(way)
        total += test._stake * np.prod([0.7 if one else 0.3 for one in way])
    assert total == pytest.approx(stakes, rel=1e-9)
    assert sum(map(staked, range(HORIZON))) <= 1.0


@pytest.mark.parametrize("mean", [0.5, 0.9])
def test_false_alarms_are_as_rare_as_said(mean: float) -> None:
    streams = 400
    wrong = (alarms(mean, mean, 20_000, 20_000, streams) > 0).mean()
    assert wrong <= 0.04 + 3 * (0.04 * 0.96 / streams) ** 0.5


@pytest.mark.parametrize(("mean", "change"), [(0.8, 0), (0.8, 5000), (0.9, 5000)])
def test_a_fall_of_five_points_is_found_within_2000_samples(mean: float, change: int) -> None:
    same_as_one_by_one()
    found = alarms(mean, mean - 0.05, change, change + 2000, 200, seed=2)
    assert (found[found != -1] > change).mean() >= 0.9
    assert (found > change).mean() >= 0.85


def test_no_test_finds_more_than_the_best_of_one_window_and_ours_is_not_far() -> None:
    """Of right-or-wrong scores the most powerful test is known; by chance alone it finds its level."""
    assert most_found(0.5, 2000) == pytest.approx(0.78, abs=0.005)
    assert most_found(0.8, 2000) == pytest.approx(0.954, abs=0.005)
    assert most_found(0.5, 2000, fall=0.0) == pytest.approx(0.05 / 0.95 * 2000 / HORIZON, rel=1e-6)
    late = alarms(0.5, 0.45, 900_000, 902_000, 400, seed=2, begin=896_000)
    assert 0.41 <= (late[(late < 0) | (late > 900_000)] > 0).mean() <= most_found(0.5, 2000)


def test_where_less_is_better_a_rise_is_found_and_a_fall_is_none() -> None:
    rng = np.random.default_rng(0)
    better, worse = DriftTest(4.0, 0.5, 0.0, 10.0, True, 1.0), DriftTest(4.0, 0.5, 0.0, 10.0, True, 1.0)
    better.add(rng.normal(3.0, 1.0, 20_000))
    taken = worse.add(rng.normal(4.5, 1.0, 2000))
    assert not better.alarm
    assert worse.alarm
    assert taken < 300


@pytest.mark.parametrize("wrong", [{"mean": 1.2}, {"fall": 0.0}, {"fall": 1.0}, {"false_alarms": 0.0}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"mean|fall"):
        DriftTest(**{"mean": 0.8, **wrong})  # type: ignore[arg-type]
