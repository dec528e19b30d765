"""Which instance gets a request for text: the rules of `tokens`, as loops that compile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import part

__all__ = ["by_shares", "least_work", "next_in_turn"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@part
def least_work(
    work_ms: Floats, kind: Integers, open_to: Integers, alone_ms: Floats, limit_ms: Floats, new_ms: Floats
) -> int:
    """The instance with the least work outstanding, this request included; -1 where none is open.

    Only instances are asked whose emptiest prefill of the request is within their limit; where none is, all are.
    """
    best, best_ms, slow, slow_ms = -1, np.inf, -1, np.inf
    for instance in range(kind.shape[0]):
        own = kind[instance]
        if open_to[own] == 0:
            continue
        ms = work_ms[instance] + new_ms[own]
        if alone_ms[own] <= limit_ms[own]:
            if ms < best_ms:
                best, best_ms = instance, ms
        elif ms < slow_ms:
            slow, slow_ms = instance, ms
    return best if best >= 0 else slow


@part
def next_in_turn(last: int, kind: Integers, open_to: Integers) -> int:
    """The next instance after the one that had the last request; -1 where none is open."""
    for step in range(1, kind.shape[0] + 1):
        instance = int((last + step) % kind.shape[0])
        if open_to[kind[instance]] != 0:
            return instance
    return -1


@part
def by_shares(drawn: float, kind: Integers, open_to: Integers, share: Floats) -> int:
    """The instance that a number drawn from 0 to 1 falls to, where a type's share is that of each of its instances."""
    total = 0.0
    for instance in range(kind.shape[0]):
        if open_to[kind[instance]] != 0:
            total += share[kind[instance]]
    left, last = drawn * total, -1
    for instance in range(kind.shape[0]):
        if open_to[kind[instance]] != 0 and share[kind[instance]] > 0.0:
            last = instance
            left -= share[kind[instance]]
            if left < 0.0:
                return instance
    return last
