"""Writes a Milp with whole coefficients for constraint solvers: exactly (`integer_program`), or on a grid.

`integer_grid` draws a mixed Milp on a grid of whole numbers, so that a point of the grid is a point of the form. A
continuous column runs over a grid of whole steps between its bounds. A row's coefficients are rounded to whole numbers
such that a point of the grid that keeps the rounded row keeps the true one: with one bound, to its safe side; with two,
the bounds are drawn in by all that the rounding can amount to. A row of whole columns and decimal coefficients stays
exact. A row too narrow to be drawn in, an equation above all, is widened to one step instead; what then comes back has
to be solved again on the true data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.safe_bound import implied_bounds

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from hetplan.planner.forms.milp import Milp, Vector

__all__ = [
    "DIGITS",
    "SLACK",
    "Grid",
    "IntegerProgram",
    "NotWhole",
    "all_finite",
    "decimals",
    "integer_grid",
    "integer_program",
    "rounded_up",
    "row_decimals",
    "whole_bounds",
    "within_range",
]


Whole = NDArray[np.int64]

DIGITS = 9
"""Decimals that data may have: money is counted in 1e-9 of a currency unit, and nothing else is stated finer."""
LARGEST_ACTIVITY = 2.0**60
"""No row may reach what a 64-bit integer does not hold, with room for the solver's own arithmetic."""
AS_WRITTEN = 4 * float(np.finfo(float).eps)
"""A decimal fraction, scaled to a whole number in floating point, lies this close to it (relative)."""
SLACK = 1e-9
"""A scaled row bound this close to a whole number (relative) was meant as one."""


class NotWhole(Exception):
    """The form cannot be written in whole numbers; the message says why."""


@dataclass(frozen=True)
class IntegerProgram:
    """min cost @ z over row_lower <= rows @ z <= row_upper, lower <= z <= upper, all of them whole.

    The value of the form it came from is `flip * cost @ z / cost_scale + offset`.
    """

    cost: Whole
    cost_scale: float
    flip: float
    offset: float
    rows: csr_array
    row_lower: Whole
    row_upper: Whole
    lower: Whole
    upper: Whole

    def value(self, cost: float) -> float:
        """The form's value of a cost."""
        return self.flip * cost / self.cost_scale + self.offset

    @property
    def contradicts_itself(self) -> bool:
        """A row or column whose bounds leave no whole number."""
        return bool((self.row_lower > self.row_upper).any() or (self.lower > self.upper).any())


def integer_program(form: Milp) -> IntegerProgram:
    """The form in whole numbers, exactly; raises `NotWhole` where that cannot be."""
    if not form.whole.all():
        raise NotWhole(f"{int((~form.whole).sum())} columns are continuous")
    lower, upper = whole_bounds(form)
    rows = form.matrix.tocsr()
    digits = row_decimals(rows)
    if (digits > DIGITS).any():
        raise NotWhole(f"row {form.row_name(int(digits.argmax()))} has a coefficient of more than {DIGITS} decimals")
    scale = 10.0**digits
    entries = np.round(rows.data * np.repeat(scale, np.diff(rows.indptr)))
    cost_decimals = decimals(form.cost)
    if cost_decimals > DIGITS:
        raise NotWhole(f"the objective has more than {DIGITS} decimals")
    cost_scale = 10.0**cost_decimals
    flip = 1.0 if form.sense == "min" else -1.0
    cost = np.round(flip * form.cost * cost_scale)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    rows.data = entries
    within_range(rows, reach, cost)
    most = abs(rows) @ reach
    return IntegerProgram(
        cost=cost.astype(np.int64),
        cost_scale=cost_scale,
        flip=flip,
        offset=form.offset,
        rows=rows,
        row_lower=rounded_up(form.row_lower * scale, most),
        row_upper=-rounded_up(-form.row_upper * scale, most),
        lower=lower.astype(np.int64),
        upper=upper.astype(np.int64),
    )


def whole_bounds(form: Milp) -> tuple[Vector, Vector]:
    """Finite whole bounds of the columns, from the form's own and what its rows imply; raises `NotWhole` without."""
    lower, upper = implied_bounds(form)
    all_finite(form, lower, upper)
    return np.ceil(lower - SLACK), np.floor(upper + SLACK)


def all_finite(form: Milp, lower: Vector, upper: Vector) -> None:
    """Raise `NotWhole` where a column has no bounds."""
    endless = np.isinf(lower) | np.isinf(upper)
    if endless.any():
        column = form.column_name(int(endless.argmax()))
        raise NotWhole(f"column {column} has no finite bounds, nor do its rows give them")


def within_range(rows: csr_array, reach: Vector, cost: Vector) -> None:
    """Raise `NotWhole` where a row or the objective may leave 64 bits."""
    largest = max(float((abs(rows) @ reach).max(initial=0.0)), float(np.abs(cost) @ reach), float(reach.max(initial=0)))
    if largest > LARGEST_ACTIVITY:
        raise NotWhole("scaled to whole numbers its rows leave 64 bits; give the columns tighter bounds")


def decimals(values: Vector) -> int:
    """After how many decimals all values end (DIGITS + 1 if they do not).

    >>> decimals(np.array([0.526, 3.0, 0.25])), decimals(np.array([1 / 3]))
    (3, 10)
    """
    for digits in range(DIGITS + 1):
        if _whole_after(values, digits).all():
            return digits
    return DIGITS + 1


def row_decimals(rows: csr_array) -> NDArray[np.int64]:
    """For each row, after how many decimals all its coefficients end (DIGITS + 1 if they do not)."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    needed = np.full(rows.data.size, DIGITS + 1)
    for digits in range(DIGITS, -1, -1):
        needed[_whole_after(rows.data, digits)] = digits
    most = np.zeros(rows.shape[0], dtype=np.int64)
    np.maximum.at(most, row, needed)
    return most


def _whole_after(values: Vector, digits: int) -> NDArray[np.bool_]:
    scaled = values * 10.0**digits
    return np.abs(scaled - np.round(scaled)) <= AS_WRITTEN * np.abs(scaled)


def rounded_up(bound: Vector, most: Vector) -> Whole:
    """The least whole number from the bound on, where the row reaches from -most to most.

    A bound beyond what the row can reach, infinite ones among them, is cut to one that does not bind either.
    """
    cut = np.clip(bound, -most - 1.0, most + 1.0)
    return np.asarray(np.ceil(cut - SLACK * np.maximum(1.0, np.abs(cut)))).astype(np.int64)


STEPS = 100_000
"""Steps of a continuous column between its bounds."""
REACH = 2.0**42
"""What a scaled row may sum to: fine against its rounding, small enough for a constraint solver's propagation."""


@dataclass(frozen=True)
class Grid:
    """The program in whole numbers z; column j of the form is at lower_j + step_j z_j."""

    program: IntegerProgram
    lower: Vector
    step: Vector


def integer_grid(form: Milp) -> Grid:
    """The form on its grid; raises `NotWhole` where a column has no bounds to draw one between."""
    lower, upper = implied_bounds(form)
    all_finite(form, lower, upper)
    lower = np.where(form.whole, np.ceil(lower - SLACK), lower)
    upper = np.where(form.whole, np.floor(upper + SLACK), upper)
    width = np.maximum(upper - lower, 0.0)
    step = np.where(form.whole, 1.0, np.where(width > 0, width / STEPS, 1.0))
    steps = np.round(width / step)
    rows, row_lower, row_upper = _rows(form, lower, step, steps)
    flip = 1.0 if form.sense == "min" else -1.0
    slope = flip * form.cost * step
    cost_reach = float(np.abs(slope) @ steps)
    cost_scale = REACH / cost_reach if cost_reach > 0 else 1.0
    cost = np.round(slope * cost_scale)
    within_range(rows, steps, cost)
    program = IntegerProgram(
        cost=cost.astype(np.int64),
        cost_scale=cost_scale,
        flip=flip,
        offset=form.value(lower),
        rows=rows,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.zeros(form.cost.size, dtype=np.int64),
        upper=steps.astype(np.int64),
    )
    return Grid(program, lower, step)


def _rows(
    form: Milp, lower: Vector, step: Vector, steps: Vector
) -> tuple[csr_array, NDArray[np.int64], NDArray[np.int64]]:
    rows = form.matrix.tocsr()
    n_rows, column = rows.shape[0], rows.indices
    row = np.repeat(np.arange(n_rows), np.diff(rows.indptr))
    digits = row_decimals(rows)
    exact = (digits <= DIGITS) & (np.bincount(row, ~form.whole[column], n_rows) == 0)
    coefficients = rows.data * step[column]
    reach = np.bincount(row, np.abs(coefficients) * steps[column], n_rows)
    scale = np.where(reach > 0, REACH / np.where(reach > 0, reach, 1.0), 1.0)
    scale = np.where(exact, 10.0 ** np.minimum(digits, DIGITS), scale)
    scaled = coefficients * scale[row]
    no_lower, no_upper = np.isneginf(form.row_lower) & ~exact, np.isposinf(form.row_upper) & ~exact
    entries = np.where(no_lower[row], np.ceil(scaled), np.where(no_upper[row], np.floor(scaled), np.round(scaled)))
    off = np.bincount(row, np.abs(scaled - entries) * steps[column], n_rows)
    rounding = np.where(exact | no_lower | no_upper, 0.0, off)
    one_step = np.zeros(n_rows)
    moves = ~form.whole[column]
    np.maximum.at(one_step, row[moves], np.abs(entries[moves]))

    at_lower = form.matrix @ lower
    low, high = (form.row_lower - at_lower) * scale, (form.row_upper - at_lower) * scale
    narrow = (high - low) - 2.0 * rounding < one_step
    draw = np.where(narrow, -rounding - one_step, rounding)
    rows.data = entries
    most = abs(rows) @ steps
    return rows, rounded_up(low + draw, most), -rounded_up(draw - high, most)
