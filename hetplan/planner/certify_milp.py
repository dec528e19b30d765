"""The verdict on an answer to a `Milp`, from the form's data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Certificate, Status, Vouched, relative_gap
from hetplan.planner.forms.program import point_faults
from hetplan.planner.safe_bound import BoundTree, bound_of_tree, dual_bound
from hetplan.planner.tolerances import BOUND_SLIP, GAP, VALUE

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program, Vector

__all__ = ["certify_milp"]


def certify_milp(form: Program, answer: Answer[Vector]) -> Certificate:
    """Check point, integrality and value; re-prove the bound from duals and infeasibility from a ray."""
    if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
        from hetplan.planner.certify_rays import certify_infeasible, certify_unbounded

        return (certify_infeasible if answer.status is Status.INFEASIBLE else certify_unbounded)(form, answer)
    faults: list[str] = []
    value, residual = None, 0.0
    if answer.point is None:
        if answer.status in (Status.OPTIMAL, Status.FEASIBLE):
            faults.append(f"{answer.status} without a point")
    else:
        point = np.asarray(answer.point, dtype=float)
        found, residual = point_faults(form, point)
        faults.extend(found)
        if not found:
            value = form.value(point)
            if answer.value is None or not _close(answer.value, value, VALUE):
                stated = "none" if answer.value is None else f"{answer.value:.12g}"
                faults.append(f"stated value {stated}, recomputed {value:.12g}")
    proved = _proved_bound(form, answer, value, faults)
    better = 1.0 if form.sense == "min" else -1.0
    claimed = answer.bound if answer.bound is not None and np.isfinite(answer.bound) else None
    if claimed is not None and value is not None and _is_beyond(better * claimed, better * value):
        faults.append(f"stated bound {claimed:.12g} is refuted by the point's value {value:.12g}")
        claimed = None
    bound, vouched = claimed, Vouched.NONE if claimed is None else Vouched.CLAIMED
    # A linear program's bound is what its duals prove; a tighter word of the engine has nothing behind it.
    if proved is not None and (
        form.pure_lp or claimed is None or better * (proved - claimed) >= 0.0 or _closes(value, proved)
    ):
        bound, vouched = proved, Vouched.CERTIFIED
    return Certificate(tuple(faults), value, bound, vouched, proved, residual=residual)


def _proved_bound(form: Program, answer: Answer[Vector], value: float | None, faults: list[str]) -> float | None:
    """The best finite bound that duals or a tree prove."""
    proofs: list[float] = []
    if answer.row_duals is not None and np.shape(answer.row_duals) == form.row_lower.shape:
        proofs.append(dual_bound(form, answer.row_duals, value=value))
    tree = answer.proof.get("tree")
    if isinstance(tree, BoundTree):
        found = bound_of_tree(form, tree, value=value)
        if found is None:
            faults.append("the tree that is to prove the bound is not one of this form")
        else:
            proofs.append(found)
    return (max if form.sense == "min" else min)(filter(np.isfinite, proofs), default=None)


def _closes(value: float | None, proved: float) -> bool:
    """The proved bound is so near that a nearer one, which nobody can check, is not worth more."""
    return value is not None and relative_gap(value, proved) <= GAP


def _close(one: float, other: float, tolerance: float) -> bool:
    return bool(np.isfinite(one)) and abs(one - other) <= tolerance * max(1.0, abs(one), abs(other))


def _is_beyond(bound: float, value: float) -> bool:
    """In the sense of a minimum: the bound is above the value."""
    return bound - value > BOUND_SLIP * max(1.0, abs(bound), abs(value))
