"""The oracle: a dispatch that knows all queries beforehand (Kairos' ORCL). A yardstick, not a rule that can run.

It is no bound on other rules either: keeping to "largest on the base, smallest elsewhere" can waste a type that would
serve the middle sizes well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["oracle_makespan_ms"]


def oracle_makespan_ms(
    service_ms: ArrayLike,
    counts: Sequence[int],
    *,
    slo_ms: float,
    base: int = 0,
    predicted_ms: ArrayLike | None = None,
) -> float:
    """The time in which all queries are served; infinite when some are not served in time by any instance they meet.

    `service_ms[i][t]` is what query i takes on type t, queries sorted from the smallest batch to the largest;
    `counts[t]` are the instances of type t. Whether a query is in time on a type is judged by `predicted_ms`, by
    default `service_ms`.

    >>> oracle_makespan_ms([[10, 20], [10, 20], [40, 200], [40, 200]], (1, 1), slo_ms=100)
    80.0
    """
    from hetplan.dispatch.oracle_kernels import run_oracle

    service = np.asarray(service_ms, dtype=np.float64)
    order = [base] + [kind for kind in range(service.shape[1]) if kind != base]
    actual = np.ascontiguousarray(service[:, order])
    predicted = actual if predicted_ms is None else np.ascontiguousarray(np.asarray(predicted_ms, np.float64)[:, order])
    kind = np.repeat(np.arange(len(order)), [counts[kind] for kind in order]).astype(np.int64)
    if not kind.size:
        return float("inf")
    rows = np.arange(service.shape[0], dtype=np.int64)
    return float(run_oracle(rows, actual, predicted, kind, int(counts[base]), slo_ms))
