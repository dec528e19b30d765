"""What a rule sees: the queries that wait, the instances, what each query would take on each type.

`Overheads` are what the dispatch itself costs: the controller's decision, and the way to an instance and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.errors import InputError

__all__ = ["Overheads", "Pair", "Snapshot"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Pair(NamedTuple):
    """Send this query (its place among the waiting) to this instance (its place among the instances)."""

    query: int
    instance: int


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A moment of one pool; `Snapshot.of` makes one from plain lists and checks it.

    Queries are listed oldest first. Predicted service times are per query and instance type.
    """

    waited_ms: Floats
    service_ms: Floats
    kind: Integers
    busy_ms: Floats
    idle: NDArray[np.bool_]
    size: Floats | None = None

    @classmethod
    def of(
        cls,
        *,
        waited_ms: ArrayLike,
        service_ms: ArrayLike,
        kind: ArrayLike,
        busy_ms: ArrayLike | None = None,
        idle: ArrayLike | None = None,
        size: ArrayLike | None = None,
    ) -> Snapshot:
        """A checked snapshot.

        `waited_ms[i]` is how long query i has waited, `service_ms[i][t]` its predicted time on type t, `size[i]` its
        batch size (only the threshold rule asks). `kind[j]` is the type of instance j, `busy_ms[j]` how long it is
        still expected to be busy; `idle` says which are free, by default those not busy for any time.

        >>> Snapshot.of(waited_ms=[3.0], service_ms=[[10, 20]], kind=[0, 1], busy_ms=[5, 0]).idle.tolist()
        [False, True]
        """
        waited = np.atleast_1d(np.asarray(waited_ms, dtype=np.float64))
        kinds = np.atleast_1d(np.asarray(kind, dtype=np.int64))
        service = np.asarray(service_ms, dtype=np.float64)
        if not waited.size and not service.size:
            service = np.zeros((0, int(kinds.max(initial=0)) + 1))
        busy = np.zeros(kinds.size) if busy_ms is None else np.asarray(busy_ms, dtype=np.float64)
        free = busy <= 0.0 if idle is None else np.asarray(idle, dtype=np.bool_)
        sizes = None if size is None else np.asarray(size, dtype=np.float64)
        if service.ndim != 2 or service.shape[0] != waited.size:
            _refuse("service_ms", service.shape, f"needs a row for each of the {waited.size} waiting queries")
        if busy.shape != kinds.shape or free.shape != kinds.shape:
            _refuse("busy_ms", busy.shape, f"busy_ms and idle need an entry for each of the {kinds.size} instances")
        if kinds.size and not 0 <= kinds.min() <= kinds.max() < service.shape[1]:
            _refuse("kind", kinds.tolist(), f"must name a column of service_ms, 0 to {service.shape[1] - 1}")
        if sizes is not None and sizes.shape != waited.shape:
            _refuse("size", sizes.shape, f"needs an entry for each of the {waited.size} waiting queries")
        for name, values in (("waited_ms", waited), ("service_ms", service), ("busy_ms", busy)):
            if not (np.isfinite(values).all() and (values >= 0.0).all()):
                _refuse(name, values.tolist(), "must be finite and not negative")
        return cls(waited_ms=waited, service_ms=service, kind=kinds, busy_ms=busy, idle=free, size=sizes)


def _refuse(field: str, value: object, why: str) -> None:
    raise InputError.one(
        file="snapshot", path=field, value=value, why=why, remedy="See hetplan.dispatch.snapshot.Snapshot.of."
    )


@dataclass(frozen=True)
class Overheads:
    """Milliseconds per query: to decide, and one way over the network.

    Where instances fetch one query at a time, an instance is idle while its next query is decided and on its
    way: `occupied_ms` per query. Where queries queue at the instances, only the query itself is longer on its way.

    >>> Overheads(controller_ms=0.05, network_ms=0.2).occupied_ms
    0.45
    """

    controller_ms: float = 0.0
    network_ms: float = 0.0

    def __post_init__(self) -> None:
        for field in ("controller_ms", "network_ms"):
            value = getattr(self, field)
            if not 0.0 <= value < float("inf"):
                raise InputError.one(
                    file="overheads", path=field, value=value, why="must not be negative", remedy="Give milliseconds."
                )

    @property
    def lead_ms(self) -> float:
        """From arrival at the controller to arrival at the instance."""
        return self.controller_ms + self.network_ms

    @property
    def tail_ms(self) -> float:
        """From the end of service to the answer at the controller."""
        return self.network_ms

    @property
    def occupied_ms(self) -> float:
        """By how much one query keeps an instance longer from its next one."""
        return self.controller_ms + 2.0 * self.network_ms
