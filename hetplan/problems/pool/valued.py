"""What a pool carried in simulations or in one measurement, and the rate that may be promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

from hetplan.profiles.plan import Promise

__all__ = ["Simulated"]

SPREADS = 3.0
"""A promise is so many standard deviations of the seeds below their mean, so that new seeds keep it."""


@dataclass(frozen=True)
class Simulated:
    """What valuing a pool gave: a rate per seed (or one measurement), and by which model.

    No more is promised than `at_most`, the fluid rate that the plan's own shares carry: with all the lateness that a
    target leaves, a pool may be seen to carry a little more.
    """

    per_seed: tuple[float, ...]
    model: Literal["simulation/1", "measured"] = "simulation/1"
    at_most: float = math.inf
    threshold: float | None = None

    @property
    def median(self) -> float:
        """The middle of the seeds."""
        return float(median(self.per_seed))

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most of the seeds."""
        return min(self.per_seed), max(self.per_seed)

    @property
    def promised(self) -> float:
        """The rate that also other seeds may be expected to reach."""
        if len(self.per_seed) == 1:
            return min(self.per_seed[0], self.at_most)
        spread_below = fmean(self.per_seed) - SPREADS * stdev(self.per_seed)
        return max(0.0, min(*self.per_seed, spread_below, self.at_most))

    def promise(self, app: str, extrapolated: bool | None) -> Promise:
        """The promise of that rate."""
        return Promise(
            app=app,
            quantity="rate_qps",
            relation=">=",
            value=self.promised,
            interval=self.interval,
            model=self.model,
            basis="allowable rate, below that of every seed by their spread" if len(self.per_seed) > 1 else None,
            seeds=len(self.per_seed) if self.model != "measured" else None,
            extrapolated=extrapolated,
        )
