"""The assignment solver against brute force, scipy and itself without numba."""

from __future__ import annotations

from itertools import permutations
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from hetplan.dispatch.matching_kernels import assign, scratch

SHAPES = st.tuples(st.integers(1, 5), st.integers(0, 2)).map(lambda size: (size[0], size[0] + size[1]))
COARSE = st.integers(0, 4).map(float)
FINE = st.floats(0, 1000, allow_nan=False)


def solved(cost: np.ndarray, assign=assign) -> np.ndarray:
    rows, columns = cost.shape
    room = scratch(rows, columns)
    room[0][:rows, :columns] = cost
    assign(rows, columns, room)
    return room[2][0, :rows].copy()


def total(cost: np.ndarray, columns: np.ndarray) -> float:
    return float(cost[np.arange(cost.shape[0]), columns].sum())


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.one_of(COARSE, FINE))))
def test_no_permutation_is_cheaper(cost: np.ndarray) -> None:
    rows, columns = cost.shape
    chosen = solved(cost)
    assert len(set(chosen.tolist())) == rows
    best = min(sum(cost[row, column] for row, column in enumerate(p)) for p in permutations(range(columns), rows))
    assert total(cost, chosen) == pytest.approx(best, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 7), (14, 28), (40, 40), (60, 61), (116, 232)])
@pytest.mark.parametrize("kind", ["uniform", "whole", "two levels"])
def test_the_cost_is_that_of_scipy(rows: int, columns: int, kind: str) -> None:
    rng = np.random.default_rng((rows, columns))
    cost = rng.uniform(0, 100, (rows, columns))
    if kind == "whole":
        cost = np.floor(cost / 10)
    if kind == "two levels":
        cost = np.where(cost < 50, cost, 3500.0)
    assert total(cost, solved(cost)) == pytest.approx(total(cost, linear_sum_assignment(cost)[1]), rel=1e-12)


def test_the_same_pairs_without_numba(interpreted: dict[str, ModuleType]) -> None:
    plain = interpreted["matching_kernels"].assign
    assert not hasattr(plain, "py_func")
    rng = np.random.default_rng(7)
    for size in range(60):
        rows = 1 + size % 9
        cost = np.floor(rng.uniform(0, 6, (rows, rows + size % 4))) * rng.choice([1.0, 0.1])
        assert solved(cost, plain).tolist() == solved(cost).tolist()
