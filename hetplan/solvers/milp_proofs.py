"""Proofs that an engine did not give itself, and the answers of forms without rows or columns.

It does not matter who found a proof, since it is checked: so the rays of engines that have none come from HiGHS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.certify_rays import proves_infeasible
from hetplan.solvers.highs_model import Found, Word, linear

if TYPE_CHECKING:
    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["no_columns", "no_rows", "proof_of_infeasible", "proof_of_unbounded"]


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


def no_columns(form: Milp) -> Answer[Vector]:
    """The answer of a form without columns whose rows all hold."""
    value = float(form.offset)
    return Answer(Status.OPTIMAL, point=np.zeros(0), value=value, bound=value, row_duals=np.zeros(form.row_lower.size))


def no_rows(form: Milp, lower: Vector, upper: Vector) -> Answer[Vector]:
    """The answer of a form without rows: each column by itself, between its bounds."""
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
