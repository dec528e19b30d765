"""What is wrong with a point of a program: bounds, rows and whole numbers that it does not keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.tolerances import FEASIBILITY, INTEGRALITY

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program, Vector

__all__ = ["point_faults"]


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
