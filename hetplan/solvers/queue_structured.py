"""The structured engine for queue processes: compiled sweeps that share one backward pass among all actions.

It never builds a transition matrix. Average criteria are answered by modified policy iteration (Dinkelbach's ratio for
accuracy per query), horizons and discounted sums by value iteration. The answer carries values, gain and stationary
distribution, from which the form re-proves all that is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import is_ready
from hetplan.planner.answer import Answer, Limits
from hetplan.planner.contract import Event
from hetplan.planner.forms.queue_process import Batching, PerWhat, QueuePolicy, QueueProcess
from hetplan.solvers.engine import OneByOne
from hetplan.solvers.policy_iteration import Iteration

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent
    from hetplan.solvers.queue_structured_kernels import Tables

__all__ = ["QueueStructured", "compile_kernels"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LARGEST = 3e9
"""Bytes of tables that the engine allows itself."""
_COMPILING = "compiling what policies need, which is kept for later: usually 10 s on one core"


class QueueStructured(OneByOne[QueueProcess, QueuePolicy]):
    """The default engine for `QueueProcess` forms."""

    name: ClassVar[str] = "queue-structured"
    form: ClassVar[str] = "queue-process"
    takes = QueueProcess

    def version(self) -> str:
        """The version of numba, which compiles the sweeps."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("numba")
        except PackageNotFoundError:
            return ""

    def why_not(self, form: QueueProcess) -> str:
        """No compiler, or tables larger than memory allows."""
        if not self.version():
            return "numba is not installed"
        # Phase weights and the rows of full services, at the widest they get.
        services = form.models * form.queue + form.stage_rates.size * form.slacks
        room = 8.0 * form.stages * (form.queue * form.slacks + 8.0 * services)
        return f"its tables would take {room / 1e9:.1f} GB" if room > _LARGEST else ""

    def answer(
        self, form: QueueProcess, limits: Limits, *, start: QueuePolicy | None, on_event: OnEvent | None
    ) -> Answer[QueuePolicy]:
        """The best policy, by modified policy iteration on compiled sweeps."""
        _say_that_it_compiles(on_event)
        begin = None
        if form.objective is not PerWhat.PER_DECISION:
            begin = form.actions.first[:-1]
            if start is not None and not (form.chosen(start) < 0).any():
                begin = form.chosen(start)
        run = Iteration(_Compiled(form), limits, on_event)
        least = form.least_weight
        return run.best(form, read=form.policy, engine=self.name, ratio_from=begin, least_weight=least)

    def solve_all(
        self, forms: Iterable[QueueProcess], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[QueuePolicy]]:
        """A family, on as many threads as the limits give: the sweeps run outside the interpreter's lock."""
        wanted = list(forms)
        _say_that_it_compiles(on_event)

        def one(form: QueueProcess) -> Answer[QueuePolicy]:
            answer = self.solve(form, limits)
            if on_event is not None:
                on_event(Event("policy", detail=form.name, value=answer.value))
            return answer

        if limits.threads <= 1 or len(wanted) <= 1:
            return [one(form) for form in wanted]
        with ThreadPoolExecutor(max_workers=limits.threads) as pool:
            return list(pool.map(one, wanted))


def compile_kernels() -> None:
    """Solve a small process of each kind, so that everything is compiled that a policy needs."""
    latency, grid = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]]), np.array([0.0, 0.25, 0.5, 1.0])
    for batching in (Batching.MAX, Batching.VARIABLE):
        form = QueueProcess(latency, np.array([0.5, 0.9]), grid, 2, np.array([4.0]), batching=batching)
        QueueStructured().solve(form, Limits())


def _say_that_it_compiles(on_event: OnEvent | None) -> None:
    from hetplan.solvers import queue_structured_kernels as kernels

    if on_event is not None and not is_ready(kernels.improve, kernels.follow, kernels.push):
        on_event(Event("compile", _COMPILING))


@dataclass
class _Compiled:
    """The compiled sweeps behind the common interface."""

    form: QueueProcess

    def __post_init__(self) -> None:
        from hetplan.solvers import queue_structured_kernels
        from hetplan.solvers.queue_structured_tables import prepare

        self._kernels = queue_structured_kernels
        self._tables = prepare(self.form)
        self._rewards: dict[float, tuple[Floats, float, float]] = {}
        self._followed: tuple[Integers, Tables] | None = None

    @property
    def states(self) -> int:
        return self.form.states

    @property
    def reference(self) -> int:
        return self.form.slacks - 1

    def improve(self, values: Floats, gain: float) -> tuple[Floats, Integers]:
        result, chosen = np.empty(self.states), np.empty(self.form.over, dtype=np.int64)
        self._kernels.improve(self._tables, *self._reward(gain), values, result, chosen)
        return result, chosen

    def follow(self, values: Floats, chosen: Integers, gain: float) -> Floats:
        result = np.empty(self.states)
        price, over, idle = self._reward(gain)
        self._kernels.follow(self._only(chosen), price[chosen], over, idle, values, result, np.arange(chosen.size))
        return result

    def push(self, mass: Floats, chosen: Integers) -> Floats:
        result = np.empty(self.states)
        self._kernels.push(self._only(chosen), mass, np.arange(chosen.size), result)
        return result

    def earned(self, mass: Floats, chosen: Integers) -> tuple[float, float]:
        return self.form.earned(mass, chosen)

    def _only(self, chosen: Integers) -> Tables:
        """The tables of one policy, its rows side by side: it is followed many times on end."""
        if self._followed is None or not np.array_equal(self._followed[0], chosen):
            service = self._tables.action_service[chosen]
            partial = np.flatnonzero(service < 0)
            rows = self.form.partial_moves.moves[-1 - service[partial]]
            service[partial] = -1 - np.arange(partial.size)
            tables = self._tables._replace(
                action_service=service,
                partial_first=rows.indptr.astype(np.int64),
                partial_state=rows.indices.astype(np.int32, copy=False),
                partial=rows.data,
            )
            self._followed = chosen, tables
        return self._followed[1]

    def _reward(self, gain: float) -> tuple[Floats, float, float]:
        """Reward less the price of the weight: of actions, of "over", of idling."""
        if gain not in self._rewards:
            self._rewards.clear()
            over, idle = self.form.over_reward(), self.form.empty_reward()
            actions = self.form.actions
            price = actions.weight * -gain
            price += actions.reward
            self._rewards = {gain: (price, over[0] - gain * over[1], idle[0] - gain * idle[1])}
        return self._rewards[gain]
