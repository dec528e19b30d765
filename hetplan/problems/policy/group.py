r"""A group of like workers that serve one application: its decision process at a load, and how it is simulated.

==========  ======================================================================================================
K           workers; queries reach them in turn (round robin), or the shortest queue
lambda      load of the group, queries per second; s the gamma shape of its inter-arrival times (1: Poisson)
Phi, nu     an own inter-arrival time is Erlang: Phi = K s stages of rate nu = s lambda (rounded to a whole number,
            nu = Phi lambda / K, where K s is none: the mean is kept)
lambda_w    shortest queue: a worker with n waiting sees Poisson arrivals of rate lambda / K for n <= 2, and
            (lambda / (K mu))^K mu beyond, mu its service rate (appendix I, with mu a rate); Phi = 1
==========  ======================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.mdp import Criterion
from hetplan.planner.forms.queue_process import (
    Batching,
    Empty,
    Late,
    Overflow,
    PerWhat,
    QueueProcess,
    Reward,
)
from hetplan.problems.policy.models import Models, capacity_qps

if TYPE_CHECKING:
    from hetplan.problems.policy.options import PolicyOptions
    from hetplan.problems.policy.wish import AppWish

__all__ = ["Group", "slack_grid"]

Floats = NDArray[np.float64]

_SAME_SLACK = 1e-9
"""Slacks nearer than this share of the SLO are one: a plan file carries twelve digits."""


@dataclass(frozen=True)
class Group:
    """Like workers for one application."""

    id: str
    wish: AppWish
    models: Models
    workers: int
    loads_qps: tuple[float, ...]
    fitted_qps: tuple[float, ...] = ()
    """Shortest queue: arrival rates at a worker with n = 0..N + 1 waiting, where they were simulated."""

    @property
    def share(self) -> float:
        """The share of the application's load that comes here."""
        return self.loads_qps[-1] / self.wish.loads_qps[-1]

    @property
    def sustainable_qps(self) -> float:
        """The most that the fastest model serves, whatever its lateness."""
        return self.workers * capacity_qps(self.models, 0, np.inf)

    def with_workers(self, workers: int) -> Group:
        """The same with another number of workers."""
        return replace(self, workers=workers)

    def form(
        self,
        load_qps: float,
        options: PolicyOptions,
        *,
        batching: Literal["max", "variable"],
        slo_s: float | None = None,
    ) -> QueueProcess:
        """The decision process of one of the workers at a load of the group."""
        slo = self.wish.slo_s if slo_s is None else slo_s
        stages, rates, rate_of = self.arrivals(load_qps, options)
        return QueueProcess(
            latency_s=self.models.latency_s,
            accuracy=self.models.accuracy,
            grid_s=slack_grid(slo, options, self.models.latency_s),
            stages=stages,
            stage_rates=rates,
            rate_of=rate_of,
            objective=PerWhat(options.objective),
            batching=Batching(batching),
            late=Late(self.wish.late),
            overflow=Overflow(options.overflow),
            empty=Empty(options.empty_state),
            reward=Reward(options.reward),
            criterion=Criterion.AVERAGE if options.sweeps is None else Criterion.HORIZON,
            horizon=options.sweeps or 0,
            name=f"{self.id} at {load_qps:g} qps",
        )

    def arrivals(self, load_qps: float, options: PolicyOptions) -> tuple[int, Floats, NDArray[np.int64] | None]:
        """Stages, their rates, and which holds for how many waiting."""
        if self.wish.balancing == "round_robin":
            stages, per_load, _ = self.wish.stages(self.workers, clamp=options.clamp)
            return stages, np.array([per_load * load_qps]), None
        if self.fitted_qps:
            rates = np.array(self.fitted_qps)
            return 1, rates, np.arange(rates.size)
        own = load_qps / self.workers
        mu = self.service_rate(load_qps)
        crowded = (load_qps / (self.workers * mu)) ** self.workers * mu
        rate_of = (np.arange(options.queue_max + 2) >= 3).astype(np.int64)
        return 1, np.array([own, max(crowded, 1e-9 * own)]), rate_of

    def service_rate(self, load_qps: float) -> float:
        """mu: queries per second of the most accurate model with which the group carries the load within the SLO."""
        rates = [capacity_qps(self.models, m, self.wish.slo_s) for m in range(self.models.accuracy.size)]
        enough = [m for m, rate in enumerate(rates) if self.workers * rate > load_qps]
        best = max(enough, key=lambda m: float(self.models.accuracy[m])) if enough else 0
        return rates[best] or 1.0 / self.models.fastest_s

    def traffic(self, load_qps: float) -> dict[str, Any]:
        """How the group is simulated at a load."""
        times = self.wish.times_s
        replay = times is not None and self.share == 1.0 and load_qps == self.wish.loads_qps[-1]
        return {
            "workers": self.workers,
            "load_qps": load_qps,
            "shape": self.wish.shape,
            "times_s": times if replay else None,
            "balancing": self.wish.balancing,
        }


def slack_grid(slo_s: float, options: PolicyOptions, latency_s: Floats) -> Floats:
    """The slacks told apart: equal steps, all latencies up to the SLO, or both; always 0 and the SLO."""
    kind, steps = options.grid_kind()
    parts = [np.array([0.0, slo_s])]
    if kind in ("fld", "union"):
        # As published: one other way of writing the product moves latencies that equal a grid point.
        equal = (slo_s / steps) * np.arange(1, steps + 1)
        parts.append(equal[:-1])
    if kind in ("md", "union"):
        latency = latency_s[:, :-1]
        parts.append(latency[latency <= slo_s])
    return _apart(np.unique(np.concatenate(parts)))


def _apart(points: Floats) -> Floats:
    """Points that differ by rounding alone become one, the largest, so that every latency among them still fits it."""
    nearly = _SAME_SLACK * float(points[-1])
    kept = np.append(np.diff(points) > nearly, True)
    kept[0] = True
    return np.asarray(points[kept | (points == 0.0)])
