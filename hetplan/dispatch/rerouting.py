"""Where a late request may still go: on its own way if that is fast enough, else to a backup with capacity left.

The budget of a step is made for its longest execution y. A request that comes late by d keeps within it on a server
that takes no longer than y - d, be that its own or another. Of the others the most accurate is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hetplan.profiles.plan_dispatch import BackupEntry

__all__ = ["Backups"]


@dataclass
class Backups:
    """The backup table of one step, with what is left of it in the second under way.

    >>> table = [BackupEntry(to="b2", node="b", left_qps=1, latency_ms=20, quality=0.9),
    ...     BackupEntry(to="b3", node="b", left_qps=5, latency_ms=10, quality=0.7)]
    >>> backups = Backups.of(table, "b")
    >>> backups.take(0.1, late_ms=30, exec_ms=50), backups.take(0.2, late_ms=30, exec_ms=50)
    ('b2', 'b3')
    >>> backups.take(1.1, late_ms=30, exec_ms=50), backups.take(1.1, late_ms=45, exec_ms=50)
    ('b2', None)
    >>> backups.makes_up(1.2, late_ms=40, exec_ms=50), backups.makes_up(1.2, late_ms=41, exec_ms=50)
    (True, False)
    """

    entries: tuple[BackupEntry, ...]
    _left: dict[str, float] = field(default_factory=dict, repr=False)
    _second: int = -1

    @classmethod
    def of(cls, table: Iterable[BackupEntry], node: str) -> Backups:
        """The entries of one step, most accurate first."""
        own = (entry for entry in table if entry.node == node)
        return cls(tuple(sorted(own, key=lambda entry: (-entry.quality, entry.to))))

    def makes_up(self, now_s: float, *, late_ms: float, exec_ms: float) -> bool:
        """Whether any load could take a request late by `late_ms` now; nothing is taken."""
        return bool(self._fitting(now_s, exec_ms - late_ms))

    def take(self, now_s: float, *, late_ms: float, exec_ms: float, draw: float = 0.0) -> str | None:
        """The load that takes a request late by `late_ms` at a step whose budget is made for `exec_ms`; None: drop it.

        Among those that make up the time and have capacity left in this second, the best accuracy; of equals one at
        random (`draw` in [0, 1)). What it takes is gone until the next second.
        """
        fitting = self._fitting(now_s, exec_ms - late_ms)
        if not fitting:
            return None
        best = [entry for entry in fitting if entry.quality == fitting[0].quality]
        chosen = best[min(int(draw * len(best)), len(best) - 1)]
        self._left[chosen.to] -= 1.0
        return chosen.to

    def _fitting(self, now_s: float, most_ms: float) -> list[BackupEntry]:
        if int(now_s) != self._second:
            self._second = int(now_s)
            self._left = {entry.to: entry.left_qps for entry in self.entries}
        return [entry for entry in self.entries if entry.latency_ms <= most_ms and self._left[entry.to] >= 1.0]
