"""Which instance takes the query at the head of a queue: the one-line rules, as loops that compile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel

__all__ = ["earliest_completion", "first_free"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def first_free(free_ms: Floats, now_ms: float, start: int, stop: int) -> int:
    """The first of the instances ``start <= j < stop`` that is free at `now_ms`, else the one that is free soonest.

    The order of instances is the order of preference; -1 when there is none at all.
    """
    soonest, least = -1, np.inf
    for instance in range(start, stop):
        if free_ms[instance] <= now_ms:
            return instance
        if free_ms[instance] < least:
            soonest, least = instance, free_ms[instance]
    return soonest


@kernel
def earliest_completion(ends_ms: Floats, kind: Integers, service_ms: Floats, now_ms: float) -> int:
    """The instance that would answer first, each serving its own queue in order; the first of equals.

    `ends_ms[j]` is when instance j is expected to have served all it was given, `service_ms[t]` what the query takes
    on type t.
    """
    best, least = -1, np.inf
    for instance in range(ends_ms.shape[0]):
        done = max(ends_ms[instance], now_ms) + service_ms[kind[instance]]
        if done < least:
            best, least = instance, done
    return best
