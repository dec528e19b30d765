"""Tables: exact on the grid, between their neighbours elsewhere, and honest about what lies outside."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.interpolate import RegularGridInterpolator

from hetplan.errors import InputError
from hetplan.profiles.tables import Table

NAMES = ("batch", "co_load", "input_tokens", "output_tokens")


def nested(cells: np.ndarray) -> Any:
    return cells.tolist()


@st.composite
def tables(draw: st.DrawFn, outside: str = "refuse") -> tuple[Table, np.ndarray]:
    count = draw(st.integers(1, 4))
    names = sorted(draw(st.permutations(NAMES))[:count])
    axes = {}
    for name in names:
        points = draw(st.lists(st.integers(1, 500), min_size=1, max_size=4, unique=True))
        axes[name] = tuple(float(point) for point in sorted(points))
    shape = [len(axis) for axis in axes.values()]
    cells = np.array(
        draw(st.lists(st.floats(0.01, 1e4), min_size=math.prod(shape), max_size=math.prod(shape)))
    ).reshape(shape)
    table = Table.model_validate(
        {"quantity": "latency_ms", "axes": axes, "mean": nested(cells), "outside": outside, "source": "m1"}
    )
    return table, cells


def grid_points(table: Table) -> list[dict[str, float]]:
    return [dict(zip(table.axes, point, strict=True)) for point in itertools.product(*table.axes.values())]


@settings(max_examples=80, deadline=None)
@given(drawn=tables())
def test_exact_on_the_grid(drawn: tuple[Table, np.ndarray]) -> None:
    table, cells = drawn
    points = grid_points(table)
    readings = table.read(points)
    assert readings.values.tolist() == cells.reshape(-1).tolist()
    assert not readings.extrapolated.any()
    assert readings.source == "m1"


@settings(max_examples=80, deadline=None)
@given(drawn=tables(), data=st.data())
def test_between_its_neighbours(drawn: tuple[Table, np.ndarray], data: st.DataObject) -> None:
    """And as scipy interpolates."""
    table, cells = drawn
    fractions = data.draw(st.lists(st.floats(0, 1), min_size=len(table.axes), max_size=len(table.axes)))
    point, box = {}, []
    for (name, axis), fraction in zip(table.axes.items(), fractions, strict=True):
        value = axis[0] + fraction * (axis[-1] - axis[0])
        point[name] = min(value, axis[-1])
        upper = min(int(np.searchsorted(axis, point[name])), len(axis) - 1)
        box.append([max(upper - 1, 0), upper])
    value = float(table.read([point]).values[0])
    corners = cells[np.ix_(*box)]
    assert corners.min() * (1 - 1e-12) <= value <= corners.max() * (1 + 1e-12)
    long_axes = {name: axis for name, axis in table.axes.items() if len(axis) > 1}
    if long_axes:
        lengths = [len(axis) for axis in long_axes.values()]
        judge = RegularGridInterpolator(list(long_axes.values()), cells.reshape(lengths))
        assert value == pytest.approx(float(judge([point[name] for name in long_axes])[0]), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(drawn=tables(outside="linear"), data=st.data())
def test_renaming_the_axes_changes_nothing(drawn: tuple[Table, np.ndarray], data: st.DataObject) -> None:
    table, cells = drawn
    order = data.draw(st.permutations(range(len(table.axes))))
    olds = list(table.axes)
    renamed = {olds[old]: f"axis_{new}" for new, old in enumerate(order)}
    turned = Table.model_validate(
        {
            "quantity": "latency_ms",
            "axes": {renamed[olds[old]]: table.axes[olds[old]] for old in order},
            "mean": nested(cells.transpose(order)),
            "outside": "linear",
        }
    )
    point = {name: data.draw(st.floats(axis[0], axis[-1])) for name, axis in table.axes.items()}
    there = turned.read([{renamed[name]: value for name, value in point.items()}])
    assert there.values[0] == pytest.approx(table.read([point]).values[0], rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    offset=st.floats(1, 50),
    slopes=st.tuples(st.floats(0, 3), st.floats(0, 3)),
    at=st.tuples(st.floats(0, 99), st.floats(0, 99)),
)
def test_a_plane_is_continued_exactly(offset: float, slopes: tuple[float, float], at: tuple[float, float]) -> None:
    axes = {"batch": (2.0, 4.0, 9.0), "co_load": (1.0, 5.0)}
    cells = [[offset + slopes[0] * b + slopes[1] * c for c in axes["co_load"]] for b in axes["batch"]]
    table = Table(quantity="latency_ms", axes=axes, mean=cells, outside="linear")
    readings = table.read([{"batch": at[0], "co_load": at[1]}])
    assert readings.values[0] == pytest.approx(offset + slopes[0] * at[0] + slopes[1] * at[1], rel=1e-9)
    assert bool(readings.extrapolated[0]) == (not (2 <= at[0] <= 9 and 1 <= at[1] <= 5))


def line(**more: Any) -> Table:
    return Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=[6, 20], **more)


def test_clamp_takes_the_border_and_marks_it() -> None:
    readings = line(outside="clamp").read([{"batch": 0.5}, {"batch": 8}, {"batch": 80}])
    assert readings.values.tolist() == [6, 20, 20]
    assert readings.extrapolated.tolist() == [True, False, True]


def test_refuse_names_the_table_the_point_and_the_remedy() -> None:
    with pytest.raises(InputError) as caught:
        line().named("yn-g4dn", file="a.json").read([{"batch": 8}, {"batch": 16}])
    text = str(caught.value)
    assert text.startswith("a.json: $.tables.yn-g4dn: batch 16 is outside the table (batch 1 to 8)")
    assert '"clamp" or "linear"' in text


def test_a_name_is_no_part_of_the_content() -> None:
    assert line().named("x") == line()
    assert line().named("x").model_dump() == line().model_dump()


@pytest.mark.parametrize(
    ("table", "points", "why"),
    [
        (line(), [{"size": 8}], "has the axis batch"),
        (line(), [{"batch": "8"}, {"batch": "x"}], "is a number"),
        (line(), [{"batch": math.nan}], "is finite"),
        (line(), [{"batch": None}], "is finite|is a number"),
        (line(outside="linear"), [{"batch": -9}], "gives -14"),
        (Table(quantity="latency_ms", axes={"batch": (4,)}, mean=[3], outside="linear"), [{"batch": 8}], "no slope"),
        (Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=[3, None]), [{"batch": 8}], "at batch 8 was never"),
        (Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=[3, None]), [{"batch": 2}], "at batch 2 was never"),
        (Table(quantity="latency_ms", mean=None, p50=4.0), [{}], "has no mean"),
    ],
)
def test_readings_that_cannot_be(table: Table, points: list[Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        table.read(points)
    with pytest.raises(InputError):
        table.read([*points, {"batch": 1}])


def test_a_missing_statistic_names_those_at_hand() -> None:
    table = line(p99=[7, 22])
    assert table.read([{"batch": 8}], "p99").values.tolist() == [22]
    with pytest.raises(InputError, match="mean, p99"):
        table.read([{"batch": 8}], "p95")
    with pytest.raises(InputError, match="mean, p99"):
        table.read([{"batch": 8}], "axes")  # type: ignore[arg-type]


def test_a_cell_not_measured_is_no_hindrance_beside_it() -> None:
    table = Table(quantity="latency_ms", axes={"batch": (1, 2, 8), "co_load": (0, 1)}, mean=[[3, 4], [5, None], [7, 9]])
    assert table.read([{"batch": 2, "co_load": 0}, {"batch": 1.5, "co_load": 0}]).values.tolist() == [5, 4]
    assert table.read([{"batch": 4, "co_load": 0.0}]).values[0] == pytest.approx(5 + 2 / 3)
    with pytest.raises(InputError, match=r"batch 2, co_load 0\.5"):
        table.read([{"batch": 2, "co_load": 0.5}])


def test_a_table_without_axes_is_a_constant() -> None:
    table = Table(quantity="requests_per_s", mean=12.5)
    assert table.read([{}, {"batch": 3}]).values.tolist() == [12.5, 12.5]
    assert table.read([]).values.tolist() == []


def test_other_names_in_a_point_are_ignored() -> None:
    assert line().read([{"batch": 8, "phase": 3}]).values.tolist() == [20]


def test_a_copy_with_other_numbers_reads_its_own() -> None:
    table = line()
    assert table.read([{"batch": 8}]).values.tolist() == [20]
    assert table.model_copy(update={"mean": (1.0, 2.0)}).read([{"batch": 8}]).values.tolist() == [2]
    assert table.read([{"batch": 8}]).values.tolist() == [20]


def test_zero_is_a_rate_but_no_time() -> None:
    Table(quantity="requests_per_s", axes={"batch": (1, 8)}, mean=[0, 3])
    with pytest.raises(ValidationError, match="more than 0"):
        Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=[0, 3])


def test_values_need_not_grow() -> None:
    table = Table(quantity="latency_ms", axes={"batch": (1, 2, 4)}, mean=[9, 8, 12])
    assert table.read([{"batch": 1.5}]).values.tolist() == [8.5]


def test_axes_out_of_order_are_refused_for_a_sorted_file_would_turn_the_table() -> None:
    with pytest.raises(ValidationError, match="alphabetical"):
        Table(quantity="requests_per_s", axes={"output_tokens": (1, 2), "input_tokens": (1, 2)}, mean=[[1, 2], [3, 4]])


def test_many_points() -> None:
    table = Table(
        quantity="latency_ms", axes={"batch": (1, 8), "co_load": (0, 1)}, mean=[[1, 2], [8, 16]], outside="linear"
    )
    sizes = np.linspace(1, 8, 1000)
    read = table.read([{"batch": size, "co_load": 0.5} for size in sizes])
    np.testing.assert_allclose(read.values, 1.5 * sizes, rtol=1e-12)


def test_a_standard_deviation_continued_below_zero_is_zero() -> None:
    table = Table(quantity="latency_ms", axes={"batch": (1, 4)}, mean=[4, 16], std=[3, 0.5], outside="linear")
    read = table.read([{"batch": 4}, {"batch": 7}], "std")
    assert (read.values.tolist(), read.extrapolated.tolist()) == ([0.5, 0.0], [False, True])
