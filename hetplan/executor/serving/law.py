"""How long a batch takes in a worker: the service law (`hetplan.serving.law`), remembered, and drawn around.

A query says where on the table it is (`at`: {"batch": 64}); a batch of queries that each carry a batch of their own is
as large as all of them. Times are drawn as the simulator draws them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hetplan.serving.law import Law, OffTable
from hetplan.serving.reading import answering

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
        self._statistic = answering(self._law.statistics, "mean") if drawn else statistic
        if self._law.fixed_ms is None and self._statistic not in law:
            raise OffTable(f"the table has no {self._statistic}, only {', '.join(self._law.statistics)}")
        self._spread = statistic == "table" and self._law.has_spread
        self._exponential = statistic == "exponential"
        self._random = Random(seed)
        self._known: dict[tuple[Any, int], tuple[float, float, float, float]] = {}

    def mean_ms(self, at: At, size: int) -> float:
        """The time of a batch of this size, all of this class."""
        return self._cell(at, size)[0]

    def median_ms(self, at: At, size: int) -> float:
        """The time that half of the batches of this size keep, as they are drawn."""
        mean, mu, sigma, _ = self._cell(at, size)
        return math.exp(mu) if sigma else mean

    def draw_ms(self, ats: Sequence[At]) -> float:
        """The time that this batch takes: that of its slowest class, scattered as the table says."""
        size = len(ats)
        mean, mu, sigma, most = max(self._cell(at, size) for at in ats) if size > 1 else self._cell(ats[0], size)
        if self._exponential:
            return mean * self._random.expovariate(1.0)
        if sigma == 0.0:
            return mean
        return min(math.exp(mu + sigma * self._random.gauss(0.0, 1.0)), most)

    def _cell(self, at: At, size: int) -> tuple[float, float, float, float]:
        key = (tuple(at.items()), size)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[key] = self._computed(at, size)
        return found

    def _computed(self, at: At, size: int) -> tuple[float, float, float, float]:
        mean = self._times * self._law.ms(at, size, self._statistic)
        if not mean < math.inf:
            raise OffTable(f"nothing is served at {self._law.point(at, size)}")
        std = self._times * self._law.ms(at, size, "std") if self._spread else 0.0
        if std == 0.0:
            return mean, 0.0, 0.0, math.inf
        most = self._times * self._law.ms(at, size, "max") if "max" in self._law.statistics else math.inf
        sigma2 = math.log(1.0 + (std / mean) ** 2)
        return mean, math.log(mean) - sigma2 / 2.0, math.sqrt(sigma2), most
