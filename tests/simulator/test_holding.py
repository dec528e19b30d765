"""Admission of queries that hold resources for their lifetime: Erlang's and Kaufman and Roberts' formulas, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.simulator.admission import simulate_holding

QUERIES = 60_000


def kaufman_roberts(capacity: int, offered: list[float], sizes: list[int]) -> list[float]:
    """Blocking of each class where all share `capacity` units."""
    share = np.zeros(capacity + 1)
    share[0] = 1.0
    for units in range(1, capacity + 1):
        share[units] = sum(a * b * share[units - b] for a, b in zip(offered, sizes, strict=True) if units >= b) / units
    share /= share.sum()
    return [float(share[capacity - size + 1 :].sum()) for size in sizes]


def poisson(rate: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1.0 / rate, QUERIES)), rng.exponential(1.0, QUERIES), rng


@pytest.mark.slow
def test_alike_queries_are_refused_as_erlang_says() -> None:
    times, lives, _ = poisson(8.0, 1)
    run = simulate_holding(times, lives, [[[0.125]]] * QUERIES, [1.25], warm_up=1000)
    blocked = kaufman_roberts(10, [8.0], [1])[0]
    assert 1.0 - run.served == pytest.approx(blocked, abs=0.008)
    assert run.utilisation[0] == pytest.approx(8.0 * (1.0 - blocked) / 10.0, abs=0.01)
    assert run.most_at_once == 10


@pytest.mark.slow
def test_large_and_small_queries_are_refused_as_kaufman_and_roberts_say() -> None:
    times, lives, rng = poisson(10.0, 2)
    large = rng.random(QUERIES) < 0.2
    demands = [[[0.5 if big else 0.125]] for big in large]
    run = simulate_holding(times, lives, demands, [2.0], warm_up=1000)
    small_blocked, large_blocked = kaufman_roberts(16, [8.0, 2.0], [1, 4])
    refused = run.chosen[1000:] < 0
    assert refused[~large[1000:]].mean() == pytest.approx(small_blocked, abs=0.01)
    assert refused[large[1000:]].mean() == pytest.approx(large_blocked, abs=0.03)


def test_the_first_plan_that_fits_on_every_tier_is_taken() -> None:
    edge, cloud = [0.6, 0.0], [0.0, 0.5]
    run = simulate_holding([0, 1, 2, 3], [10, 10, 10, 10], [[edge, cloud]] * 4, [1.0, 1.0], weights=[4, 3, 2, 1])
    assert run.chosen.tolist() == [0, 1, 1, -1]
    assert run.served_weight == pytest.approx(0.9)


def test_a_decision_handed_in_is_asked_and_held_to_what_fits() -> None:
    plans = [[[0.6], [0.4]]] * 2
    run = simulate_holding([0, 1], [5, 5], plans, [1.0], choose=lambda query, demands, free: 1 - query)
    assert run.chosen.tolist() == [1, 0]
    with pytest.raises(InputError, match="does not fit"):
        simulate_holding([0, 1], [5, 5], plans, [1.0], choose=lambda query, demands, free: 0)
