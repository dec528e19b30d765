"""Whether a ray proves that a program has no point, or none that is best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Certificate, Vouched
from hetplan.planner.forms.program import point_faults
from hetplan.planner.safe_bound import implied_bounds, lagrangian
from hetplan.planner.tolerances import FEASIBILITY

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program, Vector

__all__ = ["certify_infeasible", "certify_unbounded", "proves_infeasible"]


def proves_infeasible(form: Program, ray: Vector) -> bool:
    """Whether the multipliers (or their negatives) show that no x satisfies all rows and bounds.

    With cost zero `lagrangian` is a bound of 0; a bound above 0 is a contradiction.
    """
    lower, upper = form.lower, form.upper
    zero = np.zeros(form.cost.size)
    scale = float(np.max(np.abs(ray), initial=0.0))
    if not np.isfinite(scale) or scale == 0.0:
        return bool((lower > upper).any())
    candidates = (ray / scale, -ray / scale)
    if any(lagrangian(form, zero, y, lower, upper) > 0.0 for y in candidates):
        return True
    lower, upper = implied_bounds(form)
    if (lower > upper).any():
        return True
    return any(lagrangian(form, zero, y, lower, upper) > 0.0 for y in candidates)


def certify_infeasible(form: Program, answer: Answer[Vector]) -> Certificate:
    """The verdict on an answer that says "infeasible"."""
    empty = form.lower > form.upper
    if empty.any() or (form.row_lower > form.row_upper).any():
        return Certificate(infeasible=Vouched.CERTIFIED)
    if answer.ray is not None and np.shape(answer.ray) == form.row_lower.shape and proves_infeasible(form, answer.ray):
        return Certificate(infeasible=Vouched.CERTIFIED)
    if answer.point is not None:
        faults, _ = point_faults(form, np.asarray(answer.point, dtype=float))
        if not faults:
            return Certificate(faults=("infeasible is refuted by the answer's own point",))
    return Certificate(infeasible=Vouched.CLAIMED)


def certify_unbounded(form: Program, answer: Answer[Vector]) -> Certificate:
    """A direction that keeps every row and bound and improves the objective for ever, from a feasible point."""
    if answer.ray is None or np.shape(answer.ray) != form.cost.shape:
        return Certificate()  # unbounded is the engine's word: no ray was given
    ray = np.asarray(answer.ray, dtype=float)
    scale = float(np.max(np.abs(ray), initial=0.0))
    if not np.isfinite(scale) or scale == 0.0:
        return Certificate(faults=("the ray of an unbounded answer is zero or not finite",))
    ray = ray / scale
    slope = float(form.cost @ ray) * (1.0 if form.sense == "min" else -1.0)
    drift = form.matrix @ ray
    blocked = (
        ((ray < -FEASIBILITY) & np.isfinite(form.lower)).any()
        or ((ray > FEASIBILITY) & np.isfinite(form.upper)).any()
        or ((drift < -FEASIBILITY) & np.isfinite(form.row_lower)).any()
        or ((drift > FEASIBILITY) & np.isfinite(form.row_upper)).any()
    )
    if blocked or slope >= 0.0:
        return Certificate(faults=("the ray of an unbounded answer leaves the form or does not improve it",))
    if answer.point is None:
        return Certificate()  # the ray holds; that the form is feasible at all is the engine's word
    faults, _ = point_faults(form, np.asarray(answer.point, dtype=float))
    return Certificate(faults=tuple(faults), vouched=Vouched.NONE if faults else Vouched.CERTIFIED)
