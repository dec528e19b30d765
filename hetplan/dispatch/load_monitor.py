"""How much is asked for, right now: a moving average over the last half second, in counts."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["LoadMonitor"]


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
