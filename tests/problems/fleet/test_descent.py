"""Descent over whole machines: two applications at a time find what one after the other misses."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np

from hetplan.problems.fleet.descent import Descent


def test_two_applications_that_change_at_once_rent_the_least_of_all_pairs() -> None:
    stuck = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        down = Descent.__new__(Descent)
        down.cost, down.looks, down.paired = np.round(random.uniform(0.1, 1.0, 4), 2), 0, 0
        down.search = SimpleNamespace(ask=SimpleNamespace(is_over=lambda _reserved: False))  # type: ignore[assignment]
        down.menus = [[random.integers(0, 4, (12, 4)).astype(float) for _ in range(2)]]
        committed = random.integers(0, 4, 4).astype(float)

        def rent(taken: np.ndarray, committed: np.ndarray = committed, cost: np.ndarray = down.cost) -> float:
            return float(np.maximum(taken - committed, 0.0) @ cost)

        first, second = down.menus[0]
        least = min(rent(one + other) for one, other in itertools.product(first, second))
        alone, taken = down.hour(0, committed, np.array([first[0], second[0]]))
        found, taken = down.in_pairs(0, committed, taken)
        assert found == rent(taken.sum(axis=0)) == least
        stuck += alone > least + 1e-9
    assert stuck, "one after the other is enough in all of these"
