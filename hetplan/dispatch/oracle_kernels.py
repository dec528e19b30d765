"""The oracle's order of service, as a loop that compiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel

__all__ = ["run_oracle"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def run_oracle(
    rows: Integers, actual_ms: Floats, predicted_ms: Floats, kind: Integers, base: int, limit_ms: float
) -> float:
    """How long it takes to serve all queries, sorted by size, knowing them all; inf if some cannot be served.

    A free instance of the base type (the first `base` instances) takes the largest left, another the smallest left if
    that is in time there; an instance that finds none in time has nothing to do any more.
    """
    free_ms = np.zeros(kind.shape[0])
    low, high, end_ms = 0, rows.shape[0] - 1, 0.0
    while low <= high:
        instance = 0
        for other in range(1, kind.shape[0]):
            if free_ms[other] < free_ms[instance]:
                instance = other
        if free_ms[instance] == np.inf:
            return np.inf
        row = rows[high] if instance < base else rows[low]
        if predicted_ms[row, kind[instance]] > limit_ms:
            free_ms[instance] = np.inf
            continue
        if instance < base:
            high -= 1
        else:
            low += 1
        free_ms[instance] += actual_ms[row, kind[instance]]
        end_ms = max(end_ms, free_ms[instance])
    return end_ms
