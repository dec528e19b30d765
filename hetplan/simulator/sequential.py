"""What independent runs say of one promise, asked after each of them: refuted, met, or open.

A run gives one number: the share of its queries that miss the promise, or the figure itself. Queries within a run wait
for one another, so only whole runs, each with a seed of its own, are taken as independent.

**Refuted, of a limit.** Let ``Y_1, Y_2, ...`` be the shares of the runs, between 0 and 1, and ``m`` the share that may
miss. If the promise holds, ``E[Y_k] <= m``, and for any ``0 <= b <= 1/m`` the product of ``1 + b (Y_k - m)`` is a
supermartingale that starts at 1 and is never negative: money that is bet against the promise, and that does not grow on
the mean. So is the mean of such products over several ``b``. By Ville's inequality it ever reaches ``1/alpha`` with a
probability of ``alpha`` at most: whatever the queries of a run have to do with one another, however the shares are
distributed, and however often one looks. Three overloaded runs are enough for ``alpha = 1e-4``.

**Refuted, of a figure.** A figure that the planner estimated itself, from ``p`` runs, is held against the mean of ``n``
by Student's t for two samples with the spread ``s`` of ours: ``|mean - figure| > t s sqrt(1/p + 1/n)``. One looks after
4, 8, 16, 32 and 50 runs, and spends ``alpha/2``, ``alpha/4``, ... on each look; together that is less than ``alpha``.

**Met.** The upper end of Student's interval of the runs, with one more that is at the limit (runs without any spread
are not certain), lies below the limit. The level, 5%, is spent over the same looks. It is as good as the intervals of
`figures`: the runs have to be long enough for their means to be near normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hetplan.planner.confidence import LEAST_LONG_QUEUES

__all__ = ["MOST_RUNS", "Evidence"]

BETS = 0.99 * 0.5 ** np.arange(8)
"""What is bet in each run, as parts of all that may be."""
LOOKS = {4: 1, 8: 2, 16: 3, 32: 4, 50: 5}
MOST_RUNS = 50
"""Ten times the runs by which a plan is confirmed."""
DOUBT = 0.05
KEPT_TO = 1.005
"""The share beyond a response time is kept to half a percent of itself (`figures.responses_of`)."""


@dataclass
class Evidence:
    """Runs for and against one promise; with `planned` runs behind it, it is a figure that the planner estimated.

    Such an `equal` one is refuted where it is off by more than `near`, and met where it surely is off by less than
    `close`. `limit` is the largest mean that keeps any other.

    >>> some = Evidence(0.01, alpha=1e-4)
    >>> for share in (0.9, 0.95, 0.97):
    ...     some.add(share)
    >>> some.refuted
    True
    """

    limit: float
    alpha: float
    planned: int | None = None
    equal: bool = False
    near: float = 0.0
    close: float = 0.0
    shares: list[float] = field(default_factory=list)
    """Of the runs that are long enough to say that a promise is met."""
    count: int = 0
    mean: float = 0.0
    """Of all runs."""
    spans: float = 0.0
    _money: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = field(default_factory=lambda: np.ones(len(BETS)))

    def add(self, value: float, *, whole: bool = True, spans: float = math.inf) -> None:
        """One more run; one that is not `whole` can refute only. `spans`: how often it spans what a queue remembers."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        if whole:
            self.shares.append(value)
            self.spans += spans
        if self.planned is None and not self.equal:
            most = max(min(KEPT_TO * self.limit, 1.0), 1e-12)
            self._money = np.maximum(self._money * (1.0 + BETS * (value / most - 1.0)), 0.0)

    @property
    def refuted(self) -> bool:
        """Whether the promise is broken, with a chance of `alpha` at most that it is not."""
        if self.planned is None:
            return bool(self._money.mean() >= 1.0 / self.alpha)
        look = LOOKS.get(len(self.shares))
        if look is None:
            return False
        off = float(np.mean(self.shares)) - self.limit
        slip = _half_width(self.shares, self.alpha * 0.5**look, beside=self.planned)
        return (abs(off) if self.equal else off) > max(slip, self.near, 1e-12)

    @property
    def met(self) -> bool:
        """Whether it is kept, as far as 95% intervals say so."""
        look = LOOKS.get(len(self.shares))
        if look is None:
            return False
        if self.equal:
            off = abs(float(np.mean(self.shares)) - self.limit)
            return off + _half_width(self.shares, DOUBT * 0.5**look) <= self.close
        return self.upper < self.limit and self.spans * self.limit >= LEAST_LONG_QUEUES

    @property
    def upper(self) -> float:
        """The upper end of the interval that the last look gives."""
        held = [*self.shares, self.limit]
        return float(np.mean(held)) + _half_width(held, 2.0 * DOUBT * 0.5 ** LOOKS.get(len(self.shares), max(LOOKS)))


def _half_width(values: Sequence[float], level: float, *, beside: int | None = None) -> float:
    """Half of Student's interval of a mean, two-sided; `beside` the mean of so many other values like these."""
    from scipy.special import stdtrit

    count = len(values)
    each = 1.0 / count + (1.0 / beside if beside is not None else 0.0)
    return float(stdtrit(count - 1, 1.0 - level / 2.0)) * float(np.std(values, ddof=1)) * math.sqrt(each)
