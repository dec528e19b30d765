"""The numbers and names of a mixed-integer linear program that proofs need, and what is wrong with a point of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import FEASIBILITY, INTEGRALITY

if TYPE_CHECKING:
    from scipy.sparse import csc_array

__all__ = ["Block", "Elastic", "Labels", "Program", "Vector", "point_faults"]


Vector = NDArray[np.float64]
Labels = Sequence[str] | Callable[[int], str]


@dataclass(frozen=True)
class Elastic:
    """A block that may give way when all cannot hold: at what price per unit, and how its owner calls giving way.

    `price` weighs one unit of this block against one unit of any other in the smallest joint relaxation.
    `field` is the input that says so (``slo.limits.cost_per_hour``), `verb` what to do with it ("raise", "lower").
    `per_unit` converts a row's unit to the user's, of all rows alike or of each; `whole` rounds a repair up to whole
    units.
    """

    price: float
    field: str
    verb: str = "raise"
    per_unit: float | tuple[float, ...] = 1.0
    unit: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Block:
    """A named run of rows or columns."""

    name: str
    start: int
    size: int
    labels: Labels = ()
    unit: str = ""
    equation: str = ""
    elastic: Elastic | None = None

    @property
    def stop(self) -> int:
        """One past the last index."""
        return self.start + self.size

    def label(self, i: int) -> str:
        """What the block's i-th row or column is called; made only when asked for."""
        if callable(self.labels):
            return self.labels(i)
        return self.labels[i] if i < len(self.labels) else str(i)


@dataclass(frozen=True)
class Program(Form[Vector]):
    """The numbers and names of a mixed-integer linear program; `Milp` is one that certifies answers."""

    kind: ClassVar[str] = "milp"

    sense: Literal["min", "max"]
    cost: Vector
    matrix: csc_array
    row_lower: Vector
    row_upper: Vector
    lower: Vector
    upper: Vector
    whole: NDArray[np.bool_]
    offset: float = 0.0
    columns: tuple[Block, ...] = ()
    rows: tuple[Block, ...] = ()
    name: str = ""

    @property
    def pure_lp(self) -> bool:
        """No column must be integer."""
        return not bool(self.whole.any())

    def size(self) -> dict[str, int]:
        """Rows, columns, nonzeros, integers."""
        rows, columns = self.matrix.shape
        return {"rows": rows, "columns": columns, "nonzeros": int(self.matrix.nnz), "whole": int(self.whole.sum())}

    def value(self, x: Vector) -> float:
        """The objective at x."""
        return float(self.cost @ x + self.offset)

    def row_name(self, i: int) -> str:
        """Block name and label of row i: ``capacity[g4dn]``."""
        return _name(self.rows, i)

    def column_name(self, j: int) -> str:
        """Block name and label of column j."""
        return _name(self.columns, j)


def _name(blocks: tuple[Block, ...], i: int) -> str:
    for block in blocks:
        if block.start <= i < block.stop:
            return f"{block.name}[{block.label(i - block.start)}]" if block.size > 1 or block.labels else block.name
    return str(i)


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
