"""What is seen while serving, as a number: load now and to come, latencies. State in and number out.

None of them reads a clock; times are handed in. `DemandMonitor` says what demand will be, `LoadMonitor` how much is
asked for now (a moving average over half a second). A `LatencyLearner` needs nothing measured beforehand: at first it
predicts by a line in the batch size, then by a table of what was seen. It serves one variant on one hardware.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hetplan.errors import InputError

__all__ = ["DemandMonitor", "LatencyLearner", "LoadMonitor", "forecast"]


def forecast(history_qps: Iterable[float], com: float = 1.6) -> float:
    """The moving average after a history, 0 after none.

    >>> round(forecast([100, 200]), 4), round(forecast([100, 200, 400]), 4)
    (138.4615, 239.0533)
    """
    monitor = DemandMonitor(com)
    for rate in history_qps:
        monitor.observe(rate)
    return monitor.rate_qps


@dataclass
class DemandMonitor:
    """The exponentially weighted moving average of rates, one per period, with this centre of mass.

    s_0 = d_0, s = alpha d + (1 - alpha) s with alpha = 1 / (1 + com).

    >>> monitor = DemandMonitor(com=1.0)
    >>> monitor.observe(10), monitor.observe(20)
    (10.0, 15.0)
    """

    com: float = 1.6
    rate_qps: float = 0.0
    _seen: bool = False

    def __post_init__(self) -> None:
        if not self.com > 0:
            raise ValueError(f"the centre of mass is above 0, not {self.com}")

    def observe(self, rate_qps: float) -> float:
        """Take in the rate of one period; the forecast of the next."""
        if not 0 <= rate_qps < float("inf"):
            raise ValueError(f"a rate is 0 or more, not {rate_qps}")
        alpha = 1.0 / (1.0 + self.com)
        self.rate_qps = alpha * rate_qps + (1.0 - alpha) * self.rate_qps if self._seen else float(rate_qps)
        self._seen = True
        return self.rate_qps


@dataclass
class LoadMonitor:
    """Arrivals per second over a sliding window, kept in slots of equal length.

    State in, number out: it reads no clock. `arrived` takes a query's time, `rate_qps` the time of asking; times never
    go back. The slot under way counts in full and the oldest by what of it still lies in the window, so that an even
    stream reads its rate at any moment. Before one window has passed, the average is over the time since the first
    query, or half a window where that is longer.

    >>> monitor = LoadMonitor(window_s=0.5)
    >>> for i in range(100):
    ...     monitor.arrived(i * 0.01)
    >>> round(monitor.rate_qps(1.0))
    100
    """

    window_s: float = 0.5
    slots: int = 50
    _counts: list[int] = field(default_factory=list, repr=False)
    _slot: int = 0
    _total: int = 0
    _first_s: float | None = None

    def __post_init__(self) -> None:
        if self.window_s <= 0 or self.slots < 1:
            raise ValueError("a window is longer than 0 s and has at least one slot")
        self._counts = [0] * (self.slots + 1)

    def arrived(self, now_s: float, queries: int = 1) -> None:
        """Counts queries that came at this time."""
        self._advance(now_s)
        if self._first_s is None:
            self._first_s = now_s
        self._counts[self._slot % (self.slots + 1)] += queries
        self._total += queries

    def rate_qps(self, now_s: float) -> float:
        """The average over the window that ends now."""
        self._advance(now_s)
        if self._first_s is None:
            return 0.0
        seen = now_s - self._first_s
        if seen < self.window_s:
            return self._total / max(seen, 0.5 * self.window_s)
        position = now_s * self.slots / self.window_s
        passed = position - self._slot
        oldest = self._counts[(self._slot + 1) % (self.slots + 1)]
        return (self._total - oldest * passed) / self.window_s

    def _advance(self, now_s: float) -> None:
        slot = int(now_s * self.slots / self.window_s)
        if slot <= self._slot:
            return
        size = self.slots + 1
        for passing in range(self._slot + 1, min(slot, self._slot + size) + 1):
            self._total -= self._counts[passing % size]
            self._counts[passing % size] = 0
        self._slot = slot


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
        for name, value in (("first_guess_ms", first_guess_ms), ("enough", enough), ("memory", memory)):
            if not value > 0:
                raise InputError.one(
                    file="latency learner", path=name, value=value, why="must be greater than 0", remedy="Raise it."
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
