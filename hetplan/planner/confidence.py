r"""Intervals of a mean over independent runs: Student's for one look, a confidence sequence for any number of looks.

A run gives one number, say the share of its queries that are late. Queries of one run wait for one another, so whole
runs, each with a seed of its own, are what is independent. ``n`` of them have the mean ``x`` and the spread ``s``.

**One look.** Student's interval: the mean is within ``t(n - 1) s / sqrt(n)`` of ``x``. It holds if the number of runs
was settled before. Who looks after every run and stops when he likes what he sees errs far more often: of eight pools,
95% intervals looked at again and again confirmed three that are late.

**Any number of looks.** Let ``m`` be the limit, and ``d = (mean - m) / sigma`` how far the mean is from it. For one
``d`` below 0, the likelihood ratio of ``d`` against 0 of what Student's t says,

    L_n(d) = p(t_1, ..., t_n | d) / p(t_1, ..., t_n | 0),

starts at 1 and does not grow on the mean as long as the true mean is at the limit or above it. So is the mean of
``L_n(d)`` over a normal law of ``d`` with the precision ``c``, of which only the half below 0 counts. By Ville's
inequality it ever exceeds ``1/alpha`` with a probability of ``alpha`` at most. Of the whole normal law the mean is
known in closed form, with ``q = c / (n + c)`` and ``t`` Student's statistic of ``m``:

    B_n = sqrt(q) ((1 + t^2/(n-1)) / (1 + q t^2/(n-1)))^(n/2),

and where ``t < 0`` the other half adds 1/2 at most. So the mean is below ``m``, up to ``alpha``, where
``2 B_n - 1 >= 1/alpha``. Solved for ``t`` it is an interval again, about 1.5 times as wide as Student's (`sequence`).

Both are of normal runs. So runs have to be long, and the first look comes after `LEAST_RUNS`. Shares are few near 0 and
their law is skewed: their intervals are made on the scale of log odds, where the upper end lies farther off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LEAST_LONG_QUEUES", "LEAST_RUNS", "TWO_SIDED", "sequence", "share_interval", "share_intervals", "student"]

TWO_SIDED = 0.975
"""How sure each end of an interval of 95% is."""
LEAST_RUNS = 6
"""The mean of fewer runs need not be near normal."""
LEAST_LONG_QUEUES = 5.0
"""Long queues make most of what is beyond a high percentile. Runs that saw fewer only say what it is not below."""
PRECISION = 0.5
"""Of the normal law of distances: it makes the interval narrowest after some 10 to 20 runs."""
_ROUNDING = 1e-12


def student(count: int, end: float = TWO_SIDED) -> float:
    """Half of Student's interval of a mean of so many runs, in spreads; each end is right with the probability `end`.

    >>> round(student(5), 3)
    1.242
    """
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, end)) / math.sqrt(count) if count > 1 else math.inf


def sequence(count: int, alpha: float) -> float:
    """The same of a confidence sequence: each end is wrong, at whatever look, with the probability `alpha` at most.

    >>> [round(sequence(count, 0.025), 2) for count in (6, 8, 12, 24, 50)]
    [1.98, 1.47, 1.08, 0.71, 0.49]
    """
    if count < LEAST_RUNS:
        return math.inf
    part = PRECISION / (count + PRECISION)
    enough = ((1.0 / alpha + 1.0) / 2.0 / math.sqrt(part)) ** (2.0 / count)
    if part * enough >= 1.0:
        return math.inf
    return math.sqrt((count - 1) * (enough - 1.0) / (1.0 - part * enough) / count)


def share_interval(shares: Sequence[float], width: float) -> tuple[float, float]:
    """The interval of the mean of independent shares, on the scale of log odds; never outside 0 to 1.

    `width` is half of it in spreads (`student`, `sequence`).

    >>> low, high = share_interval([0.01, 0.02, 0.03], student(3))
    >>> round(low, 4), round(high, 4)
    (0.0057, 0.0676)
    >>> share_interval([0.0, 0.0], student(2))
    (0.0, 0.0)
    """
    import numpy as np

    low, high = share_intervals(np.asarray(shares, dtype=np.float64)[:, None], width)
    return float(low[0]), float(high[0])


def share_intervals(shares: NDArray[np.float64], width: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval of each column of shares, one row per run."""
    import numpy as np
    from scipy.special import expit, logit

    mean = shares.mean(axis=0)
    if len(shares) < 2:
        return np.full_like(mean, math.nan), np.full_like(mean, math.nan)
    spread = shares.std(axis=0, ddof=1)
    low, high = mean.copy(), mean.copy()
    varied = (spread > _ROUNDING) & (mean > 0.0) & (mean < 1.0)
    some = mean[varied]
    half = width * spread[varied] / (some * (1.0 - some))
    low[varied], high[varied] = expit(logit(some) - half), expit(logit(some) + half)
    return low, high
