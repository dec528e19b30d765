"""Text under demand that changes, with machines that come and go; beside queries of other applications if there are.

All of a fleet goes at one pace: whoever plans anew sees every application at the same moment, and changes all of them.
Every request counts, from the first to the last, and is played to its end.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Cancelled, InputError
from hetplan.planner.contract import Event
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.dangling import refuse_dangling
from hetplan.serving.system import System
from hetplan.serving.tokens import demand_of, limits_of, usual_s
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import Estimate, estimate
from hetplan.simulator.following import Followed
from hetplan.simulator.report import AppReport, GroupReport, Line, SimulationReport, Timeline
from hetplan.simulator.runs import run_all, seed_of
from hetplan.simulator.simulate import demands_of, simulate_system
from hetplan.simulator.simulation import Simulation
from hetplan.simulator.token_report import (
    app_report,
    missed_of,
    other_inputs,
    refuse,
    simulate_tokens,
    timeline_of_text,
    wishes_of_text,
)
from hetplan.simulator.token_run import CrewFigures, TextSystem, TokenRun, text_system
from hetplan.simulator.tokens import Played, drawn_at

__all__ = ["Course", "Fleet", "SideBySide", "play_course", "simulate_text", "together"]

MOST_REQUESTS = 20_000_000
_BUCKETS, _LOOKS = 120, 50


@dataclass(frozen=True, eq=False)
class Fleet:
    """All that runs: what answers queries, and what makes text for each application."""

    queries: System | None
    texts: Mapping[str, TextSystem]

    @property
    def ready_ms(self) -> float:
        """How long the slowest of the machines takes to serve."""
        groups = self.queries.groups if self.queries is not None else ()
        crews = (crew.ready_ms for text in self.texts.values() for crew in text.crews)
        return max((*(group.ready_ms for group in groups), *crews), default=0.0)


@dataclass
class SideBySide:
    """Runs of the applications of one fleet, which keep the time of one of them."""

    clock: Simulation | TokenRun
    texts: Mapping[str, TokenRun]
    system: Fleet
    horizon_ms: float = 0.0

    def __post_init__(self) -> None:
        """As long as the run whose time is kept."""
        self.horizon_ms = self.clock.horizon_ms

    @property
    def now_ms(self) -> float:
        """The time of all."""
        return self.clock.now_ms

    @property
    def under_way(self) -> int:
        """How many queries wait or are served."""
        return sum(run.under_way for run in self._all)

    def arrived(self) -> dict[str, int]:
        """How many queries of each application came since this was last asked."""
        return {app: count for run in self._all for app, count in run.arrived().items()}

    def at(self, when_ms: float, change: Callable[[], None]) -> None:
        """Make a change at a time, to which all have come."""

        def there() -> None:
            for run in self.texts.values():
                if run is not self.clock:
                    run.until(when_ms)
            change()

        self.clock.at(when_ms, there)

    def change(self, system: Fleet) -> None:
        """Go over to another fleet."""
        if isinstance(self.clock, Simulation) and system.queries is not None:
            self.clock.change(system.queries)
        for app, run in self.texts.items():
            run.change(system.texts[app])
        self.system = system

    @property
    def _all(self) -> list[Simulation | TokenRun]:
        return [self.clock, *(run for run in self.texts.values() if run is not self.clock)]


@dataclass(frozen=True)
class _Ended:
    """What is kept of one run of an application."""

    played: Played
    crews: Mapping[str, CrewFigures]
    cost_per_hour: float
    machines: NDArray[np.float64]

    @classmethod
    def of(cls, run: TokenRun) -> _Ended:
        """The run, played to its end."""
        played = run.finish()
        width_ms = run.horizon_ms / run.buckets
        return cls(played, run.crews(played), run.cost_per_hour(), run.open_ms() / width_ms)


@dataclass(frozen=True)
class Course:
    """The applications of a fleet and their demand: `demands` of all, of which those in `texts` make text."""

    inputs: Inputs
    demands: Sequence[AppDemand]
    texts: frozenset[str]
    control: Callable[[Followed[Fleet]], None] | None = None
    alone: Callable[[TokenRun], None] | None = None
    """What changes a run of text by itself, without a look at the others."""
    ended: dict[int, dict[str, _Ended]] = field(default_factory=dict)
    """By seed and application."""

    @property
    def length_s(self) -> float:
        """How long is played."""
        return max(demand.length_s() for demand in self.demands)

    def runs(self, first: Fleet, seed: int) -> dict[str, TokenRun]:
        """The runs of text of a seed, at their beginning."""
        found = {}
        for demand in self.demands:
            if demand.app in self.texts:
                times = demand.times(seed, self.length_s)
                drawn = demand_of(self.inputs.slo.apps[demand.app], demand.rate_qps)
                coming = drawn_at(drawn, times, seed=seed_of(seed, demand.number))
                found[demand.app] = TokenRun(
                    demand.app, first.texts[demand.app], coming, seed, 1000.0 * self.length_s, _BUCKETS
                )
        return found

    def limits_s(self, first: Fleet) -> dict[str, float]:
        """How long requests for text are under way on the mean where their limits are just kept."""
        found = {}
        for app, system in first.texts.items():
            wanted = self.inputs.slo.apps[app]
            laws = [group.law for group in system.fleet.groups]
            found[app] = usual_s(demand_of(wanted, 1.0), limits_of(wanted), laws)
        return found

    def play_text(
        self, first: Fleet, seed: int, stop: threading.Event, progressed: Callable[[float], None]
    ) -> dict[str, _Ended]:
        """A run of a fleet that only makes text."""
        runs = self.runs(first, seed)
        clock = next(iter(runs.values()))
        self.begin(SideBySide(clock, runs, first))
        for look in range(1, _LOOKS + 1):
            if stop.is_set():
                raise Cancelled("the simulation was cancelled")
            clock.until(clock.horizon_ms * look / _LOOKS)
            progressed(look / _LOOKS)
        return {app: _Ended.of(run) for app, run in runs.items()}

    def begin(self, run: SideBySide) -> None:
        """Ask for what is to change in a run."""
        if self.control is not None:
            self.control(run)
        if self.alone is not None:
            for text in run.texts.values():
                self.alone(text)


def play_course(
    first: Fleet, course: Course, *, seeds: int = 5, seed: int = 0, noise: Any = "table", threads: int = 2,
    on_event: Callable[[Event], None] | None = None, cancel: threading.Event | None = None,
    percentiles: Sequence[float] = (50.0, 90.0, 95.0, 99.0),
) -> SimulationReport:  # fmt: skip
    """Play once per seed; the wishes of the applications that make text are judged, those of others are left out."""
    if seeds < 1:
        raise InputError.one(file="--seeds", value=seeds, why="at least one run is needed", remedy="Write 5.")
    _check(course, noise)
    if first.queries is None:
        jobs = [partial(course.play_text, first, seed_of(seed, number)) for number in range(seeds)]
        ended = run_all(jobs, threads=threads, on_event=on_event, cancel=cancel)
        return _report(course, [seed_of(seed, number) for number in range(seeds)], ended, None)
    begun = dict[int, SideBySide]()

    def control(run: Simulation) -> None:
        number = int(run.world.clock[0]["seed"])
        begun[number] = SideBySide(run, course.runs(first, number), first)
        course.begin(begun[number])

    others = [demand for demand in course.demands if demand.app not in course.texts]
    report = simulate_system(
        first.queries, others, control=control, seeds=seeds, seed=seed, noise=noise, threads=threads,
        on_event=on_event, cancel=cancel, percentiles=percentiles, duration_s=course.length_s,
    )  # fmt: skip
    ended = [
        {app: _Ended.of(run) for app, run in begun[number & 0x7FFFFFFFFFFFFFFF].texts.items()}
        for number in report.seeds
    ]
    return _report(course, report.seeds, ended, report)


def simulate_text(
    plan: Plan,
    inputs: Inputs,
    *,
    seeds: int = 5,
    noise: str = "table",
    duration_s: float | None = None,
    trace: Any = None,
    **how: Any,
) -> SimulationReport:
    """Play a plan's machines; rates of periods (`demand.series`) one after another, the wishes judged over all of them.

    A plan for one rate, a duration or a trace is played by `simulate_tokens`, whose other options `how` are.
    """
    refuse_dangling(plan, inputs, whole=True)
    wanted = next(iter(inputs.slo.apps.values()))
    if not wanted.demand.series or trace is not None or duration_s is not None:
        return simulate_tokens(plan, inputs, seeds=seeds, noise=noise, duration_s=duration_s, trace=trace, **how)
    played = {name: how.pop(name) for name in ("seed", "on_event", "cancel") if name in how}
    arrivals = how.pop("arrivals", None)
    how.pop("spread", None)
    refuse(noise, seeds, how)
    demands = demands_of(plan, inputs, arrivals=arrivals)
    systems = {demand.app: text_system(plan, inputs, demand.app) for demand in demands}
    report = play_course(Fleet(None, systems), Course(inputs, demands, frozenset(systems)), seeds=seeds, **played)
    return replace(report, plan=plan.digest, warnings=tuple(other_inputs(plan, inputs)))


def _check(course: Course, noise: str) -> None:
    """What cannot be played of text."""
    if noise != "table" and len(course.texts) == len(course.demands):
        raise InputError.one(
            file="--noise", value=noise, why="iterations take what their law says; no noise is played on it",
            remedy="Leave it out, or make the law slower.",
        )  # fmt: skip
    for demand in course.demands:
        count = demand.rate_qps * course.length_s
        if demand.app in course.texts and not 20 <= count <= MOST_REQUESTS:
            raise InputError.one(
                file="slo", path=f"$.apps.{demand.app}.demand", value=demand.rate_qps,
                why=f"{count:.0f} requests would be played; 20 to {MOST_REQUESTS} are",
                remedy="Change the rates or horizon.period_s.",
            )  # fmt: skip


def _report(
    course: Course, seeds: Sequence[int], ended: Sequence[Mapping[str, _Ended]], beside: SimulationReport | None
) -> SimulationReport:
    """The report of all seeds; `beside` is that of the other applications."""
    inputs, apps, groups, lines = course.inputs, dict[str, AppReport](), dict[str, GroupReport](), list[Line]()
    timelines = list[Timeline]()
    for demand in course.demands:
        if demand.app not in course.texts:
            continue
        runs = [one[demand.app] for one in ended]
        played = [run.played for run in runs]
        apps[demand.app], shown = app_report(inputs, demand.app, demand.rate_qps, demand.arrivals.process, played)
        missed = missed_of(inputs, demand.app, played)
        lines += wishes_of_text(inputs, demand.app, shown, apps[demand.app].figures, missed)
        groups |= _groups(demand.app, [run.crews for run in runs])
        limits = limits_of(inputs.slo.apps[demand.app])
        timelines.append(timeline_of_text(played, limits, [run.machines for run in runs]))
    costs = [sum(run.cost_per_hour for run in one.values()) for one in ended]
    cost = estimate(costs) if len(costs) > 1 else Estimate(costs[0], math.nan, math.nan)
    events = sum(int(run.played.rounds.sum()) for one in ended for run in one.values())
    found = SimulationReport(
        plan=None, seeds=tuple(seeds), duration_s=course.length_s, noise="table", apps=apps, groups=groups,
        cost_per_hour=cost, currency=inputs.slo.limits.currency, lines=tuple(lines), timeline=_side_by_side(timelines),
        events=events,
    )  # fmt: skip
    return found if beside is None else together(found, beside)


def together(text: SimulationReport, beside: SimulationReport) -> SimulationReport:
    """A report of applications that make text and of others beside them, as one; each wish is judged as it was.

    Their money is added, and so are the ends of its interval, which is wider than need be.
    """
    one, other = text.cost_per_hour, beside.cost_per_hour
    cost = None
    if one is not None and other is not None:
        cost = Estimate(one.value + other.value, one.low + other.low, one.high + other.high)
    return replace(
        beside, apps={**beside.apps, **text.apps}, groups={**beside.groups, **text.groups}, cost_per_hour=cost,
        lines=(*beside.lines, *text.lines), timeline=_side_by_side([beside.timeline, text.timeline]),
        events=text.events + beside.events,
    )  # fmt: skip


def _groups(app: str, runs: Sequence[Mapping[str, CrewFigures]]) -> dict[str, GroupReport]:
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        there = [run[name] for run in runs if name in run]
        found[f"{app}: {name}"] = GroupReport(
            id=f"{app}: {name}",
            workers=max(one.most for one in there),
            utilisation=_mean([one.utilisation for one in there]),
            waiting=_mean([one.waiting for one in there]),
            batch=_mean([one.batch for one in there]),
        )
    return found


def _mean(values: Sequence[float]) -> Estimate:
    found = estimate(values) if len(values) > 1 else Estimate(values[0], math.nan, math.nan)
    return replace(found, low=max(found.low, 0.0))


def _side_by_side(timelines: Sequence[Timeline]) -> Timeline:
    """What happens in all applications together; shares are means over machines or queries."""
    if len(timelines) == 1:
        return timelines[0]
    rates, workers = sum(one.rate_qps for one in timelines), sum(one.workers for one in timelines)
    late = sum(one.late * one.rate_qps for one in timelines)
    use = sum(one.utilisation * one.workers for one in timelines)
    return Timeline(
        timelines[0].width_s,
        np.asarray(sum(one.waiting for one in timelines)),
        np.divide(use, workers, out=np.zeros(_BUCKETS), where=np.asarray(workers) > 0),
        np.divide(late, rates, out=np.zeros(_BUCKETS), where=np.asarray(rates) > 0),
        np.asarray(rates),
        np.asarray(workers),
    )
