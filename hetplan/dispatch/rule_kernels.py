"""One-line rules, the oracle's order of service and the look-up of a policy, as loops that compile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel, part
from hetplan.dispatch import decision_kernels
from hetplan.dispatch.policy_lookup import LEEWAY_MS

__all__ = [
    "LEEWAY_S",
    "behind",
    "done_ms",
    "earliest_completion",
    "first_free",
    "has_less_to_do",
    "has_room_for",
    "makes_up",
    "run_oracle",
    "slack_index",
    "spare_in_second",
]

behind, done_ms = part(decision_kernels.behind), part(decision_kernels.done_ms)
has_less_to_do, makes_up = part(decision_kernels.has_less_to_do), part(decision_kernels.makes_up)
has_room_for, spare_in_second = part(decision_kernels.has_room_for), part(decision_kernels.spare_in_second)

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


LEEWAY_S = LEEWAY_MS / 1000.0


@part
def slack_index(slack: float, grid: NDArray[np.float64]) -> int:
    """The last grid point at or below a slack, which has the leeway already; the first where there is none."""
    low, high = 0, grid.size
    while low < high:
        middle = (low + high) // 2
        if grid[middle] <= slack:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)
