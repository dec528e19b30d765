"""The structured engine without a compiler: the form's own operator, iterated. Slower; for where numba is absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess
from hetplan.solvers.running import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["QueueNumpy"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class QueueNumpy(OneByOne[QueueProcess, QueuePolicy]):
    """Answers `QueueProcess` forms with numpy alone."""

    name: ClassVar[str] = "queue-numpy"
    form: ClassVar[str] = "queue-process"
    takes = QueueProcess

    def version(self) -> str:
        """The version of numpy."""
        return np.__version__

    def answer(
        self, form: QueueProcess, limits: Limits, *, start: QueuePolicy | None, on_event: OnEvent | None
    ) -> Answer[QueuePolicy]:
        """The best policy, by modified policy iteration on the form's operator."""
        from hetplan.solvers.queue_structured import answer_queue

        return answer_queue(form, _Operated(form), limits, start=start, on_event=on_event, engine=self.name)


@dataclass(frozen=True)
class _Operated:
    """The form's operator behind the common interface."""

    form: QueueProcess

    @property
    def states(self) -> int:
        return self.form.states

    @property
    def reference(self) -> int:
        return self.form.slacks - 1

    def improve(self, values: Floats, gain: float) -> tuple[Floats, Integers]:
        return self.form.operator.bellman(self._scaled(values), gain)

    def follow(self, values: Floats, chosen: Integers, gain: float) -> Floats:
        return self.form.operator.follow(self._scaled(values), chosen, gain)

    def push(self, mass: Floats, chosen: Integers) -> Floats:
        return self.form.operator.push(mass, chosen)

    def earned(self, mass: Floats, chosen: Integers) -> tuple[float, float]:
        return self.form.earned(mass, chosen)

    def _scaled(self, values: Floats) -> Floats:
        """The operator discounts by itself; the iteration hands in values that are discounted already."""
        return values / self.form.discount if 0 < self.form.discount < 1 else values
