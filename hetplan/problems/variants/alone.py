"""What is late even where no query waits: an instance's own times, as they vary, pass a limit too often.

Times are as the table states them (`serving.distribution`), as simulation draws them. Batches are of the size that is
best for it. No number of instances helps then. (An application that no variant keeps in time is refused before it is
planned: `planner.service_times`.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.serving.demand import Target
from hetplan.serving.law import Law
from hetplan.serving.reading import answering

__all__ = ["without_hopeless"]

LARGEST = 64
"""Batches above this are looked at as full alone."""
SURE = 1.1
"""Times the queries that may be late: where all variants of an application have more than that, none is left out."""
FAR = 2.0
"""A variant with more than that is left out where there are others; below, it may serve a part of the queries."""


def without_hopeless(v: Snapshot) -> Snapshot:
    """The snapshot whose variants may be in time, as far as there are any for an application."""
    alone = [_Alone(v, pair) for pair in v.serves]
    serves = list(v.serves)
    for b, one in enumerate(v.asked):
        mine = [k for k, pair in enumerate(v.serves) if pair.app == b and not pair.late]
        if one.load_qps <= 0 or min((alone[k].over for k in mine), default=math.inf) > SURE:
            continue
        for k in mine:
            if alone[k].over > FAR and not v.running[serves[k].kind]:
                serves[k] = replace(serves[k], late=True)
    return v if serves == list(v.serves) else replace(v, serves=tuple(serves))


@dataclass
class _Alone:
    """A pair whose queries never wait."""

    v: Snapshot
    pair: Serves

    @cached_property
    def over(self) -> float:
        """How many times more are late than may be, by the target that is farthest off."""
        return max((self._late(one) / one.left for one in self._targets), default=0.0)

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        targets = self.v.asked[self.pair.app].targets
        return tuple(one for one in targets if 0.0 < one.percentile < 100.0) if self._law.has_spread else ()

    @cached_property
    def _law(self) -> Law:
        return self.v.kinds[self.pair.kind].choice.law

    @cached_property
    def _sizes(self) -> range:
        full, points = self.v.kinds[self.pair.kind].batch, self.v.asked[self.pair.app].classes.points
        alike = "batch" not in self._law.axes or any("batch" in point for point in points)
        return range(full, full + 1) if alike or full > LARGEST else range(1, full + 1)

    def _late(self, target: Target) -> float:
        """The share of answers that take longer than the limit, batches of the best size."""
        classes, limit = self.v.asked[self.pair.app].classes, target.limit_ms()
        shares = list(zip(classes.points, classes.shares, strict=True))
        each = (sum(share * self._longer_than(limit, point, size) for point, share in shares) for size in self._sizes)
        return min(each) / sum(classes.shares)

    def _longer_than(self, limit_ms: float, point: dict[str, float], size: int) -> float:
        spread = self._law.distribution(point, size)
        if spread is not None:
            return spread.longer_than(limit_ms)
        return float(limit_ms < self._law.ms(point, size, answering(self._law.statistics, "mean")))
