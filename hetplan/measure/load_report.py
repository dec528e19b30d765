"""A measured load beside what the plan promised, what was wished, and what a simulation said: line by line.

Judged are the wishes about response time and the promises that a simulation or a measurement made. A line is broken
when its measured interval lies wholly on the wrong side; promises by models without queueing are only put beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hetplan.measure.load_figures import AppMeasured, Figure
from hetplan.planner.promised_figures import FIGURES, RATES

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan, Promise
    from hetplan.profiles.slo import Slo

__all__ = ["FORMAT", "LoadLine", "LoadReport", "Verdict", "compared", "judge", "load_report"]

FORMAT = "hetplan/load/1.0"
Interval = tuple[float, float, float]
"""A simulated value, and the ends of its interval."""


class Verdict(StrEnum):
    """What became of a line; only `BROKEN` fails the plan."""

    KEPT = "kept"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    REPORTED = "reported"
    NOT_MEASURED = "not-measured"


@dataclass(frozen=True)
class LoadLine:
    """One promise, wish or plain figure (`by` is then "figure"), simulated and measured."""

    app: str | None
    quantity: str
    percentile: float | None
    relation: str
    promised: float | None
    by: str
    simulated: Interval | None
    measured: Figure | None
    verdict: Verdict

    def __str__(self) -> str:
        share = f" p{self.percentile:g}" if self.percentile is not None else ""
        found = "not measured" if self.measured is None else f"measured {self.measured.value:.6g}"
        ends = "" if self.measured is None else f" [{self.measured.low:.6g}, {self.measured.high:.6g}]"
        promised = "" if self.promised is None else f" {self.relation} {self.promised:.6g} ({self.by})"
        return f"{self.app or '-'}: {self.quantity}{share}{promised}: {found}{ends}, {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        simulated = None
        if self.simulated is not None:
            value, low, high = (one if math.isfinite(one) else None for one in self.simulated)
            simulated = {"value": value, "interval": [low, high]}
        return {
            "app": self.app,
            "quantity": self.quantity,
            "percentile": self.percentile,
            "relation": self.relation,
            "promised": self.promised,
            "by": self.by,
            "simulated": simulated,
            "measured": self.measured.as_dict() if self.measured is not None else None,
            "verdict": str(self.verdict),
        }


@dataclass(frozen=True)
class LoadReport:
    """All of it; `broken` fails the plan (exit code 6)."""

    plan: str | None
    duration_s: float
    apps: Mapping[str, AppMeasured]
    lines: tuple[LoadLine, ...]
    warnings: tuple[tuple[str, str, str], ...] = ()

    @property
    def broken(self) -> tuple[LoadLine, ...]:
        """The promises and wishes that the measurement breaks."""
        return tuple(line for line in self.lines if line.verdict is Verdict.BROKEN)

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, its format version first."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "duration_s": self.duration_s,
            "ok": self.ok,
            "lines": [line.as_dict() for line in self.lines],
            "apps": {name: app.as_dict() for name, app in self.apps.items()},
            "warnings": [{"code": code, "at": at, "text": text} for code, at, text in self.warnings],
        }


Simulated = Mapping[tuple[str, str, float | None], Interval]
"""Simulated figures by application, name and percentile (None for those that are none)."""

_MORE_IS_BETTER = ("in_time", "attainment", "accuracy", "quality", "goodput", "goodput_qps", "served_qps")
_JUDGED = ("simulation", "measured")
_ALWAYS = ("mean_ms", "violations", "dropped", "accuracy", "goodput_qps")


def load_report(
    plan: Plan,
    measured: Sequence[AppMeasured],
    *,
    duration_s: float,
    slo: Slo | None = None,
    simulated: Simulated | None = None,
) -> LoadReport:
    """The report of a load: wishes of the SLO first, then promises, then the figures that neither is about."""
    apps = {app.app: app for app in measured}
    beside = simulated or {}
    lines = [line for app in measured for line in _wishes(app, slo, beside)]
    lines += [_promise(promise, apps, beside, lines) for promise in plan.promises]
    lines += [line for app in measured for line in _figures(app, beside, lines)]
    return LoadReport(plan.digest, duration_s, apps, tuple(lines), tuple(_warnings(measured)))


def judge(found: Figure, relation: str, promised: float) -> Verdict:
    """Kept, broken with significance, or undecided.

    >>> judge(Figure(90, 80, 100), "<=", 95), judge(Figure(96, 90, 102), "<=", 95), judge(Figure(99, 96, 102), "<=", 95)
    (<Verdict.KEPT: 'kept'>, <Verdict.UNDECIDED: 'undecided'>, <Verdict.BROKEN: 'broken'>)
    """
    if math.isnan(found.value):
        return Verdict.NOT_MEASURED
    low = found.value if math.isnan(found.low) else found.low
    high = found.value if math.isnan(found.high) else found.high
    slack = 1e-9 * max(abs(promised), 1.0)
    sign = -1.0 if relation == ">=" else 1.0
    if sign * (found.value - promised) <= slack:
        return Verdict.KEPT
    return Verdict.BROKEN if sign * ((low if sign > 0 else high) - promised) > slack else Verdict.UNDECIDED


def compared(measured: AppMeasured, quantity: str, percentile: float | None) -> Figure | None:
    """The measured figure of a quantity."""
    if quantity == "response_ms" and percentile is not None:
        return measured.percentiles_ms.get(percentile)
    name = "mean_ms" if quantity == "response_ms" else FIGURES.get(quantity, quantity)
    figure = measured.figures.get(name)
    return None if figure is None or math.isnan(figure.value) else figure


def _wishes(app: AppMeasured, slo: Slo | None, beside: Simulated) -> Iterable[LoadLine]:
    wanted = slo.apps.get(app.app) if slo is not None else None
    if wanted is None:
        return

    def line(
        of: str, at: float | None, relation: str, value: float, found: Figure | None, verdict: Verdict
    ) -> LoadLine:
        return LoadLine(app.app, of, at, relation, value, "slo", beside.get((app.app, of, at)), found, verdict)

    for target in wanted.latency:
        found = app.percentiles_ms.get(target.percentile) if target.of == "response" else None
        verdict = judge(found, "<=", target.max_ms) if found is not None else Verdict.NOT_MEASURED
        if verdict is Verdict.KEPT and target.percentile in app.short_of:
            # Too few requests lie beyond the percentile to say that it is kept.
            verdict = Verdict.UNDECIDED
        yield line(f"{target.of}_ms", target.percentile, "<=", target.max_ms, found, verdict)
    if wanted.violations is not None:
        found, most = app.figures["violations"], wanted.violations.max
        yield line("violations", None, "<=", most, found, judge(found, "<=", most))
    if wanted.quality is not None and wanted.quality.min is not None:
        found = compared(app, "accuracy", None)
        verdict = Verdict.REPORTED if found is not None else Verdict.NOT_MEASURED
        yield line("accuracy", None, ">=", wanted.quality.min, found, verdict)


def _promise(
    promise: Promise, apps: Mapping[str, AppMeasured], beside: Simulated, wishes: Sequence[LoadLine]
) -> LoadLine:
    app = apps.get(promise.app or "") or (next(iter(apps.values())) if promise.app is None and len(apps) == 1 else None)
    found = compared(app, promise.quantity, promise.percentile) if app is not None else None
    judged = promise.model.startswith(_JUDGED)
    if found is None or app is None:
        verdict = Verdict.NOT_MEASURED if judged else Verdict.REPORTED
    elif not judged:
        verdict = Verdict.REPORTED
    elif promise.quantity in RATES:
        # A rate is carried when what was wished of its queries holds at it.
        mine = [line.verdict for line in wishes if line.app == app.app]
        verdict = next((worst for worst in (Verdict.BROKEN, Verdict.UNDECIDED) if worst in mine), Verdict.KEPT)
        if verdict is not Verdict.BROKEN and promise.value > app.offered_qps * 1.1:
            verdict = Verdict.NOT_MEASURED
    else:
        verdict = _kept_or_worse(found, promise)
    name = "mean_ms" if promise.quantity == "response_ms" and promise.percentile is None else promise.quantity
    key = (app.app if app is not None else "", FIGURES.get(name, name), promise.percentile)
    return LoadLine(
        promise.app, promise.quantity, promise.percentile, promise.relation, promise.value, promise.model,
        beside.get(key), found, verdict,
    )  # fmt: skip


def _kept_or_worse(found: Figure, promise: Promise) -> Verdict:
    """A promise of an equality was an estimate: what is better than that breaks nothing."""
    if promise.relation != "=":
        return judge(found, promise.relation, promise.value)
    more_is_better = promise.quantity in _MORE_IS_BETTER
    low, high = promise.interval or (promise.value, promise.value)
    return judge(found, ">=" if more_is_better else "<=", low if more_is_better else high)


def _figures(app: AppMeasured, beside: Simulated, lines: Sequence[LoadLine]) -> Iterable[LoadLine]:
    """What nothing was promised of, for the comparison with the simulation."""
    told = {(line.quantity, line.percentile) for line in lines if line.app == app.app}
    for at, found in app.percentiles_ms.items():
        if ("response_ms", at) not in told:
            simulated = beside.get((app.app, "response_ms", at))
            yield LoadLine(app.app, "response_ms", at, "", None, "figure", simulated, found, Verdict.REPORTED)
    for name in _ALWAYS:
        found = app.figures[name]
        if (name, None) not in told and not math.isnan(found.value):
            simulated = beside.get((app.app, name, None))
            yield LoadLine(app.app, name, None, "", None, "figure", simulated, found, Verdict.REPORTED)


def _warnings(measured: Sequence[AppMeasured]) -> Iterable[tuple[str, str, str]]:
    for app in measured:
        late, typical = app.late_sender_ms[1], app.percentiles_ms.get(50.0)
        if typical is not None and late > max(1.0, 0.1 * typical.value):
            yield (
                "W-late-sender", f"apps.{app.app}",
                f"1% of the requests were sent {late:g} ms or more too late (and count as that much slower): this "
                "machine has too little time for sending",
            )  # fmt: skip
        if app.short_of:
            listed = ", ".join(f"p{at:g}" for at in app.short_of)
            yield (
                "W-short-run",
                f"apps.{app.app}",
                f"{app.requests} requests say little about {listed}: send for longer",
            )
        lost = app.statuses.get("none", 0)
        if lost:
            yield "W-no-answer", f"apps.{app.app}", f"{lost} of {app.requests} requests had no answer"
