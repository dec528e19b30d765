"""The stationary law of a queue that is served in batches, as loops that compile (see `batch_queue`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel

__all__ = ["waiting_when_a_batch_ends"]

Floats = NDArray[np.float64]


@kernel
def waiting_when_a_batch_ends(came: Floats, size: int) -> Floats:
    """How many wait when a batch ends, where `came[m - 1]` is the law of how many come during a batch of m.

    States are left out one after the other, the last first: what led there leads where it would go on (Grassmann,
    Taksar and Heyman). Nothing is subtracted, so no digit is lost. From n waiting at least n - batch are left, so each
    state leads to few that are left. A solver of dense equations would wake up threads for each of thousands of small
    chains, which takes ten times the processor time.
    """
    batch = came.shape[0]
    moves = np.zeros((size, size))
    for n in range(size):
        taken = min(max(n, 1), batch)
        left = max(n - taken, 0)
        rest = 1.0
        for more in range(size - left):
            moves[n, left + more] = came[taken - 1, more]
            rest -= came[taken - 1, more]
        moves[n, size - 1] += rest
    law = np.ones(size)
    for k in range(size - 1, 0, -1):
        low = max(k - batch, 0)
        onward = 0.0
        for j in range(low, k):
            onward += moves[k, j]
        law[k] = onward
        for i in range(k):
            if moves[i, k] > 0.0:
                share = moves[i, k] / onward
                for j in range(low, k):
                    moves[i, j] += share * moves[k, j]
    total = 1.0
    for k in range(1, size):
        reached = 0.0
        for i in range(k):
            reached += law[i] * moves[i, k]
        law[k] = reached / law[k]
        total += law[k]
    for k in range(size):
        law[k] /= total
    return law
