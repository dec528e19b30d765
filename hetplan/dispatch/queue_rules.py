"""Rules for queries served one at a time, and the oracle that they are measured by.

``fcfs/1``        first come, first served: the oldest query to the first idle instance, preferred types first (Ribbon)
``earliest/1``    an arriving query joins the queue of the instance that would answer it first (Clockwork)
``threshold/1``   two queues by batch size: small queries to the auxiliary types, large ones to the base (DeepRecSys);
                  the threshold is found by trying: `sweep` tries all of a list, `climb` walks uphill from its middle
`oracle_makespan_ms`  a dispatch that knows all queries beforehand (Kairos' ORCL): a yardstick, not a rule that can run

Kairos' paper words ``earliest/1`` as "the instance with the earliest completion among those that meet the target, else
the earliest of all"; as the target is the same on every instance, that is the earliest of all in both cases. The oracle
is no bound on other rules: keeping to "largest on the base, smallest elsewhere" can waste a type that would serve the
middle sizes well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError
from hetplan.serving.route_choice import preferred_first

__all__ = [
    "Earliest",
    "Fcfs",
    "Threshold",
    "Tried",
    "climb",
    "oracle_makespan_ms",
    "sweep",
    "take_in_order",
    "thresholds",
]


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
        return tuple(preferred_first(self.prefer, range(types)))


def take_in_order(snapshot: Snapshot, queries: range | list[int], types: tuple[int, ...]) -> tuple[Pair, ...]:
    """Queries, oldest first, each with the first idle instance in the order of types."""
    instances = [int(j) for kind in types for j in np.flatnonzero((snapshot.kind == kind) & snapshot.idle)]
    return tuple(Pair(query, instance) for query, instance in zip(queries, instances, strict=False))


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
        from hetplan.dispatch.rule_kernels import earliest_completion

        if not snapshot.kind.size:
            return ()
        ends_ms = np.where(snapshot.idle, 0.0, snapshot.busy_ms)
        pairs = []
        for query, service_ms in enumerate(np.ascontiguousarray(snapshot.service_ms)):
            instance = int(earliest_completion(ends_ms, snapshot.kind, service_ms, 0.0))
            ends_ms[instance] += service_ms[snapshot.kind[instance]]
            pairs.append(Pair(query, instance))
        return tuple(pairs)


@dataclass(frozen=True)
class Threshold:
    """The rule ``threshold/1``: batches up to `threshold` go to the auxiliary types, larger ones to `base`."""

    name: ClassVar[str] = "threshold/1"

    threshold: float
    base: int = 0

    def decide(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """The queries to send now.

        >>> snapshot = Snapshot.of(waited_ms=[1, 0], service_ms=[[10, 20]] * 2, kind=[0, 1, 1], size=[8, 64])
        >>> Threshold(threshold=16).decide(snapshot)
        (Pair(query=0, instance=1), Pair(query=1, instance=0))
        """
        if snapshot.size is None:
            raise InputError.one(
                file="snapshot",
                path="size",
                value=None,
                why="the threshold rule needs the batch size of each query",
                remedy="Give size= to Snapshot.of.",
            )
        small = [query for query, size in enumerate(snapshot.size.tolist()) if size <= self.threshold]
        large = [query for query, size in enumerate(snapshot.size.tolist()) if size > self.threshold]
        auxiliary = tuple(kind for kind in range(snapshot.service_ms.shape[1]) if kind != self.base)
        return tuple(sorted(take_in_order(snapshot, small, auxiliary) + take_in_order(snapshot, large, (self.base,))))


@dataclass(frozen=True)
class Tried:
    """The outcome of a search for a threshold: the best, its value, and all that were tried."""

    threshold: float
    value: float
    tried: dict[float, float]


def thresholds(sizes: Sequence[float], count: int = 19) -> tuple[float, ...]:
    """Evenly spaced thresholds below the largest size, without those that part the sizes as another does.

    >>> thresholds([10, 20, 30, 40], count=3)
    (10.0, 20.0, 30.0)
    """
    largest = max(sizes)
    kept: dict[int, float] = {}
    for step in range(1, count + 1):
        threshold = largest * step / (count + 1)
        kept.setdefault(sum(size <= threshold for size in sizes), threshold)
    return tuple(kept.values())


def sweep(value: Callable[[float], float], candidates: Sequence[float]) -> Tried:
    """Try every candidate; the first of the best wins.

    >>> sweep(lambda threshold: -(threshold - 3) ** 2, [1, 2, 3, 4]).threshold
    3
    """
    tried = {candidate: value(candidate) for candidate in candidates}
    best = max(tried, key=lambda candidate: tried[candidate])
    return Tried(best, tried[best], tried)


def climb(value: Callable[[float], float], candidates: Sequence[float]) -> Tried:
    """Walk uphill over the sorted candidates from their middle, with steps that halve; finds a local best.

    >>> found = climb(lambda threshold: -(threshold - 3) ** 2, range(20))
    >>> found.threshold, len(found.tried) < 20
    (3, True)
    """
    ordered = sorted(candidates)
    tried: dict[float, float] = {}

    def at(place: int) -> float:
        if ordered[place] not in tried:
            tried[ordered[place]] = value(ordered[place])
        return tried[ordered[place]]

    place, step = len(ordered) // 2, max(len(ordered) // 4, 1)
    while step:
        beside = [p for p in (place - step, place + step) if 0 <= p < len(ordered)]
        better = max(beside, key=at, default=place)
        if at(better) > at(place):
            place = better
        else:
            step //= 2
    return Tried(ordered[place], at(place), tried)


def oracle_makespan_ms(
    service_ms: ArrayLike,
    counts: Sequence[int],
    *,
    slo_ms: float,
    base: int = 0,
    predicted_ms: ArrayLike | None = None,
) -> float:
    """The time in which all queries are served; infinite when some are not served in time by any instance they meet.

    `service_ms[i][t]` is what query i takes on type t, queries sorted from the smallest batch to the largest;
    `counts[t]` are the instances of type t. Whether a query is in time on a type is judged by `predicted_ms`, by
    default `service_ms`.

    >>> oracle_makespan_ms([[10, 20], [10, 20], [40, 200], [40, 200]], (1, 1), slo_ms=100)
    80.0
    """
    from hetplan.dispatch.rule_kernels import run_oracle

    service = np.asarray(service_ms, dtype=np.float64)
    order = [base] + [kind for kind in range(service.shape[1]) if kind != base]
    actual = np.ascontiguousarray(service[:, order])
    predicted = actual if predicted_ms is None else np.ascontiguousarray(np.asarray(predicted_ms, np.float64)[:, order])
    kind = np.repeat(np.arange(len(order)), [counts[kind] for kind in order]).astype(np.int64)
    if not kind.size:
        return float("inf")
    rows = np.arange(service.shape[0], dtype=np.int64)
    return float(run_oracle(rows, actual, predicted, kind, int(counts[base]), slo_ms))
