"""How long a batch takes in a worker: the service law (`hetplan.serving.law`), remembered, and drawn around.

A query says where on the table it is (`at`: {"batch": 64}); a batch of queries that each carry a batch of their own is
as large as all of them. Times are drawn as the simulator draws them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from random import Random
from typing import Any

from hetplan.serving.distribution import Distribution
from hetplan.serving.law import Law, OffTable
from hetplan.serving.table_points import answering_statistic

__all__ = ["OffTable", "ServiceLaw"]

At = Mapping[str, float]


class ServiceLaw:
    """The law of one load: mean times, and draws around them.

    >>> law = ServiceLaw({"quantity": "latency_ms", "outside": "clamp", "axes": {"batch": [1, 8]}, "mean": [10, 80]})
    >>> law.mean_ms({}, 1), law.mean_ms({}, 4), law.mean_ms({"batch": 8}, 2)
    (10.0, 40.0, 80.0)
    >>> ServiceLaw({"ms": 5}).mean_ms({"batch": 9}, 3)
    5.0
    """

    def __init__(self, law: Mapping[str, Any], *, statistic: str = "table", times: float = 1.0, seed: int = 0) -> None:
        self._law, self._times = Law(law), times
        drawn = statistic in ("table", "exponential")
        self._statistic = answering_statistic(self._law.statistics, "mean") if drawn else statistic
        if self._law.fixed_ms is None and self._statistic not in law:
            raise OffTable(f"the table has no {self._statistic}, only {', '.join(self._law.statistics)}")
        self._spread = statistic == "table" and self._law.has_spread
        self._exponential = statistic == "exponential"
        self._random = Random(seed)
        self._known: dict[tuple[Any, int], tuple[float, Distribution | None]] = {}

    def mean_ms(self, at: At, size: int) -> float:
        """The time of a batch of this size, all of this class."""
        return self._cell(at, size)[0]

    def median_ms(self, at: At, size: int) -> float:
        """The time that half of the batches of this size keep, as they are drawn."""
        mean, spread = self._cell(at, size)
        return mean if spread is None else spread.at(0.0)

    def draw_ms(self, ats: Sequence[At]) -> float:
        """The time that this batch takes: that of its slowest class, scattered as the table says."""
        size = len(ats)
        mean, spread = max((self._cell(at, size) for at in ats), key=itemgetter(0))
        if self._exponential:
            return mean * self._random.expovariate(1.0)
        return mean if spread is None else spread.at(self._random.gauss(0.0, 1.0))

    def _cell(self, at: At, size: int) -> tuple[float, Distribution | None]:
        key = (tuple(at.items()), size)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[key] = self._computed(at, size)
        return found

    def _computed(self, at: At, size: int) -> tuple[float, Distribution | None]:
        mean = self._times * self._law.ms(at, size, self._statistic)
        if not mean < math.inf:
            raise OffTable(f"nothing is served at {self._law.point(at, size)}")
        return mean, self._law.distribution(at, size, times=self._times) if self._spread else None
