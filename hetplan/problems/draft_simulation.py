"""Simulates a draft: makes a plan that the simulator reads, and says whether each SLO is met.

`look` runs a plan a few times, and for longer where that leaves it open: by looks plans are chosen. `play_until_clear`
puts the one that was chosen to the test (`planner.sizing.confirm`), and says what is promised of it. `Simulations` does
both for one search, counts the looks and keeps the time limit. The simulator is handed in (`Tools.simulate`): nothing
here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isnan, log10
from typing import Any

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.confidence import LEAST_LONG_QUEUES, LEAST_RUNS, sequence
from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.draft import Draft, Repair
from hetplan.planner.request import Application, read_request
from hetplan.planner.sizing import ALPHA, Confirmation, ErrorBudget, LimitShares, confirm
from hetplan.planner.sizing_search import GOOD
from hetplan.planner.tolerances import SLIP
from hetplan.problems.repairs import change
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import InputHashes, Method, Notice, Plan, Promise
from hetplan.serving.demand import Target

__all__ = [
    "HOPELESS",
    "LOOK_SEEDS",
    "QUERIES",
    "SEARCHED",
    "SEEDS",
    "PlanRuns",
    "Played",
    "Simulations",
    "check_simulator",
    "look",
    "plan_to_simulate",
    "play_length_s",
    "play_until_clear",
    "repairs_if_late",
    "slo_of_runs",
    "with_shown",
    "worst_of_apps",
]

SEEDS = 5
"""Runs by which a plan of several applications is looked at."""
SEARCHED = (2, 30_000)
"""Runs, and queries in each, by which plans are chosen."""
QUERIES = 30_000
"""Queries of a run by which a plan is confirmed, or simulated as it is."""
HOPELESS = 2.5
"""What a first look finds so many times over what may be late is looked at no more."""
LESS, MORE = 0.75, 1.4
"""Times a rate, and times a limit: the first guess at what helps a plan that is late."""
MOST_OFF = 2.0
"""What ten times a limit counts for, between 1 and this: a percentile that is farther off tells no more."""
LOOK_SEEDS = 1_000_003
"""Between the seeds of different looks: those that choose a plan, and those at plans near it."""
SEEN_LATE = 40
"""Of an application of which fewer may be late in all runs, too few queries come to say how long queues last."""
LEAST_SPANS, MOST_LONGER = 50.0, 4.0
"""A run begins with empty queues: of one that spans so often what a queue remembers, the beginning is a few percent.
Shorter ones are made longer, by this factor at most."""
SPANS = 100.0
"""A run is so many times as long as the longest limit: long enough for queues to grow."""
CYCLES = 40.0
"""Nor shorter than so many times that a process goes through its states: a burst that comes seldom is seen, too."""
MOST_QUERIES = 4
"""Nor longer than so many times what was asked for."""

Run = tuple[int, float | None]
"""How many runs, and how long each of them is; without a length as long as the strictest percentile needs."""
Only = Callable[[Sequence[str]], Plan]
"""A plan for these applications, and those that wait together with them, alone."""


def check_simulator(tools: Tools, sizing: str = "simulation", *, name: str = "simulate") -> None:
    """Raise where option `sizing` asks for a simulation and nothing was handed in to simulate with."""
    if (tools.simulate if name == "simulate" else tools.extra.get(name)) is None:
        raise InputError.one(
            file="options",
            path="sizing",
            value=sizing,
            why="no simulator was handed in",
            remedy='Hand in Tools(simulate=...), or set sizing to "fluid" or "formula".',
        )


@dataclass(frozen=True)
class Played:
    """What runs showed: violation rate / what may be, the worst first; and what that backs.

    `late` are the applications that violate a limit; once a plan was put to the test, those that are not confirmed.
    """

    worst: float
    late: tuple[str, ...]
    promises: tuple[Promise, ...] = ()
    over: Mapping[str, float] = field(default_factory=dict)
    """By application, how many times its strictest limit that percentile is; infinite where too many are lost."""
    unsure: tuple[str, ...] = ()
    """Further ones, of which the runs leave it open: the mean is within the limit, and its interval is not."""
    unjudged: tuple[str, ...] = ()
    """Those of which no number of runs could say it: nothing is promised of them."""
    each: Mapping[str, float] = field(default_factory=dict)
    """By application what `worst` is of all."""

    @property
    def good(self) -> bool:
        """Whether the plan may be chosen."""
        return self.worst <= GOOD

    def of(self, names: Iterable[str]) -> Played:
        """What was shown of these applications, where none is late."""
        mine = set(names)
        return Played(
            self.worst,
            (),
            tuple(promise for promise in self.promises if promise.app in mine),
            {name: times for name, times in self.over.items() if name in mine},
            tuple(name for name in self.unsure if name in mine),
            tuple(name for name in self.unjudged if name in mine),
            {name: worst for name, worst in self.each.items() if name in mine},
        )


def may_meet_slo(shown: Played) -> bool:
    """Whether longer runs may still show that a plan meets its SLO."""
    return shown.worst <= HOPELESS


def look(
    simulate: Callable[..., Any],
    plan: Plan,
    inputs: Inputs,
    apps: Sequence[str],
    runs: Iterable[Run],
    *,
    seed: int,
    floors: Mapping[str, float] | None = None,
    goes_on: Callable[[Played], bool] = may_meet_slo,
) -> tuple[Played, Any]:
    """What the last of these runs says of every limit of these `apps`, and its report.

    After the first runs, which are short, the next are made only where what was shown `goes_on`. Those may be too long
    for the simulator: then it stays open. `floors` are the least accuracies asked for.
    """
    asked = read_request(inputs).apps
    found: tuple[Played, Any] | None = None
    for count, length_s in runs:
        if found is not None and not goes_on(found[0]):
            break
        how = {} if length_s is None else {"duration_s": length_s}
        try:
            report = simulate(plan, inputs, seeds=count, seed=seed, **how)
        except InputError:
            if found is None:
                raise
            break
        found = (
            worst_of_apps(slo_of_runs(asked[app], report.apps[app], (floors or {}).get(app)) for app in apps), report,
        )  # fmt: skip
    assert found is not None
    return found


@dataclass
class Simulations:
    """The simulations of one search: looks at plans, by which it chooses, and tests of what it chose.

    Looks are counted, up to `most`. Plans are compared on common seeds, or each on its own.
    """

    simulate: Callable[..., Any]
    inputs: Inputs
    ask: Ask
    most: int
    seed: int
    own_seeds: bool = False
    """Whether each look has seeds of its own, so that no plan is chosen for its luck on those of all."""
    made: int = 0
    budget: ErrorBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = ErrorBudget(self.ask.limits.seed)

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and another plan may be looked at."""
        return self.made < self.most and self.ask.remaining > 0

    def look(
        self, plan: Plan, apps: Sequence[str], *runs: Run, about: str | None = None,
        floors: Mapping[str, float] | None = None, goes_on: Callable[[Played], bool] = may_meet_slo,
    ) -> tuple[Played, Any]:  # fmt: skip
        """`look` at a plan, and note it; no longer runs are begun once the time is over."""
        self.made += 1
        shown, report = look(
            self.simulate, plan, self.inputs, apps, runs, seed=self.seed + (self.made if self.own_seeds else 0),
            floors=floors, goes_on=lambda one: self.ask.remaining > 0 and goes_on(one),
        )  # fmt: skip
        text = f"{about or f'plan {self.made}'}: {shown.worst:.2g} of what may be late"
        self.ask.note(Event("simulated", text, value=shown.worst, done=min(self.made / self.most, 1.0)))
        return shown, report

    def test(self, plan: Plan, apps: Sequence[str], length_s: float | None, **how: Any) -> Played:
        """Put a plan to the test on seeds that no look has: `play_until_clear`, within the error budget.

        Once the time is over nothing is begun: then none of its applications is confirmed.
        """
        if self.ask.remaining <= 0:
            return Played(0.0, tuple(apps))
        return play_until_clear(
            self.simulate, plan, self.inputs, self.budget, apps=apps, length_s=length_s,
            may_go_on=lambda: self.ask.remaining > 0, **how,
        )  # fmt: skip


def play_until_clear(
    simulate: Callable[..., Any],
    plan: Plan,
    inputs: Inputs,
    budget: ErrorBudget,
    *,
    apps: Iterable[str],
    length_s: float | None,
    floors: Mapping[str, float] | None = None,
    bases: Mapping[str, str] | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    only: Only | None = None,
) -> Played:
    """Put a plan to the test: runs of this length, until it is clear whether it meets every limit of these `apps`.

    `bases`: what promises of an application rest on, besides simulation. `only`: the plan for some applications.
    """
    runs = PlanRuns(simulate, plan, inputs, tuple(apps), length_s, floors or {}, only)
    found = confirm(runs, budget, may_go_on=may_go_on)
    return runs.result(found, bases or {})


@dataclass
class PlanRuns:
    """Runs of a plan, and what they say of every limit of each application."""

    simulate: Callable[..., Any]
    plan: Plan
    inputs: Inputs
    apps: tuple[str, ...]
    length_s: float | None
    floors: Mapping[str, float] = field(default_factory=dict)
    only: Only | None = None
    reports: list[Any] = field(default_factory=list)

    @cached_property
    def _asked(self) -> Mapping[str, Application]:
        return read_request(self.inputs).apps

    def add(self, count: int, seed: int, apps: Sequence[str] | None = None) -> None:
        """Run the plan so many times more; near full use in longer runs, since each begins with empty queues."""
        is_first, how = not self.reports, {} if self.length_s is None else {"duration_s": self.length_s}
        plan = self.plan if apps is None or self.only is None else self.only(apps)
        self.reports.append(self.simulate(plan, self.inputs, seeds=count, seed=seed, **how))
        if is_first and self.length_s is not None:
            spans = min((self._spans(one.app) / count for one in self.limits() if _is_seen(one)), default=inf)
            if spans < LEAST_SPANS:
                length_s = self.length_s * min(LEAST_SPANS / max(spans, LEAST_SPANS / MOST_LONGER), MOST_LONGER)
                self.length_s, how = length_s, {"duration_s": length_s}
                self.reports = [self.simulate(self.plan, self.inputs, seeds=count, seed=seed, **how)]

    def limits(self) -> list[LimitShares]:
        """Of each application the violation rate, the share beyond each further limit, and whether it is accurate."""
        return [one for app in self.apps for one in self._limits_of(app)]

    def _limits_of(self, name: str) -> Iterator[LimitShares]:
        app, found = self._asked[name], self._reports_of(name)
        rates = tuple(run["violations"] for one in found for run in one.by_run) or (0.0,)
        queries = sum(one.queries_per_seed * len(one.by_run) for one in found)
        cycle_s = sum(app.arrivals.stay_s or ())
        length_s = sum(report.duration_s * len(report.seeds) for report in self.reports if name in report.apps)
        seen = {"queries": queries, "cycles": length_s / cycle_s if cycle_s > 0 else inf}
        yield LimitShares(name, round(app.late_share, 12), rates, **seen)
        for target in app.targets:
            if target != app.strictest:
                runs = (run for one in found for run in one.responses["response"].runs)
                beyond = tuple(float(run.share_beyond(target.max_ms)) for run in runs) or (0.0,)
                yield LimitShares(name, target.left, beyond, **seen)
        floor = self.floors.get(name)
        if floor is not None and self._is_surely_below(floor, [run["accuracy"] for one in found for run in one.by_run]):
            yield LimitShares(name, 0.0, (1.0,) * len(rates), **seen)

    def _is_surely_below(self, floor: float, accuracies: Sequence[float]) -> bool:
        """Whether the mean accuracy is below a floor, by a confidence sequence.

        The accuracy of a mix of models is known by arithmetic, which is what its promise rests on. Runs only refute
        it, where queries are sent elsewhere than was planned. They cannot confirm it: a program whose floor is tight
        puts plans exactly there, and no number of runs shows one of these to be above.
        """
        if len(accuracies) < LEAST_RUNS:
            return False
        spread = float(np.std(accuracies, ddof=1))
        return float(np.mean(accuracies)) + sequence(len(accuracies), ALPHA / 2.0) * spread < floor - SLIP

    def _reports_of(self, name: str) -> list[Any]:
        return [report.apps[name] for report in self.reports if name in report.apps]

    @property
    def is_settled(self) -> bool:
        """Whether the runs saw enough long queues of every application whose queries are not seldom."""
        return all(self._has_long_queues(one.app, one.allowed) for one in self.limits() if _is_seen(one))

    def _has_long_queues(self, name: str, share: float) -> bool:
        """Whether the runs saw enough long queues for the share beyond a time to have an upper end."""
        return self._spans(name) * share >= LEAST_LONG_QUEUES

    def _spans(self, name: str) -> float:
        """How often all runs span what a queue remembers."""
        return float(sum(one.spans for one in self._reports_of(name)))

    def result(self, found: Confirmation, bases: Mapping[str, str]) -> Played:
        """The result of all runs: whether each application meets its SLO, and the promises that this supports."""
        each = worst_of_apps(self.app_result(app, found, bases.get(app)) for app in self.apps)
        return replace(each, late=found.violated, unsure=found.unsure, unjudged=found.unjudged)

    def percentile(self, name: str, percentile: float, width: float) -> tuple[float, float, float]:
        """A percentile of the response times of all runs together, and its interval."""
        found = [one.responses["response"] for one in self._reports_of(name)]
        every = replace(found[0], runs=[run for one in found for run in one.runs], width=width)
        time, low, high = every.percentile(percentile)
        return time, low, high if self._has_long_queues(name, 1.0 - percentile / 100.0) else inf

    def app_result(self, name: str, found: Confirmation, basis: str | None) -> Played:
        """The result of all runs for one application, and the promises that this supports."""
        app, limits = self._asked[name], list(self._limits_of(name))
        if name in found.unjudged:
            return Played(_worst_of(limits), ())
        runs = len(limits[0].by_run)
        backing: dict[str, Any] = {"app": name, "relation": "<=", "model": "simulation/1", "seeds": runs}
        backing |= {"confidence": 1.0 - found.alpha, "basis": basis}
        times, promises = dict[Target, float](), list[Promise]()
        for target in app.targets:
            times[target], low, high = self.percentile(name, target.percentile, sequence(runs, found.alpha))
            if low <= target.max_ms:
                # So many in time, at the upper end of the interval of the share, is what the percentile says.
                interval = (low, min(high, target.max_ms))
                promises.append(
                    Promise(
                        quantity="response_ms", percentile=target.percentile, value=target.max_ms,
                        interval=interval, **backing,
                    )
                )  # fmt: skip
        lost = limits[0]
        ends = lost.interval(found.alpha)
        promises.append(Promise(quantity="violations", value=lost.allowed, interval=ends, **backing))
        tightest = app.strictest
        over = times[tightest] / tightest.max_ms if tightest is not None else 1.0
        return Played(_worst_of(limits), (), tuple(promises), {name: over})


def _is_seen(one: LimitShares) -> bool:
    """Whether enough queries come to say how long queues last."""
    return one.queries * one.allowed >= SEEN_LATE


def _worst_of(limits: Iterable[LimitShares]) -> float:
    """The violation rate over what may be, of the limit where that is largest."""
    return max(_times_over(one.mean, one.allowed) for one in limits)


def _times_over(share: float, allowed: float) -> float:
    """How many times what may be a violation rate is; below 1 as odds: .4 is farther from .5 than .008 from .01."""
    times = share / allowed if allowed > 0 else inf if share > 0 else 0.0
    return times * (1.0 - allowed) / (1.0 - share) if times < 1.0 and allowed < 1.0 else times


def play_length_s(inputs: Inputs, rates_qps: Mapping[str, float], queries: int) -> float:
    """How long a run of so many queries of each application is; these have rates above 0."""
    apps = read_request(inputs).apps
    targets = (target for app in rates_qps for target in apps[app].targets)
    longest = max((target.max_ms for target in targets), default=0.0)
    cycle_s = max(sum(apps[app].arrivals.stay_s or ()) for app in rates_qps)
    length_s = max(queries / min(rates_qps.values()), SPANS * longest / 1000.0, CYCLES * cycle_s)
    return min(length_s, MOST_QUERIES * queries / sum(rates_qps.values()))


def worst_of_apps(played: Iterable[Played]) -> Played:
    """The results of several applications as one: the worst violation rate, and all promises."""
    every = tuple(played)
    return Played(
        max((one.worst for one in every), default=0.0),
        tuple(app for one in every for app in one.late),
        tuple(promise for one in every for promise in one.promises),
        {name: times for one in every for name, times in one.over.items()},
        tuple(app for one in every for app in one.unsure),
        tuple(app for one in every for app in one.unjudged),
        {name: worst for one in every for name, worst in one.each.items()},
    )


def slo_of_runs(app: Application, found: Any, floor: float | None) -> Played:
    """What a few simulated runs of an application show: its violation rate against the limit, its promises."""
    lost, allowed = found.figures["violations"].value, round(app.late_share, 12)
    if isnan(lost):
        return Played(0.0, (), each={app.id: 0.0})  # none of its queries came: that shows nothing
    worst = _times_over(lost, allowed)
    # How far a percentile is off says more than that it is. One without end is lost queries, and those were counted.
    times = {target: found.percentiles_ms[target.percentile] for target in app.targets}
    over = [time.value / target.max_ms for target, time in times.items() if not time.value <= target.max_ms]
    off = [min(MOST_OFF, 1.0 + log10(max(by, 1.0))) for by in over if worst <= 1.0 or by < inf]
    below = floor is not None and found.figures["accuracy"].high < floor
    worst = inf if below else max([worst, *off])
    tightest = app.strictest
    strict = times[tightest].value / tightest.max_ms if tightest in times else 1.0
    is_open = worst <= 1.0 and not all(time.high <= target.max_ms for target, time in times.items())
    late, unsure = (app.id,) if worst > 1.0 else (), (app.id,) if is_open else ()
    return Played(worst, late, (), {app.id: strict}, unsure, each={app.id: worst})


def plan_to_simulate(question: str, formulation: str, made: Draft, options: Mapping[str, Any] | None = None) -> Plan:
    """The draft as something that a simulator can read."""
    return Plan(
        requires=made.requires,
        question=question,
        method=Method(formulation=formulation, options=dict(options or {})),
        inputs=InputHashes(profile="", slo=""),
        workers=made.workers,
        routing=dict(made.routing),
        dispatch=dict(made.dispatch),
        promises=made.promises,
        tables=dict(made.tables),
        unserved=made.unserved,
        valid=made.valid,
    )


def with_shown(made: Draft, shown: Played) -> Draft:
    """The draft with what fresh seeds showed, and no advice to simulate it but where they could show nothing."""
    quiet = tuple(notice for notice in made.warnings if notice.code != "W-queueing")
    text = "so few of its queries, or bursts, come in a run that none confirms its limits: simulate it for longer"
    unjudged = (
        Notice(code="W-unconfirmed", at=f"apps.{name}.latency", text=f"{name}: {text}") for name in shown.unjudged
    )
    return replace(made, promises=(*made.promises, *shown.promises), warnings=(*quiet, *unjudged))


def repairs_if_late(app: Application, rate_qps: float | None, over: float = 1.0) -> tuple[Repair, ...]:
    """Repairs for an application whose queries are late in simulation: a lower rate, or a longer limit.

    `over`: how many times its strictest limit the percentile was in simulation.

    >>> from hetplan.profiles.slo import App
    >>> slo = {"model": "m", "latency": {"p99_ms": 80}}
    >>> app = Application("a", App.model_validate(slo), ("m",))
    >>> [one.text for one in repairs_if_late(app, 40.0)]  # doctest: +NORMALIZE_WHITESPACE
    ['lower slo.apps.a.rate_qps from 40 to 30 qps or so',
     'raise slo.apps.a.latency.p99_ms from 80 to 112 ms or so']
    >>> [one.text for one in repairs_if_late(app, None, over=7.0)]
    ['raise slo.apps.a.latency.p99_ms from 80 to 400 ms or so']
    """
    repairs = []
    if rate_qps:
        repairs.append(change(f"slo.apps.{app.id}.rate_qps", rate_qps, LESS * rate_qps, "qps", more=" or so"))
    target = app.strictest
    if target is not None:
        at = f"slo.apps.{app.id}.latency.{target.key}"
        times = over / MORE if MORE**3 < over < inf else MORE  # nearer ones would be tried in vain
        repairs.append(change(at, target.max_ms, times * target.max_ms, "ms", more=" or so"))
    return tuple(repairs)
