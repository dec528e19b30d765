"""A mixed Milp on a grid of whole numbers, drawn so that a point of the grid is a point of the form.

A continuous column runs over a grid of whole steps between its bounds. A row's coefficients are rounded to whole
numbers such that a point of the grid that keeps the rounded row keeps the true one: with one bound, to its safe side;
with two, the bounds are drawn in by all that the rounding can amount to. A row of whole columns and decimal
coefficients stays exact. A row too narrow to be drawn in, an equation above all, is widened to one step instead; what
then comes back has to be solved again on the true data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.safe_bound import implied_bounds
from hetplan.solvers.integer_program import (
    DIGITS,
    SLACK,
    IntegerProgram,
    all_finite,
    rounded_up,
    row_decimals,
    within_range,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["Grid", "integer_grid"]

STEPS = 100_000
"""Steps of a continuous column between its bounds."""
REACH = 2.0**42
"""What a scaled row may sum to: fine against its rounding, small enough for a constraint solver's propagation."""


@dataclass(frozen=True)
class Grid:
    """The program in whole numbers z; column j of the form stands at lower_j + step_j z_j."""

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
