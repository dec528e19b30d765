"""Simulate a plan: what it promises against what a queueing simulation of it shows.

The simulator plays the plan's workers, routes and dispatch under the demand of the SLO file, once per seed, and puts
each wish and each promise beside the simulated figure. `SimulationReport.broken` lists what fails. Whether a machine
serves batches or makes text, it is one system that is played, and one report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.slo import App, Arrivals
from hetplan.serving.demand import strictest_ms
from hetplan.serving.operators import samples_of
from hetplan.serving.plan_names import refuse_unknown_names
from hetplan.serving.planned_system import PlannedSystem, planned_systems, served_apps
from hetplan.serving.price import has_prices
from hetplan.serving.service import NOISES, NoiseName
from hetplan.serving.system import Service, System
from hetplan.serving.tokens import fleet_of_plan, makes_text
from hetplan.simulator.admission import lifetime_lines
from hetplan.simulator.control import learning
from hetplan.simulator.demand import AppDemand, TextDemand, arrivals_named, checked_trace, offered_qps
from hetplan.simulator.figures import BATCHES, HIGHEST_PERCENTILE, estimate
from hetplan.simulator.plan_transition import play_transition
from hetplan.simulator.report import (
    SHOWN,
    AppReport,
    SimulationReport,
    TransitionReport,
    app_report,
    group_reports,
    lines_of,
    unplayed_rates,
)
from hetplan.simulator.run_summary import RunSummary, timeline_of
from hetplan.simulator.runs import check_size, is_settled, notices, run_all, seed_of, settled_length_s, spans_of
from hetplan.simulator.system_run import Failure, Playing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.planner.spread import Spread

__all__ = [
    "Failure",
    "demands_of",
    "percentiles_of",
    "play_once",
    "playing_of",
    "simulate",
    "simulate_system",
]

_LEAST_REQUESTS = 20
"""Of text: fewer say nothing of any share."""

Elsewhere = Callable[[Sequence[int], float, int], list[RunSummary]]
"""Plays all seeds, for so many seconds, with figures of so many stretches."""


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
    the dispatcher begins without latency tables (`learning`). `spread` plays the seeds over processes or a cluster, for
    the same figures.
    """
    if noise not in NOISES:
        raise InputError.one(file="--noise", value=noise, why="no such noise", remedy=f"One of {', '.join(NOISES)}.")
    if seeds < 1:
        raise InputError.one(file="--seeds", value=seeds, why="at least one run is needed", remedy="Write 5.")
    refuse_unknown_names(plan, inputs, named=services or {}, whole=True)
    how: dict[str, Any] = {
        "arrivals": arrivals,
        "trace": trace,
        "queries_seed": queries_seed,
        "learn": learn,
        "services": services,
    }
    how |= {"noise": noise, "misprediction": misprediction, "failures": failures}
    playing = playing_of(plan, inputs, **how)
    stages, demands = playing.stages, playing.demands
    text = any(stage.system.texts for stage in stages)
    if text:
        _refuse_for_text(
            misprediction=misprediction, learn=learn, failures=failures, services=services
        )  # fmt: skip
    elsewhere = _over(spread, plan, inputs, how) if spread is not None else None
    reports = simulate_playing(playing, Wanted(seeds, seed, duration_s, threads, on_event, cancel), elsewhere)
    way = None
    if inputs.state is not None and plan.actions and not text and not _from_elsewhere(plan, inputs):
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
        control=learning(demands) if learn else None, percentiles=percentiles_of(inputs, plan), **how,
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
        if digest and inputs.digests.get(name, digest) != digest
    ]
    if inputs.state is not None and plan.question == "llm" and plan.actions:
        warned.append(("W-transition", "state", "of text the way from what runs to the plan is not played"))
    elif inputs.state is not None and _from_elsewhere(plan, inputs):
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


def percentiles_of(inputs: Inputs, plan: Plan | None = None) -> tuple[float, ...]:
    """Every percentile that a wish, or a promise of a plan, names, besides the usual ones."""
    named = {target.percentile for app in inputs.slo.apps.values() for target in app.targets}
    named |= {one.percentile for one in (plan.promises if plan is not None else ()) if one.percentile is not None}
    return tuple(sorted({*SHOWN, *named}))


def _refuse_for_text(**asked: Any) -> None:
    """What other plans are played with, and those of machines that make text are not."""
    for name, value in asked.items():
        if value:
            raise InputError.one(
                file=f"--{name}", value=str(value), why="not played with machines that make text",
                remedy="Leave it out.",
            )  # fmt: skip


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
        process = arrivals_named(arrivals) if arrivals is not None else wanted.arrivals
        stated = wanted.stated_qps is not None
        replayed = recorded is not None and (given is not None or (arrivals is None and not stated))
        if recorded is not None and arrivals is None and not replayed:
            process = Arrivals(process="empirical")
        rate = offered_qps(plan, app, wanted)
        rate = max(0.0, rate - sum(item.rate_qps for item in plan.unserved if item.app == app))
        if replayed and recorded is not None:
            rate = len(recorded) / max(float(recorded[-1]), 1e-9)
        series = wanted.series or ()
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
                mix=wanted.mix,
                trace_s=recorded,
                as_recorded=replayed,
                series_qps=series,
                period_s=inputs.slo.horizon.period_s,
                clients=wanted.streams or 0,
                samples=samples_of(plan, inputs, app),
                text=_text_of(plan, inputs, app, rate, process),
            )
        )
    return demands


def _text_of(plan: Plan, inputs: Inputs, app: str, rate_qps: float, process: Arrivals) -> TextDemand | None:
    """What is asked of the engines that a plan has for an application; None where its answers are no text."""
    if not makes_text(plan, inputs, app):
        return None
    found = TextDemand.of(inputs.slo.apps[app], fleet_of_plan(plan, inputs, app), rate_qps)
    return replace(found, lengths=replace(found.lengths, arrivals=process))


def _strictest(plan: Plan, app: str, wanted: App) -> float:
    """The highest percentile that a wish, or a promise by simulation, is about; a share of late queries is one too."""
    promised = [one for one in plan.promises if one.app == app and one.model.startswith("simulation")]
    percentiles = [target.percentile for target in wanted.targets]
    percentiles += [one.percentile for one in promised if one.percentile is not None]
    shares = [one.value for one in promised if one.quantity == "violations"]
    shares += [1.0 - wanted.attainment] if wanted.attainment is not None else []
    percentiles += [100.0 * (1.0 - share) for share in shares]
    # No run shows that none is ever late.
    return min(max(percentiles, default=99.0), HIGHEST_PERCENTILE)


def _states_accuracy(plan: Plan, app: str, wanted: App) -> bool:
    asked = wanted.quality is not None and wanted.quality.min is not None
    return asked or any(one.app == app and one.quantity in ("accuracy", "quality", "goodput") for one in plan.promises)


class _How(TypedDict, total=False):
    """Fields of `Playing` that a caller may leave out."""

    noise: NoiseName
    misprediction: float
    failures: Sequence[Failure]
    control: Callable[[Any], None] | None
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
    if not playing.queries and playing.noise != "table":
        raise InputError.one(
            file="--noise", value=playing.noise, why="iterations take what their law says; no noise is played on it",
            remedy="Leave it out, or make the law slower.",
        )  # fmt: skip
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
    longer_s = length_s
    if playing.is_steady and playing.queries and duration_s is None:
        longer_s = settled_length_s(playing.queries, length_s, runs)
    if longer_s > 1.05 * length_s:
        length_s = longer_s
        runs = every(length_s)
    return _report(runs, playing, run_seeds, length_s)


def _wanted_s(
    demands: Sequence[AppDemand], stages: Sequence[PlannedSystem], duration_s: float | None, *, seeds: int
) -> float:
    """How long each run lasts; refused where there is nothing to run, or too much."""
    length_s = duration_s if duration_s is not None else _length_s(demands, stages)
    if not any(demand.clients or min(length_s, demand.drawn(length_s)) > 0 for demand in demands):
        raise InputError.one(
            path="rate_qps", value=0, why="no load to simulate: every rate is 0", remedy="Give a rate, or a trace."
        )
    check_size(demands, length_s, seeds=seeds, asked=duration_s is not None)
    for demand in demands:
        count = demand.drawn(length_s)
        if demand.text is not None and count <= 0:
            raise InputError.one(
                path=f"apps.{demand.app}.rate_qps", value=0, why="no request for text comes: its rate is 0",
                remedy="Give a rate, or a trace.",
            )  # fmt: skip
        if demand.text is not None and not demand.as_recorded and count < _LEAST_REQUESTS:
            raise InputError.one(
                file="--duration", path=f"apps.{demand.app}", value=length_s,
                why=f"{count:.3g} requests for text would be played; {_LEAST_REQUESTS} are the fewest",
                remedy="Give a longer --duration, or higher rates.",
            )  # fmt: skip
    return length_s


def _length_s(demands: Sequence[AppDemand], stages: Sequence[PlannedSystem]) -> float:
    wanted = max((demand.length_s() for demand in demands), default=0.0)
    last = stages[-1]
    return max(wanted, last.end_s if last.end_s is not None else last.start_s + (wanted if len(stages) > 1 else 0.0))


def _report(
    runs: Sequence[RunSummary], playing: Playing, run_seeds: tuple[int, ...], length_s: float
) -> SimulationReport:
    costs = [run.cost_per_hour for run in runs if run.cost_per_hour is not None]
    return SimulationReport(
        plan=None,
        seeds=run_seeds,
        duration_s=length_s,
        noise=playing.noise,
        apps={demand.app: _of_app(demand, runs, length_s) for demand in playing.demands},
        groups=group_reports(runs, playing.stages[0].system),
        cost_per_hour=estimate(costs) if costs else None,
        currency="USD",
        lines=(),
        timeline=timeline_of(runs),
        events=sum(run.events for run in runs),
        warnings=tuple(notices(playing.demands, length_s, runs)),
    )


def _of_app(demand: AppDemand, runs: Sequence[RunSummary], length_s: float) -> AppReport:
    """The figures of an application."""
    spans = spans_of(demand, length_s, runs)
    return app_report(demand, runs, spans=spans, settled=lambda at: is_settled(at, demand, length_s, runs))
