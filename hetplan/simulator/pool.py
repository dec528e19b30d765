"""A pool in which every instance serves one query at a time: what is simulated, and what came of it.

This is the fast path of the simulator, for the question `pool` and its dispatch rules; `hetplan.simulator` has the
general engine. `pool_replay.replay` runs given queries, `pool_replay.simulate_pool` draws them, and
`pool_allowable.allowable_rate` finds the highest rate at which nearly all are in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.dispatch.earliest import Earliest
from hetplan.dispatch.fcfs import Fcfs
from hetplan.dispatch.matching import SPLIT_ABOVE, Matching, weights
from hetplan.dispatch.overheads import Overheads
from hetplan.dispatch.rules import Rule, rule_name
from hetplan.errors import InputError

__all__ = ["LATE_SLACK", "Conditions", "Pool", "PoolRun", "default_rule"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Arrivals = Callable[[float, int, int], Floats]

LATE_SLACK = 1e-9
"""Relative slack of the latency target when a simulated response is judged: ends minus arrivals are rounded numbers."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Instances of several types and the mean service time of each batch-size bin on each type.

    `latency_ms` has a row per type and a column per bin, `counts` the instances of each type, `base` the base type.
    `sizes` are the bins' batch sizes (1, 2, ... by default); only thresholds are compared with them.
    """

    latency_ms: Floats
    counts: tuple[int, ...]
    qos_ms: float
    base: int
    sizes: tuple[float, ...]

    @classmethod
    def of(
        cls,
        latency_ms: ArrayLike,
        counts: Sequence[int],
        qos_ms: float,
        *,
        base: int = 0,
        sizes: Sequence[float] | None = None,
    ) -> Pool:
        """A checked pool.

        >>> Pool.of([[10, 40], [20, 200]], (1, 1), 100).sizes
        (1.0, 2.0)
        """
        latency = np.ascontiguousarray(np.asarray(latency_ms, dtype=np.float64))
        if latency.ndim != 2 or not latency.size:
            _refuse("latency_ms", latency.shape, "needs a row per type and a column per batch-size bin")
        if not (np.isfinite(latency).all() and (latency > 0.0).all()):
            _refuse("latency_ms", latency.tolist(), "must be finite and greater than 0")
        if len(counts) != latency.shape[0] or any(count < 0 or count != int(count) for count in counts):
            _refuse("counts", list(counts), f"needs a whole number, not negative, for each of {latency.shape[0]} types")
        if not sum(counts):
            _refuse("counts", list(counts), "there is no instance at all")
        if not 0.0 < qos_ms < np.inf:
            _refuse("qos_ms", qos_ms, "must be finite and greater than 0")
        if not 0 <= base < latency.shape[0]:
            _refuse("base", base, f"must name a type, 0 to {latency.shape[0] - 1}")
        bins = tuple(float(size) for size in (range(1, latency.shape[1] + 1) if sizes is None else sizes))
        if len(bins) != latency.shape[1] or any(low >= high for low, high in pairwise(bins)):
            _refuse("sizes", list(bins), f"needs {latency.shape[1]} strictly increasing batch sizes")
        return cls(latency, tuple(int(count) for count in counts), float(qos_ms), base, bins)


@dataclass(frozen=True, eq=False)
class Conditions:
    """What a run assumes besides the pool and its rule.

    `noise` is ``mean`` (service times are their means) or ``lognormal`` (of that mean and `std_ms`, cut at `max_ms`;
    both by type and bin). `misprediction` is the standard deviation of the dispatch's relative error about a query on
    a type. `arrivals` is ``poisson`` (exponential gaps), ``integer-poisson`` (gaps of whole milliseconds, Poisson
    distributed: smoother, as Kairos' published code draws them), or a function of (rate in qps, count, seed) that
    returns times in ms.
    Above `split_above` instances a pool under the matching rule is divided and each part dispatched on its own (0:
    never), as plans state it: an undivided pool would serve a few percent more.
    """

    noise: Literal["mean", "lognormal"] = "mean"
    std_ms: ArrayLike | None = None
    max_ms: ArrayLike | None = None
    misprediction: float = 0.0
    overheads: Overheads = field(default_factory=Overheads)
    arrivals: Literal["poisson", "integer-poisson"] | Arrivals = "poisson"
    split_above: int = SPLIT_ABOVE

    def __post_init__(self) -> None:
        if self.noise not in ("mean", "lognormal"):
            _refuse("noise", self.noise, "is neither mean nor lognormal")
        if self.noise == "lognormal" and self.std_ms is None:
            _refuse("std_ms", None, "lognormal noise needs the standard deviation of each type and bin")
        if not 0.0 <= self.misprediction < 1.0:
            _refuse("misprediction", self.misprediction, "must be in [0, 1)")
        if not callable(self.arrivals) and self.arrivals not in ("poisson", "integer-poisson"):
            _refuse("arrivals", self.arrivals, "is neither poisson nor integer-poisson nor a function")
        if self.split_above < 0:
            _refuse("split_above", self.split_above, "must not be negative")


@dataclass(frozen=True, eq=False)
class PoolRun:
    """What came of a run: response time and serving type of each query, in order of arrival.

    A run that was `stopped` early holds NaN and -1 where a query was not served any more.
    """

    response_ms: Floats
    served_by: Integers
    late: int
    served: int
    makespan_ms: float
    stopped: bool
    utilisation: tuple[float, ...]

    @property
    def queries(self) -> int:
        """How many queries there were."""
        return int(self.response_ms.size)

    @property
    def late_share(self) -> float:
        """The share of queries that were answered late (a lower bound when the run was stopped)."""
        return self.late / max(self.queries, 1)

    def percentile_ms(self, percentile: float) -> float:
        """The response time that so many percent of the served queries did not exceed."""
        answered = self.response_ms[~np.isnan(self.response_ms)]
        return float(np.percentile(answered, percentile, method="higher")) if answered.size else float("nan")


def default_rule(name: str, pool: Pool) -> Rule:
    """The rule of that name with the parameters that follow from the pool: target, weights, base type preferred.

    >>> default_rule("kairos", Pool.of([[10, 40], [20, 200]], (1, 1), 100)).weight
    (1.0, 0.2)
    """
    found = rule_name(name)
    if found == Matching.name:
        return Matching(slo_ms=pool.qos_ms, weight=weights(pool.latency_ms, base=pool.base))
    if found == Fcfs.name:
        return Fcfs(prefer=(pool.base,))
    if found == Earliest.name:
        return Earliest()
    _refuse("rule", name, "has a threshold of its own: make it with Threshold(threshold=...)")
    raise AssertionError


def _refuse(field_name: str, value: object, why: str) -> None:
    raise InputError.one(file="simulation", path=field_name, value=value, why=why, remedy="See hetplan.simulator.pool.")
