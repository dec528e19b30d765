r"""Decision processes as linear programs, answered by the default engine for `Milp` forms.

::

    average     max  sum r x    over  x >= 0:   sum w x = 1,   out of s = into s                   for every state s
    discounted  max  sum r x    over  x >= 0:   out of s - discount * into s = [s is the start]

x says how often a pair is chosen (per unit of weight in the long run; the ratio becomes linear that way, as Charnes
and Cooper have it). A vertex chooses one pair per state that recurs. The duals are the values, and with their sign the
whole proof: states that do not recur take the greedy pair under them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.forms.mdp import Choice, Criterion, Mdp
from hetplan.planner.forms.milp import Builder, Milp, Vector
from hetplan.solvers.running import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["MdpLp", "mdp_to_milp"]

Floats = NDArray[np.float64]

_MOST_NUMBERS = 3_000_000


def mdp_to_milp(form: Mdp) -> tuple[Milp, Callable[[Answer[Vector]], tuple[Choice, Floats, float]]]:
    """The linear program, and how an answer to it reads: policy, values, gain."""
    discounted = form.criterion is Criterion.DISCOUNTED
    pairs = np.arange(form.reward.size)
    model = Builder("max", name=form.name or "mdp")
    x = model.columns("frequency", form.pair_label, size=pairs.size, cost=form.reward)
    start = np.zeros(form.states)
    start[form.start] = 1.0
    balance = start if discounted else np.zeros(form.states)
    rows = model.rows("balance", form.state_label, size=form.states, lower=balance, upper=balance)
    model.add(rows[form.state_of()], x, 1.0)
    moves = form.moves.tocoo()
    pair, state = moves.coords
    model.add(rows[state], x[pair], -(form.discount if discounted else 1.0) * moves.data)
    if not discounted:
        total = model.rows("total", ["weight"], lower=1.0, upper=1.0)
        model.add(total, x, form.weights)
    milp = model.build()

    def read(answer: Answer[Vector]) -> tuple[Choice, Floats, float]:
        if answer.point is None or answer.row_duals is None:
            raise SolverFailed(answer.engine, "a linear program without point or duals")
        duals = np.asarray(answer.row_duals)
        values, gain = duals[: form.states], 0.0 if discounted else float(duals[form.states])
        scores = form.scores(values, gain)
        often = np.maximum(np.asarray(answer.point), 0.0)
        most = np.maximum.reduceat(often, form.first[:-1])
        # Where a state recurs its frequent pair wins, elsewhere the best score does.
        recurs = most > 1e-12
        merit = np.where(recurs[form.state_of()], often, scores)
        return form.greedy(merit), values, gain

    return milp, read


class MdpLp(OneByOne[Mdp, Choice]):
    """Answers `Mdp` forms through the linear program and HiGHS."""

    name: ClassVar[str] = "mdp-lp"
    form: ClassVar[str] = "mdp"
    takes = Mdp

    def version(self) -> str:
        """The version of the engine behind it."""
        from hetplan.solvers.highs import Highs

        return Highs().version()

    def why_not(self, form: Mdp) -> str:
        """One with an end, or too large a program."""
        if form.criterion is Criterion.HORIZON:
            return "a horizon needs a policy per decision, not one for all"
        return f"{form.moves.nnz} numbers are too many" if form.moves.nnz > _MOST_NUMBERS else ""

    def answer(self, form: Mdp, limits: Limits, *, start: Choice | None, on_event: OnEvent | None) -> Answer[Choice]:
        """The best policy, by the linear program."""
        from hetplan.solvers.highs import Highs

        del start  # a policy is no basis
        milp, read = mdp_to_milp(form)
        answer = Highs().solve(milp, limits, on_event=on_event)
        if answer.point is None or answer.row_duals is None:
            return Answer(Status.NO_ANSWER, stop=answer.stop, engine=self.name, detail=answer.detail)
        choice, values, gain = read(answer)
        value = _worth(form, choice, answer)
        return Answer(
            status=answer.status,
            stop=answer.stop,
            point=choice,
            value=value,
            bound=answer.bound,
            proof={"values": values, "gain": gain},
            work=answer.work,
            engine=self.name,
            deterministic=answer.deterministic,
        )


def _worth(form: Mdp, choice: Choice, answer: Answer[Vector]) -> float | None:
    """The value of the policy as read back, which the program's own value may exceed by its tolerance."""
    if form.criterion is Criterion.AVERAGE:
        from hetplan.planner.forms.mdp import average_of

        return average_of(form, choice)
    return answer.value
