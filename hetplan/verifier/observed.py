"""Sizes of queries that were observed, counted into the bins of a mix by code of the verifier's own."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.profiles.slo import Mix

__all__ = ["bin_counts"]


def bin_counts(mix: Mix, observed: Sequence[Sequence[float]]) -> list[float]:
    """How often each bin was met: a size counts as the bin that holds it and is fewest of the axes' values up.

    Of bins equally far up, the first that is listed.
    """
    counts = [0.0] * len(mix.bins)
    values = [sorted(set(column)) for column in zip(*mix.bins, strict=True)]
    up = [sum(column.index(at) for column, at in zip(values, one, strict=True)) for one in mix.bins]
    for size in observed:
        holding = [n for n, one in enumerate(mix.bins) if all(a <= b for a, b in zip(size, one, strict=True))]
        if holding:
            counts[min(holding, key=lambda n: up[n])] += 1.0
    return counts
