"""Finding a threshold by sweep and by climbing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetplan.dispatch.queue_rules import climb, sweep, thresholds


def test_nineteen_thresholds_over_a_thousand() -> None:
    assert thresholds(range(10, 1001, 10)) == tuple(50.0 * step for step in range(1, 20))


def test_thresholds_that_part_alike_are_one() -> None:
    assert thresholds([1, 8], count=19) == (0.4, 1.2)
    assert thresholds([5], count=3) == (1.25,)


@given(st.integers(1, 30), st.integers(0, 29), st.floats(0.5, 3.0))
def test_climbing_finds_a_single_peak(count: int, at: int, steepness: float) -> None:
    peak = min(at, count - 1)
    found = climb(lambda place: -steepness * abs(place - peak), range(count))
    assert found.threshold == peak
    assert found.value == 0
    assert sweep(lambda place: -steepness * abs(place - peak), range(count)).threshold == peak


def test_climbing_tries_fewer() -> None:
    asked: list[float] = []

    def value(threshold: float) -> float:
        asked.append(threshold)
        return -((threshold - 700.0) ** 2)

    found = climb(value, thresholds(range(10, 1001, 10)))
    assert found.threshold == 700
    assert sorted(asked) == sorted(found.tried), "each is asked once"
    assert len(asked) <= 10


def test_the_first_of_equals_wins() -> None:
    assert sweep(lambda threshold: 1.0, [3.0, 1.0, 2.0]).threshold == 3.0
