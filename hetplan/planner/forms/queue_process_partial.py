r"""Where actions lead that leave some of the queue behind: b < n taken at (n, T_j), and drops.

With A = SLO - T_j, k = (n - 1) K + r stages in it and h = b K, the new head came at t after the old one, the h-th of k
points spread uniformly over A:

    P(t <= u | k) = P(Binomial(k, u / A) >= h)
    slack' = T_j - tau + t          n' = n - b + floor((r + Poisson(nu tau)) / K)

Given r the two are independent; r is averaged out at once by w(r | n, j), so an action becomes a short sparse row over
the states. What is lost is that (n', slack') says less of the phase than the process knows: after b < n the process is
Markov only approximately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_model import QueueModel

if TYPE_CHECKING:
    from scipy.sparse import csr_array


__all__ = ["PartialMoves", "QueueMoves", "partial_moves"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class PartialMoves:
    """One sparse row over the states per partial action; `action` says which."""

    action: Integers
    moves: csr_array


class QueueMoves(QueueModel):
    """A queue process that knows where actions lead that leave some of the queue behind."""

    @cached_property
    def partial_moves(self) -> PartialMoves:
        """Where actions that leave some of the queue behind lead to, as sparse rows."""
        return partial_moves(self)


def partial_moves(form: QueueModel) -> PartialMoves:
    """The rows of all partial actions."""
    from scipy.sparse import csr_array

    action = np.flatnonzero(form.actions.partial)
    if action.size == 0:
        return PartialMoves(action, csr_array((0, form.states)))
    from hetplan.planner.forms.queue_process_partial_kernels import compiled_rows

    return PartialMoves(action, compiled_rows(form, action))
