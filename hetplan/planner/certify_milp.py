"""The verdict on an answer to a `Milp`, from the form's data alone."""

from __future__ import annotations

from dataclasses import dataclass, field
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


def _close(one: float, other: float, tolerance: float) -> bool:
    return bool(np.isfinite(one)) and abs(one - other) <= tolerance * max(1.0, abs(one), abs(other))


def _beyond(bound: float, value: float) -> bool:
    """In the sense of a minimum: the bound is above the value."""
    return bound - value > BOUND_SLIP * max(1.0, abs(bound), abs(value))
