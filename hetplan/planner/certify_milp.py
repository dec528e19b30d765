"""The verdict on an answer to a `Milp`, from the form's data alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Certificate, Status, Vouched, relative_gap
from hetplan.planner.bound_tree import BoundTree, bound_of_tree
from hetplan.planner.safe_bound import dual_bound, proves_infeasible
from hetplan.planner.tolerances import BOUND_SLIP, FEASIBILITY, GAP, INTEGRALITY, VALUE

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program, Vector

__all__ = ["certify_milp", "point_faults"]


def certify_milp(form: Program, answer: Answer[Vector]) -> Certificate:
    """Check point, integrality and value; re-prove the bound from duals and infeasibility from a ray."""
    if answer.status is Status.INFEASIBLE:
        return _certify_infeasible(form, answer)
    if answer.status is Status.UNBOUNDED:
        return _certify_unbounded(form, answer)
    verdict = _Verdict()
    if answer.point is None:
        if answer.status in (Status.OPTIMAL, Status.FEASIBLE):
            verdict.faults.append(f"{answer.status} without a point")
    else:
        point = np.asarray(answer.point, dtype=float)
        faults, verdict.residual = point_faults(form, point)
        verdict.faults.extend(faults)
        if not faults:
            verdict.value = form.value(point)
            _check_value(verdict, answer)
    _check_bound(form, answer, verdict)
    return verdict.certificate()


@dataclass
class _Verdict:
    faults: list[str] = field(default_factory=list)
    value: float | None = None
    bound: float | None = None
    vouched: Vouched = Vouched.NONE
    certified_bound: float | None = None
    residual: float = 0.0
    detail: str = ""

    def certificate(self) -> Certificate:
        return Certificate(
            faults=tuple(self.faults),
            value=self.value,
            bound=self.bound,
            vouched=self.vouched,
            certified_bound=self.certified_bound,
            residual=self.residual,
            detail=self.detail,
        )


def point_faults(form: Program, x: Vector) -> tuple[list[str], float]:
    """Everything wrong with a point, worst first in each kind, and its largest relative violation."""
    if x.shape != form.cost.shape:
        return [f"the point has {x.size} entries, the form {form.cost.size} columns"], np.inf
    if not np.isfinite(x).all():
        return [f"column {form.column_name(int(np.argmin(np.isfinite(x))))} is not finite"], np.inf
    faults: list[str] = []
    box = np.maximum(form.lower - x, x - form.upper) / np.maximum(1.0, np.abs(x))
    worst = float(box.max(initial=0.0))
    if worst > FEASIBILITY:
        j = int(box.argmax())
        faults.append(f"column {form.column_name(j)} = {x[j]:.9g} leaves [{form.lower[j]:.9g}, {form.upper[j]:.9g}]")
    activity = form.matrix @ x
    scale = np.maximum(1.0, _largest_terms(form, x))
    rows = np.maximum(form.row_lower - activity, activity - form.row_upper) / scale
    worst_row = float(rows.max(initial=0.0))
    if worst_row > FEASIBILITY:
        i = int(rows.argmax())
        faults.append(
            f"row {form.row_name(i)} = {activity[i]:.9g} leaves [{form.row_lower[i]:.9g}, {form.row_upper[i]:.9g}]"
        )
    fraction = np.where(form.whole, np.abs(x - np.round(x)), 0.0)
    if float(fraction.max(initial=0.0)) > INTEGRALITY:
        j = int(fraction.argmax())
        faults.append(f"column {form.column_name(j)} = {x[j]:.9g} must be whole")
    return faults, max(worst, worst_row, 0.0)


def _largest_terms(form: Program, x: Vector) -> Vector:
    """Per row, the largest |a_ij x_j|: a violation is judged against the numbers that cancelled in it."""
    terms = np.abs(form.matrix.data * np.repeat(x, np.diff(form.matrix.indptr)))
    largest = np.zeros(form.matrix.shape[0])
    np.maximum.at(largest, form.matrix.indices, terms)
    return largest


def _check_value(verdict: _Verdict, answer: Answer[Vector]) -> None:
    assert verdict.value is not None
    if answer.value is None or not _close(answer.value, verdict.value, VALUE):
        stated = "none" if answer.value is None else f"{answer.value:.12g}"
        verdict.faults.append(f"stated value {stated}, recomputed {verdict.value:.12g}")


def _check_bound(form: Program, answer: Answer[Vector], verdict: _Verdict) -> None:
    better = 1.0 if form.sense == "min" else -1.0
    proofs: list[float] = []
    if answer.row_duals is not None and np.shape(answer.row_duals) == form.row_lower.shape:
        proofs.append(dual_bound(form, answer.row_duals, value=verdict.value))
    tree = answer.proof.get("tree")
    if isinstance(tree, BoundTree):
        proved = bound_of_tree(form, tree, value=verdict.value)
        if proved is None:
            verdict.faults.append("the tree that is to prove the bound is not one of this form")
        else:
            proofs.append(proved)
    verdict.certified_bound = max(filter(np.isfinite, proofs), key=lambda bound: better * bound, default=None)
    claimed = answer.bound if answer.bound is not None and np.isfinite(answer.bound) else None
    if claimed is not None and verdict.value is not None and _beyond(better * claimed, better * verdict.value):
        verdict.faults.append(f"stated bound {claimed:.12g} is refuted by the point's value {verdict.value:.12g}")
        claimed = None
    proved_bound = verdict.certified_bound
    if form.pure_lp and proved_bound is not None:
        # A linear program's bound is what its duals prove; a tighter word of the engine has nothing behind it.
        verdict.bound, verdict.vouched = proved_bound, Vouched.CERTIFIED
        if claimed is not None and better * (claimed - proved_bound) > VALUE * max(1.0, abs(claimed)):
            verdict.detail = f"the engine's bound {claimed:.12g} is not what its duals prove ({proved_bound:.12g})"
    elif proved_bound is not None and (
        _at_least(better, proved_bound, claimed) or _closes(verdict.value, proved_bound)
    ):
        verdict.bound, verdict.vouched = proved_bound, Vouched.CERTIFIED
    elif claimed is not None:
        verdict.bound, verdict.vouched = claimed, Vouched.CLAIMED
    elif proved_bound is not None:
        verdict.bound, verdict.vouched = proved_bound, Vouched.CERTIFIED


def _at_least(better: float, proved: float, claimed: float | None) -> bool:
    """The proved bound is no weaker than the claimed one."""
    return claimed is not None and better * (proved - claimed) >= 0.0


def _closes(value: float | None, proved: float) -> bool:
    """The proved bound is so near that a nearer one, which nobody can check, is not worth more."""
    return value is not None and relative_gap(value, proved) <= GAP


def _certify_infeasible(form: Program, answer: Answer[Vector]) -> Certificate:
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


def _certify_unbounded(form: Program, answer: Answer[Vector]) -> Certificate:
    """A direction that keeps every row and bound and improves the objective for ever, from a feasible point."""
    if answer.ray is None or np.shape(answer.ray) != form.cost.shape:
        return Certificate(detail="unbounded is the engine's word; no ray was given")
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
        return Certificate(detail="the ray holds; that the form is feasible at all is the engine's word")
    faults, _ = point_faults(form, np.asarray(answer.point, dtype=float))
    return Certificate(faults=tuple(faults), vouched=Vouched.NONE if faults else Vouched.CERTIFIED)


def _close(one: float, other: float, tolerance: float) -> bool:
    return bool(np.isfinite(one)) and abs(one - other) <= tolerance * max(1.0, abs(one), abs(other))


def _beyond(bound: float, value: float) -> bool:
    """In the sense of a minimum: the bound is above the value."""
    return bound - value > BOUND_SLIP * max(1.0, abs(bound), abs(value))
