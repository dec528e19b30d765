"""All columns of at most two items of every block, as arrays: priced together at any prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.columns import Columns

__all__ = ["Pairs", "pairs_of"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS = 6
"""Counts of the first item that are tried, from the most that leaves something over downwards."""


@dataclass(frozen=True)
class Pairs:
    """`k` of item `first` and `m` of item `second` (0 where one does it alone), with cost and use."""

    form: Columns
    block: Integers
    first: Integers
    k: Vector
    second: Integers
    m: Vector
    cost: Vector
    use: Vector
    starts: Integers
    blocks: Integers

    def reduced(self, prices: Vector) -> Vector:
        """Cost of every column at these prices."""
        return np.asarray(self.cost + prices @ self.use)

    def priced(self, prices: Vector) -> tuple[Vector, float]:
        """The cheapest of every block together, and the bound that they would give."""
        worth = self.reduced(prices)
        least = np.minimum.reduceat(worth, self.starts)
        size = np.diff(np.append(self.starts, worth.size))
        at = np.flatnonzero(worth == np.repeat(least, size))
        _, lead = np.unique(self.block[at], return_index=True)
        chosen = at[lead]
        return self.counts(chosen), float(least.sum() - prices @ self.form.capacity)

    def counts(self, chosen: Integers) -> Vector:
        """The counts of some columns together."""
        size = self.form.cost.size
        x = np.bincount(self.first[chosen], weights=self.k[chosen], minlength=size)
        return np.asarray(x + np.bincount(self.second[chosen], self.m[chosen], size), dtype=np.float64)


def pairs_of(form: Columns) -> Pairs:
    """Every pair of items of one block, in several splits."""
    first, second = _ordered_pairs(form)
    gain, need = form.gain, form.need[form.block]
    most = np.ceil(need / gain * (1 - 1e-9))
    parts = []
    alone = np.flatnonzero((need > 0) & (most <= form.upper))
    parts.append((alone, most[alone], alone, np.zeros(alone.size)))
    for step in range(STEPS):
        k = np.minimum(most[first] - 1 - step, form.upper[first])
        fits = (k >= 1) & (form.group[first] != form.group[second])
        a, b, count = first[fits], second[fits], k[fits]
        m = np.ceil((need[a] - count * gain[a]) / gain[b] * (1 - 1e-9))
        good = (m >= 1) & (m <= form.upper[b])
        parts.append((a[good], count[good], b[good], m[good]))
    a, k, b, m = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(form.block[a], kind="stable")
    a, k, b, m = a[order], k[order], b[order], m[order]
    cost = form.cost[a] * k + form.cost[b] * m
    for item, count in ((a, k), (b, m)):
        g = form.group[item]
        cost = cost + form.surcharge[g] * np.maximum(count - form.free[g], 0.0)
    use = form.use[:, a] * k + form.use[:, b] * m
    block = form.block[a]
    blocks, starts = np.unique(block, return_index=True)
    return Pairs(form, block, a, k, b, m, cost, use, starts.astype(np.int64), blocks)


def _ordered_pairs(form: Columns) -> tuple[Integers, Integers]:
    starts = form.starts
    size = np.diff(starts)
    repeats = size[form.block]
    first = np.repeat(np.arange(form.block.size), repeats)
    offset = np.arange(first.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    second = starts[form.block[first]] + offset
    apart = first != second
    return first[apart], second[apart]
