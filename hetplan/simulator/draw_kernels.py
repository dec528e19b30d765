"""Random numbers by name instead of by turn: each is a function of (seed, query, serial, purpose).

A query meets the same luck whatever the workers, the rule or the order of events. So two plans are compared on the
same draws, and no thread count or relabelling of workers changes a result.
"""

from __future__ import annotations

import math

import numpy as np

from hetplan.compiled import part

__all__ = [
    "BACKUP",
    "FAILURES",
    "FANOUT",
    "OUTCOME",
    "PREDICT",
    "ROUTE",
    "SERVICE",
    "draw_exponential",
    "draw_normal",
    "draw_uniform",
]

ROUTE, FANOUT, SERVICE, PREDICT, BACKUP, OUTCOME, FAILURES = 1, 2, 3, 4, 5, 6, 7
"""What a draw is for; several draws of one purpose add multiples of 16."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)


@part
def _mixed(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


@part
def draw_uniform(seed: int, query: int, serial: int, purpose: int) -> float:
    """A number strictly between 0 and 1."""
    word = _mixed((np.uint64(seed) + _ONE) * _GOLDEN)
    word = _mixed(word + (np.uint64(query) + _ONE) * _GOLDEN)
    word = _mixed(word + (np.uint64(serial) * np.uint64(1024) + np.uint64(purpose) + _ONE) * _GOLDEN)
    return (float(word >> _S11) + 0.5) * (1.0 / 9007199254740992.0)


@part
def draw_normal(seed: int, query: int, serial: int, purpose: int) -> float:
    """A standard normal number."""
    first = draw_uniform(seed, query, serial, purpose)
    second = draw_uniform(seed, query, serial, purpose + 512)
    return math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)


@part
def draw_exponential(seed: int, query: int, serial: int, purpose: int) -> float:
    """An exponential number of mean 1."""
    return -math.log(draw_uniform(seed, query, serial, purpose))
