"""Proofs that an engine did not give itself, and the forms that need no engine.

A proof is as good as its check, whoever found it: so the rays of engines that have none come from HiGHS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.safe_bound import proves_infeasible
from hetplan.solvers.highs_model import Found, Word, linear
from hetplan.solvers.milp_points import within_whole_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["needs_no_engine", "proof_of_infeasible", "proof_of_unbounded"]


def proof_of_infeasible(form: Milp, limits: Limits) -> Vector | None:
    """A multiplier per row that shows it, from the continuous relaxation (None where that is feasible)."""
    found = _relaxation(form, limits)
    if found.word is Word.INFEASIBLE and found.ray is not None and proves_infeasible(form, found.ray):
        return found.ray
    return None


def proof_of_unbounded(form: Milp, limits: Limits) -> Vector | None:
    """A direction along which the objective improves for ever; with rational data integers do not stop it."""
    found = _relaxation(form, limits)
    return found.ray if found.word is Word.UNBOUNDED else None


def _relaxation(form: Milp, limits: Limits) -> Found:
    return linear(replace(form, whole=np.zeros_like(form.whole)), replace(limits, work=None, gap=None))


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
        return _no_columns(form)
    if n_rows == 0:
        return _no_rows(form, lower, upper)
    return _empty_row(form)


def _empty_row(form: Milp) -> Answer[Vector] | None:
    """A row without entries that 0 does not satisfy makes the form infeasible, which not every engine notices."""
    empty = np.bincount(form.matrix.indices, minlength=form.matrix.shape[0]) == 0
    off = empty & ((form.row_lower > 0) | (form.row_upper < 0))
    return Answer(Status.INFEASIBLE, ray=_against(form, off)) if off.any() else None


def _against(form: Milp, off: NDArray[np.bool_]) -> Vector:
    return np.where(off, np.where(form.row_lower > 0, 1.0, -1.0), 0.0)


def _no_columns(form: Milp) -> Answer[Vector]:
    off = (form.row_lower > 0) | (form.row_upper < 0)
    if off.any():
        return Answer(Status.INFEASIBLE, ray=_against(form, off))
    value = float(form.offset)
    return Answer(Status.OPTIMAL, point=np.zeros(0), value=value, bound=value, row_duals=np.zeros(form.row_lower.size))


def _no_rows(form: Milp, lower: Vector, upper: Vector) -> Answer[Vector]:
    slope = form.cost if form.sense == "min" else -form.cost
    nearest_zero = np.clip(0.0, lower, upper)
    best = np.where(slope > 0, lower, np.where(slope < 0, upper, nearest_zero))
    free = np.isinf(best)
    if free.any():
        ray = np.where(free, -np.sign(slope), 0.0)
        return Answer(Status.UNBOUNDED, point=nearest_zero, ray=ray)
    value = form.value(best)
    duals = np.zeros(0) if form.pure_lp else None
    return Answer(Status.OPTIMAL, point=best, value=value, bound=value, row_duals=duals)
