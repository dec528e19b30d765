"""First come, first served: the oldest query takes the first idle instance, preferred types first (Ribbon)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hetplan.dispatch.snapshot import Pair, Snapshot

__all__ = ["Fcfs", "take_in_order"]


@dataclass(frozen=True)
class Fcfs:
    """The rule ``fcfs/1``: no latency target is looked at.

    `prefer` lists types, the most preferred first; types not listed follow in their own order. By default that is
    type 0 (the base) first.
    """

    name: ClassVar[str] = "fcfs/1"

    prefer: tuple[int, ...] = ()

    def decide(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """The queries to send now.

        >>> snapshot = Snapshot.of(waited_ms=[2, 1, 0], service_ms=[[10, 20]] * 3, kind=[1, 0, 1], busy_ms=[0, 0, 4])
        >>> Fcfs().decide(snapshot)
        (Pair(query=0, instance=1), Pair(query=1, instance=0))
        """
        return take_in_order(snapshot, range(snapshot.waited_ms.size), self.order(snapshot.service_ms.shape[1]))

    def order(self, types: int) -> tuple[int, ...]:
        """All types, the most preferred first."""
        return self.prefer + tuple(kind for kind in range(types) if kind not in self.prefer)


def take_in_order(snapshot: Snapshot, queries: range | list[int], types: tuple[int, ...]) -> tuple[Pair, ...]:
    """Queries, oldest first, each with the first idle instance in the order of types."""
    instances = [int(j) for kind in types for j in np.flatnonzero((snapshot.kind == kind) & snapshot.idle)]
    return tuple(Pair(query, instance) for query, instance in zip(queries, instances, strict=False))
