"""Reading a rectangular grid of numbers between its points: the one interpolation of hetplan, in plain Python.

`Table.read` uses it, and so does a worker's process, which must load neither NumPy nor pydantic. (The verifier reads
tables by code of its own, so that a fault here shows as a difference.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Cells", "OffTable", "flat"]


class OffTable(ValueError):
    """A table holds nothing at a point: `why`, and `remedy`, what to do about it."""

    def __init__(self, why: str, remedy: str = "") -> None:
        self.why, self.remedy = why, remedy
        super().__init__(why)


def flat(grid: Any) -> list[float | None]:
    """Nested rows laid flat, the last axis fastest.

    >>> flat([[1, 2], [3, None]]), flat(7)
    ([1, 2, 3, None], [7])
    """
    if not isinstance(grid, list | tuple):
        return [grid]
    if grid and not isinstance(grid[0], list | tuple):
        return list(grid)
    return [cell for row in grid for cell in flat(row)]


class Cells:
    """One statistic over a grid of axes, read at points.

    Multilinear between grid points, exact on them. `outside` says what holds beyond the grid: "refuse"; "clamp", the
    nearest border; "linear", the slope of the border cell goes on; "extend", as linear, but the border's value stays
    where an axis has one point or where the line would fall to 0. A cell of weight 0 may be missing (None).

    `may_be_zero` is for rates and standard deviations; a standard deviation (`statistic` "std") continued below 0 is 0.

    >>> cells = Cells({"batch": (1.0, 8.0)}, [10.0, 80.0], outside="linear")
    >>> cells.read({"batch": 4}), cells.read({"batch": 22})
    ((40.0, False), (220.0, True))
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[float]],
        grid: Any,
        *,
        outside: str = "refuse",
        quantity: str = "value",
        statistic: str = "value",
        may_be_zero: bool = False,
    ) -> None:
        self.axes, self.grid, self.outside, self.quantity = axes, grid, outside, quantity
        self.statistic, self.may_be_zero = statistic, may_be_zero or statistic == "std"
        self.flat = flat(grid)
        self._axes: list[tuple[str, Sequence[float], dict[float, int], int]] = []
        stride = len(self.flat)
        for name, steps in axes.items():
            stride //= len(steps)
            self._axes.append((name, steps, {step: n * stride for n, step in enumerate(steps)}, stride))

    def read(self, point: Mapping[str, float]) -> tuple[float, bool]:
        """The value at a point, and whether the point lies outside the grid; `OffTable` where there is none."""
        corners, beyond = self._corners(point, clamp=self.outside == "clamp")
        value = self._blend(corners, point)
        if beyond and (value < 0.0 if self.may_be_zero else value <= 0.0):
            if self.statistic == "std":
                return 0.0, True
            if self.outside == "extend":
                return self._blend(self._corners(point, clamp=True)[0], point), True
            raise OffTable(
                f"continuing the table to {_where(self.axes, point)} gives {value:g}, which no {self.quantity} can be",
                'Measure nearer to it, or set "outside" to "clamp".',
            )
        return value, beyond

    def _corners(self, point: Mapping[str, float], *, clamp: bool) -> tuple[list[tuple[int, float]], bool]:
        """The cells around a point, each with its weight; and whether the point lies outside the grid."""
        corners, beyond = [(0, 1.0)], False
        for name, steps, places, stride in self._axes:
            value = _number(name, point)
            if not steps[0] <= value <= steps[-1]:
                beyond = True
                self._refuse(name, value, steps)
                if clamp or len(steps) == 1:
                    value = min(max(value, steps[0]), steps[-1])
            place = places.get(value)
            if place is not None:
                corners = [(at + place, weight) for at, weight in corners]
                continue
            low = min(max(bisect_right(steps, value) - 1, 0), len(steps) - 2)
            part = (value - steps[low]) / (steps[low + 1] - steps[low])
            corners = [
                (at + (low + up) * stride, weight * (part if up else 1.0 - part))
                for at, weight in corners
                for up in (0, 1)
            ]
        return corners, beyond

    def _refuse(self, name: str, value: float, steps: Sequence[float]) -> None:
        where = f"{name} {value:g} is outside the table ({name} {steps[0]:g} to {steps[-1]:g})"
        if self.outside == "refuse":
            raise OffTable(where, 'Measure it, or set "outside" of the table to "clamp" or "linear".')
        if self.outside == "linear" and len(steps) == 1:
            raise OffTable(f"{where}, and one point has no slope to continue", 'Measure a second, or "clamp".')

    def _blend(self, corners: Sequence[tuple[int, float]], point: Mapping[str, float]) -> float:
        value = 0.0
        for at, weight in corners:
            if weight == 0.0:
                continue
            cell = self.flat[at]
            if cell is None:
                where = _where(self.axes, point)
                raise OffTable(
                    f"{self.statistic} at {where} was never measured (null)", "Measure that cell, or leave it unused."
                )
            value += cell * weight
        return value


def _number(name: str, point: Mapping[str, float]) -> float:
    try:
        value = float(point[name])
    except KeyError:
        raise OffTable(f"the table has the axis {name}, which the point does not name", f"Give a {name}.") from None
    except (TypeError, ValueError):
        raise OffTable(f"{name} of a point is a number", f"Give a number for {name}.") from None
    if not math.isfinite(value):
        raise OffTable(f"{name} of a point is finite", f"Give a finite {name}.")
    return value


def _where(axes: Mapping[str, object], point: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {float(point[name]):g}" for name in axes) or "its only cell"
