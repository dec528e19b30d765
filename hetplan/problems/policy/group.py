r"""Groups of like workers that serve one application: their decision process at a load, and policies found for it.

`read_problem` reads files and options into a `PolicyProblem`: every application on every kind of workers.

==========  ======================================================================================================
K           workers; queries reach them in turn (round robin), or the shortest queue
lambda      load of the group, queries per second; s the gamma shape of its inter-arrival times (1: Poisson)
Phi, nu     an own inter-arrival time is Erlang: Phi = K s stages of rate nu = s lambda (rounded to a whole number,
            nu = Phi lambda / K, where K s is none: the mean is kept)
            at random: Phi = 1 stage of rate lambda / K
lambda_w    shortest queue: a worker with n waiting sees Poisson arrivals of rate lambda / K for n <= 2, and
            (lambda / (K mu))^K mu beyond, mu its service rate (appendix I, with mu a rate); Phi = 1
==========  ======================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer
from hetplan.planner.forms.queue_process import (
    Batching,
    Criterion,
    Empty,
    Late,
    Overflow,
    PerWhat,
    QueuePolicy,
    QueueProcess,
    Reward,
)
from hetplan.planner.forms.queue_process_measures import Measures
from hetplan.planner.request import Request, read_request
from hetplan.problems.faults import Faults
from hetplan.problems.policy.options import MOST_WORKERS, PolicyOptions
from hetplan.problems.policy.request import (
    AppRequest,
    Models,
    Workers,
    capacity_qps,
    offers_of_workers,
    read_apps,
    read_models,
    read_workers,
)
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan

__all__ = ["Group", "PolicyProblem", "SolvedPolicy", "fewest_possible", "read_problem", "slack_grid"]

Floats = NDArray[np.float64]

_SAME_SLACK = 1e-9
"""Slacks nearer than this share of the SLO are one: a plan file carries twelve digits."""
_ABSURD = 100
"""A load so many times what all workers can do is refused."""
_OVERLOADED = 0.5
"""A policy of which more than this share of decisions finds the table too short is overloaded."""


@dataclass(frozen=True)
class Group:
    """Like workers for one application."""

    id: str
    wish: AppRequest
    models: Models
    workers: int
    loads_qps: tuple[float, ...]
    offer: str | None = None
    """Of which its workers are, where other groups serve the application too."""
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
            late=Late(self.wish.late or "serve"),
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
            stages, per_load, _ = self.wish.stages(self.workers)
            return stages, np.array([per_load * load_qps]), None
        if self.wish.balancing == "random":
            return 1, np.array([load_qps / self.workers]), None
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
            **({"bursts": self.wish.bursts} if self.wish.bursts is not None else {}),
        }


def slack_grid(slo_s: float, options: PolicyOptions, latency_s: Floats) -> Floats:
    """The slacks that are distinguished: equal steps, all latencies up to the SLO, or both; always 0 and the SLO."""
    kind, steps = options.grid_kind()
    parts = [np.array([0.0, slo_s])]
    if kind in ("fld", "union"):
        # As published: one other way of writing the product moves latencies that equal a grid point.
        equal = (slo_s / steps) * np.arange(1, steps + 1)
        parts.append(equal[:-1])
    if kind in ("md", "union"):
        latency = latency_s[:, :-1]
        parts.append(latency[latency <= slo_s])
    return _without_near_ties(np.unique(np.concatenate(parts)))


def _without_near_ties(points: Floats) -> Floats:
    """Points that differ by rounding alone become one, the largest, so that every latency among them still fits it."""
    nearly = _SAME_SLACK * float(points[-1])
    kept = np.append(np.diff(points) > nearly, True)
    kept[0] = True
    return np.asarray(points[kept | (points == 0.0)])


def fewest_possible(group: Group, load_qps: float) -> int:
    """A bound: fewer workers have not the time, in any batches within the SLO, to answer what must be in time.

    Models with c seconds per query answer shares f of those queries: least sum of f c with sum of f a >= the accuracy
    wanted. Two models do.
    """
    models = group.models
    rates = np.array([capacity_qps(models, m, group.wish.slo_s) for m in range(models.accuracy.size)])
    able = np.flatnonzero(rates > 0)
    if able.size == 0:
        return 1
    seconds, accuracy = 1.0 / rates[able], models.accuracy[able]
    wanted = min(group.wish.app.floor or 0.0, float(accuracy.max()))
    least = float(seconds[accuracy >= wanted].min())
    for good in np.flatnonzero(accuracy > wanted):
        for quick in np.flatnonzero(accuracy < wanted):
            share = (wanted - accuracy[quick]) / (accuracy[good] - accuracy[quick])
            least = min(least, float(share * seconds[good] + (1.0 - share) * seconds[quick]))
    in_time = load_qps * (1.0 - group.wish.left)
    return max(1, math.ceil(in_time * least - 1e-9))


@dataclass(frozen=True)
class SolvedPolicy:
    """A policy for one load of a group, with what is expected of it and what it gave in simulation."""

    group: Group
    load_qps: float
    form: QueueProcess
    policy: QueuePolicy
    answer: Answer[QueuePolicy] | None
    measures: Measures | None
    simulated: Any = None
    robust: float | None = None
    """Goodput over a family of arrivals and service noise: the mean and the worst, by halves."""
    shifted: float = 0.0
    """What every accuracy was raised by, so that answers in time weigh more and the percentile is kept."""
    beaten: str = ""
    """What else was tried, and how it did."""

    @property
    def accuracy(self) -> float:
        """Accuracy of the queries in time: simulated where it was, else expected."""
        if self.simulated is not None:
            return float(self.simulated.accuracy)
        return self.measures.accuracy_by_query if self.measures is not None else 0.0

    @property
    def violation(self) -> float:
        """Share of queries late or dropped: simulated where it was, else expected."""
        if self.simulated is not None:
            return float(self.simulated.violation)
        return self.measures.violation_by_query if self.measures is not None else 1.0

    @property
    def violation_shown(self) -> float:
        """The share that a target is held against: of what fresh seeds confirm, the upper end of its interval."""
        if self.robust is None or self.simulated is None:
            return self.violation
        return max(self.violation, float(self.simulated.violation_interval[1]))

    @property
    def goodput(self) -> float:
        """Accuracy per query that comes: simulated where it was, else expected."""
        if self.simulated is not None:
            return float(self.simulated.goodput)
        return self.measures.goodput if self.measures is not None else 0.0

    @property
    def overload(self) -> bool:
        """More comes than the fastest model can work off, or the queue is mostly beyond the table."""
        lost = self.measures is not None and self.measures.over_probability > _OVERLOADED
        return lost or self.load_qps > self.group.sustainable_qps

    def misses(self) -> list[str]:
        """Which stated targets are missed, in words."""
        wish, found = self.group.wish, []
        if wish.app.floor is not None and self.accuracy < wish.app.floor:
            found.append(f"accuracy {self.accuracy:.5g}, at least {wish.app.floor:g} is required")
        if wish.violation_most is not None and self.violation_shown > wish.violation_most:
            found.append(f"violation rate {min(self.violation_shown, 1.0):.3g}, the limit is {wish.violation_most:g}")
        return found


@dataclass(frozen=True)
class PolicyProblem:
    """What files and options ask: applications, workers, and what each application may run on which hardware."""

    inputs: Inputs
    options: PolicyOptions
    formulation: str
    apps: tuple[AppRequest, ...]
    workers: tuple[Workers, ...]
    models: Mapping[tuple[str, str], Models]
    request: Request
    start: Plan | None = None

    @property
    def fewest(self) -> bool:
        """Whether the number of workers is asked for."""
        return self.request.goals[:1] == ("machines",)

    def groups(self) -> list[Group]:
        """Every application on every kind of workers, each as if it had all workers and all load to itself."""
        found = []
        for wish in self.apps:
            for workers in self.workers:
                models = self.models[wish.app.id, workers.hardware]
                name = f"{wish.app.id} on {workers.hardware}"
                found.append(Group(name, wish, models, workers.count, wish.loads_qps, workers.offer))
        return found


def read_problem(
    inputs: Inputs, options: PolicyOptions, formulation: str, start: Plan | None, *, can_simulate: bool
) -> PolicyProblem:
    """Read the files; raises `InputError` with every fault found."""
    faults = Faults.of(inputs)
    request = read_request(inputs)
    apps, workers = read_apps(inputs, request, faults), read_workers(request, faults)
    if options.is_robust and can_simulate:
        apps = tuple(wish.with_percentile_target() for wish in apps)
    if not workers and not faults.found:
        faults.in_slo("$.limits.instances", "a policy is for given workers", 'Write {"HARDWARE": [1, 8]}.')
    models: dict[tuple[str, str], Models] = {}
    for app in request.apps.values():
        for group in workers:
            found = read_models(request, app, group.hardware, options, faults)
            if found is not None:
                models[app.id, group.hardware] = found
    problem = PolicyProblem(inputs, options, formulation, apps, workers, models, request, start)
    if not faults.found:
        _check(problem, faults)
        if len(workers) > 1 and not faults.found:
            problem = replace(problem, workers=_workers_by_offer(problem))
        if options.rates == "fitted" and not (can_simulate and options.sizing == "simulation"):
            why = "fitted rates are simulated, and no simulator is at hand"
            faults.in_options("rates", why, "Hand one in, or use formula.")
    faults.settle()
    return problem


def _workers_by_offer(problem: PolicyProblem) -> tuple[Workers, ...]:
    """Unlike workers apart by the offers that they come of."""
    return tuple(
        Workers(one.hardware, count, count, offer)
        for one in problem.workers
        for offer, count in offers_of_workers(problem.inputs, problem.request, one.hardware, one.count)
    )


def _check(problem: PolicyProblem, faults: Faults) -> None:
    """What needs several parts of the files at once."""
    at, first = "$.limits.instances", problem.workers[0]
    if len(problem.apps) > 1 and len(problem.workers) > 1:
        faults.in_slo("$.apps", "several applications share one hardware, not several", "Plan one hardware at a time.")
    if problem.fewest and (len(problem.apps) > 1 or len(problem.workers) > 1):
        faults.in_slo(at, "the fewest workers are sought of one hardware for one application", "Name one.")
    for workers in problem.workers:
        if workers.most is None and not problem.fewest:
            faults.in_slo(f"{at}.{workers.hardware}", "a policy is for a given number of workers", "Give the most.")
    total = first.most or MOST_WORKERS
    if len(problem.apps) > 1 and total < len(problem.apps):
        faults.in_slo(at, f"{len(problem.apps)} applications need a worker each", "Give more.", value=total)
    _check_loads(problem, faults)
    _check_arrivals(problem, faults)
    dropping = [wish.app.id for wish in problem.apps if wish.late == "drop"]
    if dropping and problem.options.empty_state == "paper":
        why = f"idling is no decision where late queries are dropped, as by {', '.join(dropping)}"
        faults.in_options("empty_state", why, "Leave it at skip.", value="paper")


def _check_loads(problem: PolicyProblem, faults: Faults) -> None:
    """A load far beyond all workers is a wrong unit, and its tables would hold nothing but "over"."""
    for wish in problem.apps:
        groups = [group for group in problem.groups() if group.wish is wish]
        if problem.fewest:
            groups = [group.with_workers(problem.workers[0].most or MOST_WORKERS) for group in groups]
        most = sum(group.sustainable_qps for group in groups)
        if wish.loads_qps[-1] > _ABSURD * most:
            why = f"{_ABSURD} times what the workers can do with their fastest model is {_ABSURD * most:.4g} qps"
            at = f"$.apps.{wish.app.id}.rate_qps"
            faults.in_slo(at, why, "Is this per second? Lower it, or add workers.", value=wish.loads_qps[-1])


def _check_arrivals(problem: PolicyProblem, faults: Faults) -> None:
    for group in problem.groups():
        wish = group.wish
        try:
            if wish.balancing == "round_robin":
                wish.stages(group.workers)
        except ValueError as error:
            faults.in_slo(
                f"$.apps.{wish.app.id}.arrivals",
                str(error),
                "Give more workers, or state arrivals that are less bursty.",
            )
