r"""Whether a mean has fallen, looked at after every sample: a test that holds however often one looks.

Given scores x_n from 0 to 1 and a mean m that they are said to have at least. At every sample n a small stake w_n is
put on "from here on the mean is lower", and every stake already there is multiplied by a bet::

    R_n = (R_{n-1} + w_n) (1 + f (m - x_n)),      sum_n w_n = 1,      alarm where R_n >= 1 / a

While each sample's mean is m or more, whatever came before it, a bet does not grow on average. Then R_n and the stakes
still to come are together a supermartingale that begins at 1, and the chance that R ever reaches 1 / a is a at most
(Ville). This needs no variance and no law of the scores. f decides only how soon a fall is noticed. The best bet on a
fall of d is f = d / v where the scores are right or wrong with variance v, and about d / (v + d^2) for other scores.

A quarter is staked evenly over `HORIZON` samples, the rest as 1 / (n + 1000): a fall early in a service is found
soonest, and one at its end not much later. After so many samples the test begins anew, with another chance a of a
false alarm.

>>> test = DriftTest(0.8)
>>> test.add([1.0, 1.0, 1.0, 1.0, 0.0] * 200), test.alarm
(1000, False)
>>> taken = test.add([1.0, 0.0] * 500)
>>> test.alarm, taken < 300, test.since
(True, True, 999)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["HORIZON", "DriftTest", "staked"]

HORIZON = 1_000_000
AROUND = 1000
STAKES = math.log((HORIZON + AROUND) / AROUND) + 1.0 / AROUND
"""At least the sum of 1 / (n + AROUND) over the horizon."""
EVENLY = 0.25
"""The part that is staked evenly."""
LEAST_VARIANCE = 1e-3
EDGE = 1e-6


def staked(place: int) -> float:
    """What is staked at a sample of the horizon."""
    return EVENLY / HORIZON + (1.0 - EVENLY) / ((place + AROUND) * STAKES)


@dataclass
class DriftTest:
    """The test of the module for scores from `low` to `high`; with `lower` less is better, and it looks for a rise.

    `mean` is what the scores are said to have at least (at most). `fall` is the change that is to be found soon, and
    `spread` the scores' standard deviation where they are not just right or wrong. `false_alarms` is the chance of an
    alarm within `HORIZON` samples where nothing has changed.
    """

    mean: float
    fall: float = 0.05
    low: float = 0.0
    high: float = 1.0
    lower: bool = False
    spread: float | None = None
    false_alarms: float = 0.04
    n: int = field(default=0, init=False)
    alarm: bool = field(default=False, init=False)
    since: int = field(default=0, init=False)
    """The sample from which on a fall is likeliest."""
    _stake: float = field(default=0.0, init=False, repr=False)
    _climb: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.low < self.high and self.low <= self.mean <= self.high):
            raise ValueError(f"a mean of {self.mean:g} is not from {self.low:g} to {self.high:g}")
        if not (0 < self.fall < self.high - self.low and 0 < self.false_alarms < 1):
            raise ValueError("a fall is above 0 and within the range; the chance of a false alarm is between 0 and 1")
        share = (self.mean - self.low) / (self.high - self.low)
        self._mean = min(max(1.0 - share if self.lower else share, EDGE), 1.0 - EDGE)
        fall = self.fall / (self.high - self.low)
        variance = self._mean * (1.0 - self._mean)
        if self.spread is not None:
            variance = min(variance, max((self.spread / (self.high - self.low)) ** 2, LEAST_VARIANCE) + fall**2)
        # A bet may lose all but a thousandth of the stake, and no more.
        self._bet = min(fall / max(variance, LEAST_VARIANCE), 0.999 / (1.0 - self._mean))

    def add(self, scores: Iterable[float]) -> int:
        """Take in scores until there is an alarm; how many were taken."""
        taken, width = 0, self.high - self.low
        for score in scores:
            if self.alarm:
                break
            share = min(max((score - self.low) / width, 0.0), 1.0)
            self._one(1.0 - share if self.lower else share)
            taken += 1
        return taken

    def _one(self, share: float) -> None:
        place = self.n % HORIZON
        if place == 0:
            self._stake = 0.0
        gain = 1.0 + self._bet * (self._mean - share)
        self._stake = (self._stake + staked(place)) * gain
        self._climb += math.log(gain)
        if self._climb <= 0.0:
            self._climb, self.since = 0.0, self.n + 1
        self.n += 1
        self.alarm = self._stake >= 1.0 / self.false_alarms
