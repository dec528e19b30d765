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
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.form import Form

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from hetplan.planner.answer import Answer
    from hetplan.planner.certificate import Certificate

__all__ = ["Choice", "Criterion", "Mdp"]

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
    pair_label: Callable[[int], str] = field(default=str, compare=False)

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
        from hetplan.planner.forms.mdp_certify import certify_mdp

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
