"""What a simulation says: figures with intervals, and promised against simulated, line by line.

From the records of a run come its figures, from the figures of several runs one report. Each wish of the SLO file and
each promise of the plan has a line. Judged are the wishes about response time (percentiles, violations) and the
promises that a simulation made. A promise by a model without queueing is put beside the simulated figure and left at
that, and so is one that takes other service times for granted than were played (`--noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetplan.planner.promise_figures import FIGURES, RATES, Estimate, Verdict, judge, service_times_of
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Promise
from hetplan.serving.system import System
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import (
    Together,
    at_least_none,
    estimate,
    estimate_of,
    estimate_of_one,
    estimates_of_percentiles,
    mean_share,
)
from hetplan.simulator.run_summary import RunSummary, Timeline

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "FORMAT",
    "SHOWN",
    "AppReport",
    "GroupReport",
    "Line",
    "OnTheWay",
    "SimulationReport",
    "TransitionReport",
    "app_report",
    "group_reports",
    "lines_of",
    "unplayed_rates",
    "wishes_of",
]

FORMAT = "hetplan/simulation/1.0"


@dataclass(frozen=True)
class Line:
    """One promise, or one wish of the SLO file, and what simulation says of it."""

    app: str | None
    quantity: str
    percentile: float | None
    relation: str
    promised: float
    by: str
    """"slo", or the model by which the plan promises it."""
    simulated: Estimate | None
    verdict: Verdict
    missed: float | None = None
    """Of a percentile: the share of the queries that take longer than is promised."""

    def __str__(self) -> str:
        about = f"{self.app}: " if self.app else ""
        share = f" p{self.percentile:g}" if self.percentile is not None else ""
        shown = "not simulated" if self.simulated is None else _shown(self.simulated)
        return f"{about}{self.quantity}{share} {self.relation} {self.promised:.6g} ({self.by}): {shown}, {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        line: dict[str, Any] = {
            "app": self.app,
            "quantity": self.quantity,
            "percentile": self.percentile,
            "relation": self.relation,
            "promised": self.promised,
            "by": self.by,
            "verdict": str(self.verdict),
        }
        return line | {"simulated": self.simulated.as_dict() if self.simulated is not None else None}


def _shown(found: Estimate) -> str:
    if not math.isfinite(found.value):
        return "simulated: never reached"
    return f"simulated {found.value:.6g} [{found.low:.6g}, {found.high:.6g}]"


@dataclass(frozen=True)
class AppReport:
    """The figures of one application."""

    id: str
    offered_qps: float
    queries_per_seed: int
    arrivals: str
    figures: Mapping[str, Estimate]
    percentiles_ms: Mapping[float, Estimate]
    responses: Mapping[str, Together] = field(default_factory=dict)
    """By what is timed: `response`, and of text `ttft` and `tpot`."""
    by_run: tuple[Mapping[str, float], ...] = ()
    """The figures of each run."""
    token_times_ms: Mapping[str, Mapping[float, Estimate]] = field(default_factory=dict)
    """Of text the percentiles of `ttft` and `tpot`."""
    spans: float = math.inf
    """How many times the runs span what a queue remembers (`runs`)."""

    @property
    def makes_text(self) -> bool:
        """Whether its answers are made token by token."""
        return bool(self.token_times_ms)

    def percentile(self, of: str, percentile: float) -> Estimate | None:
        """The percentile of `response`, `ttft` or `tpot`, in milliseconds; None where it was not simulated."""
        times = self.percentiles_ms if of == "response" else self.token_times_ms.get(of, {})
        return times.get(percentile)

    def missed(self, limit_ms: float, of: str = "response") -> float | None:
        """The share of the queries that take longer than this, each run counted alike."""
        runs = self.responses[of].runs if of in self.responses else ()
        return sum(float(run.share_beyond(limit_ms)) for run in runs) / len(runs) if runs else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "offered_qps": self.offered_qps,
            "queries_per_seed": self.queries_per_seed,
            "arrivals": self.arrivals,
            "figures": {name: found.as_dict() for name, found in self.figures.items()},
            "percentiles_ms": {f"{at:g}": found.as_dict() for at, found in self.percentiles_ms.items()},
            "distribution_ms": [
                [at, round(ms, 6) if math.isfinite(ms) else None]
                for at, ms in self.responses["response"].distribution()
            ],
        }


@dataclass(frozen=True)
class GroupReport:
    """The figures of one group of workers."""

    id: str
    workers: int
    utilisation: Estimate
    waiting: Estimate
    batch: Estimate

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "workers": self.workers,
            "utilisation": self.utilisation.as_dict(),
            "waiting": self.waiting.as_dict(),
            "batch": self.batch.as_dict(),
        }


@dataclass(frozen=True)
class OnTheWay:
    """Shares of the queries that came on the way: answered in time; given up or lost.

    `settled_s` is how long after the way it takes until queries are in time as often as their percentile asks: None
    where that is longer than was played.
    """

    in_time: Estimate
    dropped: Estimate
    settled_s: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        shares = {"in_time": self.in_time.as_dict(), "dropped": self.dropped.as_dict()}
        return {**shares, "settled_s": self.settled_s}


@dataclass(frozen=True)
class TransitionReport:
    """How long the way takes, how long was played in all, and what became of each application's queries."""

    seconds: float
    played_s: float
    steps: tuple[tuple[float, str], ...]
    apps: Mapping[str, OnTheWay]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds": self.seconds,
            "played_s": self.played_s,
            "steps": [{"at_s": at_s, "done": text} for at_s, text in self.steps],
            "apps": {name: app.as_dict() for name, app in self.apps.items()},
        }


@dataclass(frozen=True)
class SimulationReport:
    """All of it. `broken` lists what fails the plan (exit code 6)."""

    plan: str | None
    seeds: tuple[int, ...]
    duration_s: float
    noise: str
    apps: Mapping[str, AppReport]
    groups: Mapping[str, GroupReport]
    cost_per_hour: Estimate | None
    currency: str
    lines: tuple[Line, ...]
    timeline: Timeline
    events: int
    transition: TransitionReport | None = None
    """The way from the state to the plan, where a state was handed in."""
    warnings: tuple[tuple[str, str, str], ...] = field(default=())

    @property
    def broken(self) -> tuple[Line, ...]:
        """The promises and wishes that simulation breaks."""
        return tuple(line for line in self.lines if line.verdict is Verdict.BROKEN)

    @property
    def undecided(self) -> tuple[Line, ...]:
        """The promises and wishes of which these runs do not say whether they are kept."""
        return tuple(line for line in self.lines if line.verdict in (Verdict.UNDECIDED, Verdict.NOT_SIMULATED))

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def _repr_html_(self) -> str:
        """The simulation as a notebook shows it: promises beside what happened, and the course over time."""
        from hetplan.drawing.report import simulation_fragment

        return simulation_fragment(self.as_dict())

    def to_pandas(self) -> DataFrame:
        """A row per promise or wish, with what was simulated of it; pandas is needed, and no part of hetplan."""
        from hetplan.drawing.tables import frame_of, judged_rows

        return frame_of(judged_rows(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, its format version first."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "seeds": list(self.seeds),
            "duration_s": self.duration_s,
            "noise": self.noise,
            "ok": self.ok,
            "lines": [line.as_dict() for line in self.lines],
            "apps": {name: app.as_dict() for name, app in self.apps.items()},
            "groups": {name: group.as_dict() for name, group in self.groups.items()},
            "cost_per_hour": self.cost_per_hour.as_dict() if self.cost_per_hour is not None else None,
            "currency": self.currency,
            "events": self.events,
            "timeline": self.timeline.as_dict(),
            "transition": self.transition.as_dict() if self.transition is not None else None,
            "warnings": [{"code": code, "at": at, "text": text} for code, at, text in self.warnings],
        }


SHOWN = (50.0, 90.0, 95.0, 99.0)
"""Percentiles that are always shown."""


def app_report(
    demand: AppDemand, runs: Sequence[RunSummary], *, spans: float = math.inf, settled: Callable[[float], bool]
) -> AppReport:
    """The figures of an application over all runs; a percentile that is not `settled` has no upper end."""
    wholes, stretches = [run.apps[demand.app] for run in runs], runs[0].stretches[demand.app]
    times = {of: estimates_of_percentiles(of, wholes, stretches) for of in wholes[0].times}
    together = {of: Together([one.times[of].responses for one in wholes if one.queries]) for of in times}
    figures = {name: estimate_of(name, wholes, stretches) for name in wholes[0].values}
    tokens = {of: found for of, found in times.items() if of != "response"}
    figures |= {f"{of} p{at:g} ms": found[at] for of, found in tokens.items() for at in SHOWN if at in found}
    return AppReport(
        id=demand.app,
        offered_qps=demand.rate_qps,
        queries_per_seed=round(sum(item.queries for item in wholes) / len(wholes)),
        arrivals="as recorded" if demand.as_recorded else demand.arrivals.process,
        figures=figures,
        percentiles_ms={
            at: found if settled(at) else replace(found, high=math.inf) for at, found in times["response"].items()
        },
        responses=together,
        by_run=tuple(one.values for one in wholes if one.queries),
        token_times_ms=tokens,
        spans=spans,
    )


def group_reports(runs: Sequence[RunSummary], system: System) -> dict[str, GroupReport]:
    """The figures of every group that any run had."""
    names = list(dict.fromkeys(name for run in runs for name in run.utilisation))
    counts = {group.id: group.count for group in system.groups}
    counts |= {name: max(run.most.get(name, 0) for run in runs) for run in runs for name in run.most}
    return {
        name: GroupReport(
            id=name,
            workers=counts.get(name, 0),
            utilisation=mean_share([run.utilisation.get(name, 0.0) for run in runs]),
            waiting=_over_runs([run.waiting.get(name, 0.0) for run in runs]),
            batch=_over_runs([run.batch.get(name, 0.0) for run in runs]),
        )
        for name in names
    }


def _over_runs(values: Sequence[float]) -> Estimate:
    """The interval over the runs; one run shows no spread, so its interval is unknown."""
    return at_least_none(estimate(values) if len(values) > 1 else estimate_of_one(values[0], []))


_TOO_FEW = ("W-short-run", "W-percentile-open")
_SHARES = ("violations", "goodput")
"""Promised shares of the queries, of which short runs say no more than of percentiles."""


def lines_of(plan: Plan, inputs: Inputs, report: SimulationReport) -> tuple[Line, ...]:
    """Every wish about times and shares, then every promise."""
    wishes = tuple(line for app in report.apps for line in _wishes(inputs, report, app))
    return wishes + tuple(_promise(promise, inputs, report, wishes) for promise in plan.promises)


def wishes_of(plan: Plan, inputs: Inputs, report: SimulationReport) -> tuple[Line, ...]:
    """The wishes alone: what the first plan promises is no promise of those that follow it."""
    return lines_of(plan.model_copy(update={"promises": ()}), inputs, report)


def _wishes(inputs: Inputs, report: SimulationReport, app: str) -> Iterator[Line]:
    wanted, found = inputs.slo.apps[app], report.apps[app]
    for target in wanted.targets:
        simulated = found.percentile(target.of, target.percentile)
        verdict = judge(simulated, "<=", target.max_ms) if simulated is not None else Verdict.NOT_SIMULATED
        verdict = _unless_short(verdict, app, report, simulated)
        missed = found.missed(target.max_ms, target.of) if simulated is not None else None
        yield Line(app, f"{target.of}_ms", target.percentile, "<=", target.max_ms, "slo", simulated, verdict, missed)
    if wanted.attainment is not None and found.makes_text:
        simulated = found.figures["goodput"]
        verdict = _unless_short(judge(simulated, ">=", wanted.attainment), app, report)
        yield Line(app, "goodput", None, ">=", wanted.attainment, "slo", simulated, verdict)
    if wanted.quality is not None and wanted.quality.min is not None and "accuracy" in found.figures:
        yield Line(app, "accuracy", None, ">=", wanted.quality.min, "slo", found.figures["accuracy"], Verdict.REPORTED)


def _unless_short(verdict: Verdict, app: str, report: SimulationReport, of: Estimate | None = None) -> Verdict:
    """Too few queries beyond the percentile, or too few long queues, say nothing of its being kept.

    The warnings are of an application's strictest percentile. A lower one that had long queues enough has an end above.
    """
    codes = [code for code, at, _ in report.warnings if code in _TOO_FEW and at == f"apps.{app}"]
    short = bool(codes) and not (of is not None and codes == ["W-percentile-open"] and math.isfinite(of.high))
    return Verdict.UNDECIDED if short and verdict is Verdict.MET else verdict


def _played_qps(promise: Promise, inputs: Inputs, report: SimulationReport) -> float:
    """The highest rate that was played of what a promise is about."""
    apps = [promise.app] if promise.app is not None and promise.app in report.apps else list(report.apps)
    return max(max((report.apps[app].offered_qps, *(inputs.slo.apps[app].series or ()))) for app in apps)


def _promise(promise: Promise, inputs: Inputs, report: SimulationReport, wishes: tuple[Line, ...]) -> Line:
    simulated, app = _simulated(promise, report), _app_of(promise, report)
    if simulated is None or math.isnan(simulated.value):
        verdict = Verdict.NOT_SIMULATED if promise.model.startswith("simulation") else Verdict.REPORTED
        simulated = None
    elif not promise.model.startswith("simulation") or not _same_times(promise, report):
        verdict = Verdict.REPORTED
    elif promise.quantity in RATES:
        # A rate is carried when what was wished of its queries holds at it.
        mine = [line.verdict for line in wishes if line.app == promise.app]
        verdict = next((worst for worst in (Verdict.BROKEN, Verdict.UNDECIDED) if worst in mine), Verdict.MET)
        if verdict is not Verdict.BROKEN and promise.value > _played_qps(promise, inputs, report) * (1.0 + 1e-6):
            # What holds at a lower rate says nothing of this one.
            verdict, simulated = Verdict.NOT_SIMULATED, None
    else:
        verdict = judge(simulated, promise.relation, _nearest(promise, simulated))
        if promise.percentile is not None or promise.quantity in _SHARES:
            of = simulated if promise.percentile is not None else None
            verdict = _unless_short(verdict, promise.app or (app.id if app is not None else ""), report, of)
    return Line(
        promise.app,
        promise.quantity,
        promise.percentile,
        promise.relation,
        promise.value,
        promise.model,
        simulated,
        verdict,
        app.missed(promise.value, promise.quantity.removesuffix("_ms"))
        if app is not None and promise.percentile is not None
        else None,
    )


def _nearest(promise: Promise, simulated: Estimate) -> float:
    """The value that is promised; of an equal one with an interval what in it is nearest to what was simulated."""
    if promise.relation != "=" or promise.interval is None:
        return promise.value
    low, high = promise.interval
    return min(max(simulated.value, low), high)


def _same_times(promise: Promise, report: SimulationReport) -> bool:
    """Whether services took as long as the promise takes for granted: other times tell of other promises."""
    statistic = service_times_of(promise.basis)
    return statistic is None or statistic == report.noise


def _app_of(promise: Promise, report: SimulationReport) -> AppReport | None:
    """The application that a promise is of; where there is one alone, that."""
    only = next(iter(report.apps.values())) if len(report.apps) == 1 else None
    return report.apps.get(promise.app or "", only)


def _simulated(promise: Promise, report: SimulationReport) -> Estimate | None:
    if promise.quantity == "cost_per_hour":
        return report.cost_per_hour
    if promise.quantity == "servers":
        count = float(sum(group.workers for group in report.groups.values()))
        return Estimate(count, count, count)
    app = _app_of(promise, report)
    if app is None:
        return None
    if promise.percentile is not None:
        return app.percentile(promise.quantity.removesuffix("_ms"), promise.percentile)
    if promise.quantity == "response_ms":
        return app.figures["mean_ms"]
    return app.figures.get(FIGURES.get(promise.quantity, ""))


def unplayed_rates(lines: Iterable[Line]) -> list[tuple[str, str, str]]:
    """A warning for each promised rate that is above the one played."""
    return [
        (
            "W-rate-not-played",
            f"promises.{line.app}" if line.app else "promises",
            f"the promised {line.promised:g} queries/s are more than was played, so nothing is said of them; "
            "simulate with that rate in the SLO file",
        )
        for line in lines
        if line.quantity in RATES and line.by.startswith("simulation") and line.verdict is Verdict.NOT_SIMULATED
    ]
