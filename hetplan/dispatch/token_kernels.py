"""Which instance gets a request for text: the rules of `tokens`, as loops that compile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import part

__all__ = ["by_shares", "least_work", "next_in_turn", "split_then_fewest"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@part
def takes_more(instance: int, kind: Integers, open_to: Integers, under_way: Integers, cap: Integers) -> bool:
    """Whether an instance is open, and has fewer requests than its cap."""
    own = kind[instance]
    return bool(open_to[own] != 0 and under_way[instance] < cap[own])


@part
def least_work(
    work_ms: Floats, kind: Integers, open_to: Integers, under_way: Integers, cap: Integers, alone_ms: Floats,
    limit_ms: Floats, new_ms: Floats,
) -> int:  # fmt: skip
    """The instance with the least work outstanding, this request included; -1 where none takes more.

    Only instances are asked whose emptiest prefill of the request is within their limit; where none is, all are.
    """
    best, best_ms, slow, slow_ms = -1, np.inf, -1, np.inf
    for instance in range(kind.shape[0]):
        own = kind[instance]
        if not takes_more(instance, kind, open_to, under_way, cap):
            continue
        ms = work_ms[instance] + new_ms[own]
        if alone_ms[own] <= limit_ms[own]:
            if ms < best_ms:
                best, best_ms = instance, ms
        elif ms < slow_ms:
            slow, slow_ms = instance, ms
    return best if best >= 0 else slow


@part
def next_in_turn(last: int, kind: Integers, open_to: Integers, under_way: Integers, cap: Integers) -> int:
    """The next instance after the one that had the last request; -1 where none takes more."""
    for step in range(1, kind.shape[0] + 1):
        instance = int((last + step) % kind.shape[0])
        if takes_more(instance, kind, open_to, under_way, cap):
            return instance
    return -1


@part
def by_shares(
    drawn: float, kind: Integers, open_to: Integers, under_way: Integers, cap: Integers, share: Floats
) -> int:
    """The instance that a number drawn from 0 to 1 falls to, where a type's share is that of each of its instances."""
    total = 0.0
    for instance in range(kind.shape[0]):
        if takes_more(instance, kind, open_to, under_way, cap):
            total += share[kind[instance]]
    left, last = drawn * total, -1
    for instance in range(kind.shape[0]):
        if share[kind[instance]] > 0.0 and takes_more(instance, kind, open_to, under_way, cap):
            last = instance
            left -= share[kind[instance]]
            if left < 0.0:
                return instance
    return last


@part
def split_then_fewest(
    drawn: float, group: Integers, kind: Integers, open_to: Integers, under_way: Integers, cap: Integers, share: Floats
) -> int:
    """Of the group that the drawn number falls to, whatever there is to do there: who has the fewest requests.

    -1 where none of the group takes more: weights of a gateway look at nothing.
    """
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
                break
    best = -1
    for instance in range(kind.shape[0]):
        if last >= 0 and group[instance] == group[last] and takes_more(instance, kind, open_to, under_way, cap):
            best = instance if best < 0 or under_way[instance] < under_way[best] else best
    return best
