"""The law of an engine from measured iterations: the convex pieces that come nearest, and by how much they are off.

An iteration has n tokens, reads v KV tokens, decodes s sequences and has q pairs of prefill attention. A law says that
it takes the longest of a few pieces, each a base and a price of 0 or more per n, v, s and q. One piece is a law whose
parts add up; two are a roofline. Which measurement belongs to which piece is found by turns: fit each piece to its own,
give each measurement to the piece that is longest there, and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FittedLaw", "Iteration", "fit"]

Floats = NDArray[np.float64]

_TURNS = 12
_WORTH, _LITTLE = 0.8, 0.002
"""A second piece, or a price per sequence, is taken where at most this part of the error is left, and less by this."""


@dataclass(frozen=True)
class Iteration:
    """What an iteration had in it, and how long it took."""

    tokens: float
    kv_tokens: float
    sequences: float
    pairs: float
    ms: float


@dataclass(frozen=True)
class FittedLaw:
    """Rows of (base, per token, per KV token, per sequence, per pair); the relative errors of all measurements."""

    pieces: Floats
    errors: Floats

    @property
    def error(self) -> float:
        """The mean relative error."""
        return float(np.abs(self.errors).mean())


def fit(measured: Sequence[Iteration]) -> FittedLaw:
    """The law of one or two pieces that is nearest to what was measured.

    >>> ways = [(1, 0), (8, 0), (8, 400), (8, 1500), (1, 900)]
    >>> seen = [Iteration(s + p, 100 * s, s, p * p / 2, max(2 + 0.05 * (s + p), 20 + 0.002 * 100 * s)) for s, p in ways]
    >>> fit(seen).error < 0.01
    True
    """
    rows = np.array([(1.0, one.tokens, one.kv_tokens, one.sequences, one.pairs) for one in measured])
    ms = np.array([one.ms for one in measured])
    single = _nearest(rows, ms)[None, :]
    best, least = single, _error(single, rows, ms)
    for first in _divisions(rows, ms, single):
        pieces = _by_turns(rows, ms, first)
        error = _error(pieces, rows, ms)
        if error < (least if len(best) == 2 else _bar(least)):
            best, least = pieces, error
    return FittedLaw(best, (rows @ best.T).max(axis=1) / ms - 1.0)


def _divisions(rows: Floats, ms: Floats, single: Floats) -> Iterator[NDArray[np.bool_]]:
    """Guesses at which measurements belong to the first piece."""
    yield rows[:, 4] > 0
    yield rows @ single[0] > ms
    for column in (1, 2, 4):
        for share in (0.3, 0.5, 0.7):
            yield rows[:, column] > np.quantile(rows[:, column], share)
    random = np.random.default_rng(0)
    for _ in range(6):
        yield random.random(len(ms)) < 0.5


def _by_turns(rows: Floats, ms: Floats, first: NDArray[np.bool_]) -> Floats:
    """Two pieces, from a guess at what belongs to the first."""
    best: Floats | None = None
    least = np.inf
    for _ in range(_TURNS):
        if not first.any() or first.all():
            break
        pieces = np.stack([_nearest(rows[part], ms[part]) for part in (first, ~first)])
        error = _error(pieces, rows, ms)
        if error < least:
            best, least = pieces, error
        again = rows @ pieces[0] >= rows @ pieces[1]
        if (again == first).all():
            break
        first = again
    return best if best is not None else _nearest(rows, ms)[None, :]


def _bar(error: float) -> float:
    return min(_WORTH * error, error - _LITTLE)


def _nearest(rows: Floats, ms: Floats) -> Floats:
    """Prices of 0 or more that come nearest; a sequence has one only where that pays: a decoding one is a token too."""
    plain = rows * _WITHOUT_SEQUENCES
    best = _least(plain, ms)
    finer = _least(rows, ms)
    return finer if _error(finer[None], rows, ms) < _bar(_error(best[None], rows, ms)) else best


_WITHOUT_SEQUENCES = np.array([1.0, 1.0, 1.0, 0.0, 1.0])


def _least(rows: Floats, ms: Floats) -> Floats:
    """Prices of 0 or more with the least relative errors; measurements far off pull no more than others."""
    from scipy.optimize import nnls

    weighed = rows / ms[:, None]
    scale = np.where(weighed.max(axis=0) > 0, weighed.max(axis=0), 1.0)
    weight, found = np.ones(len(ms)), np.zeros(rows.shape[1])
    for _ in range(6):
        found, _ = nnls(weighed / scale * weight[:, None], weight)
        weight = 1.0 / np.sqrt(np.maximum(np.abs(weighed / scale @ found - 1.0), 0.01))
    return np.asarray(found / scale)


def _error(pieces: Floats, rows: Floats, ms: Floats) -> float:
    return float(np.abs((rows @ pieces.T).max(axis=1) / ms - 1.0).mean())
