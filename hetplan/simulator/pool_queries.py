"""The queries that a pool is given: when they arrive, how large they are, what they take and are believed to take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hetplan.errors import InputError
from hetplan.simulator.pool import Floats, Integers, Pool

__all__ = ["Queries"]


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries in order of arrival; query i finds its times in row ``rows[i]`` of the tables, a column per type."""

    arrival_ms: Floats
    bins: Integers
    rows: Integers
    actual_ms: Floats
    predicted_ms: Floats

    @classmethod
    def of(
        cls,
        pool: Pool,
        *,
        arrival_ms: ArrayLike,
        bins: ArrayLike,
        actual_ms: ArrayLike | None = None,
        predicted_ms: ArrayLike | None = None,
    ) -> Queries:
        """Checked queries of a pool.

        `actual_ms` is what each query takes on each type (a row per query), `predicted_ms` what the dispatch believes;
        both are the pool's means by default.
        """
        arrivals = np.ascontiguousarray(np.asarray(arrival_ms, dtype=np.float64))
        bin_of = np.ascontiguousarray(np.asarray(bins, dtype=np.int64))
        if arrivals.ndim != 1 or not np.isfinite(arrivals).all() or (np.diff(arrivals, prepend=0.0) < 0.0).any():
            _refuse("arrival_ms", arrivals.tolist()[:5], "must ascend from 0 and be finite")
        if bin_of.shape != arrivals.shape or (bin_of.size and not 0 <= bin_of.min() <= bin_of.max() < len(pool.sizes)):
            _refuse("bins", bin_of.tolist()[:5], f"needs a bin, 0 to {len(pool.sizes) - 1}, for each query")
        mean = pool.latency_ms.T
        if actual_ms is None and predicted_ms is None:
            return cls(arrivals, bin_of, bin_of, mean, mean)
        per_query = []
        for name, given in (("actual_ms", actual_ms), ("predicted_ms", predicted_ms)):
            table = mean[bin_of] if given is None else np.asarray(given, dtype=np.float64)
            if table.shape != (bin_of.size, mean.shape[1]) or not (np.isfinite(table).all() and (table > 0.0).all()):
                _refuse(name, table.shape, "needs a time greater than 0 for each query and type")
            per_query.append(table)
        return cls(arrivals, bin_of, np.arange(bin_of.size, dtype=np.int64), per_query[0], per_query[1])

    def part(self, which: int, parts: int) -> Queries:
        """Every `parts`-th query, from the one numbered `which`."""
        if parts == 1:
            return self
        mine = slice(which, None, parts)
        return Queries(
            np.ascontiguousarray(self.arrival_ms[mine]),
            np.ascontiguousarray(self.bins[mine]),
            np.ascontiguousarray(self.rows[mine]),
            self.actual_ms,
            self.predicted_ms,
        )


def _refuse(field: str, value: object, why: str) -> None:
    raise InputError.one(file="simulation", path=field, value=value, why=why, remedy="See Queries.of.")
