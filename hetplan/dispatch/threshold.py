"""Two queues by batch size: small queries to the auxiliary types, large ones to the base type (DeepRecSys).

The right threshold is found by trying: `sweep` tries all of a list, `climb` walks uphill from its middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hetplan.dispatch.fcfs import take_in_order
from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError

__all__ = ["Threshold", "Tried", "climb", "sweep", "thresholds"]


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
