"""What demand will be in the next minutes, and how much more than that is to be kept: rates in, a rate out, no clock.

A point forecast comes from what was seen; how far it is wrong is learnt from how wrong it was. Each forecast is of the
highest rate until a lead time is over (what starts now serves only then), and is held against what came. `ahead` is
the point times the quantile of these ratios.

=============  ==========================================================================
``ewma``       the moving average of the rates seen; at least what chance does not explain
``seasonal``   as a season ago (a day), times how much higher demand is now than then
=============  ==========================================================================
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log1p, sqrt
from typing import Literal

from hetplan.dispatch.monitors import DemandMonitor

__all__ = ["Forecast", "ForecastName"]

ForecastName = Literal["ewma", "seasonal"]

_ENOUGH, _MOST = 20, 5000
"""So many errors say something of a quantile of 0.95; those beyond the most are forgotten."""
_NO_CHANCE = 3.0
"""So many deviations above its mean a count is once in 700 looks."""
_LEAST_QPS = 1e-9


@dataclass
class Forecast:
    """A forecast of one rate, fed one value per `step_s`.

    `lead_s` is how far ahead must be looked: until the next decision, and until what is asked for then would serve.
    `least` is the ratio that is kept while too few errors are known, and the least later.

    >>> rising = Forecast("ewma", quantile=1.0, step_s=10.0, lead_s=20.0)
    >>> rising.before(range(1000, 4000, 100))
    >>> round(rising.point(), 1), round(rising.ahead(), 1)
    (3840.8, 4612.0)
    >>> daily = Forecast("seasonal", quantile=0.5, step_s=3600.0, lead_s=3600.0)
    >>> for hour in range(48):
    ...     daily.observe(10.0 if hour % 24 < 12 else 50.0)
    >>> round(daily.ahead(), 2)
    10.0
    """

    kind: ForecastName = "ewma"
    quantile: float = 0.95
    step_s: float = 15.0
    lead_s: float = 60.0
    com: float = 1.6
    season_s: float = 86_400.0
    least: float = 1.0
    _past: list[float] = field(default_factory=list, repr=False)
    _average: DemandMonitor = field(init=False, repr=False)
    _levels: list[float] = field(default_factory=list, repr=False)
    _open: deque[tuple[int, float]] = field(default_factory=deque, repr=False)
    _ratios: list[float] = field(default_factory=list, repr=False)
    _order: deque[float] = field(default_factory=deque, repr=False)

    def __post_init__(self) -> None:
        if not (0 < self.quantile <= 1 and self.step_s > 0 and self.lead_s >= 0 and self.com > 0 and self.season_s > 0):
            raise ValueError("a quantile is above 0 and at most 1, times are above 0")
        self._average = DemandMonitor(self.com)

    @property
    def _lead(self) -> int:
        """Steps that a forecast is about."""
        return max(1, -int(-self.lead_s // self.step_s))

    def observe(self, rate_qps: float) -> None:
        """Take in the rate of one step."""
        self._past.append(rate_qps)
        # What chance does not explain is believed at once, the rest as far as it lasts.
        sure_qps = rate_qps - _NO_CHANCE * sqrt(rate_qps / self.step_s)
        self._levels.append(max(self._average.observe(rate_qps), sure_qps))
        while self._open and self._open[0][0] + self._lead < len(self._past):
            at, point = self._open.popleft()
            self._learn(self._came(max(self._past[at + 1 : at + 1 + self._lead])) / max(point, _LEAST_QPS))
        self._open.append((len(self._past) - 1, self.point()))

    def before(self, rates_qps: Iterable[float]) -> None:
        """Take in what was seen before, a rate per step."""
        for rate in rates_qps:
            self.observe(rate)

    def point(self) -> float:
        """The forecast itself: the highest rate of the lead time, as far as is known."""
        if not self._past:
            return 0.0
        season, now = round(self.season_s / self.step_s), len(self._past) - 1
        if self.kind == "ewma" or now + 1 - season < 0:
            return self._levels[-1]
        then = now - season
        highest = max(self._past[then + 1 : then + 1 + self._lead] or self._past[-1:])
        if then < 0:
            return highest
        return highest * self._levels[-1] / max(self._levels[then], _LEAST_QPS)

    def ahead(self) -> float:
        """The rate to be ready for: the forecast, times the ratio that so many of the past ones stayed within."""
        known, last = len(self._ratios), len(self._ratios) - 1
        if self.quantile < 1.0:
            # A rise is missed by all forecasts of a lead time, and on until the average forgets what was before. One
            # alone decides nothing but the quantile 1.
            last -= self._lead + round(3.0 * self.com)
        if known < _ENOUGH or last < 0:
            return self.point() * self.least
        return self.point() * max(self.least, self._ratios[min(int(self.quantile * known), last)])

    def _came(self, highest_qps: float) -> float:
        """The highest rate of a lead time, less what chance adds to the highest of so many counts.

        Plans leave room for chance: kept here too, it would be paid twice, and is half of the rate where few come.
        """
        return max(0.0, highest_qps - sqrt(2.0 * log1p(self._lead) * highest_qps / self.step_s))

    def _learn(self, ratio: float) -> None:
        insort(self._ratios, ratio)
        self._order.append(ratio)
        if len(self._order) > _MOST:
            del self._ratios[bisect_left(self._ratios, self._order.popleft())]
