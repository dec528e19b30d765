"""Measured tables over named axes, read between their points; and what lies outside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from hetplan.errors import InputError
from hetplan.profiles.columns import STATISTICS, Measured, Statistic
from hetplan.profiles.fields import wrong
from hetplan.profiles.json_path import json_path
from hetplan.profiles.operating_points import Limit, OperatingPoint, Verdict, grid_under
from hetplan.profiles.places import Steps
from hetplan.profiles.workers import MOST_AT_ONCE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.profiles.multilinear import Cells

__all__ = ["MAY_BE_ZERO", "Quantity", "Readings", "Table"]

Quantity = Literal["latency_ms", "requests_per_s", "ttft_ms", "tpot_ms", "bytes_out", "slowdown"]

MAY_BE_ZERO = frozenset({"requests_per_s", "bytes_out"})
"""A machine that cannot serve a class at all has rate 0; a time of 0 is always a slip."""


@dataclass(frozen=True)
class Readings:
    """Values read from a table, and which of them were computed outside its grid."""

    values: NDArray[np.float64]
    extrapolated: NDArray[np.bool_]
    source: str | None


class Table(Measured):
    """One quantity over a grid of named axes; one nested level of numbers per axis, in the order of `axes`.

    Axes are in alphabetical order, so that a tool that sorts the keys of a JSON file cannot turn a table around.
    A table without axes is a constant. Values need not grow along an axis: real measurements do not.
    """

    quantity: Quantity
    points: tuple[OperatingPoint, ...] = Field(
        default=(), description="runs of a benchmark: under limits on times the rates are those of runs that keep them"
    )

    @model_validator(mode="after")
    def _sound(self) -> Table:
        for name, axis in self.axes.items():
            _check_axis(name, axis)
        names = list(self.axes)
        if len(names) > 1 and names != sorted(names):
            listed = ", ".join(sorted(names))
            remedy = f"Write the axes as {listed}, and nest the numbers in that order."
            raise wrong("axes are in alphabetical order", remedy, at=("axes",))
        lengths = [len(axis) for axis in self.axes.values()]
        held = 0
        for statistic in STATISTICS:
            grid = getattr(self, statistic)
            if grid is not None:
                least_allowed = statistic == "std" or self.quantity in MAY_BE_ZERO
                held += _check_cells((statistic,), grid, lengths, names, least_allowed) and statistic != "std"
        if not held:
            raise wrong("a table holds at least one of mean, p50, p90, p95, p99, max", 'Add "mean" with the numbers.')
        if isinstance(self.samples, tuple):
            _check_cells(("samples",), self.samples, lengths, names, True)
        elif self.samples is not None and self.samples < 0:
            raise wrong("a count is not negative", "Write how often each cell was measured.", at=("samples",))
        for place, point in enumerate(self.points):
            if self.quantity != "requests_per_s" or self.on_grid([point.at], self.mean) is None:
                why = "a run at a size of this table of requests_per_s"
                raise wrong(why, "Name a point of every axis, and of no other.", at=("points", place, "at"))
        return self

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics that the table holds."""
        return tuple(statistic for statistic in STATISTICS if getattr(self, statistic) is not None)

    def cells(self, statistic: Statistic) -> list[float | None]:
        """The cells of a grid in one row; None where nothing was measured."""
        cells = [getattr(self, statistic)]
        while cells and isinstance(cells[0], tuple):
            cells = [cell for row in cells for cell in row]
        return cells

    @cached_property
    def _origin(self) -> tuple[str, str, Steps]:
        """(file, id, place in it) for messages; the loader fills it in, and it takes no part in comparisons."""
        return ("", "", ())

    @cached_property
    def _prepared(self) -> dict[str, Cells]:
        return {}

    @property
    def name(self) -> str:
        """The id under which the profile holds it; "" where it was made by hand."""
        return self._origin[1]

    @property
    def file(self) -> str:
        """The file that it is from; "" where it was made by hand."""
        return self._origin[0]

    def named(self, table_id: str, *, file: str = "", written: Steps = ()) -> Table:
        """Itself, knowing its id, its file and its place there, so that its errors can say so."""
        vars(self)["_origin"] = (file, table_id, written or ("tables", table_id))
        return self

    def fault(self, why: str, remedy: str, *, value: object = "") -> InputError:
        """An error that points at this table."""
        file, table_id, written = self._origin
        path = json_path(written) if table_id else f"a table of {self.quantity}"
        return InputError.one(file=file or "profile", path=path, value=value, why=why, remedy=remedy)

    def under(self, limits: Sequence[Limit], worst: Verdict = Verdict.UNCHECKED) -> Table:
        """The table as it holds under limits on times: by runs that are judged no worse than `worst`, if it has runs.

        >>> runs = [{"at": {"n": 1}, "rate_qps": 0.5, "given": {"ttft_p99_ms": 900}},
        ...         {"at": {"n": 1}, "rate_qps": 0.8, "given": {"ttft_p99_ms": 9000}}]
        >>> table = Table(quantity="requests_per_s", axes={"n": (1,)}, mean=[0.8], points=runs)
        >>> [table.under([Limit("ttft", 99, ms)]).mean for ms in (500, 1000, 10000)]
        [(None,), (0.5,), (0.8,)]
        """
        if not self.points or not limits:
            return self
        return self.model_copy(update={"mean": grid_under(self.axes, self.points, limits, worst), "points": ()})

    def read(self, points: Sequence[Mapping[str, float]], statistic: Statistic = "mean") -> Readings:
        """The table's value at each point (a point names every axis; what else it names is ignored).

        Multilinear between grid points; outside the grid as `outside` says, and marked (a standard deviation that is
        continued below 0 is 0). A point outside a table that refuses, or on a cell that was never measured, raises
        `InputError`.

        >>> table = Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=[6.1, 30.2], outside="linear")
        >>> table.read([{"batch": 8}, {"batch": 15}]).values.round(3).tolist()
        [30.2, 54.3]
        >>> table.read([{"batch": 8}, {"batch": 15}]).extrapolated.tolist()
        [False, True]
        """
        import numpy as np

        found = self.on_grid(points, self._grid(statistic))
        if found is not None and None not in found:
            return Readings(np.array(found, dtype=np.float64), np.zeros(len(found), dtype=np.bool_), self.source)
        from hetplan.profiles.multilinear import OffTable

        cells = self._cells(statistic)
        try:
            read = [cells.read(point) for point in points]
        except OffTable as error:
            raise self.fault(error.why, error.remedy) from None
        values = np.array([value for value, _ in read], dtype=np.float64)
        return Readings(values, np.array([beyond for _, beyond in read], dtype=np.bool_), self.source)

    def _grid(self, statistic: str) -> Any:
        grid = getattr(self, statistic, None) if statistic in STATISTICS else None
        if grid is None:
            listed = ", ".join(self.statistics)
            remedy = f"Measure it, or ask for one that is there: {listed}."
            raise self.fault(f"the table has no {statistic}", remedy, value=statistic)
        return grid

    def on_grid(self, points: Sequence[Mapping[str, float]], grid: Any) -> list[float | None] | None:
        """The cell of each point; None where some point is no grid point (or no point at all). Needs no numpy."""
        axes = [(name, {step: n for n, step in enumerate(steps)}) for name, steps in self.axes.items()]
        found = []
        try:
            for point in points:
                cell = grid
                for name, places in axes:
                    cell = cell[places[point[name]]]
                found.append(cell)
        except (KeyError, TypeError):
            return None
        return found

    def _cells(self, statistic: str) -> Cells:
        from hetplan.profiles.multilinear import Cells

        grid, cells = getattr(self, statistic), self._prepared.get(statistic)
        # model_copy(update=...) carries the cache along: trust it only for the very same numbers.
        if cells is None or cells.grid is not grid or cells.axes is not self.axes or cells.outside != self.outside:
            named = {"quantity": self.quantity, "statistic": statistic, "outside": self.outside}
            cells = Cells(self.axes, grid, may_be_zero=self.quantity in MAY_BE_ZERO, **named)
            self._prepared[statistic] = cells
        return cells


def _check_axis(name: str, axis: tuple[float, ...]) -> None:
    if not axis:
        raise wrong("an axis has at least one point", f"List the points of {name}.", at=("axes", name))
    for number in range(1, len(axis)):
        before, after = axis[number - 1], axis[number]
        if not before < after:
            remedy = f"Sort {name} from small to large, its rows of numbers with it, each point once."
            raise wrong(f"the points of an axis grow; {after:g} follows {before:g}", remedy, at=("axes", name, number))
    if axis[0] < 0:
        raise wrong("an axis point is not negative", f"Write the true {name}.", at=("axes", name, 0))
    if name == "batch":
        for number, size in enumerate(axis):
            if not 1 <= size <= MOST_AT_ONCE or size != int(size):
                why = f"a batch is a whole number, 1 to {MOST_AT_ONCE}"
                raise wrong(why, "Write 1, 2, 4, ...", at=("axes", name, number))


def _check_cells(
    at: tuple[str | int, ...], grid: Any, lengths: Sequence[int], names: Sequence[str], zero_allowed: bool
) -> bool:
    """Raise unless the grid has this shape and its numbers this sign; True, so that it can be counted."""
    if not lengths:
        if isinstance(grid, tuple):
            raise wrong("a number, for there is no axis left", "Name one axis per level of nesting.", at=at)
        if grid is not None and (grid < 0 or (grid == 0 and not zero_allowed)):
            expected = "0 or more" if zero_allowed else "more than 0"
            raise wrong(f"every cell is {expected}", "Write null where nothing was measured.", at=at)
        return True
    if not isinstance(grid, tuple) or len(grid) != lengths[0]:
        found = f"a list of {len(grid)}" if isinstance(grid, tuple) else "one number" if grid is not None else "null"
        why = f"axis {names[0]} has {lengths[0]} points, so {lengths[0]} entries belong here, not {found}"
        raise wrong(why, f"Give one entry per point of {names[0]} (null where nothing was measured).", at=at)
    if len(lengths) == 1 and _plain_positive(grid):
        return True
    for number, row in enumerate(grid):
        _check_cells((*at, number), row, lengths[1:], names[1:], zero_allowed)
    return True


def _plain_positive(row: tuple[Any, ...]) -> bool:
    """Whether all are numbers above 0: the usual row, settled at once."""
    try:
        return bool(min(row) > 0)
    except TypeError:
        return False
