"""Simulate a plan: what it promises against what a queueing simulation of it shows.

The simulator plays the plan's workers, routes and dispatch under the demand of the SLO file, once per seed, and puts
each wish and each promise beside the simulated figure. `SimulationReport.broken` lists what fails.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np

from hetplan.errors import Cancelled, InputError
from hetplan.planner.contract import Event
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.slo import App, Arrivals
from hetplan.serving.dangling import refuse_dangling
from hetplan.serving.demand import response_targets
from hetplan.serving.of_plan import PlannedSystem, served_apps
from hetplan.serving.operators import samples_of
from hetplan.serving.price import has_prices
from hetplan.serving.service import NOISES, NoiseName, noise_of
from hetplan.serving.strictest import strictest_ms
from hetplan.serving.system import Group, Rule, Service, System
from hetplan.simulator.control import follow_load, learning
from hetplan.simulator.demand import AppDemand, arrivals_named, checked_trace, offered_qps
from hetplan.simulator.figures import (
    BATCHES,
    HIGHEST_PERCENTILE,
    AppFigures,
    Estimate,
    Together,
    estimate,
    estimate_of_one,
    estimate_of_share,
    estimates_of_percentiles,
)
from hetplan.simulator.holding import lifetime_lines
from hetplan.simulator.plan_transition import play_transition
from hetplan.simulator.planned import planned_systems
from hetplan.simulator.report import (
    AppReport,
    RunSummary,
    SimulationReport,
    TransitionReport,
    group_reports,
    lines_of,
    summary_of,
    timeline_of,
    unplayed_rates,
)
from hetplan.simulator.runs import check_size, is_settled, notices, run_all, seed_of, settled_length_s, spans_of
from hetplan.simulator.simulation import Observation, Simulation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.spread import Spread

__all__ = ["Failure", "Replan", "demands_of", "play_once", "playing_of", "simulate", "simulate_system"]

_ALWAYS = (50.0, 90.0, 95.0, 99.0)
_BUCKETS = 120

T = TypeVar("T")

Replan = Callable[[Observation], "System | None"]
Elsewhere = Callable[[Sequence[int], float, int], list[RunSummary]]
"""Plays all seeds, for so many seconds, with figures of so many stretches."""


@dataclass(frozen=True)
class Failure:
    """A worker that breaks, and comes back or does not; with `retry` its queries start over elsewhere."""

    at_s: float
    worker: str
    number: int = 0
    back_s: float | None = None
    retry: bool = True


def simulate(
    plan: Plan,
    inputs: Inputs,
    *,
    seeds: int = 5,
    seed: int = 0,
    duration_s: float | None = None,
    noise: NoiseName = "table",
    arrivals: str | Mapping[str, Any] | Arrivals | None = None,
    trace: NDArray[np.float64] | Mapping[str, NDArray[np.float64]] | None = None,
    queries_seed: int | None = None,
    misprediction: float = 0.0,
    learn: bool = False,
    failures: Sequence[Failure] = (),
    replan: Replan | None = None,
    replan_every_s: float = 10.0,
    services: Mapping[str, Service] | None = None,
    threads: int = 2,
    spread: Spread | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> SimulationReport:
    """Run a plan under its demand, once per seed, and compare.

    The load is the wish's rate; where that is "max", the rate that the plan promises. `duration_s` defaults to what
    the strictest percentile needs (`figures`). `noise` says how service times vary (`serving.service.NOISES`),
    `arrivals` replaces the process of every application, `trace` (seconds from 0) its queries. With `queries_seed`
    every run plays the queries of that seed, and only service times and the draws of the dispatch differ. With `learn`
    the dispatcher begins without latency tables (`learning`). `replan` is asked every so often and may hand back
    another system to go over to. `spread` plays the seeds over processes or a cluster, for the same figures.
    """
    if noise not in NOISES:
        raise InputError.one(file="--noise", value=noise, why="no such noise", remedy=f"One of {', '.join(NOISES)}.")
    if seeds < 1:
        raise InputError.one(file="--seeds", value=seeds, why="at least one run is needed", remedy="Write 5.")
    refuse_dangling(plan, inputs, named=services or {}, whole=True)
    how: dict[str, Any] = {
        "arrivals": arrivals,
        "trace": trace,
        "queries_seed": queries_seed,
        "learn": learn,
        "services": services,
    }
    how |= {"noise": noise, "misprediction": misprediction, "failures": failures}
    playing = replace(playing_of(plan, inputs, **how), replan=replan, replan_every_s=replan_every_s)
    stages, demands = playing.stages, playing.demands
    if spread is not None and replan is not None:
        raise InputError.one(
            file="--jobs", why="runs that are planned anew are played in this process", remedy="Leave it out."
        )
    elsewhere = _over(spread, plan, inputs, how) if spread is not None else None
    reports = simulate_playing(playing, Wanted(seeds, seed, duration_s, threads, on_event, cancel), elsewhere)
    way = None
    if inputs.state is not None and plan.actions and not _from_elsewhere(plan, inputs):
        going: dict[str, Any] = {"noise": noise, "misprediction": misprediction, "services": services}
        going |= {"threads": threads, "on_event": on_event, "cancel": cancel}
        way = play_transition(plan, inputs, demands, run_seeds=reports.seeds, **going)
    lines = (*lines_of(plan, inputs, reports), *lifetime_lines(plan, inputs, seeds=reports.seeds))
    notes = (*reports.warnings, *(note for stage in stages for note in stage.notes), *unplayed_rates(lines))
    return replace(
        reports,
        plan=plan.digest,
        cost_per_hour=reports.cost_per_hour if has_prices(inputs.profile) else None,
        currency=inputs.slo.limits.currency,
        lines=lines,
        transition=way,
        warnings=tuple(dict.fromkeys((*_other_inputs(plan, inputs), *notes, *_late_on_the_way(way, demands)))),
    )


def playing_of(
    plan: Plan, inputs: Inputs, *, arrivals: Any, trace: Any, queries_seed: int | None, learn: bool,
    services: Mapping[str, Service] | None, **how: Any,
) -> Playing:  # fmt: skip
    """What the runs of a plan are made from, in this process or another; `how` are other fields of `Playing`."""
    demands = demands_of(plan, inputs, arrivals=arrivals, trace=trace)
    demands = [replace(demand, from_start=learn, queries_seed=queries_seed) for demand in demands]
    return Playing(
        stages=planned_systems(plan, inputs, noise=how["noise"], services=services), demands=demands,
        control=learning(demands) if learn else None, percentiles=_asked(plan, inputs), **how,
    )  # fmt: skip


def _over(spread: Spread, plan: Plan, inputs: Inputs, how: Mapping[str, Any]) -> Elsewhere:
    """Play every seed as a task of its own."""

    def play(seeds: Sequence[int], length_s: float, stretches: int) -> list[RunSummary]:
        of = [plan.digest, *inputs.digests.values()]
        tasks = [{"seed": seed, "length_s": length_s, "stretches": stretches, "of": of} for seed in seeds]
        return [found["run"] for found in spread.all(play_once, (plan, inputs, how), tasks, about="runs")]

    return play


def play_once(
    shared: tuple[Plan, Inputs, Mapping[str, Any]], task: Mapping[str, Any], cancel: threading.Event | None = None
) -> dict[str, Any]:
    """One run of a plan, as a piece of work for a `Spread`."""
    plan, inputs, how = shared
    run = playing_of(plan, inputs, **how).run(
        task["seed"], task["length_s"], stretches=task["stretches"], stop=cancel or threading.Event(),
        progressed=lambda _: None,
    )  # fmt: skip
    return {"run": run}


def _other_inputs(plan: Plan, inputs: Inputs) -> list[tuple[str, str, str]]:
    """A warning for each file that is not the one which the plan was made from."""
    made_from = {"profile": plan.inputs.profile, "slo": plan.inputs.slo}
    warned = [
        ("W-other-inputs", name, "the plan was made from another one; this is simulated, not what the plan promised")
        for name, digest in made_from.items()
        if inputs.digests.get(name, digest) != digest
    ]
    if inputs.state is not None and _from_elsewhere(plan, inputs):
        text = "the plan was made from another one, or from none: the way from it to the plan is not played"
        warned.append(("W-other-inputs", "state", text))
    return warned


def _from_elsewhere(plan: Plan, inputs: Inputs) -> bool:
    """Whether the plan's actions begin at another state than the one handed in."""
    return inputs.digests.get("state", plan.inputs.state) != plan.inputs.state


def _late_on_the_way(way: TransitionReport | None, demands: Sequence[AppDemand]) -> list[tuple[str, str, str]]:
    """A warning for each application that misses its percentile while the plan's actions are under way."""
    warned: list[tuple[str, str, str]] = []
    if way is None:
        return warned
    for demand in demands:
        found, asked = way.apps[demand.app].in_time, demand.percentile / 100.0
        # One seed has no interval.
        if found.value < asked and not found.high >= asked:
            text = f"on the way to the plan, {way.seconds:g} s long, {found.value:.2%} of the queries are in time"
            warned.append(("W-transition", f"apps.{demand.app}", text))
    return warned


def _asked(plan: Plan, inputs: Inputs) -> tuple[float, ...]:
    """Every percentile that a wish or a promise names, besides the usual ones."""
    named = {target.percentile for app in inputs.slo.apps.values() for target in app.latency}
    named |= {promise.percentile for promise in plan.promises if promise.percentile is not None}
    return tuple(sorted({*_ALWAYS, *named}))


def demands_of(
    plan: Plan,
    inputs: Inputs,
    *,
    arrivals: str | Mapping[str, Any] | Arrivals | None = None,
    trace: NDArray[np.float64] | Mapping[str, NDArray[np.float64]] | None = None,
) -> list[AppDemand]:
    """What each application that a plan serves will ask for."""
    demands: list[AppDemand] = []
    for number, app in enumerate(served_apps(plan, inputs)):
        wanted = inputs.slo.apps[app]
        given = trace.get(app) if isinstance(trace, Mapping) else trace
        recorded = given if given is not None else inputs.traces.get(app)
        recorded = checked_trace(recorded, app=app) if recorded is not None else None
        process = arrivals_named(arrivals) if arrivals is not None else wanted.demand.arrivals
        stated = isinstance(wanted.demand.rate_qps, int | float)
        replayed = recorded is not None and (given is not None or (arrivals is None and not stated))
        if recorded is not None and arrivals is None and not replayed:
            process = Arrivals(process="empirical")
        rate = offered_qps(plan, app, wanted)
        rate = max(0.0, rate - sum(item.rate_qps for item in plan.unserved if item.app == app))
        if replayed and recorded is not None:
            rate = len(recorded) / max(float(recorded[-1]), 1e-9)
        series = wanted.demand.series or ()
        if series:
            rate = sum(series) / len(series)
        demands.append(
            AppDemand(
                app=app,
                number=number,
                rate_qps=rate,
                arrivals=process,
                slo_ms=strictest_ms(wanted),
                percentile=_strictest(plan, app, wanted),
                states_accuracy=_states_accuracy(plan, app, wanted),
                mix=wanted.demand.mix,
                trace_s=recorded,
                as_recorded=replayed,
                series_qps=series,
                period_s=inputs.slo.horizon.period_s,
                clients=wanted.demand.streams or 0,
                samples=samples_of(plan, inputs, app),
            )
        )
    return demands


def _strictest(plan: Plan, app: str, wanted: App) -> float:
    """The highest percentile that a wish, or a promise by simulation, is about; a share of late queries is one too."""
    promised = [one for one in plan.promises if one.app == app and one.model.startswith("simulation")]
    percentiles = [target.percentile for target in response_targets(wanted)]
    percentiles += [one.percentile for one in promised if one.percentile is not None]
    shares = [one.value for one in promised if one.quantity == "violations"]
    shares += [wanted.violations.max] if wanted.violations is not None else []
    # No run shows that none is ever late.
    percentiles += [min(100.0 * (1.0 - share), HIGHEST_PERCENTILE) for share in shares]
    return max(percentiles, default=99.0)


def _states_accuracy(plan: Plan, app: str, wanted: App) -> bool:
    asked = wanted.quality is not None and wanted.quality.min is not None
    return asked or any(one.app == app and one.quantity in ("accuracy", "quality", "goodput") for one in plan.promises)


@dataclass(frozen=True, kw_only=True)
class Playing:
    """All that a run is made from, but for its seed and its length."""

    stages: Sequence[PlannedSystem]
    demands: Sequence[AppDemand]
    noise: NoiseName = "mean"
    misprediction: float = 0.0
    failures: Sequence[Failure] = ()
    replan: Replan | None = None
    replan_every_s: float = 10.0
    control: Callable[[Simulation], None] | None = None
    """Called once per run before it starts; it may ask for changes (`Simulation.at`, `scale`, `change`)."""
    percentiles: Sequence[float] = _ALWAYS

    @property
    def is_steady(self) -> bool:
        """Whether one system serves from the beginning to the end."""
        return len(self.stages) == 1 and self.control is None and self.replan is None and not self.failures

    def run(
        self, seed: int, length_s: float, *, stretches: int, stop: threading.Event, progressed: Callable[[float], None]
    ) -> RunSummary:
        """Play once, and keep the figures, also of so many stretches."""
        first = self.stages[0].system
        streams = [_unless(stop, demand.stream(seed, length_s)) for demand in self.demands]
        run = Simulation(
            first, streams, seed=seed, noise=noise_of(self.noise), mispredict=self.misprediction,
            horizon_ms=length_s * 1000.0, buckets=_BUCKETS,
        )  # fmt: skip
        for stage in self.stages[1:]:
            run.at(stage.start_s * 1000.0, lambda stage=stage: run.change(stage.system))  # type: ignore[misc]
        _ask_for_failures(run, self.failures)
        if self.replan is not None:
            _ask_for_plans(run, self.replan, self.replan_every_s * 1000.0)
        follow_load(run, first)
        if self.control is not None:
            self.control(run)
        result = _unless(stop, _unless(stop, run).run(cancel=stop, on_progress=progressed))
        return summary_of(
            result, self.demands, self.percentiles, stretches=stretches, pooled=_is_pooled(first),
            work_of=partial(_work_at_full_batches, {group.id: group for group in first.groups}),
            # Systems that come later may have workers of other names.
            serving=_serving(self.stages) if self.control is None and self.replan is None else {},
        )  # fmt: skip


class _How(TypedDict, total=False):
    """Fields of `Playing` that a caller may leave out."""

    noise: NoiseName
    misprediction: float
    failures: Sequence[Failure]
    replan: Replan | None
    replan_every_s: float
    control: Callable[[Simulation], None] | None
    percentiles: Sequence[float]


def simulate_system(
    stages: Sequence[PlannedSystem] | System, demands: Sequence[AppDemand], *, seeds: int = 5, seed: int = 0,
    duration_s: float | None = None, threads: int = 2, on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None, **how: Unpack[_How],
) -> SimulationReport:  # fmt: skip
    """Run a system (or one per period) under its demand; `how` are the other fields of `Playing`."""
    each = [PlannedSystem(0.0, None, stages)] if isinstance(stages, System) else list(stages)
    wanted = Wanted(seeds, seed, duration_s, threads, on_event, cancel)
    return simulate_playing(Playing(stages=each, demands=demands, **how), wanted)


@dataclass(frozen=True)
class Wanted:
    """How many runs, from which seed, how long, on how many threads; who hears of them and may end them."""

    seeds: int
    seed: int = 0
    duration_s: float | None = None
    threads: int = 2
    on_event: Callable[[Event], None] | None = None
    cancel: threading.Event | None = None


def simulate_playing(playing: Playing, wanted: Wanted, elsewhere: Elsewhere | None = None) -> SimulationReport:
    """Play once per seed; the report has no promises to compare with. `elsewhere` plays in place of our threads."""
    demands, duration_s = playing.demands, wanted.duration_s
    length_s = _wanted_s(demands, playing.stages, duration_s, seeds=wanted.seeds)
    run_seeds = tuple(seed_of(wanted.seed, number) for number in range(wanted.seeds))
    stretches = BATCHES if wanted.seeds == 1 else 0

    def one(run_seed: int, length_s: float) -> Callable[[threading.Event, Callable[[float], None]], RunSummary]:
        return lambda stop, progressed: playing.run(
            run_seed, length_s, stretches=stretches, stop=stop, progressed=progressed
        )

    def every(length_s: float) -> list[RunSummary]:
        if elsewhere is not None:
            return elsewhere(run_seeds, length_s, stretches)
        jobs = [one(item, length_s) for item in run_seeds]
        return run_all(jobs, threads=wanted.threads, on_event=wanted.on_event, cancel=wanted.cancel)

    runs = every(length_s)
    longer_s = settled_length_s(demands, length_s, runs) if playing.is_steady and duration_s is None else length_s
    if longer_s > 1.05 * length_s:
        length_s = longer_s
        runs = every(length_s)
    return _report(runs, demands, run_seeds, length_s, playing.noise, playing.stages)


def _unless(stop: threading.Event, made: T) -> T:
    """What was made, unless it is not wanted any more: drawing and ordering millions of queries take their time."""
    if stop.is_set():
        raise Cancelled("the simulation was cancelled")
    return made


def _is_pooled(system: System) -> bool:
    """Whether all workers serve one stream, so that their mean utilisation says how near capacity it is."""
    return len(system.routes) == 1 and system.routes[0].rule in (Rule.SHORTEST, Rule.EARLIEST, Rule.CENTRAL)


def _serving(stages: Sequence[PlannedSystem]) -> dict[str, set[str]]:
    """The groups of workers that the queries of each application go to."""
    found: dict[str, set[str]] = {}
    for route in (route for stage in stages for route in stage.system.routes):
        names = (*(way.group for way in route.ways), *(backup.group for backup in route.backups))
        found.setdefault(route.app, set()).update(names)
    return found


def _work_at_full_batches(groups: Mapping[str, Group], name: str, mean_batch: float) -> float:
    """Which part of its busy time a group would have needed at full batches, where its loads take batches.

    Groups under a policy choose batches by their queue, so nothing is known of them: all of it.
    """
    group = groups.get(name)
    services = [one for load in group.loads for one in load.services.values()] if group is not None else []
    if group is None or group.policies or not services or mean_batch <= 1e-9:
        return 1.0
    needed = 0.0
    for service in services:
        largest = service.mean_ms.shape[1]
        each = np.maximum(mean_batch, 1.0)
        now = [np.interp(each, np.arange(1, largest + 1), row) / min(each, largest) for row in service.mean_ms]
        full = service.mean_ms[:, -1] / largest
        needed = max(needed, float(np.max(full / np.maximum(now, 1e-12), initial=0.0)))
    return min(needed, 1.0) if needed > 0 else 1.0


def _wanted_s(
    demands: Sequence[AppDemand], stages: Sequence[PlannedSystem], duration_s: float | None, *, seeds: int
) -> float:
    """How long each run lasts; refused where there is nothing to run, or too much."""
    length_s = duration_s if duration_s is not None else _length_s(demands, stages)
    if length_s <= 0 and not any(demand.clients for demand in demands):
        raise InputError.one(
            path="demand", value=0, why="no load to simulate: every rate is 0", remedy="Give a rate, or a trace."
        )
    check_size(demands, length_s, seeds=seeds, asked=duration_s is not None)
    return length_s


def _length_s(demands: Sequence[AppDemand], stages: Sequence[PlannedSystem]) -> float:
    wanted = max((demand.length_s() for demand in demands), default=0.0)
    last = stages[-1]
    return max(wanted, last.end_s if last.end_s is not None else last.start_s + (wanted if len(stages) > 1 else 0.0))


def _ask_for_failures(run: Simulation, failures: Sequence[Failure]) -> None:
    for failure in failures:
        run.at(
            failure.at_s * 1000.0,
            lambda item=failure: run.fail(item.worker, item.number, retry=item.retry),  # type: ignore[misc]
        )
        if failure.back_s is not None:
            run.at(failure.back_s * 1000.0, lambda item=failure: run.recover(item.worker, item.number))  # type: ignore[misc]


def _ask_for_plans(run: Simulation, replan: Replan, every_ms: float) -> None:
    def look() -> None:
        following = replan(run.observe())
        if following is not None:
            run.change(following)
        if run.now_ms + every_ms <= run.horizon_ms:
            run.at(run.now_ms + every_ms, look)

    run.at(every_ms, look)


def _report(
    runs: Sequence[RunSummary],
    demands: Sequence[AppDemand],
    run_seeds: tuple[int, ...],
    length_s: float,
    noise: str,
    stages: Sequence[PlannedSystem],
) -> SimulationReport:
    apps = {demand.app: _app_report(demand, runs, length_s) for demand in demands}
    costs = [run.cost_per_hour for run in runs if run.cost_per_hour is not None]
    return SimulationReport(
        plan=None,
        seeds=run_seeds,
        duration_s=length_s,
        noise=noise,
        apps=apps,
        groups=group_reports(runs, stages[0].system),
        cost_per_hour=estimate(costs) if costs else None,
        currency="USD",
        lines=(),
        timeline=timeline_of(runs),
        events=sum(run.events for run in runs),
        warnings=tuple(notices(demands, length_s, runs)),
    )


_SHARES = ("in_time", "late", "dropped", "violations")
_FIGURES: Mapping[str, Callable[[AppFigures], float]] = {
    "mean_ms": lambda item: item.mean_ms,
    "in_time": lambda item: item.in_time,
    "late": lambda item: item.late,
    "dropped": lambda item: item.dropped,
    "accuracy": lambda item: item.accuracy,
    "served_accuracy": lambda item: item.served_accuracy,
    "rate_qps": lambda item: item.rate_qps,
    "goodput_qps": lambda item: item.goodput_qps,
    "violations": lambda item: 1.0 - item.in_time,
    "goodput": lambda item: item.in_time * _zero(item.accuracy),
}


def _app_report(demand: AppDemand, runs: Sequence[RunSummary], length_s: float) -> AppReport:
    wholes = [run.apps[demand.app] for run in runs]
    stretches = runs[0].stretches[demand.app]

    def over_runs(name: str, figure: Callable[[AppFigures], float]) -> Estimate:
        values, parts = [figure(item) for item in wholes], [figure(one) for one in stretches]
        if name in _SHARES:
            return estimate_of_share(values, parts)
        found = estimate(values) if len(values) > 1 else estimate_of_one(values[0], parts)
        # An interval does not go where the figure cannot.
        return replace(found, low=max(found.low, 0.0) if found.value >= 0.0 else found.low)

    together, of_parts = (
        Together([one.responses for one in several if one.queries]) for several in (wholes, stretches)
    )
    percentiles = estimates_of_percentiles(wholes, together if len(wholes) > 1 else of_parts)
    return AppReport(
        id=demand.app,
        offered_qps=demand.rate_qps,
        queries_per_seed=round(sum(item.queries for item in wholes) / len(wholes)),
        arrivals="as recorded" if demand.as_recorded else demand.arrivals.process,
        figures={name: over_runs(name, figure) for name, figure in _FIGURES.items()},
        percentiles_ms={
            at: found if is_settled(at, demand, length_s, runs) else replace(found, high=math.inf)
            for at, found in percentiles.items()
        },
        distribution_ms=together.distribution(),
        responses=together,
        spans=spans_of(demand, length_s, runs),
    )


def _zero(value: float) -> float:
    return 0.0 if value != value else value
