"""Earliest completion: an arriving query joins the queue of the instance that would answer it first (Clockwork).

Kairos' paper words it as "the instance with the earliest completion among those that meet the target, else the earliest
of all"; as the target is the same on every instance, that is the earliest of all in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hetplan.dispatch.snapshot import Pair, Snapshot

__all__ = ["Earliest"]


@dataclass(frozen=True)
class Earliest:
    """The rule ``earliest/1``: queries are sent when they arrive, to queues at the instances."""

    name: ClassVar[str] = "earliest/1"

    def decide(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """Where each of the queries goes, in order; ``busy_ms`` must count what is queued at an instance already.

        >>> snapshot = Snapshot.of(waited_ms=[0, 0], service_ms=[[10, 20], [40, 200]], kind=[0, 1], busy_ms=[15, 0])
        >>> Earliest().decide(snapshot)
        (Pair(query=0, instance=1), Pair(query=1, instance=0))
        """
        from hetplan.dispatch.queue_kernels import earliest_completion

        if not snapshot.kind.size:
            return ()
        ends_ms = np.where(snapshot.idle, 0.0, snapshot.busy_ms)
        pairs = []
        for query, service_ms in enumerate(np.ascontiguousarray(snapshot.service_ms)):
            instance = int(earliest_completion(ends_ms, snapshot.kind, service_ms, 0.0))
            ends_ms[instance] += service_ms[snapshot.kind[instance]]
            pairs.append(Pair(query, instance))
        return tuple(pairs)
