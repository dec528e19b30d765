"""How busy an instance may be and still answer in time, by the queue that plans of variants are sized with.

An instance serves a batch of up to b queries in T, whenever it is free and someone waits. Queries come as a Poisson
stream, so many in T. With n waiting when a batch ends, the next leaves (n - b)^+ behind, and as many more come as in T.
A query that comes a share u of T after a batch began, with k full batches ahead of it, is answered after
T (1 - u) + k T + T. The use looked for is the highest at which no more are late than the percentile leaves. It is
looked up on a grid of uses, at the two nearest of a grid of limits over T, with straight lines between.

Where a batch of m takes s(m), less than a full one, the law itself is followed: of n that wait min(n, b) are taken (one
who comes to an idle instance alone), and the use is halved out between 0 and 0.97 of the rate of full batches.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LARGEST", "busy_and_waits", "most_busy", "most_busy_by_law"]

_USES = [0.0, 0.01, 0.03, *(float(use) for use in np.arange(0.05, 0.951, 0.05))]
_LIMITS = [*(float(x) for x in np.arange(1.0, 4.0, 0.1)), *(float(x) for x in np.arange(4.0, 20.1, 1.0))]
_MOMENTS = [(k + 0.5) / 12 for k in range(12)]
_SETTLED, _STEPS = 1e-7, 3000
LARGEST = 64
"""Up to such a batch smaller ones are looked at; larger ones count as full."""
_FULLEST, _HALVINGS, _PHASES = 0.97, 8, 6
_LEEWAY = 1e-3
"""Of the share that may be late so much is no ground for calling a use too low."""


def most_busy(*, time_ms: float, batch: int, limit_ms: float, left: float) -> float:
    """The highest use at which no more than this share is later than the limit.

    >>> round(most_busy(time_ms=20, batch=1, limit_ms=200, left=0.01), 2)
    0.77
    """
    if limit_ms < time_ms:
        return 0.0
    above = next((k for k, limit in enumerate(_LIMITS) if limit >= limit_ms / time_ms), len(_LIMITS) - 1)
    near = sorted({max(above - 1, 0), above})
    highest = [_use_at(batch, k, left) for k in near]
    return float(np.interp(limit_ms / time_ms, [_LIMITS[k] for k in near], highest))


@lru_cache(maxsize=4096)
def _use_at(batch: int, limit: int, left: float) -> float:
    """The use at which a share `left` is late by one limit of the grid."""
    late = np.maximum.accumulate([_late(batch, use)[limit] for use in _USES])
    return float(np.interp(left, late, _USES))


@lru_cache(maxsize=1024)
def _late(batch: int, use: float) -> tuple[float, ...]:
    """The share of queries that are later than each limit of the grid."""
    if use == 0.0:
        return (0.0,) * len(_LIMITS)
    mean = use * batch
    law = _law(batch, mean)
    served_first = 1.0 - law[0] / (mean + law[0])
    found = np.zeros(len(_LIMITS))
    for u in _MOMENTS:
        ahead = np.convolve(_behind(law, batch), _poisson(mean * u, law.size))
        full = np.arange(ahead.size) // batch
        for k, limit in enumerate(_LIMITS):
            found[k] += ahead[full > math.floor(limit - 2.0 + u + 1e-9)].sum() / len(_MOMENTS)
    return tuple(float(share) for share in served_first * found)


def _law(batch: int, mean: float) -> Floats:
    """How many wait when a batch ends: the law that one more batch does not change."""
    size = int(3 * batch + 40 + 12 * math.sqrt(mean) + batch / (batch - mean))
    come, law = _poisson(mean, size), np.zeros(size)
    law[0] = 1.0
    for _ in range(_STEPS):
        after: Floats = np.convolve(_behind(law, batch), come)[:size]
        after = after / after.sum()
        moved = float(np.abs(after - law).sum())
        law = after
        if moved < _SETTLED:
            break
    return law


def _behind(law: Floats, batch: int) -> Floats:
    """How many a batch leaves behind."""
    return np.asarray(np.concatenate([[law[: batch + 1].sum()], law[batch + 1 :]]), np.float64)


def _poisson(mean: float, size: int) -> Floats:
    logs = np.concatenate([[0.0], np.cumsum(np.log(mean / np.arange(1, size)))]) - mean
    return np.asarray(np.exp(logs))


@lru_cache(maxsize=1024)
def most_busy_by_law(times_ms: tuple[float, ...], *, limit_ms: float, left: float) -> float:
    """The same, where a batch of m takes the m-th of these times.

    >>> times = tuple(5.0 + 9.0 * n / 7 for n in range(8))
    >>> round(most_busy_by_law(times, limit_ms=20, left=0.01), 1)
    0.5
    """
    if limit_ms < times_ms[0]:
        return 0.0
    use, step = 0.0, _FULLEST / 2.0
    for _ in range(_HALVINGS):
        if _late_by_law(np.array(times_ms), use + step, limit_ms) <= left * (1.0 - _LEEWAY):
            use += step
        step /= 2.0
    return use


def _late_by_law(times: Floats, use: float, limit_ms: float) -> float:
    """The share of queries that are later than the limit, by how many waited when the batch began that they met."""
    from scipy.special import pdtrc

    largest = times.size
    come = use * largest / times[-1]
    waiting = _law_of_times(times, come)
    late, seen = 0.0, waiting[0] / come
    for n, chance in enumerate(waiting):
        taken, left_behind = min(max(n, 1), largest), max(n - largest, 0)
        lasts = float(times[taken - 1])
        seen += chance * lasts
        if chance * lasts < 1e-10:
            continue
        for phase in (np.arange(_PHASES) + 0.5) / _PHASES:
            mean = come * lasts * phase
            more = np.arange(int(mean + 9.0 * math.sqrt(mean) + 10.0))
            before = left_behind + more
            until = lasts * (1.0 - phase) + (before // largest) * times[-1]
            fits = np.searchsorted(times, limit_ms - until + 1e-9, side="right")
            spare = fits - before % largest - 1
            grown = pdtrc(np.maximum(spare, 0), come * until)
            too_late = np.where(spare < 0, 1.0, np.where(fits >= largest, 0.0, grown))
            late += chance * lasts / _PHASES * float(_poisson_at(mean, more) @ too_late)
    return float(late / seen)


@lru_cache(maxsize=256)
def busy_and_waits(times: tuple[float, ...], use: float) -> tuple[float, Floats]:
    """How often an instance is met busy, and then the waits, who is before one in the batch, and how likely (rows)."""
    each, largest = np.array(times), len(times)
    come = use * largest / times[-1]
    waiting = _law_of_times(each, come)
    cells: list[Floats] = []
    for n, chance in enumerate(waiting):
        lasts, left_behind = times[min(max(n, 1), largest) - 1], max(n - largest, 0)
        if chance * lasts < 1e-10:
            continue
        for phase in (np.arange(_PHASES) + 0.5) / _PHASES:
            more = np.arange(int(come * lasts * phase + 9.0 * math.sqrt(come * lasts * phase) + 10.0))
            before = left_behind + more
            until = lasts * (1.0 - phase) + (before // largest) * times[-1]
            mass = chance * lasts * _poisson_at(come * lasts * phase, more)
            cells.append(np.stack([until, before % largest, mass]).astype(np.float64))
    found = np.concatenate(cells, axis=1)
    likely = float(found[2].sum())
    found[2] /= likely
    return likely / _PHASES / (likely / _PHASES + float(waiting[0]) / come), found


def _law_of_times(times: Floats, come: float) -> Floats:
    """How many wait when a batch ends, where its time depends on how many were in it."""
    largest, load = times.size, come * float(times[-1])
    size = int(3 * largest + 40 + 12 * math.sqrt(load) + largest / (largest - load))
    counts = np.arange(size)
    step = np.zeros((size, size))
    for n in range(size):
        behind = max(n - largest, 0)
        step[n, behind:] = _poisson_at(come * float(times[min(max(n, 1), largest) - 1]), counts[: size - behind])
    step[:, -1] += 1.0 - step.sum(axis=1)
    # As many go over from the first n states to the others as come back, so the shares of all states follow by
    # taking the states away one by one from the last.
    rest = step.copy()
    for n in range(size - 1, 0, -1):
        leaves = rest[n, :n].sum()
        rest[:n, n] /= leaves
        rest[:n, :n] += np.outer(rest[:n, n], rest[n, :n])
    law = np.zeros(size)
    law[0] = 1.0
    for n in range(1, size):
        law[n] = law[:n] @ rest[:n, n]
    return np.asarray(law / law.sum())


def _poisson_at(mean: float, counts: NDArray[np.int64]) -> Floats:
    from scipy.special import gammaln

    return np.asarray(np.exp(counts * math.log(mean) - mean - gammaln(counts + 1.0)))
