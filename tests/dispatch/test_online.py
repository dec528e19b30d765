"""What a dispatcher learns while serving: latencies, the mix; and what it costs itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetplan.dispatch.monitors import LatencyLearner
from hetplan.dispatch.snapshot import Overheads
from hetplan.errors import InputError


def test_a_line_is_learnt_from_few_sizes() -> None:
    learner = LatencyLearner(first_guess_ms=7.0)
    assert learner.predict(64) == 7.0
    learner.observe(10, 25.0)
    assert learner.predict(64) == 25.0, "one size says nothing about a slope"
    learner.observe_all((size, 5.0 + 2.0 * size) for size in (20, 40, 80))
    assert learner.predict(64) == pytest.approx(133.0)
    assert not learner.learnt(64)


def test_the_table_takes_over_size_by_size() -> None:
    learner = LatencyLearner(enough=3)
    curve = {1: 2.0, 8: 5.0, 64: 100.0}
    for _ in range(3):
        learner.observe_all(curve.items())
    assert learner.table() == pytest.approx(curve)
    assert all(learner.predict(size) == pytest.approx(latency) for size, latency in curve.items())
    assert learner.predict(32) == pytest.approx(np.polyval(np.polyfit(list(curve), list(curve.values()), 1), 32))


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.floats(0.5, 50.0)), min_size=3, max_size=40))
def test_the_line_is_the_least_squares_line(seen: list[tuple[float, float]]) -> None:
    learner = LatencyLearner(enough=1000)
    learner.observe_all(seen)
    sizes, latencies = np.array(seen).T
    if np.ptp(sizes) == 0:
        assert learner.predict(9.0) == pytest.approx(latencies.mean())
        return
    expected = np.polyval(np.polyfit(sizes, latencies, 1), 3.0)
    if expected > 0.1:
        assert learner.predict(3.0) == pytest.approx(expected, rel=1e-6)


def test_no_prediction_is_negative() -> None:
    learner = LatencyLearner(enough=100)
    learner.observe_all([(100, 90.0), (110, 200.0)])
    assert learner.predict(1) == 90.0


def test_old_observations_fade() -> None:
    learner = LatencyLearner(enough=1, memory=10)
    learner.observe_all([(4, 10.0)] * 50)
    learner.observe_all([(4, 20.0)] * 50)
    assert learner.predict(4) == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize(("size", "latency"), [(0, 1.0), (1, 0.0), (1, float("inf")), (1, float("nan"))])
def test_impossible_observations_are_refused(size: float, latency: float) -> None:
    with pytest.raises(InputError):
        LatencyLearner().observe(size, latency)


def test_overheads_add_up() -> None:
    overheads = Overheads(controller_ms=0.5, network_ms=2.0)
    assert (overheads.lead_ms, overheads.tail_ms, overheads.occupied_ms) == (2.5, 2.0, 4.5)
    with pytest.raises(InputError):
        Overheads(network_ms=-1.0)
