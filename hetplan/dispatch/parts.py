"""Into how many parts a large pool is divided, so that each is dispatched on its own in time."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SPLIT_ABOVE", "parts_of_pool", "split_pool"]

SPLIT_ABOVE = 50
"""Pools of more instances are divided: a matching of hundreds of queries takes as long as a query."""


def parts_of_pool(counts: Sequence[int], *, weight: Sequence[float], most: int = SPLIT_ABOVE) -> int:
    """How many parts `matching/1` divides a pool into, each to be dispatched on its own; 1 up to `most` instances.

    There are no more parts than instances of a type that is as fast as the base for the largest batch (weight 1 or
    more), where there is one: so each part has an instance that can serve every query. Nor are there more than of the
    most numerous type: so no part is empty.

    >>> parts_of_pool((2, 0, 61), weight=(1.0, 0.5, 0.2)), parts_of_pool((1, 0, 61), weight=(1.0, 0.5, 0.2))
    (2, 1)
    """
    parts = -(-sum(counts) // most)
    strong = [count for count, own in zip(counts, weight, strict=True) if count and own >= 1.0]
    return max(min(parts, max(strong or counts, default=1)), 1)


def split_pool(
    counts: Sequence[int], *, weight: Sequence[float], most: int = SPLIT_ABOVE
) -> tuple[tuple[int, ...], ...]:
    """The parts of a pool: the instances of each type are dealt out in turn, and so are its queries, as they come.

    >>> split_pool((2, 0, 61), weight=(1.0, 0.5, 0.2))
    ((1, 0, 31), (1, 0, 30))
    """
    parts = parts_of_pool(counts, weight=weight, most=most)
    return tuple(tuple(len(range(part, count, parts)) for count in counts) for part in range(parts))
