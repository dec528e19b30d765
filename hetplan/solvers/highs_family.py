"""A family of forms through one HiGHS model: only what differs is handed over, from one form to the next."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits, left_of
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.highs_model import HighsModel
from hetplan.solvers.milp_engine import MilpEngine, needs_no_engine, stopped, within_whole_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.contract import OnEvent

__all__ = ["solve_family"]

FEW_VALUES = 256
"""Up to so many changed matrix entries go in one by one; beyond, the matrix is passed anew under the old basis."""


def solve_family(
    engine: MilpEngine, forms: Iterable[Milp], limits: Limits, *, on_event: OnEvent | None = None
) -> list[Answer[Vector]]:
    """Answer a family through one warm model. `limits.seconds` is for all of it, `limits.work` for each."""
    started = time.monotonic()
    model: _Changing | None = None
    answers = []
    for form in forms:
        if reason := engine.refuses(form):
            raise NoSolver(form.kind, {engine.name: reason})
        left = left_of(limits, started)
        answer = needs_no_engine(form) or stopped(left)
        if answer is None:
            drawn = within_whole_bounds(form)
            if model is None:
                model = _Changing(drawn)
            else:
                model.become(drawn)
            answer = engine.settled(form, model.run(left, on_event), left_of(limits, started))
            if answer.point is not None and not form.pure_lp:
                model.hint = answer.point
        answers.append(engine.signed(answer, limits))
    return answers


class _Changing(HighsModel):
    """A model that can become another form; each linear program starts from the basis of the one before."""

    hint: Vector | None = None
    is_family = True

    def become(self, form: Milp) -> None:
        """Hold another form: hand over only what differs, and keep the basis."""
        old, self.form, self.begun = self.form, form, False
        if old.matrix.shape != form.matrix.shape or not np.array_equal(old.whole, form.whole):
            self.hint = None
            self.hand_over()
            return
        if not self._same_matrix(old, form):
            basis = self.highs.getBasis()
            self.hand_over()
            if form.pure_lp and basis.valid:
                self.highs.setBasis(basis)
        else:
            self._change_vectors(old, form)
        if self.hint is not None:
            self.begin_at(self.hint)

    def _same_matrix(self, old: Milp, form: Milp) -> bool:
        """Whether the model now has the form's matrix; a few changed entries are handed over on the way."""
        before, after = old.matrix, form.matrix
        if before is after:
            return True
        if not (np.array_equal(before.indptr, after.indptr) and np.array_equal(before.indices, after.indices)):
            return False
        changed = np.flatnonzero(before.data != after.data)
        if changed.size > FEW_VALUES:
            return False
        columns = np.searchsorted(after.indptr, changed, side="right") - 1
        for k, column in zip(changed.tolist(), columns.tolist(), strict=True):
            self.highs.changeCoeff(int(after.indices[k]), column, float(after.data[k]))
        return True

    def _change_vectors(self, old: Milp, form: Milp) -> None:
        if (rows := _differ((old.row_lower, form.row_lower), (old.row_upper, form.row_upper))).size:
            self.highs.changeRowsBounds(rows.size, rows, form.row_lower[rows], form.row_upper[rows])
        if (columns := _differ((old.lower, form.lower), (old.upper, form.upper))).size:
            self.highs.changeColsBounds(columns.size, columns, form.lower[columns], form.upper[columns])
        if (columns := _differ((old.cost, form.cost))).size:
            self.highs.changeColsCost(columns.size, columns, form.cost[columns])
        if old.sense != form.sense:
            self.highs.changeObjectiveSense(self.sense_of(form))
        if old.offset != form.offset:
            self.highs.changeObjectiveOffset(float(form.offset))


def _differ(*pairs: tuple[Vector, Vector]) -> NDArray[np.int32]:
    """Where any of the pairs differ."""
    changed = [before != after for before, after in pairs if before is not after]
    return np.flatnonzero(np.logical_or.reduce(changed)).astype(np.int32) if changed else np.zeros(0, np.int32)
