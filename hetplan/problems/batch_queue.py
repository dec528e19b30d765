"""How long queries wait at an instance that serves them in batches, and how large the batches are.

A batch of n takes s(n), and at most b are in one. Whenever the instance is free and someone waits, it serves those.
With n waiting when a batch ends the next is m = min(n, b), or 1 where the instance was idle, so

    n' = n - m + A,  A ~ Poisson(lambda s(m))

has a stationary law. A query that comes a share u of s(m) after it began, with k others ahead, waits s(m) (1 - u) +
floor(k / b) s(b); its own batch holds those ahead in it, and those that come before it begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln, pdtrik

__all__ = ["FULLEST", "Line", "busy_limit_of_law", "line_of"]

Vector = NDArray[np.float64]

HALVINGS, LAW_MOMENTS = 8, 6
RARELY = 1e-6
"""Batches and queues that are seen less often than this are passed over."""
FULLEST = 0.97


@lru_cache(maxsize=1024)
def busy_limit_of_law(times_ms: tuple[float, ...], *, slo_ms: float, percentile: float) -> float:
    """The highest use at which this percentile is in time, where a batch of n takes `times_ms[n - 1]`.

    It is a part of the rate at which batches are always full.

    >>> times = tuple(5.0 + 9.0 * n / 7 for n in range(8))
    >>> round(busy_limit_of_law(times, slo_ms=20, percentile=99), 1), busy_limit_of_law(times, slo_ms=4, percentile=99)
    (0.5, 0.0)
    """
    times, allowed = np.array(times_ms), 1.0 - percentile / 100.0
    low, high = 0.0, FULLEST
    if times[0] > slo_ms:
        return low
    for _ in range(HALVINGS):
        use = (low + high) / 2.0
        low, high = (use, high) if _late_of_law(times, use, slo_ms) <= allowed else (low, use)
    return low


@dataclass(frozen=True)
class _Met:
    """What a query meets: an idle instance, or a batch of some size at some moment, with others ahead.

    Rows are (size, moment) of those `seen`, columns how many are `ahead`; `left` is what is left of the batch.
    """

    idle: float
    weight: Vector
    seen: NDArray[np.int64]
    left: Vector
    ahead: Vector

    def wait(self, batch: int, full: float) -> Vector:
        """Until the query's own batch begins, per row and number ahead."""
        return np.asarray(self.left[:, None] + np.arange(self.ahead.shape[1]) // batch * full)


def _met(times: Vector, rate: float) -> _Met:
    batch = times.size
    waiting = _waiting_of_law(times, rate)
    began = np.bincount(np.clip(np.arange(waiting.size), 1, batch) - 1, weights=waiting, minlength=batch)
    idle, weight = waiting[0] / rate, began * times
    seen = np.flatnonzero(weight > RARELY * weight.sum())
    moments = (np.arange(LAW_MOMENTS) + 0.5) / LAW_MOMENTS
    came = rate * np.multiply.outer(times[seen], moments).ravel()
    ahead = _poissons(came, int(came.max() + 10.0 * math.sqrt(came.max()) + 12))
    if seen[-1] == batch - 1:  # behind a full batch some are left
        behind = waiting[batch:] + (waiting[0] * (np.arange(waiting.size - 1) == 0) if batch == 1 else 0.0)
        behind = behind / behind.sum()
        full = [np.convolve(one, behind) for one in ahead[-LAW_MOMENTS:]]
        ahead = np.pad(ahead, ((0, 0), (0, behind.size - 1)))
        ahead[-LAW_MOMENTS:] = full
    left = np.multiply.outer(times[seen], 1.0 - moments).ravel()
    return _Met(float(idle), weight, seen, left, ahead)


def _late_of_law(times: Vector, use: float, slo_ms: float) -> float:
    """The share of queries later than a limit, at this part of the rate of full batches."""
    batch, rate = times.size, use * times.size / times[-1]
    met = _met(times, rate)
    ahead, wait = met.ahead, met.wait(batch, times[-1])
    most = np.searchsorted(times, slo_ms - wait + 1e-9, side="right")
    # The largest batch of its own that is in time has room for so many who come while it waits.
    room = most - np.arange(ahead.shape[1]) % batch - 1
    late = np.where(room < 0, 1.0, 0.0)
    open_ = (room >= 0) & (most < batch) & (ahead > RARELY)
    late[open_] = gammainc(room[open_] + 1.0, rate * wait[open_])
    by_batch = (ahead * late).sum(axis=1).reshape(met.seen.size, -1).mean(axis=1)
    return float(met.weight[met.seen] @ by_batch / (met.idle + met.weight.sum()))


LEVELS = np.concatenate([np.linspace(0.0, 0.95, 768, endpoint=False), 1.0 - np.geomspace(0.05, 1e-6, 256)])
"""Shares of queries at whose waits a line is looked up, close together where few wait longer."""
SIZES = 8
"""Of each wait so many sizes of batches, each as likely."""


@dataclass(frozen=True)
class Line:
    """What a query finds: with the chance `busy` it waits, and then this long (at each of `LEVELS`).

    `size` has a row for each wait: how many are in its batch, `SIZES` times.
    """

    busy: float
    wait: Vector
    size: NDArray[np.int64]

    def drawn(self, share: Vector, other: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """The waits below which these shares of those who wait are, and the batches that they are then in."""
        at = np.searchsorted(LEVELS, share, side="right") - 1
        return self.wait[at], self.size[at, np.minimum((other * SIZES).astype(int), SIZES - 1)]


@lru_cache(maxsize=4096)
def line_of(times: tuple[float, ...], use: float) -> Line:
    """What queries find where batches of n take `times[n - 1]`, at this part of the rate of full batches.

    >>> line = line_of((1.0,), 0.5)  # one at a time: half of them wait
    >>> round(line.busy, 3), round(float(np.interp(0.5, LEVELS, line.wait)), 1)
    (0.5, 0.8)
    """
    each, batch = np.array(times), len(times)
    rate = use * batch / times[-1]
    met = _met(each, rate)
    rows = np.repeat(met.weight[met.seen], LAW_MOMENTS) / LAW_MOMENTS
    mass, wait = (rows[:, None] * met.ahead).ravel(), met.wait(batch, times[-1]).ravel()
    order = np.argsort(wait, kind="stable")
    reached = np.cumsum(mass[order])
    at = order[np.minimum(np.searchsorted(reached / reached[-1], LEVELS, side="right"), order.size - 1)]
    others = (np.arange(SIZES) + 0.5) / SIZES
    came = np.ceil(np.maximum(pdtrik(others, np.maximum(rate * wait[at], 1e-12)[:, None]), 0.0))
    before = at % met.ahead.shape[1] % batch
    size = np.minimum(1 + before[:, None] + came.astype(np.int64), batch)
    return Line(float(met.weight.sum() / (met.idle + met.weight.sum())), wait[at], size)


def _poissons(means: Vector, size: int) -> Vector:
    """The laws of several counts, a row each."""
    counts = np.arange(size)
    logs = counts * np.log(means)[:, None] - means[:, None] - gammaln(counts + 1.0)
    return np.asarray(np.exp(logs))


def _waiting_of_law(times: Vector, rate: float) -> Vector:
    """The stationary law of how many wait when a batch ends."""
    from hetplan.problems.batch_queue_kernels import waiting_when_a_batch_ends

    batch, load = times.size, rate * times[-1]
    size = int(3 * batch + 40 + 12 * math.sqrt(load) + batch / (batch - load))
    return waiting_when_a_batch_ends(_poissons(rate * times, size), size)
