r"""Markov decision processes, written out as the sparse list of their (state, action) pairs.

::

    pairs of state s      first[s] <= i < first[s + 1]
    reward r_i, weight w_i >= 0, next state distributed as row i of `moves` (sparse, rows sum to 1)

    average     max over policies   lim  E[sum r] / E[sum w]      (w = 1: reward per decision)
    discounted  max                 E[sum discount^t r_t]         from `start`
    horizon     max                 E[r_1 + ... + r_horizon]      from `start`

The average criterion is meant for unichain processes: whatever the policy, one class of states is recurrent. A weight
other than 1 makes it a ratio (accuracy per query, cost per hour); a policy is best for the ratio g exactly when it is
best for the rewards r - g w, whose best average is then 0 (Dinkelbach).

An answer's point is a `Choice`: one pair per state. Its proof may hold ``values`` (one number per state) and, for the
average, ``gain``: from these `certify` bounds the loss of the policy by the Bellman residual, whatever the engine.

What can be re-proved of an answer to a `Mdp`: the policy's own value, and how much better any other could be.

The value is solved from the chosen rows alone. The bound needs only the values that the answer carries, however they
were found: for the average, with gain g and residual d = max over states of (best score - value),

    reward per decision   <=  max residual                      (weights 1)
    ratio                 <=  g + max(d, 0) / (least weight per decision)

and for a discounted process  V* <= V + max residual / (1 - discount).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Certificate, Status, Vouched
from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import BOUND_SLIP, VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

__all__ = ["Choice", "Criterion", "Mdp", "average_of", "certify_mdp", "false_bound", "stationary"]


Choice = NDArray[np.int64]
Floats = NDArray[np.float64]


class Criterion(StrEnum):
    """Over which stretch of time a policy is judged."""

    AVERAGE = "average"
    DISCOUNTED = "discounted"
    HORIZON = "horizon"


@dataclass(frozen=True)
class Mdp(Form[Choice]):
    """A finite decision process; see the module for its mathematics.

    >>> from scipy.sparse import csr_array
    >>> stay_or_go = Mdp(
    ...     first=np.array([0, 2, 3]),
    ...     moves=csr_array(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])),
    ...     reward=np.array([1.0, 0.0, 3.0]),
    ... )
    >>> stay_or_go.size()
    {'states': 2, 'pairs': 3, 'nonzeros': 4}
    """

    kind: ClassVar[str] = "mdp"
    sense: ClassVar[str] = "max"

    first: NDArray[np.int64]
    moves: csr_array
    reward: Floats
    weight: Floats | None = None
    criterion: Criterion = Criterion.AVERAGE
    discount: float = 1.0
    horizon: int = 0
    start: int = 0
    name: str = ""
    state_label: Callable[[int], str] = field(default=str, compare=False)

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ValueError(f"not a decision process: {'; '.join(faults)}")

    @property
    def states(self) -> int:
        """How many states there are."""
        return self.first.size - 1

    @property
    def weights(self) -> Floats:
        """The weights, 1 where none are given."""
        return np.ones_like(self.reward) if self.weight is None else self.weight

    def state_of(self) -> NDArray[np.int64]:
        """The state of each pair."""
        return np.repeat(np.arange(self.states), np.diff(self.first))

    def size(self) -> dict[str, int]:
        """States, pairs, nonzeros of the moves."""
        return {"states": self.states, "pairs": self.reward.size, "nonzeros": int(self.moves.nnz)}

    def scores(self, values: Floats, gain: float = 0.0) -> Floats:
        """What each pair is worth when the future is worth `values` and each unit of weight costs `gain`."""
        step = self.discount if self.criterion is Criterion.DISCOUNTED else 1.0
        return np.asarray(self.reward - gain * self.weights + step * (self.moves @ values))

    def best(self, scores: Floats) -> Floats:
        """The best score in each state."""
        return np.asarray(np.maximum.reduceat(scores, self.first[:-1]))

    def greedy(self, scores: Floats) -> Choice:
        """The first best pair in each state."""
        is_best = scores == self.best(scores)[self.state_of()]
        places = np.flatnonzero(is_best)
        return places[np.searchsorted(places, self.first[:-1])]

    def certify(self, answer: Answer[Choice]) -> Certificate:
        """Evaluate the policy, and bound what any other could gain by the Bellman residual of the proof's values."""
        return certify_mdp(self, answer)

    def _faults(self) -> list[str]:
        pairs, states = self.moves.shape
        found: list[str] = []
        if self.first.size != states + 1 or self.first[0] != 0 or self.first[-1] != pairs:
            found.append(f"`first` must run from 0 to {pairs} over {states} states")
        elif (np.diff(self.first) < 1).any():
            found.append(f"state {int(np.argmin(np.diff(self.first)))} has no action")
        if self.reward.shape != (pairs,) or not np.isfinite(self.reward).all():
            found.append("one finite reward per pair")
        if self.weight is not None and (self.weight.shape != (pairs,) or not (self.weight >= 0).all()):
            found.append("one weight >= 0 per pair")
        if (self.moves.data < 0).any():
            found.append("probabilities are not negative")
        elif pairs and float(np.abs(self.moves.sum(axis=1) - 1.0).max()) > 1e-9:
            found.append("every row of `moves` sums to 1")
        if self.criterion is Criterion.DISCOUNTED and not 0 <= self.discount < 1:
            found.append("the discount lies in [0, 1)")
        if self.criterion is Criterion.HORIZON and self.horizon < 1:
            found.append("a horizon of at least one decision")
        return found


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
