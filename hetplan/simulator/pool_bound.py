"""The highest rate that any dispatch could serve, by a small linear program: where the search for a rate starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hetplan.simulator.pool import Pool
from hetplan.simulator.pool_draws import checked_pmf

__all__ = ["fluid_qps"]


def fluid_qps(pool: Pool, pmf: ArrayLike, *, late_share: float = 0.0) -> float:
    """The fluid bound of a pool: shares of bins over types, no queueing, at most `late_share` sent where they are late.

    >>> round(fluid_qps(Pool.of([[10, 40], [20, 200]], (1, 1), 100), [0.75, 0.25]), 6)
    85.714286
    """
    from scipy.optimize import linprog

    share = checked_pmf(pmf)
    types = len(pool.counts)
    late = (pool.latency_ms > pool.qos_ms).ravel()
    # Unknowns: the rate, then the flow of each bin to each type (row by row of latency_ms).
    bins = np.hstack([-share[:, None], np.tile(np.eye(share.size), types)])
    busy = np.zeros((types, 1 + types * share.size))
    for kind in range(types):
        busy[kind, 1 + kind * share.size : 1 + (kind + 1) * share.size] = pool.latency_ms[kind] / 1000.0
    tail = np.concatenate(([-late_share], late.astype(np.float64)))
    upper = np.where(late & (late_share == 0.0), 0.0, np.inf)
    answer = linprog(
        np.concatenate(([-1.0], np.zeros(types * share.size))),
        A_ub=np.vstack([busy, tail]),
        b_ub=np.concatenate([np.asarray(pool.counts, dtype=np.float64), [0.0]]),
        A_eq=bins,
        b_eq=np.zeros(share.size),
        bounds=[(0.0, None), *((0.0, limit) for limit in upper.tolist())],
    )
    return 0.0 if answer.x is None else float(answer.x[0])
