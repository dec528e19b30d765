"""Points of a Milp: is it one, which is better, how to put its integers on integers; and forms that need no engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.forms.program import point_faults

if TYPE_CHECKING:
    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["better", "feasible", "needs_no_engine", "on_integers", "seated", "within_whole_bounds"]

EXACT = 1e-9
"""A point whose rows hold to this (relative to their largest term) needs no second look after its integers moved; a
bound this close to a whole number was meant as one."""


def feasible(form: Milp, point: Vector) -> bool:
    """Whether the point passes the check that `certify` will make."""
    return not point_faults(form, point)[0]


def within_whole_bounds(form: Milp) -> Milp:
    """The form with the bounds of its whole columns drawn in to whole numbers.

    Not every engine does so itself: HiGHS has been seen to return wrong optima under a bound such as 0.5 <= x.
    """
    lower = np.where(form.whole, np.ceil(form.lower - EXACT), form.lower)
    upper = np.where(form.whole, np.floor(form.upper + EXACT), form.upper)
    if np.array_equal(lower, form.lower) and np.array_equal(upper, form.upper):
        return form
    return replace(form, lower=lower, upper=upper)


def seated(form: Milp, start: Vector | None) -> Vector | None:
    """A start as an array of the form's length, or None: a start of another shape is no start."""
    if start is None:
        return None
    point = np.asarray(start, dtype=float)
    return point if point.shape == form.cost.shape and np.isfinite(point).all() else None


def better(form: Milp, answer: Answer[Vector], start: Vector) -> Answer[Vector]:
    """The answer, or the same with the start as its point where that is the better one."""
    if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED) or not feasible(form, start):
        return answer
    value, sign = form.value(start), 1.0 if form.sense == "min" else -1.0
    if answer.value is not None and sign * answer.value <= sign * value:
        return answer
    status = Status.FEASIBLE if answer.status is Status.NO_ANSWER else answer.status
    return replace(answer, status=status, point=start.copy(), value=value)


def on_integers(form: Milp, point: Vector, limits: Limits) -> Vector:
    """The point inside its bounds and with whole columns whole; the continuous part is solved again where that matters.

    Engines return 2.9999999 for 3, and accept rows broken by as much. Where rounding that breaks a row, HiGHS solves
    the continuous columns again around the rounded ones; if there is nothing, the engine's own point is kept.
    """
    clipped = np.clip(point, form.lower, form.upper) + 0.0
    if form.pure_lp:
        return clipped
    rounded = np.where(form.whole, np.round(clipped), clipped)
    faults, residual = point_faults(form, rounded)
    if not faults and residual <= EXACT:
        return rounded
    from hetplan.solvers.linear import around_integers

    again = around_integers(form, rounded, limits)
    if again is not None:
        return again
    return clipped if faults else rounded


def needs_no_engine(form: Milp) -> Answer[Vector] | None:
    """The answer of a form without columns, without rows, or with bounds that cross; None for all others.

    Engines differ most where there is nothing to do: some fail on an empty matrix, some take crossed bounds for an
    error. These forms are answered here, alike for all.
    """
    drawn = within_whole_bounds(form)
    lower, upper = drawn.lower, drawn.upper
    n_rows, n_columns = form.matrix.shape
    if (lower > upper).any() or (form.row_lower > form.row_upper).any():
        return Answer(Status.INFEASIBLE, ray=np.zeros(n_rows), detail="bounds cross")
    if (np.isinf(lower) & (lower > 0)).any() or (np.isinf(upper) & (upper < 0)).any():
        return Answer(Status.INFEASIBLE, detail="a bound excludes every number")
    if n_columns == 0:
        from hetplan.solvers.milp_proofs import no_columns

        return _empty_row(form) or no_columns(form)
    if n_rows == 0:
        from hetplan.solvers.milp_proofs import no_rows

        return no_rows(form, lower, upper)
    return _empty_row(form)


def _empty_row(form: Milp) -> Answer[Vector] | None:
    """A row without entries that 0 does not satisfy makes the form infeasible, which not every engine notices."""
    empty = np.bincount(form.matrix.indices, minlength=form.matrix.shape[0]) == 0
    off = empty & ((form.row_lower > 0) | (form.row_upper < 0))
    if not off.any():
        return None
    return Answer(Status.INFEASIBLE, ray=np.where(off, np.where(form.row_lower > 0, 1.0, -1.0), 0.0))
