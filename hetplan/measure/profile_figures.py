"""What repeated measurements of one cell say: percentiles with intervals, outliers, and whether to go on.

**Intervals.** A percentile lies between two of the sorted measurements with a probability that is binomial whatever the
measurements are distributed like: `order_statistics` picks the two. Until there are enough measurements beyond a
percentile there is no upper end, and its interval is infinite.

**Stopping.** A cell is done when the half-widths of the intervals of p50 and p99, relative to the values, are small
enough. Looking after every measurement would stop at lucky moments, so looks are 20% apart.

**Outliers** are kept in every figure, for a server will meet them too; they are counted and listed, with how many of
them fell together with a preemption (the machine gave the core to somebody else meanwhile).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetplan.measure.profile_wish import Repeats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CellFigures", "enough", "figures_of", "next_look", "order_statistics"]

OUTLIER_DEVIATIONS = 8.0
"""Median absolute deviations above the median from which a measurement is marked."""

_LISTED = 20


def order_statistics(count: int, quantile: float, confidence: float) -> tuple[int, int | None]:
    """The places (from 0) of the sorted measurements between which the quantile lies; None: above all of them.

    >>> order_statistics(100, 0.5, 0.95)
    (39, 60)
    >>> order_statistics(100, 0.99, 0.95), order_statistics(1000, 0.99, 0.95)
    ((96, None), (982, 996))
    """
    import numpy as np
    from scipy.special import bdtr

    if count < 1:
        return 0, None
    tail = (1.0 - confidence) / 2.0
    below = bdtr(np.arange(count), count, quantile)
    # As many as lie at or below the quantile: fewer than low + 1 with at most `tail`, more than high likewise.
    low = int(np.searchsorted(below, tail, side="right")) - 1
    high = int(np.searchsorted(below, 1.0 - tail, side="left"))
    return max(low, 0), high if high < count else None


def next_look(count: int) -> int:
    """After how many measurements to look again."""
    return max(count + 1, math.ceil(count * 1.2))


@dataclass(frozen=True)
class CellFigures:
    """The statistics of one cell, in milliseconds."""

    runs: int
    mean: float
    std: float
    percentiles: dict[str, float]
    intervals: dict[str, tuple[float, float | None]]
    max: float
    outliers: int
    outliers_ms: tuple[float, ...]
    outliers_preempted: int
    preempted: int
    converged: bool

    def as_dict(self) -> dict[str, Any]:
        """For the profile's extensions."""
        return {
            "runs": self.runs,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "converged": self.converged,
            "outliers": self.outliers,
            "outliers_ms": list(self.outliers_ms),
            "outliers_preempted": self.outliers_preempted,
            "preempted": self.preempted,
        }


def figures_of(samples_ms: Sequence[float], preempted: Sequence[int], rule: Repeats) -> CellFigures:
    """The figures of a cell; `preempted` are the numbers of the runs during which the core was taken away.

    >>> found = figures_of([1.0, 2.0, 3.0, 4.0] * 100, [], Repeats(p99_within=None))
    >>> found.mean, found.percentiles["p50"], found.intervals["p50"], found.outliers
    (2.5, 2.0, (2.0, 3.0), 0)
    """
    import numpy as np

    values = np.asarray(samples_ms, dtype=np.float64)
    ordered = np.sort(values)
    quantiles = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    marked = _outliers(values)
    return CellFigures(
        runs=len(values),
        mean=_short(values.mean()),
        std=_short(values.std(ddof=1)) if len(values) > 1 else 0.0,
        percentiles={name: _short(ordered[_place(len(ordered), share)]) for name, share in quantiles.items()},
        intervals={name: _interval(ordered, share, rule.confidence) for name, share in quantiles.items()},
        max=_short(ordered[-1]),
        outliers=len(marked),
        outliers_ms=tuple(_short(value) for value in np.sort(values[marked])[::-1][:_LISTED]),
        outliers_preempted=int(np.isin(marked, np.asarray(preempted, dtype=np.int64)).sum()),
        preempted=len(preempted),
        converged=enough(samples_ms, rule),
    )


def enough(samples_ms: Sequence[float], rule: Repeats) -> bool:
    """Whether the intervals of p50 and p99 are as narrow as was asked.

    >>> enough([5.0] * 30, Repeats()), enough([5.0] * 500, Repeats())
    (False, True)
    """
    import numpy as np

    if len(samples_ms) < rule.min_runs:
        return False
    ordered = np.sort(np.asarray(samples_ms, dtype=np.float64))
    for share, within in ((0.5, rule.p50_within), (0.99, rule.p99_within)):
        if within is None:
            continue
        low, high = _interval(ordered, share, rule.confidence)
        if high is None or (high - low) / 2.0 > within * float(ordered[_place(len(ordered), share)]):
            return False
    return True


def _place(count: int, share: float) -> int:
    """The least measurement that at least this share does not exceed."""
    return min(max(math.ceil(share * count - 1e-9) - 1, 0), count - 1)


def _interval(ordered: NDArray[np.float64], share: float, confidence: float) -> tuple[float, float | None]:
    low, high = order_statistics(len(ordered), share, confidence)
    return _short(ordered[low]), None if high is None else _short(ordered[high])


def _outliers(values: NDArray[np.float64]) -> NDArray[np.int64]:
    import numpy as np

    median = float(np.median(values))
    deviation = float(np.median(np.abs(values - median)))
    # Measurements that hardly vary have a deviation near 0: a tenth of a percent is no outlier.
    return np.flatnonzero(values > median + OUTLIER_DEVIATIONS * max(deviation, 1e-3 * median))


def _short(value: Any) -> float:
    """Six significant digits: clocks say no more."""
    return float(f"{float(value):.6g}")
