"""Predicted latencies that are learnt while serving: at first a line in the batch size, then a table of what was seen.

Nothing has to be measured beforehand. One learner serves one variant on one hardware.
"""

from __future__ import annotations

from collections.abc import Iterable

from hetplan.errors import InputError

__all__ = ["LatencyLearner"]


class LatencyLearner:
    """Learns latency by batch size from observations.

    A size seen at least `enough` times is predicted by the mean of what was seen, any other by a line fitted to
    everything seen. `memory` bounds the weight of the past: beyond so many observations of a size its mean forgets
    exponentially, so that the table follows a machine that changes.

    >>> learner = LatencyLearner(first_guess_ms=5.0, enough=2)
    >>> learner.predict(32)
    5.0
    >>> learner.observe_all([(1, 2.0), (9, 10.0)])
    >>> round(learner.predict(32), 9)
    33.0
    >>> learner.observe_all([(32, 40.0), (32, 42.0)])
    >>> learner.predict(32), learner.learnt(32)
    (41.0, True)
    """

    def __init__(self, *, first_guess_ms: float = 1.0, enough: int = 3, memory: int = 1000) -> None:
        for field, value in (("first_guess_ms", first_guess_ms), ("enough", enough), ("memory", memory)):
            if not value > 0:
                raise InputError.one(
                    file="latency learner", path=field, value=value, why="must be greater than 0", remedy="Raise it."
                )
        self.first_guess_ms, self.enough, self.memory = first_guess_ms, enough, memory
        self._seen: dict[float, tuple[int, float]] = {}
        # Running moments of (size, latency): the line needs no history.
        self._count = 0
        self._mean_size = self._mean_ms = self._size_square = self._size_by_ms = 0.0

    def observe(self, size: float, latency_ms: float) -> None:
        """Take in that a batch of this size took so long."""
        if not (size > 0 and 0 < latency_ms < float("inf")):
            raise InputError.one(
                file="latency learner",
                path=f"size {size}",
                value=latency_ms,
                why="sizes and latencies are finite and greater than 0",
                remedy="Leave out failed queries.",
            )
        count, mean_ms = self._seen.get(size, (0, 0.0))
        mean_ms += (latency_ms - mean_ms) / min(count + 1, self.memory)
        self._seen[size] = (count + 1, mean_ms)
        self._count += 1
        from_mean = size - self._mean_size
        self._mean_size += from_mean / self._count
        self._mean_ms += (latency_ms - self._mean_ms) / self._count
        self._size_square += from_mean * (size - self._mean_size)
        self._size_by_ms += from_mean * (latency_ms - self._mean_ms)

    def observe_all(self, observations: Iterable[tuple[float, float]]) -> None:
        """Take in many (size, latency in ms)."""
        for size, latency_ms in observations:
            self.observe(size, latency_ms)

    def predict(self, size: float) -> float:
        """The expected latency of a batch of this size, in ms."""
        if self.learnt(size):
            return self._seen[size][1]
        if not self._count:
            return self.first_guess_ms
        if self._size_square <= 0.0:
            return self._mean_ms
        line = self._mean_ms + self._size_by_ms / self._size_square * (size - self._mean_size)
        # A line may fall below zero far from what was seen; nothing was ever faster than the fastest mean.
        return max(line, min(mean_ms for _, mean_ms in self._seen.values())) if line <= 0.0 else line

    def learnt(self, size: float) -> bool:
        """Whether this size is predicted from the table rather than from the line."""
        return self._seen.get(size, (0, 0.0))[0] >= self.enough

    def table(self) -> dict[float, float]:
        """What the table holds: size to mean latency in ms, sizes ascending."""
        return {size: self._seen[size][1] for size in sorted(self._seen) if self.learnt(size)}
