"""Reading tables: against numbers worked out by hand, and against the planner's own reading."""

import math

import numpy as np
import pytest

from hetplan.profiles.tables import Table
from hetplan.verifier.service import read_table

BENT = Table(quantity="latency_ms", axes={"batch": (1, 2, 4)}, mean=(10, 14, 18), p99=(11, None, 30), outside="linear")
FLAT = Table(quantity="latency_ms", axes={"a": (0, 10), "b": (5,)}, mean=((1,), (3,)), outside="clamp")


@pytest.mark.parametrize(
    ("at", "value", "outside"),
    [(0.5, 8, True), (1, 10, False), (1.5, 12, False), (2, 14, False), (3, 16, False), (4, 18, False), (6, 22, True)],
)
def test_along_one_axis(at: float, value: float, outside: bool):
    values, beyond = read_table(BENT, "mean", {"batch": at}, 1)
    assert values.tolist() == [value]
    assert beyond.tolist() == [outside]


def test_clamped_on_two_axes():
    values, outside = read_table(
        FLAT, "mean", {"a": np.array([-1.0, 5.0, 11.0, 5.0]), "b": np.array([5.0, 5.0, 5.0, 6.0])}, 4
    )
    assert values.tolist() == [1, 2, 3, 2]
    assert outside.tolist() == [True, False, True, True]


def test_a_cell_that_was_not_measured_matters_only_where_it_weighs():
    values, _ = read_table(BENT, "p99", {"batch": np.array([1.0, 1.5, 2.0, 3.0, 4.0])}, 5)
    assert [math.isnan(value) for value in values] == [False, True, True, True, False]


@pytest.mark.parametrize("statistic", ["p50", "axes", "__class__"])
def test_a_statistic_that_is_not_there_reads_as_nothing(statistic: str):
    values, outside = read_table(BENT, statistic, {"batch": 1.0}, 2)
    assert np.isnan(values).all()
    assert outside.tolist() == [False, False]


def test_an_axis_that_nothing_is_said_of_reads_as_nothing():
    assert np.isnan(read_table(FLAT, "mean", {"a": 1.0}, 3)[0]).tolist() == [True, True, True]


def test_a_table_without_axes_is_a_constant():
    values, outside = read_table(Table(quantity="latency_ms", mean=7), "mean", {"batch": 3.0}, 2)
    assert (values.tolist(), outside.tolist()) == ([7, 7], [False, False])


@pytest.mark.parametrize("seed", range(20))
def test_the_planner_reads_the_same(seed: int):
    chance = np.random.default_rng(seed)
    sizes = chance.integers(1, 5, size=chance.integers(1, 4))
    axes = {name: tuple(np.cumsum(chance.uniform(0.5, 3.0, size))) for name, size in zip("abc", sizes, strict=False)}
    cells = chance.uniform(10, 20, sizes)
    # Continued lines stay positive: the planner refuses a time below 0, which is not at issue here.
    outside = ("clamp", "linear")[seed % 2] if min(sizes) > 1 else "clamp"
    reach = 0.3 if outside == "linear" else 5.0
    table = Table(quantity="bytes_out", axes=axes, mean=_rows(1000 + cells), outside=outside)
    columns = {name: chance.uniform(ticks[0] - reach, ticks[-1] + reach, 40).clip(0) for name, ticks in axes.items()}
    for name, ticks in axes.items():
        columns[name][:10] = chance.choice(ticks, 10)
    ours, beyond = read_table(table, "mean", columns, 40)
    theirs = table.read([{name: float(column[i]) for name, column in columns.items()} for i in range(40)])
    np.testing.assert_allclose(ours, theirs.values, rtol=1e-12)
    assert beyond.tolist() == theirs.extrapolated.tolist()


def _rows(cells: np.ndarray) -> object:
    return tuple(_rows(row) for row in cells) if cells.ndim else float(cells)
