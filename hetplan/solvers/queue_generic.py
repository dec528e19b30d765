"""Queue processes through the explicit decision process: a matrix per action, for checks and for small queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent, Solver
    from hetplan.planner.forms.form import Form

__all__ = ["QueueGeneric", "through_mdp"]

_MOST_NUMBERS = 60_000_000


class QueueGeneric:
    """Answers `QueueProcess` forms by modified policy iteration on the bridge to `Mdp`."""

    name: ClassVar[str] = "queue-generic"
    form: ClassVar[str] = "queue-process"

    def version(self) -> str:
        """The version of scipy, whose sparse matrices do the work."""
        import scipy

        return str(scipy.__version__)

    def refuses(self, form: Form[Any]) -> str:
        """Why not: not a queue process, or its matrix is too large."""
        from hetplan.solvers.queue_to_mdp import rows_estimate

        if not isinstance(form, QueueProcess):
            return f"takes queue-process forms, not {form.kind}"
        numbers = rows_estimate(form)
        return f"its matrix may hold {numbers / 1e6:.0f} million numbers" if numbers > _MOST_NUMBERS else ""

    def solve(
        self, form: QueueProcess, limits: Limits, *, start: QueuePolicy | None = None, on_event: OnEvent | None = None
    ) -> Answer[QueuePolicy]:
        """The best policy, by the matrix."""
        from hetplan.solvers.mdp_vi import MdpModifiedPolicy

        reason = self.refuses(form)
        if reason:
            raise NoSolver(form.kind, {self.name: reason})
        del start  # the matrix is what takes the time
        answer = through_mdp(form, MdpModifiedPolicy(), limits, on_event=on_event)
        return replace(answer, engine=self.name)

    def solve_all(
        self, forms: Iterable[QueueProcess], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[QueuePolicy]]:
        """One after another."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]


def through_mdp(
    form: QueueProcess, engine: Solver, limits: Limits, *, on_event: OnEvent | None = None
) -> Answer[QueuePolicy]:
    """Ask an engine for `Mdp` forms, and read its answer back."""
    from hetplan.solvers.queue_to_mdp import queue_to_mdp

    mdp, read = queue_to_mdp(form)
    answer = engine.solve(mdp, limits, on_event=on_event)
    point = None if answer.point is None else read(np.asarray(answer.point))
    return replace(answer, point=point, row_duals=None, ray=None)
