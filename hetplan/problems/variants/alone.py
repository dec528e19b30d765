"""What is late even where no query waits: an instance's own times, as they vary, pass a limit too often.

Times are lognormal, of the mean and the deviation that the table has, as simulation draws them. Batches are of the size
that is best for it. No number of instances helps then, so a search that asks less of them would go on in vain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from scipy.special import ndtr

from hetplan.planner.draft import Repair
from hetplan.problems.repairs import change
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.serving.demand import Target, response_targets
from hetplan.serving.law import Law
from hetplan.serving.loads import law_of_run

__all__ = ["Hopeless", "without_hopeless"]

LARGEST = 64
"""Batches above this are looked at as full alone."""
SURE = 1.1
"""Times the queries that may be late: an application all of whose variants have more than that cannot be in time."""
FAR = 2.0
"""A variant with more than that is left out where there are others; below, it may serve a part of the queries."""
MORE = 1.2
"""Times the limit at which answers that never wait are just in time: some will wait."""
STEPS, WIDEST = 40, 1000.0


@dataclass(frozen=True)
class Hopeless:
    """An application that is late whatever it runs on: its target that is farthest off, and by how much."""

    name: str
    target: Target
    late: float
    """The share of answers that take longer though none waits, of the best variant."""
    longer: float
    """Times the limit at which they would just do."""

    @property
    def why(self) -> str:
        """The same in words."""
        late, may, limit = (f"{x:.3g}" for x in (100.0 * self.late, 100.0 * self.target.left, self.target.max_ms))
        return f"{late}% of the answers of {self.name} take longer than {limit} ms though none waits; {may}% may"

    @property
    def repair(self) -> Repair:
        """A limit that may do."""
        at, now = f"slo.apps.{self.name}.latency[{self.target.place}].max_ms", self.target.max_ms
        return change(at, now, MORE * self.longer * now, "ms", more=" or so")


def without_hopeless(v: Snapshot) -> tuple[Snapshot, Mapping[str, Hopeless]]:
    """The snapshot whose variants may be in time, as far as there are any; and applications that have none."""
    alone = [_Alone(v, pair) for pair in v.serves]
    serves, lost = list(v.serves), dict[str, Hopeless]()
    for b, one in enumerate(v.asked):
        mine = [k for k, pair in enumerate(v.serves) if pair.app == b and not pair.late]
        best = min(mine, key=lambda k: alone[k].over, default=None)
        if best is None or one.load_qps <= 0:
            continue
        if alone[best].over > SURE:
            lost[one.id] = alone[best].hopeless
            continue
        for k in mine:
            if alone[k].over > FAR and not v.running[serves[k].kind]:
                serves[k] = replace(serves[k], late=True)
    return (v if serves == list(v.serves) else replace(v, serves=tuple(serves))), lost


@dataclass
class _Alone:
    """A pair whose queries never wait."""

    v: Snapshot
    pair: Serves

    @cached_property
    def over(self) -> float:
        """How many times more are late than may be, by the target that is farthest off."""
        return max((self._late(one) / one.left for one in self._targets), default=0.0)

    @property
    def hopeless(self) -> Hopeless:
        """What it says of its application, where no other does better."""
        worst = max(self._targets, key=lambda one: self._late(one) / one.left)
        low, high = 1.0, WIDEST
        for _ in range(STEPS):
            longer = math.sqrt(low * high)
            low, high = (longer, high) if self._late(worst, longer) > worst.left else (low, longer)
        return Hopeless(self.v.asked[self.pair.app].id, worst, self._late(worst), high)

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        targets = response_targets(self.v.asked[self.pair.app].app)
        return tuple(one for one in targets if 0.0 < one.percentile < 100.0) if self._law.has_spread else ()

    @cached_property
    def _law(self) -> Law:
        kind = self.v.kinds[self.pair.kind]
        profile = self.v.inputs.profile
        return law_of_run(profile, kind.variant, profile.variants[kind.variant].runs[kind.run])

    @cached_property
    def _sizes(self) -> range:
        full, points = self.v.kinds[self.pair.kind].batch, self.v.asked[self.pair.app].classes.points
        alike = "batch" not in self._law.axes or any("batch" in point for point in points)
        return range(full, full + 1) if alike or full > LARGEST else range(1, full + 1)

    def _late(self, target: Target, longer: float = 1.0) -> float:
        """The share of answers that take longer than so many times the limit, batches of the best size."""
        classes, limit = self.v.asked[self.pair.app].classes, longer * target.limit_ms()
        shares = list(zip(classes.points, classes.shares, strict=True))
        each = (sum(share * self._longer_than(limit, point, size) for point, share in shares) for size in self._sizes)
        return min(each) / sum(classes.shares)

    def _longer_than(self, limit_ms: float, point: dict[str, float], size: int) -> float:
        mean, std = (self._law.ms(point, size, one) for one in ("mean", "std"))
        most = self._law.ms(point, size, "max") if "max" in self._law.statistics else math.inf
        if limit_ms <= 0.0 or most <= limit_ms or mean <= 0.0 or std <= 0.0:
            return float(limit_ms < min(mean, most))
        variance = math.log1p((std / mean) ** 2)
        return float(ndtr((math.log(mean / limit_ms) - variance / 2.0) / math.sqrt(variance)))
