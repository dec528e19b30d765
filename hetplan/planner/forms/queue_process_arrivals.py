"""Poisson and phase probabilities of a queue process, without underflow and without truncation by size.

A support is cut where Chernoff's bound puts less than 1e-30 beyond it, on both sides of the mean: never where entries
fall below some number, which at large means loses the small counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_model import QueueModel

__all__ = ["JoinTable", "Window", "join_tables", "phase_weights", "poisson"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_NATS = 69.0
"""-log of the probability that may lie beyond either end of a support: 1e-30."""


_KEPT = 1024
"""Distributions that are kept: engine and proof ask for the same ones, whole and partial batches too."""


@dataclass(frozen=True)
class Window:
    """Probabilities of the counts low, low + 1, ..., high; they are shared, so they cannot be written to."""

    low: int
    probability: Floats

    @property
    def high(self) -> int:
        """The largest count."""
        return self.low + self.probability.size - 1


@lru_cache(maxsize=_KEPT)
def poisson(mean: float) -> Window:
    """The Poisson distribution, from its mode outwards by ratios.

    >>> window = poisson(2.0)
    >>> window.low, window.probability[:3].round(6).tolist()
    (0, [0.135335, 0.270671, 0.270671])
    """
    if mean <= 0:
        return _window(0, np.ones(1))
    mode = int(mean)
    low = max(0, math.floor(mean - math.sqrt(2 * _NATS * mean)))
    high = math.ceil(mean + _NATS / 3 + math.sqrt((_NATS / 3) ** 2 + 2 * _NATS * mean)) + 1
    upward = np.cumprod(mean / np.arange(mode + 1, high + 1))
    downward = np.cumprod(np.arange(mode, low, -1) / mean)[::-1]
    weights = np.concatenate([downward, [1.0], upward])
    return _window(low, weights / weights.sum())


def _window(low: int, probability: Floats) -> Window:
    probability.setflags(write=False)
    return Window(low, probability)


def phase_weights(*, waiting: int, stages: int, means: Floats) -> Floats:
    """w(r | n, j): the phase r when the oldest of n queries has waited a time with `means[j]` expected stages.

    Given (n - 1) K + r stages with r < K, their Poisson weights, in logarithms since for unlikely states all of them
    underflow. A row per mean. A mean of 0 leaves the phase 0 to a single query; more than one cannot have come in no
    time, and no phase is likelier than another there.
    """
    counts = (waiting - 1) * stages + np.arange(1, stages)
    with np.errstate(divide="ignore"):
        steps = np.log(np.maximum(means, 0.0))[:, None] - np.log(counts)[None, :]
    if waiting > 1:
        steps[means <= 0] = 0.0
    logs = np.concatenate([np.zeros((means.size, 1)), np.cumsum(steps, axis=1)], axis=1)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class JoinTable:
    """How many join during one service, given the phase at its beginning: row r, column a - `low`."""

    low: int
    probability: Floats


def join_tables(form: QueueModel, model: Integers, batch: Integers, waiting: Integers) -> list[JoinTable]:
    """P(a | r) for each (model, batch) served when so many wait; a batch of 0 takes no time."""
    tables = []
    for m, b, n in zip(model, batch, waiting, strict=True):
        latency = float(form.latency_s[m, b - 1]) if b else 0.0
        rate = float(form.stage_rates[form.rates_by_queue[n]])
        arrivals = poisson(rate * latency)
        low, high = arrivals.low // form.stages, (form.stages - 1 + arrivals.high) // form.stages
        table = np.zeros((form.stages, high - low + 1))
        for r in range(form.stages):
            joined = np.arange(r + arrivals.low, r + arrivals.high + 1) // form.stages - low
            table[r] = np.bincount(joined, weights=arrivals.probability, minlength=high - low + 1)
        kept = np.flatnonzero(table.max(axis=0) > 1e-18)
        tables.append(JoinTable(low + int(kept[0]), table[:, kept[0] : kept[-1] + 1]))
    return tables
