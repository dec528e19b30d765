"""The law of an engine from measured iterations: the numbers that come nearest, and by how much they are off.

An iteration has n tokens, reads v KV tokens, decodes s sequences and has q pairs of prefill attention. What they take
adds up, with tokens that are free up to some count and experts that take less and less. That is linear but for that
count and the rate of the experts, which are looked for on a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FittedNumbers", "Iteration", "fit_numbers", "law_document", "with_experts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Iteration:
    """What an iteration had in it, and how long it took."""

    tokens: float
    kv_tokens: float
    sequences: float
    pairs: float
    ms: float


_FROM = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1536)
"""Tokens that may be free. Kernels step by such counts."""
_RATES = tuple(0.4 * 0.7**k for k in range(15))
"""How soon tokens touch all experts: from 2 of 6, each token others, to a hundredth of that where they are skewed."""
_EXPERTS, _LITTLE = 0.6, 0.002
"""Experts are taken where at most this part of the error is left, and less by this: in 4 of 226 grids of dense models,
in 252 of 292 of mixtures. In the others they say as little."""
_NUMBERS = ("base_ms", "chunk_ms", "experts_ms", "token_ms", "sequence_ms", "kv_token_ms", "pair_ms")


@dataclass(frozen=True)
class FittedNumbers:
    """A law of nine numbers, by the names that profiles have for them; the relative errors of all measurements."""

    numbers: dict[str, float]
    errors: Floats

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
    return mixed if experts or mixed.error < min(_EXPERTS * dense.error, dense.error - _LITTLE) else dense


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
