"""Value iteration, relative value iteration and modified policy iteration for `Mdp` forms, on sparse matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.mdp import Choice, Criterion, Mdp
from hetplan.solvers.mdp_iteration import Iteration, Solved
from hetplan.solvers.running import OneByOne

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from hetplan.planner.contract import OnEvent
    from hetplan.solvers.mdp_wide_kernels import WideMatrix

__all__ = ["MatrixSweeps", "MdpModifiedPolicy", "MdpRelative", "MdpValue", "answer_of"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_WIDE = 1_000_000
"""A matrix of fewer numbers does not repay loading the compiled product, a third of a second."""


class MdpValue(OneByOne[Mdp, Choice]):
    """Value iteration as in the textbooks: undiscounted values grow, and their span says when to stop."""

    name: ClassVar[str] = "mdp-vi"
    form: ClassVar[str] = "mdp"
    takes = Mdp
    evaluations: ClassVar[int] = 0
    relative: ClassVar[bool] = False
    patience: ClassVar[int] = 1_000_000

    def version(self) -> str:
        """The version of scipy, whose sparse matrices do the work."""
        import scipy

        return str(scipy.__version__)

    def answer(self, form: Mdp, limits: Limits, *, start: Choice | None, on_event: OnEvent | None) -> Answer[Choice]:
        """The best policy, by sweeps."""
        run = Iteration(
            MatrixSweeps(form),
            limits,
            evaluations=self.evaluations,
            relative=self.relative,
            patience=self.patience,
            on_event=on_event,
        )
        if form.criterion is Criterion.HORIZON:
            solved = run.horizon(form.horizon)
        elif form.criterion is Criterion.DISCOUNTED:
            solved = run.discounted(form.discount)
        elif form.weight is None:
            solved = run.average(np.zeros(form.states))
        else:
            solved = run.ratio(form.first[:-1] if start is None else start)
        return answer_of(form, run, solved, engine=self.name)


class MdpRelative(MdpValue):
    """Relative value iteration: the value of one state is kept at 0."""

    name: ClassVar[str] = "mdp-rvi"
    relative: ClassVar[bool] = True

    def why_not(self, form: Mdp) -> str:
        """One that is not judged by its average."""
        average = form.criterion is Criterion.AVERAGE
        return "" if average else f"relative values are for the average criterion, not {form.criterion}"


class MdpModifiedPolicy(MdpValue):
    """Modified policy iteration: a few sweeps of the current policy between improvements. The default engine."""

    name: ClassVar[str] = "mdp-mpi"
    evaluations: ClassVar[int] = 8
    relative: ClassVar[bool] = True
    patience: ClassVar[int] = 4


@dataclass
class MatrixSweeps:
    """The sweeps of an explicit process."""

    mdp: Mdp

    def __post_init__(self) -> None:
        from hetplan.compiled import is_compiled

        self._wide: WideMatrix | None = None
        self._followed: tuple[Integers, csr_array] | None = None
        if self.mdp.moves.nnz >= _WIDE and is_compiled():
            from hetplan.solvers.mdp_wide_kernels import WideMatrix

            self._wide = WideMatrix(self.mdp.moves)

    @property
    def states(self) -> int:
        """How many states."""
        return self.mdp.states

    @property
    def reference(self) -> int:
        """The start, which unichain policies come back to."""
        return self.mdp.start

    def improve(self, values: Floats, gain: float) -> tuple[Floats, Integers]:
        """The best scores, and the first pair that attains them."""
        scores = self._scores(values, gain)
        return self.mdp.best(scores), self.mdp.greedy(scores)

    def follow(self, values: Floats, chosen: Integers, gain: float) -> Floats:
        """The worth of the chosen pairs."""
        mdp = self.mdp
        return np.asarray((mdp.reward - gain * mdp.weights)[chosen] + self._rows_of(chosen) @ values)

    def push(self, mass: Floats, chosen: Integers) -> Floats:
        """Where a distribution is one decision later."""
        return np.asarray(self._rows_of(chosen).T @ mass)

    def earned(self, mass: Floats, chosen: Integers) -> tuple[float, float]:
        """Expected reward and weight of a decision."""
        return float(mass @ self.mdp.reward[chosen]), float(mass @ self.mdp.weights[chosen])

    def _scores(self, values: Floats, gain: float) -> Floats:
        # The iteration hands in values that are discounted already.
        future = self.mdp.moves @ values if self._wide is None else self._wide.times(values)
        return np.asarray(self.mdp.reward - gain * self.mdp.weights + future)

    def _rows_of(self, chosen: Integers) -> csr_array:
        """The matrix of a policy; one is followed many times on end."""
        if self._followed is None or self._followed[0] is not chosen:
            self._followed = chosen, self.mdp.moves[chosen]
        return self._followed[1]


def answer_of(form: Mdp, run: Iteration, solved: Solved, *, engine: str) -> Answer[Choice]:
    """What an iteration found, as an answer."""
    if form.criterion is Criterion.AVERAGE:
        mass = solved.stationary if solved.stationary is not None else run.stationary(solved.chosen)
        reward, weight = run.sweeps.earned(mass, solved.chosen)
        value = reward / weight
        least = 1.0 if form.weight is None else float(form.weight.min())
        bound = (
            solved.most if form.weight is None else solved.gain + max(solved.most, 0.0) / least if least > 0 else None
        )
        proof: dict[str, object] = {"values": solved.values, "gain": solved.gain, "stationary": mass}
    else:
        scale = 1.0 / (1.0 - form.discount) if form.criterion is Criterion.DISCOUNTED else 0.0
        base = float(solved.values[form.start])
        value, bound = base + 0.5 * (solved.least + solved.most) * scale, base + solved.most * scale
        proof = {"values": solved.values, "gain": 0.0}
    return Answer(
        status=Status.OPTIMAL if solved.stop is Stop.FINISHED else Status.FEASIBLE,
        stop=solved.stop,
        point=solved.chosen,
        value=value,
        bound=bound,
        proof=proof,
        work=run.work,
        engine=engine,
        deterministic=solved.stop in (Stop.FINISHED, Stop.WORK),
    )
