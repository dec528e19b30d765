r"""Dispatch by matching: waiting queries against instances, least weighted busy time (Kairos, Eqs. 1-8).

============ ===========================================================================
notation     meaning
============ ===========================================================================
m, n         waiting queries (the oldest 2n), instances
L_ij         remaining busy time of instance j + predicted service time of query i on j
W_i          time that query i has waited
C_j          weight of j's type: time of the largest batch on the base type / on this type
xi           share of the latency target that may be planned with (0.98)
P_ij         1 when i is matched with j
============ ===========================================================================

::

    min  sum_ij C_j L_ij P_ij                                                    (2, 4)
    sum_j P_ij <= 1,  sum_i P_ij <= 1,  sum_ij P_ij = min(m, n)                  (6, 7)
    L_ij := 10 QoS   where  L_ij + W_i > xi QoS                                  (5, 8)

A pair with a busy instance is not sent: it keeps the instance's next turn free, and all is matched anew at the next
event. What a late pair costs is the `penalty`: ``paper`` is Eq. 8 (times C_j, as Eq. 4 has it; where some C_j is so
small that a late pair there would beat a timely one elsewhere, 10 QoS / min C is taken); ``absolute`` a fixed number
of weighted milliseconds; ``lexicographic`` counts late pairs before all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError

__all__ = ["Matching", "Penalty", "weights"]

Penalty = Literal["paper", "absolute", "lexicographic"]
Floats = NDArray[np.float64]

_LATE_TIMES_SLO = 10.0  # Eq. 8
_STATED = ("slo_ms", "xi", "penalty", "penalty_ms")
"""The parameters that a plan states beside the weights."""


@dataclass(frozen=True)
class Matching:
    """The rule ``matching/1``; `weight` is C_j per instance type."""

    name: ClassVar[str] = "matching/1"

    slo_ms: float
    weight: tuple[float, ...]
    xi: float = 0.98
    penalty: Penalty = "paper"
    penalty_ms: float = 1000.0
    merge: bool = True

    def __post_init__(self) -> None:
        for field, good, why in (
            ("slo_ms", 0.0 < self.slo_ms < np.inf, "must be greater than 0"),
            ("weight", bool(self.weight) and all(0.0 < w < np.inf for w in self.weight), "must be greater than 0"),
            ("xi", 0.0 < self.xi <= 1.0, "must be in (0, 1]"),
            ("penalty", self.penalty in ("paper", "absolute", "lexicographic"), "is none of the penalties"),
            ("penalty_ms", 0.0 < self.penalty_ms < np.inf, "must be greater than 0"),
        ):
            if not good:
                raise InputError.one(
                    file="dispatch", path=field, value=getattr(self, field), why=why, remedy="See rule matching/1."
                )

    @classmethod
    def of(cls, stated: Mapping[str, Any], hardware: Iterable[str]) -> tuple[Self, dict[str, float], dict[str, float]]:
        """The rule as a plan states it for machines of these hardware, the weight of each, and what a late pair costs.

        All hardware that the plan weighs scales what a late pair costs, also what is not among these machines.

        >>> Matching.of({"slo_ms": 100.0, "weight": {"gpu": 1.0, "cpu": 0.2}}, ["cpu"])[2]
        {'cpu': 200.0, 'gpu': 1000.0}
        """
        weight = {**dict.fromkeys(hardware, 1.0), **stated.get("weight", {})} or {"": 1.0}
        limits = {name: stated[name] for name in _STATED if stated.get(name) is not None}
        rule = cls(weight=tuple(weight.values()), **limits)
        return rule, weight, dict(zip(weight, rule.late_cost().tolist(), strict=True))

    @property
    def scaled(self) -> bool:
        """Whether Eq. 8 had to be scaled: a late pair on the lightest type would beat a timely one (C_j < 0.098)."""
        return self.penalty == "paper" and _LATE_TIMES_SLO * min(self.weight) < self.xi * max(self.weight)

    @property
    def limit_ms(self) -> float:
        """The right side of Eq. 5."""
        return self.xi * self.slo_ms

    def late_cost(self) -> Floats:
        """What a late pair costs on each type; -1 where late pairs count before all else."""
        weight = np.asarray(self.weight, dtype=np.float64)
        if self.penalty == "lexicographic":
            return np.full(weight.size, -1.0)
        if self.penalty == "absolute":
            return np.full(weight.size, float(self.penalty_ms))
        cost: Floats = weight * (_LATE_TIMES_SLO * self.slo_ms)
        return cost / weight.min() if self.scaled else cost

    @property
    def merges(self) -> bool:
        """Whether alike instances are merged: not where a late pair may cost less than a timely one."""
        return self.merge and (self.penalty != "absolute" or self.penalty_ms >= max(self.weight) * self.limit_ms)

    def decide(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """The queries to send now: those matched with an idle instance.

        >>> rule = Matching(slo_ms=100, weight=(1.0, 0.2))
        >>> rule.decide(Snapshot.of(waited_ms=[1, 0], service_ms=[[10, 20], [40, 200]], kind=[0, 1]))
        (Pair(query=0, instance=1), Pair(query=1, instance=0))
        """
        return tuple(pair for pair in self.matched(snapshot) if snapshot.idle[pair.instance])

    def matched(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """All pairs, those with busy instances too; only the oldest 2n queries take part."""
        from hetplan.dispatch.matching_kernels import IDLE, Seen, match, scratch

        instances = snapshot.kind.size
        queries = min(snapshot.waited_ms.size, 2 * instances)
        if not queries:
            return ()
        by_type = np.argsort(snapshot.kind, kind="stable")
        kind = snapshot.kind[by_type]
        first = np.searchsorted(kind, np.arange(snapshot.service_ms.shape[1] + 1)).astype(np.int64)
        mates = np.full(queries, -1, dtype=np.int64)
        seen = Seen(
            now_ms=0.0,
            waiting=np.arange(queries, dtype=np.int64),
            queries=queries,
            arrived_ms=-snapshot.waited_ms,
            rows=np.arange(queries, dtype=np.int64),
            service_ms=np.ascontiguousarray(snapshot.service_ms),
            first=first,
            kind=kind,
            ends_ms=np.where(snapshot.idle, IDLE, snapshot.busy_ms)[by_type],
        )
        costs = (np.asarray(self.weight, dtype=np.float64), self.late_cost(), self.limit_ms, self.merges)
        match(seen, costs, mates, scratch(instances, queries))
        return tuple(Pair(k, int(by_type[mate])) for k, mate in enumerate(mates.tolist()) if mate >= 0)

    def cost(self, snapshot: Snapshot) -> Floats:
        """The cost of each pair (Eqs. 2, 5, 8), a row per query and a column per instance."""
        weight = np.asarray(self.weight, dtype=np.float64)[snapshot.kind]
        done = np.where(snapshot.idle, 0.0, snapshot.busy_ms) + snapshot.service_ms[:, snapshot.kind]
        late = done + snapshot.waited_ms[:, None] > self.limit_ms
        if self.penalty == "lexicographic":
            beyond = ((weight * done).max(initial=0.0) + 1.0) * (min(done.shape) + 1)
            return np.where(late, weight * done + beyond, weight * done)
        return np.where(late, self.late_cost()[snapshot.kind], weight * done)


def weights(latency_ms: ArrayLike, *, base: int = 0) -> tuple[float, ...]:
    """C_j of each type: the largest batch's time on the base type over its time on this one.

    >>> weights([[10, 40], [20, 200]])
    (1.0, 0.2)
    """
    largest = np.asarray(latency_ms, dtype=np.float64)[:, -1]
    return tuple((largest[base] / largest).tolist())
