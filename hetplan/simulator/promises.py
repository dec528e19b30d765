"""Promised against simulated: each wish of the SLO file, each promise of the plan, and what became of it.

Judged are the wishes about response time (percentiles, violations) and the promises that a simulation made. A promise
by a model without queueing is put beside the simulated figure and left at that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetplan.planner.plan import Plan, Promise
from hetplan.profiles.inputs import Inputs
from hetplan.simulator.figures import Estimate
from hetplan.simulator.report import Line, SimulationReport, Verdict, judge

__all__ = ["lines_of"]

_FIGURES = {
    "violations": "violations",
    "violation": "violations",
    "in_time": "in_time",
    "attainment": "in_time",
    "accuracy": "accuracy",
    "quality": "served_accuracy",
    "goodput": "goodput",
    "goodput_qps": "goodput_qps",
    "rate_qps": "goodput_qps",
    "planned_qps": "goodput_qps",
    "served_qps": "rate_qps",
    "dropped": "dropped",
}
"""Which simulated figure stands beside a promised quantity; a rate is judged by the answers in time."""


def lines_of(plan: Plan, inputs: Inputs, report: SimulationReport) -> tuple[Line, ...]:
    """Every wish about response time, then every promise."""
    wishes = tuple(line for app in report.apps for line in _wishes(inputs, report, app))
    return wishes + tuple(_promise(promise, report, wishes) for promise in plan.promises)


def _wishes(inputs: Inputs, report: SimulationReport, app: str) -> Iterator[Line]:
    wanted, found = inputs.slo.apps[app], report.apps[app]
    short = {(code, at) for code, at, _ in report.warnings}
    for target in wanted.latency:
        simulated = found.percentiles_ms.get(target.percentile) if target.of == "response" else None
        verdict = judge(simulated, "<=", target.max_ms) if simulated is not None else Verdict.NOT_SIMULATED
        if verdict is Verdict.KEPT and ("W-short-run", f"apps.{app}") in short:
            # Too few queries lie beyond the percentile to say that it is kept.
            verdict = Verdict.UNDECIDED
        if verdict is Verdict.BROKEN:
            verdict = _by_share(found.figures["violations"], target.percentile, target.max_ms, report, app, inputs)
        yield Line(app, f"{target.of}_ms", target.percentile, "<=", target.max_ms, "slo", simulated, verdict)
    if wanted.violations is not None:
        simulated = found.figures["violations"]
        verdict = judge(simulated, "<=", wanted.violations.max)
        yield Line(app, "violations", None, "<=", wanted.violations.max, "slo", simulated, verdict)
    if wanted.quality is not None and wanted.quality.min is not None:
        yield Line(app, "accuracy", None, ">=", wanted.quality.min, "slo", found.figures["accuracy"], Verdict.REPORTED)


def _by_share(
    violations: Estimate, percentile: float, max_ms: float, report: SimulationReport, app: str, inputs: Inputs
) -> Verdict:
    """A percentile over its limit says the same as too many beyond the limit; the share has the better interval."""
    limits = [target.max_ms for target in inputs.slo.apps[app].latency if target.of == "response"]
    if max_ms != min(limits):
        return Verdict.BROKEN
    share = judge(violations, "<=", 1.0 - percentile / 100.0)
    return Verdict.UNDECIDED if share is not Verdict.BROKEN and len(report.seeds) > 1 else Verdict.BROKEN


def _promise(promise: Promise, report: SimulationReport, wishes: tuple[Line, ...]) -> Line:
    simulated = _simulated(promise, report)
    if simulated is None or math.isnan(simulated.value):
        verdict = Verdict.NOT_SIMULATED if promise.model.startswith("simulation") else Verdict.REPORTED
        simulated = None
    elif not promise.model.startswith("simulation"):
        verdict = Verdict.REPORTED
    elif promise.quantity in ("rate_qps", "planned_qps"):
        # A rate is carried when what was wished of its queries holds at it.
        mine = [line.verdict for line in wishes if line.app == promise.app]
        verdict = next((worst for worst in (Verdict.BROKEN, Verdict.UNDECIDED) if worst in mine), Verdict.KEPT)
    else:
        verdict = judge(simulated, promise.relation, promise.value)
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
    return app.figures.get(_FIGURES.get(promise.quantity, ""))
