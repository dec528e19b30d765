"""Policy iteration for `Mdp` forms: every policy evaluated exactly by a sparse solve, one relative value kept at 0."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.mdp import Choice, Criterion, Mdp
from hetplan.solvers.running import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["MdpPolicy"]

Floats = NDArray[np.float64]

_MOST_STATES = 20_000
_BETTER = 1e-12
"""An action replaces the current one only when it is better by more than rounding."""


class MdpPolicy(OneByOne[Mdp, Choice]):
    """Howard's policy iteration; with weights, the ratio of the policy is the gain that the next one must beat."""

    name: ClassVar[str] = "mdp-pi"
    form: ClassVar[str] = "mdp"
    takes = Mdp

    def version(self) -> str:
        """The version of scipy, whose sparse factorisation does the work."""
        import scipy

        return str(scipy.__version__)

    def why_not(self, form: Mdp) -> str:
        """One with an end, or too many states for a factorisation."""
        if form.criterion is Criterion.HORIZON:
            return "a horizon needs a policy per decision, not one for all"
        return f"{form.states} states are too many to factor" if form.states > _MOST_STATES else ""

    def answer(self, form: Mdp, limits: Limits, *, start: Choice | None, on_event: OnEvent | None) -> Answer[Choice]:
        """The best policy, by improvement until nothing is better."""
        del on_event  # it takes a handful of policies
        began = time.monotonic()
        chosen = np.array(form.first[:-1] if start is None else start)
        rounds, stop = 0, None
        while True:
            gain, values = _evaluate(form, chosen)
            scores = form.scores(values, gain)
            kept = scores[chosen]
            best = form.best(scores)
            rounds += 1
            better = best > kept + _BETTER * np.maximum(1.0, np.abs(kept))
            if not better.any():
                break
            stop = _spent(limits, began, rounds)
            if stop is not None:
                break
            chosen = np.where(better, form.greedy(scores), chosen)
        worst = float((best - values).max())
        if form.criterion is Criterion.DISCOUNTED:
            value = float(values[form.start])
            bound: float | None = value + worst / (1.0 - form.discount)
        else:
            least = float(form.weights.min())
            value = gain
            bound = gain + max(worst, 0.0) / least if least > 0 else None
        return Answer(
            status=Status.FEASIBLE if stop is not None else Status.OPTIMAL,
            stop=stop or Stop.FINISHED,
            point=chosen,
            value=value,
            bound=bound,
            proof={"values": values, "gain": gain},
            work={"policies": float(rounds)},
            engine=self.name,
            deterministic=stop is not Stop.TIME,
        )


def _evaluate(form: Mdp, chosen: Choice) -> tuple[float, Floats]:
    """h + g w = r + P h with h(start) = 0; discounted, v = r + discount P v."""
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    states = form.states
    moves = form.moves[chosen]
    if form.criterion is Criterion.DISCOUNTED:
        system = csc_array(eye_array(states, format="csr") - form.discount * moves)
        return 0.0, np.asarray(splu(system).solve(form.reward[chosen]))
    # The value of the start is 0, so its column carries the gain instead.
    system = (eye_array(states, format="csr") - moves).tolil()
    system[:, [form.start]] = form.weights[chosen][:, None]
    try:
        solution = np.asarray(splu(csc_array(system.tocsc())).solve(form.reward[chosen]))
    except RuntimeError as error:
        raise SolverFailed(MdpPolicy.name, f"a policy with more than one recurrent class ({error})") from None
    gain = float(solution[form.start])
    solution[form.start] = 0.0
    return gain, solution


def _spent(limits: Limits, began: float, rounds: int) -> Stop | None:
    if limits.cancel is not None and limits.cancel.is_set():
        return Stop.CANCELLED
    if limits.seconds is not None and time.monotonic() - began > limits.seconds:
        return Stop.TIME
    return Stop.WORK if limits.work is not None and rounds >= limits.work else None
