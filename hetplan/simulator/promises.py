"""Promised against simulated: each wish of the SLO file, each promise of the plan, and what became of it.

Judged are the wishes about response time (percentiles, violations) and the promises that a simulation made. A promise
by a model without queueing is put beside the simulated figure and left at that, and so is one that takes other service
times for granted than were played (`--noise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from hetplan.planner.promised import FIGURES, RATES, service_times_of
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Promise
from hetplan.simulator.figures import Estimate
from hetplan.simulator.report import Line, SimulationReport, Verdict, judge

__all__ = ["lines_of", "unplayed_rates"]

_TOO_FEW = ("W-short-run", "W-percentile-open")


def lines_of(plan: Plan, inputs: Inputs, report: SimulationReport) -> tuple[Line, ...]:
    """Every wish about response time, then every promise."""
    wishes = tuple(line for app in report.apps for line in _wishes(inputs, report, app))
    return wishes + tuple(_promise(promise, inputs, report, wishes) for promise in plan.promises)


def _wishes(inputs: Inputs, report: SimulationReport, app: str) -> Iterator[Line]:
    wanted, found = inputs.slo.apps[app], report.apps[app]
    for target in wanted.latency:
        simulated = found.percentiles_ms.get(target.percentile) if target.of == "response" else None
        verdict = judge(simulated, "<=", target.max_ms) if simulated is not None else Verdict.NOT_SIMULATED
        verdict = _unless_short(verdict, app, report)
        yield Line(app, f"{target.of}_ms", target.percentile, "<=", target.max_ms, "slo", simulated, verdict)
    if wanted.violations is not None:
        simulated = found.figures["violations"]
        verdict = _unless_short(judge(simulated, "<=", wanted.violations.max), app, report)
        yield Line(app, "violations", None, "<=", wanted.violations.max, "slo", simulated, verdict)
    if wanted.quality is not None and wanted.quality.min is not None:
        yield Line(app, "accuracy", None, ">=", wanted.quality.min, "slo", found.figures["accuracy"], Verdict.REPORTED)


def _unless_short(verdict: Verdict, app: str, report: SimulationReport) -> Verdict:
    """Too few queries beyond the percentile, or too few long queues, say nothing of its being kept."""
    short = any(code in _TOO_FEW and at == f"apps.{app}" for code, at, _ in report.warnings)
    return Verdict.UNDECIDED if short and verdict is Verdict.KEPT else verdict


def _played_qps(promise: Promise, inputs: Inputs, report: SimulationReport) -> float:
    """The highest rate that was played of what a promise is about."""
    apps = [promise.app] if promise.app is not None and promise.app in report.apps else list(report.apps)
    return max(max((report.apps[app].offered_qps, *(inputs.slo.apps[app].demand.series or ()))) for app in apps)


def _promise(promise: Promise, inputs: Inputs, report: SimulationReport, wishes: tuple[Line, ...]) -> Line:
    simulated = _simulated(promise, report)
    if simulated is None or math.isnan(simulated.value):
        verdict = Verdict.NOT_SIMULATED if promise.model.startswith("simulation") else Verdict.REPORTED
        simulated = None
    elif not promise.model.startswith("simulation") or not _same_times(promise, report):
        verdict = Verdict.REPORTED
    elif promise.quantity in RATES:
        # A rate is carried when what was wished of its queries holds at it.
        mine = [line.verdict for line in wishes if line.app == promise.app]
        verdict = next((worst for worst in (Verdict.BROKEN, Verdict.UNDECIDED) if worst in mine), Verdict.KEPT)
        if verdict is not Verdict.BROKEN and promise.value > _played_qps(promise, inputs, report) * (1.0 + 1e-6):
            # What holds at a lower rate says nothing of this one.
            verdict, simulated = Verdict.NOT_SIMULATED, None
    else:
        verdict = judge(simulated, promise.relation, _nearest(promise, simulated))
        if promise.percentile is not None:
            verdict = _unless_short(verdict, promise.app or "", report)
    return Line(
        promise.app,
        promise.quantity,
        promise.percentile,
        promise.relation,
        promise.value,
        promise.model,
        simulated,
        verdict,
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


def _simulated(promise: Promise, report: SimulationReport) -> Estimate | None:
    if promise.quantity == "cost_per_hour":
        return report.cost_per_hour
    if promise.quantity == "servers":
        count = float(sum(group.workers for group in report.groups.values()))
        return Estimate(count, count, count)
    app = report.apps.get(promise.app or "")
    if app is None and len(report.apps) == 1:
        app = next(iter(report.apps.values()))
    if app is None:
        return None
    if promise.quantity == "response_ms":
        if promise.percentile is None:
            return app.figures["mean_ms"]
        return app.percentiles_ms.get(promise.percentile)
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
