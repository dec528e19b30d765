"""Queue processes through the explicit decision process: a matrix per action, for checks and for small queues.

It is the second opinion on policies: how a decision leads to states is written a second time here, in the paper's own
sums (`queue_to_mdp`), and shares nothing with the structured engine but the iteration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess
from hetplan.solvers.engine import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["QueueGeneric"]

_MOST_NUMBERS = 60_000_000


class QueueGeneric(OneByOne[QueueProcess, QueuePolicy]):
    """Answers `QueueProcess` forms by modified policy iteration on the bridge to `Mdp`."""

    name: ClassVar[str] = "queue-generic"
    form: ClassVar[str] = "queue-process"
    takes = QueueProcess

    def version(self) -> str:
        """The version of scipy, whose sparse matrices do the work."""
        import scipy

        return str(scipy.__version__)

    def why_not(self, form: QueueProcess) -> str:
        """Its matrix is too large."""
        from hetplan.solvers.queue_to_mdp import rows_estimate

        numbers = rows_estimate(form)
        return f"its matrix may hold {numbers / 1e6:.0f} million numbers" if numbers > _MOST_NUMBERS else ""

    def answer(
        self, form: QueueProcess, limits: Limits, *, start: QueuePolicy | None, on_event: OnEvent | None
    ) -> Answer[QueuePolicy]:
        """The best policy, by the matrix."""
        from hetplan.solvers.policy_iteration import MdpModifiedPolicy
        from hetplan.solvers.queue_to_mdp import queue_to_mdp

        del start  # the matrix is what takes the time
        mdp, read = queue_to_mdp(form)
        answer: Answer[Any] = MdpModifiedPolicy().solve(mdp, limits, on_event=on_event)
        return replace(answer, engine=self.name, point=read(np.asarray(answer.point)))
