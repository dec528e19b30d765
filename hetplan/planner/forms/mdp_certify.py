"""What can be re-proved of an answer to a `Mdp`: the policy's own value, and how much better any other could be.

The value is solved from the chosen rows alone. The bound needs only the values that the answer carries, however they
were found: for the average, with gain g and residual d = max over states of (best score - value),

    reward per decision   <=  max residual                      (weights 1)
    ratio                 <=  g + max(d, 0) / (least weight per decision)

and for a discounted process  V* <= V + max residual / (1 - discount).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.certificate import Certificate, Vouched
from hetplan.planner.forms.mdp import Choice, Criterion, Floats, Mdp
from hetplan.planner.tolerances import BOUND_SLIP, VALUE

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["average_of", "certify_mdp", "false_bound", "stationary"]

_ROUNDING = 1e-12
"""Added to every bound, relative to the value: sums of floating-point products are no better than that."""


def certify_mdp(form: Mdp, answer: Answer[Choice]) -> Certificate:
    """The verdict on one answer."""
    if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
        return Certificate(faults=(f"a finite decision process is never {answer.status}",))
    if answer.point is None:
        claimed = answer.status in (Status.OPTIMAL, Status.FEASIBLE)
        return Certificate(faults=(f"{answer.status} without a policy",) if claimed else ())
    choice = np.asarray(answer.point)
    fault = _choice_fault(form, choice)
    if fault:
        return Certificate(faults=(fault,))
    value = _value(form, choice)
    faults: list[str] = []
    if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
        faults.append(f"the policy is worth {value:.9g}, not {answer.value:.9g}")
    faults += false_bound(answer, value)
    bound = _bound(form, answer)
    if bound is None:
        vouched = Vouched.NONE if answer.bound is None else Vouched.CLAIMED
        return Certificate(tuple(faults), value=value, bound=answer.bound, vouched=vouched)
    bound += _ROUNDING * max(1.0, abs(value))
    return Certificate(tuple(faults), value, bound, Vouched.CERTIFIED, bound, residual=bound - value)


def false_bound(answer: Answer[Any], value: float) -> list[str]:
    """What to say of a bound that the answer's own policy exceeds; nothing of any other."""
    if answer.bound is None or value <= answer.bound + BOUND_SLIP * max(1.0, abs(value)):
        return []
    return [f"bounds all policies by {answer.bound:.9g}, and its own is worth {value:.9g}"]


def stationary(moves: csr_array) -> Floats:
    """The long-run distribution of a chain with one recurrent class, by one sparse solve."""
    from scipy.sparse import csr_array, eye_array, vstack
    from scipy.sparse.linalg import splu

    states = moves.shape[0]
    balance = (eye_array(states, format="csr") - moves.T).tocsr()
    # One balance equation follows from the others; the total takes its place.
    system = vstack([balance[:-1], csr_array(np.ones((1, states)))]).tocsc()
    right = np.zeros(states)
    right[-1] = 1.0
    long_run = splu(system).solve(right)
    if not np.isfinite(long_run).all():
        raise ValueError("the policy leaves more than one recurrent class; its long run depends on the start")
    return np.asarray(np.maximum(long_run, 0.0) / np.maximum(long_run, 0.0).sum())


def average_of(form: Mdp, choice: Choice) -> float:
    """Reward per unit of weight in the long run under a policy."""
    long_run = stationary(form.moves[choice])
    return float(long_run @ form.reward[choice] / (long_run @ form.weights[choice]))


def _choice_fault(form: Mdp, choice: NDArray[np.int64]) -> str:
    if choice.shape != (form.states,):
        return f"the policy has {choice.size} entries for {form.states} states"
    outside = (choice < form.first[:-1]) | (choice >= form.first[1:])
    if outside.any():
        state = int(outside.argmax())
        return f"pair {int(choice[state])} is no action of state {form.state_label(state)}"
    return ""


def _value(form: Mdp, choice: Choice) -> float:
    if form.criterion is Criterion.AVERAGE:
        return average_of(form, choice)
    if form.criterion is Criterion.DISCOUNTED:
        return float(_discounted(form, choice)[form.start])
    return float(_horizon_values(form)[form.start])


def _discounted(form: Mdp, choice: Choice) -> Floats:
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import splu

    system = eye_array(form.states, format="csc") - form.discount * form.moves[choice]
    return np.asarray(splu(system.tocsc()).solve(form.reward[choice]))


def _horizon_values(form: Mdp) -> Floats:
    values = np.zeros(form.states)
    for _ in range(form.horizon):
        values = form.best(form.scores(values))
    return values


def _bound(form: Mdp, answer: Answer[Choice]) -> float | None:
    """The best bound that the carried values prove; None where none are carried."""
    if form.criterion is Criterion.HORIZON:
        return float(_horizon_values(form)[form.start])
    if "values" not in answer.proof:
        return None
    values = np.asarray(cast("Floats", answer.proof["values"]), dtype=float)
    if values.shape != (form.states,) or not np.isfinite(values).all():
        return None
    gain = float(cast("float", answer.proof.get("gain", 0.0)))
    residual = form.best(form.scores(values, gain)) - values
    worst = float(residual.max())
    if form.criterion is Criterion.DISCOUNTED:
        return float(values[form.start] + worst / (1.0 - form.discount))
    if form.weight is None:
        return gain + worst
    least = float(form.weight.min())
    if worst > 0 and least <= 0:
        return None
    return gain + max(worst, 0.0) / least if worst > 0 else gain
