"""Random queries of a pool: arrivals, batch sizes, service noise, prediction errors, each from its own stream.

Every stream depends on the seed alone and starts the same however long it becomes, so that all rates, pools and rules
are tried on the same queries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.errors import InputError
from hetplan.simulator.pool import Conditions, Floats, Integers, Pool
from hetplan.simulator.pool_queries import Queries

__all__ = ["Draws", "checked_pmf"]

_ARRIVALS, _SIZES, _SERVICE, _PREDICTION = range(4)


class Draws:
    """The queries of one seed; longer streams are drawn when asked for.

    >>> pool = Pool.of([[10, 40], [20, 200]], (1, 1), 100)
    >>> draws = Draws([0.75, 0.25], seed=1)
    >>> few, many = (draws.queries(pool, rate_qps=50, count=count) for count in (3, 900))
    >>> bool((few.arrival_ms == many.arrival_ms[:3]).all())
    True
    """

    def __init__(self, pmf: ArrayLike, *, seed: int) -> None:
        self.seed = seed
        self._upto = np.cumsum(checked_pmf(pmf))
        self._bins = np.zeros(0, dtype=np.int64)
        self._arrivals = np.zeros(0)
        self._normals: dict[int, Floats] = {}

    def queries(self, pool: Pool, *, rate_qps: float, count: int, conditions: Conditions | None = None) -> Queries:
        """So many queries at that rate."""
        given = conditions or Conditions()
        bins = self.bins(count)
        arrival_ms = self._arrival_ms(rate_qps, count, given)
        actual = None if given.noise == "mean" else self._actual_ms(pool, bins, given)
        predicted = None if given.misprediction == 0.0 else self._predicted_ms(pool, bins, given)
        return Queries.of(pool, arrival_ms=arrival_ms, bins=bins, actual_ms=actual, predicted_ms=predicted)

    def bins(self, count: int) -> Integers:
        """The batch-size bin of each query."""
        if self._bins.size < count:
            uniform = self._stream(_SIZES).random(count)
            place = np.searchsorted(self._upto, uniform * self._upto[-1], side="right")
            self._bins = np.minimum(place, self._upto.size - 1).astype(np.int64)
        return self._bins[:count]

    def _arrival_ms(self, rate_qps: float, count: int, conditions: Conditions) -> Floats:
        if callable(conditions.arrivals):
            return conditions.arrivals(rate_qps, count, self.seed)
        if conditions.arrivals == "integer-poisson":
            return np.cumsum(self._stream(_ARRIVALS).poisson(1000.0 / rate_qps, count)).astype(np.float64)
        if self._arrivals.size < count:
            self._arrivals = np.cumsum(self._stream(_ARRIVALS).standard_exponential(count))
        return self._arrivals[:count] * (1000.0 / rate_qps)

    def _actual_ms(self, pool: Pool, bins: Integers, conditions: Conditions) -> Floats:
        mean = pool.latency_ms.T
        std, cap = _by_bin(conditions.std_ms, pool, "std_ms"), _by_bin(conditions.max_ms, pool, "max_ms")
        square = np.log1p((std / mean) ** 2)
        normal = self._normal(_SERVICE, bins.size, 1)
        drawn: Floats = np.exp((np.log(mean) - 0.5 * square)[bins] + np.sqrt(square)[bins] * normal)
        return drawn if conditions.max_ms is None else np.minimum(drawn, cap[bins])

    def _predicted_ms(self, pool: Pool, bins: Integers, conditions: Conditions) -> Floats:
        factor = 1.0 + conditions.misprediction * self._normal(_PREDICTION, bins.size, len(pool.counts))
        # However wrong, a prediction stays above nothing.
        believed: Floats = pool.latency_ms.T[bins] * np.maximum(factor, 0.01)
        return believed

    def _normal(self, stream: int, count: int, columns: int) -> Floats:
        held = self._normals.get(stream)
        if held is None or held.shape[0] < count or held.shape[1] != columns:
            held = self._normals[stream] = self._stream(stream).standard_normal((count, columns))
        return held[:count]

    def _stream(self, which: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, which))


def checked_pmf(pmf: ArrayLike) -> NDArray[np.float64]:
    """The shares, which must sum to 1 within 1e-6, made to sum to 1."""
    share = np.asarray(pmf, dtype=np.float64)
    if share.ndim != 1 or not share.size or not np.isfinite(share).all() or (share < 0.0).any():
        why = "must be a list of finite numbers, none negative"
    elif abs(share.sum() - 1.0) > 1e-6:
        why = f"must sum to 1, sums to {share.sum():.9g}"
    else:
        normalised: NDArray[np.float64] = share / share.sum()
        return normalised
    raise InputError.one(file="simulation", path="pmf", value=share.tolist(), why=why, remedy="Give a share per bin.")


def _by_bin(table: ArrayLike | None, pool: Pool, name: str) -> Floats:
    values = np.zeros_like(pool.latency_ms) if table is None else np.asarray(table, dtype=np.float64)
    if values.shape != pool.latency_ms.shape or not (values >= 0.0).all():
        raise InputError.one(
            file="simulation",
            path=name,
            value=values.shape,
            why=f"needs a number, not negative, for each type and bin: shape {pool.latency_ms.shape}",
            remedy="See hetplan.simulator.pool.Conditions.",
        )
    return values.T
