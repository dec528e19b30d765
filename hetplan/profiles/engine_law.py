"""The law of an engine from measured iterations: the numbers that come nearest, and by how much they are off.

An iteration has n tokens, reads v KV tokens, decodes s sequences and has q pairs of prefill attention. A law by pieces
says that it takes the longest of a few, each a base and a price of 0 or more per n, v, s and q. One piece is a law
whose parts add up; two are a roofline. Which measurement belongs to which piece is found by turns: fit each piece to
its own, give each measurement to the piece that is longest there, and again.

The law of nine numbers (`fit_numbers`) adds up, with tokens that are free up to some count and experts that take less
and less. It is linear but for that count and the rate of the experts, which are looked for on a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FittedLaw", "FittedNumbers", "Iteration", "fit", "fit_numbers", "law_document", "nearest", "with_experts"]

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
    def rows(self) -> list[list[float]]:
        """To show: what experts and prompts add stands behind, and pieces know of neither."""
        return [[*row, 0.0, 0.0] for row in self.pieces.tolist()]

    @property
    def error(self) -> float:
        """The mean relative error."""
        return float(np.abs(self.errors).mean())


_FROM = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1536)
"""Tokens that may be free. Kernels step by such counts."""
_RATES = tuple(0.4 * 0.7**k for k in range(15))
"""How soon tokens touch all experts: from 2 of 6, each token others, to a hundredth of that where they are skewed."""
_EXPERTS = 0.6
"""Experts are taken where at most this part of the error is left: in 4 of 226 grids of dense models, in 252 of 292 of
mixtures. In the others they say as little."""
_NUMBERS = ("base_ms", "chunk_ms", "experts_ms", "token_ms", "sequence_ms", "kv_token_ms", "pair_ms")

_SHOWN = ("base", "token", "kv_token", "sequence", "pair", "experts", "chunk")


@dataclass(frozen=True)
class FittedNumbers:
    """A law of nine numbers, by the names that profiles have for them; the relative errors of all measurements."""

    numbers: dict[str, float]
    errors: Floats

    @property
    def rows(self) -> list[list[float]]:
        """To show, as pieces are."""
        return [[self.numbers[f"{name}_ms"] for name in _SHOWN]]

    @property
    def error(self) -> float:
        """The mean relative error."""
        return float(np.abs(self.errors).mean())

    @property
    def document(self) -> dict[str, object]:
        """As a profile has it."""
        worst = float(np.abs(self.errors).max())
        return {**law_document(self.numbers), "fit_error": [round(self.error, 4), round(worst, 4)]}


def law_document(numbers: Mapping[str, float]) -> dict[str, object]:
    """A law of nine numbers as a profile has it: to five digits, those that are 0 left out.

    >>> law_document({"base_ms": 6.39999999, "token_ms": 0.0, "tokens_from": 384.0})
    {'form': 'iteration/2', 'base_ms': 6.4, 'tokens_from': 384}
    """
    kept = {name: float(f"{value:.5g}") for name, value in numbers.items() if value}
    whole = {name: int(value) for name, value in kept.items() if name == "tokens_from"}
    return {"form": "iteration/2", **kept, **whole}


def with_experts(fit: Callable[[float], FittedNumbers], experts: bool | None) -> FittedNumbers:
    """The nearest of fits by how soon tokens touch experts (0: there are none).

    `experts` says whether the model has any. Where nobody does, they are taken where they are worth it: steps of
    kernels look like a few.
    """
    dense = fit(0.0)
    if experts is False:
        return dense
    mixed = min((fit(rate) for rate in _RATES), key=_squares)
    return mixed if experts or mixed.error < _EXPERTS * dense.error else dense


def fit_numbers(
    measured: Sequence[Iteration], *, least: Mapping[str, float] | None = None, experts: bool | None = None
) -> FittedNumbers:  # fmt: skip
    """The law of nine numbers that is nearest; `least` are prices that no card goes below (KV's time goes to prompts).

    >>> import math
    >>> ways = [(s + p, 100.0 * s, s, p * p / 2) for s in (1, 8, 64, 200) for p in (0, 100, 800)]
    >>> told = [(2 + 9 * (1 - math.exp(-0.4 * 0.7**6 * n)) + 0.02 * n + 1e-4 * v) for n, v, _, _ in ways]
    >>> found = fit_numbers([Iteration(*way, ms) for way, ms in zip(ways, told, strict=True)])
    >>> round(found.numbers["experts_ms"], 1), bool(np.abs(found.errors).max() < 0.02)
    (9.0, True)
    """
    rows = np.array([(one.tokens, one.sequences, one.kv_tokens, one.pairs) for one in measured], dtype=np.float64)
    ms = np.array([one.ms for one in measured])
    floor = np.array([(least or {}).get(name, 0.0) for name in _NUMBERS])
    return with_experts(
        lambda rate: min((_numbers(rows, ms, floor, start, rate) for start in _FROM), key=_squares), experts
    )


def nearest(measured: Sequence[Iteration]) -> FittedLaw | FittedNumbers:
    """Pieces, or nine numbers where these are clearly nearer: no pieces say what few tokens of experts take."""
    pieces, numbers = fit(measured), fit_numbers(measured)
    return numbers if numbers.error < _bar(pieces.error) else pieces


def _squares(one: FittedNumbers) -> float:
    return float(one.errors @ one.errors)


def _numbers(rows: Floats, ms: Floats, floor: Floats, start: int, rate: float) -> FittedNumbers:
    """The nearest with so many tokens free and experts of such a rate: prices above the floor, of 0 or more."""
    from scipy.optimize import nnls

    n, s, v, q = rows.T
    each = np.stack([np.ones(len(n)), n > s, -np.expm1(-rate * n), np.maximum(n - start, 0.0), s, v, q], axis=1)
    weighed = each / ms[:, None]
    scale = np.maximum(weighed.max(axis=0), 1e-300)
    above, _ = nnls(weighed / scale, 1.0 - weighed @ floor)
    found = floor + above / scale
    numbers = dict(zip(_NUMBERS, found.tolist(), strict=True))
    numbers |= {"tokens_from": start, "experts_rate": rate if numbers["experts_ms"] else 0.0}
    return FittedNumbers(numbers, weighed @ found - 1.0)


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
