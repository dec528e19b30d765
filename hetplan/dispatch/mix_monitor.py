"""The mix of query sizes over the last queries (10,000 by default), and how far it has moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from hetplan.errors import InputError

__all__ = ["MixMonitor"]


class MixMonitor:
    """Counts the sizes of the last `window` queries into bins; sizes between bins round up.

    >>> monitor = MixMonitor([10, 20], window=4)
    >>> for size in (3, 10, 11, 20, 20):
    ...     monitor.observe(size)
    >>> monitor.share()
    (0.25, 0.75)
    >>> round(monitor.moved_from((0.5, 0.5)), 9)
    0.25
    """

    def __init__(self, bins: Sequence[float], *, window: int = 10_000) -> None:
        if not bins or any(lower >= upper for lower, upper in pairwise(bins)):
            raise InputError.one(
                file="mix", path="bins", value=list(bins), why="bins must increase strictly", remedy="Sort them."
            )
        if window < 1:
            raise InputError.one(file="mix", path="window", value=window, why="must be at least 1", remedy="Raise it.")
        self.bins = tuple(bins)
        self._recent: deque[int] = deque(maxlen=window)
        self._counts = [0] * len(self.bins)

    def observe(self, size: float) -> None:
        """Take in one query."""
        place = bisect_left(self.bins, size)
        if place == len(self.bins):
            raise InputError.one(
                file="mix",
                path="size",
                value=size,
                why=f"is above the largest bin, {self.bins[-1]}",
                remedy="Add a bin that holds it, or split the query.",
            )
        if len(self._recent) == self._recent.maxlen:
            self._counts[self._recent[0]] -= 1
        self._recent.append(place)
        self._counts[place] += 1

    @property
    def seen(self) -> int:
        """How many queries the shares rest on."""
        return len(self._recent)

    def share(self) -> tuple[float, ...]:
        """The share of each bin; all zero before the first query."""
        return tuple(count / max(self.seen, 1) for count in self._counts)

    def moved_from(self, share: Sequence[float]) -> float:
        """Total variation distance of the present mix from another: the share of queries that changed their bin."""
        return 0.5 * sum(abs(now - then) for now, then in zip(self.share(), share, strict=True))
