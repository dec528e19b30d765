"""What a real load showed, as figures with intervals, beside what was promised, wished and simulated: line by line.

Neighbouring responses are alike (they waited in the same queue), so the interval of a figure comes from the spread over
ten stretches of the run, Student's at 95%, around the value of the whole run. A share without a single case in the run
has the exact interval of so many independent requests instead of none. Requests without an answer count as never
answered; requests that the run did not send do not count.

How good answers are is measured where they are judged by labels. Otherwise the server says which variants served, and
what the profile says of these is `stated`, not measured.

Judged are the wishes about response time and quality, and the promises that a simulation or a measurement made. A line
is broken when its measured interval lies wholly on the wrong side; promises by models without queueing are only put
beside.

Simulation and measurement disagree where a line's two intervals are further apart than a tolerance, in whichever
direction: then the profile, the hop or the machine is not what the plan was made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hetplan.measure.load_send import Sent
from hetplan.planner.promise_figures import FIGURES, RATES, Estimate, Verdict
from hetplan.planner.promise_figures import judge as judge_by_interval
from hetplan.serving.distribution import nearest_rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.profiles.plan import Plan, Promise
    from hetplan.profiles.slo import Slo

__all__ = [
    "FORMAT",
    "AppMeasured",
    "LoadLine",
    "LoadReport",
    "estimate_figure",
    "figures_of",
    "judge",
    "kept_or_worse",
    "load_report",
    "measured_figure",
    "statuses_of",
]

STRETCHES = 10
TAIL_REQUESTS = 20
"""With fewer requests beyond a percentile its interval says little, and the report says so."""
_REFUSED = ("shed", "dropped", "lost")
_POINT, _HALF_A_POINT = 0.01, 0.005
_OF_QUALITY = ("accuracy", "served_accuracy", "goodput")
"""Figures that are about how good answers are."""
_TIMES = ("response_ms", "ttft_ms", "tpot_ms")


@dataclass(frozen=True)
class AppMeasured:
    """The figures of one application; `late_sender_ms` are p50 and p99 of how late requests were sent."""

    app: str
    requests: int
    warm_up: int
    offered_qps: float
    figures: dict[str, Estimate]
    percentiles_ms: dict[float, Estimate]
    statuses: dict[str, int]
    late_sender_ms: tuple[float, float]
    connections: int
    short_of: tuple[float, ...]
    scored: bool = False
    """Whether answers were judged; otherwise what is said of quality is the profile's, by the variants that served."""

    payload_bytes: float = 0.0
    """The body of a request, on average."""

    @property
    def stated(self) -> tuple[str, ...]:
        """The figures that are not measured but made of the profile's numbers."""
        return () if self.scored else _OF_QUALITY

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "requests": self.requests,
            "warm_up": self.warm_up,
            "offered_qps": self.offered_qps,
            "figures": {name: one.as_dict() for name, one in self.figures.items() if name not in self.stated},
            "stated": {name: one.as_dict() for name, one in self.figures.items() if name in self.stated},
            "percentiles_ms": {f"{at:g}": figure.as_dict() for at, figure in self.percentiles_ms.items()},
            "statuses": self.statuses,
            "late_sender_ms": {"p50": self.late_sender_ms[0], "p99": self.late_sender_ms[1]},
            "connections": self.connections,
            "payload_bytes": self.payload_bytes,
        }


def figures_of(
    sent: Sent, *, slo_ms: float = math.inf, percentiles: Sequence[float] = (50.0, 90.0, 95.0, 99.0), warm_up: int = 0,
    scored: bool = False,
) -> AppMeasured:  # fmt: skip
    """The figures of an application, the first `warm_up` requests left out; `scored` where answers were judged."""
    import numpy as np

    tried = np.flatnonzero(sent.status >= 0)
    asked = tried[warm_up:] if warm_up < len(tried) else tried[:0]
    table = _Responses(sent, asked, slo_ms)
    parts = [table.part(place) for place in np.array_split(np.arange(len(asked)), STRETCHES)] if len(asked) else []
    late = sent.late_ms[asked]
    return AppMeasured(
        app=sent.app,
        requests=len(asked),
        warm_up=len(tried) - len(asked),
        offered_qps=table.rate_qps(),
        figures={name: _figure(table, parts, name) for name in _NAMES},
        percentiles_ms={
            at: estimate_figure(table.percentile(at), [part.percentile(at) for part in parts]) for at in percentiles
        },
        statuses=statuses_of(sent.status[asked]),
        late_sender_ms=(_short(np.percentile(late, 50)), _short(np.percentile(late, 99))) if len(late) else (0.0, 0.0),
        connections=sent.connections,
        short_of=tuple(at for at in percentiles if len(asked) * (1.0 - at / 100.0) < TAIL_REQUESTS),
        scored=scored,
    )


_SHARES = ("violations", "in_time", "late", "dropped")
_NAMES = (*_SHARES, "mean_ms", "accuracy", "served_accuracy", "rate_qps", "goodput_qps", "goodput")


class _Responses:
    """Some of the requests of a run, ready to be asked for figures."""

    def __init__(self, sent: Sent, places: NDArray[np.int64], slo_ms: float) -> None:
        import numpy as np

        self._sent, self._places, self._slo_ms = sent, places, slo_ms
        status = sent.status[places]
        refused = np.array([sent.outcome[place] in _REFUSED for place in places.tolist()], dtype=bool)
        self.served = (status >= 200) & (status < 300) & ~refused
        self.refused = refused | (status >= 300)
        self.response_ms = np.where(self.served, sent.response_ms[places], np.inf)
        self.in_time = self.served & (self.response_ms <= slo_ms)
        self.quality = sent.quality[places]
        self._ordered = np.sort(self.response_ms)

    def part(self, places: NDArray[np.int64]) -> _Responses:
        return _Responses(self._sent, self._places[places], self._slo_ms)

    def percentile(self, at: float) -> float:
        """The least response that at least so many percent do not exceed."""
        return nearest_rank(self._ordered, at / 100.0)

    def rate_qps(self) -> float:
        due = self._sent.due_s[self._places]
        return float(len(due) / max(float(due[-1] - due[0]), 1e-9)) if len(due) > 1 else 0.0

    def of(self, name: str) -> float:
        count = len(self._places)
        if not count:
            return math.nan
        in_time = float(self.in_time.mean())
        if name in ("accuracy", "served_accuracy", "goodput"):
            which = self.in_time if name != "served_accuracy" else self.served
            known = self.quality[which]
            known = known[known == known]
            accuracy = float(known.mean()) if len(known) else math.nan
            return in_time * accuracy if name == "goodput" else accuracy
        return {
            "in_time": in_time,
            "violations": 1.0 - in_time,
            "late": float((self.served & ~self.in_time).mean()),
            "dropped": float(self.refused.mean()),
            "mean_ms": float(self.response_ms[self.served].mean()) if self.served.any() else math.nan,
            "rate_qps": self.rate_qps(),
            "goodput_qps": in_time * self.rate_qps(),
        }[name]


def _figure(whole: _Responses, parts: Sequence[_Responses], name: str) -> Estimate:
    found = estimate_figure(whole.of(name), [part.of(name) for part in parts])
    if name not in _SHARES or math.isnan(found.value):
        return found
    count = len(whole.response_ms)
    # Where no stretch has a case, or all are cases, there is no spread to see: the rule of three, exactly.
    edge = 1.0 - 0.025 ** (1.0 / count)
    low = min(found.low, 1.0 - edge) if found.value == 1.0 else max(found.low, 0.0)
    high = max(found.high, edge) if found.value == 0.0 else min(found.high, 1.0)
    return Estimate(found.value, low, high)


def estimate_figure(whole: float, parts: Sequence[float]) -> Estimate:
    """A figure of a run that is not below 0, with Student's interval from stretches of the run."""
    known = [part for part in parts if not math.isnan(part)]
    if math.isnan(whole) or len(known) < 2:
        return Estimate(whole, math.nan, math.nan)
    if not all(math.isfinite(part) for part in known):
        return Estimate(whole, min([whole, *known]), math.inf)
    import numpy as np
    from scipy.special import stdtrit

    half = float(stdtrit(len(known) - 1, 0.975)) * float(np.std(known, ddof=1)) / math.sqrt(len(known))
    # None of these figures can be below 0.
    return Estimate(whole, max(whole - half, 0.0), whole + half)


def statuses_of(status: NDArray[np.int16]) -> dict[str, int]:
    """How many requests ended how: by HTTP's number, "none" where nothing came."""
    import numpy as np

    numbers, counts = np.unique(status, return_counts=True)
    return {
        "none" if number <= 0 else str(number): int(count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")


FORMAT = "hetplan/load/1.0"
Interval = tuple[float, float, float]
"""A simulated value, and the ends of its interval."""


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
    measured: Estimate | None
    verdict: Verdict
    stated: Estimate | None = None
    """In place of a measurement: what the profile says of the variants that served."""

    @property
    def name(self) -> str:
        """The quantity and its percentile."""
        return self.quantity if self.percentile is None else f"{self.quantity} p{self.percentile:g}"

    def disagrees(self, tolerance: float) -> bool:
        """Whether simulated and measured intervals are further apart than this share, or than a point of violations.

        >>> measured = Estimate(130, 120, 140)
        >>> line = LoadLine("a", "response_ms", 99.0, "", None, "", (100, 95, 105), measured, Verdict.MET)
        >>> line.disagrees(0.1), line.disagrees(0.2)
        (True, False)
        """
        if self.simulated is None or self.measured is None or not math.isfinite(tolerance):
            return False
        simulated, found = Estimate(*self.simulated).with_unknown_end, self.measured.with_unknown_end
        if self.quantity in _TIMES and self.percentile is not None:
            return found.low > simulated.high * (1.0 + tolerance) or found.high < simulated.low * (1.0 - tolerance)
        shares = self.quantity == "violations" or (self.quantity, self.by) == ("goodput", "slo")
        apart = _HALF_A_POINT if self.quantity in ("accuracy", "quality") else _POINT if shares else math.inf
        return found.low > simulated.high + apart or found.high < simulated.low - apart

    def __str__(self) -> str:
        share = f" p{self.percentile:g}" if self.percentile is not None else ""
        found = "not measured" if self.measured is None else f"measured {self.measured.value:.6g}"
        found += f" ({self.stated.value:.6g} by the profile)" if self.stated is not None else ""
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
            **({"stated": self.stated.as_dict()} if self.stated is not None else {}),
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
    tolerance: float = math.inf

    @property
    def disagreeing(self) -> tuple[LoadLine, ...]:
        """The lines about response times and violations whose simulation is not what was measured."""
        return tuple(line for line in self.lines if line.disagrees(self.tolerance))

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
            "tolerance": self.tolerance if math.isfinite(self.tolerance) else None,
            "disagreeing": [f"{line.app}: {line.name}" for line in self.disagreeing],
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
    tolerance: float = math.inf,
) -> LoadReport:
    """The report of a load: wishes of the SLO first, then promises, then the figures that neither is about."""
    apps = {app.app: app for app in measured}
    beside = simulated or {}
    lines = [line for app in measured for line in _wishes(app, slo, beside)]
    lines += [_promise(promise, apps, beside, lines) for promise in plan.promises]
    lines += [line for app in measured for line in _figures(app, beside, lines)]
    lines = [_as_stated(line, apps) for line in lines]
    return LoadReport(plan.digest, duration_s, apps, tuple(lines), tuple(_warnings(measured)), tolerance)


def _as_stated(line: LoadLine, apps: Mapping[str, AppMeasured]) -> LoadLine:
    """A line about quality that nobody measured: the profile's number is not called measured, and judges nothing."""
    app = apps.get(line.app or "") or (next(iter(apps.values())) if len(apps) == 1 else None)
    if app is None or line.measured is None or FIGURES.get(line.quantity, line.quantity) not in app.stated:
        return line
    plain = line.by == "figure" or not (line.by == "slo" or line.by.startswith(_JUDGED))
    verdict = Verdict.REPORTED if plain else Verdict.NOT_MEASURED
    return replace(line, measured=None, stated=line.measured, verdict=verdict)


def judge(found: Estimate, relation: str, promised: float) -> Verdict:
    """Kept, broken with significance, or undecided.

    >>> judge(Estimate(96, 90, 102), "<=", 95), judge(Estimate(96, math.nan, math.nan), "<=", 95)
    (<Verdict.UNDECIDED: 'undecided'>, <Verdict.BROKEN: 'broken'>)
    """
    return judge_by_interval(found.with_unknown_end, relation, promised, unknown=Verdict.NOT_MEASURED)


def measured_figure(measured: AppMeasured, quantity: str, percentile: float | None) -> Estimate | None:
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
        of: str, at: float | None, relation: str, value: float, found: Estimate | None, verdict: Verdict
    ) -> LoadLine:
        return LoadLine(app.app, of, at, relation, value, "slo", beside.get((app.app, of, at)), found, verdict)

    for target in wanted.targets:
        found = app.percentiles_ms.get(target.percentile) if target.of == "response" else None
        verdict = judge(found, "<=", target.max_ms) if found is not None else Verdict.NOT_MEASURED
        if verdict is Verdict.MET and target.percentile in app.short_of:
            # Too few requests lie beyond the percentile to say that it is kept.
            verdict = Verdict.UNDECIDED
        yield line(f"{target.of}_ms", target.percentile, "<=", target.max_ms, found, verdict)
    if wanted.quality is not None and wanted.quality.min is not None:
        found = measured_figure(app, "accuracy", None)
        least = wanted.quality.min
        verdict = judge(found, ">=", least) if found is not None else Verdict.NOT_MEASURED
        yield line("accuracy", None, ">=", least, found, verdict)


def _promise(
    promise: Promise, apps: Mapping[str, AppMeasured], beside: Simulated, wishes: Sequence[LoadLine]
) -> LoadLine:
    app = apps.get(promise.app or "") or (next(iter(apps.values())) if promise.app is None and len(apps) == 1 else None)
    found = measured_figure(app, promise.quantity, promise.percentile) if app is not None else None
    judged = promise.model.startswith(_JUDGED)
    if found is None or app is None:
        verdict = Verdict.NOT_MEASURED if judged else Verdict.REPORTED
    elif not judged:
        verdict = Verdict.REPORTED
    elif promise.quantity in RATES:
        # A rate is carried when what was wished of its queries holds at it.
        mine = [line.verdict for line in wishes if line.app == app.app]
        verdict = next((worst for worst in (Verdict.BROKEN, Verdict.UNDECIDED) if worst in mine), Verdict.MET)
        if verdict is not Verdict.BROKEN and promise.value > app.offered_qps * 1.1:
            verdict = Verdict.NOT_MEASURED
    else:
        verdict = kept_or_worse(found, promise)
    name = "mean_ms" if promise.quantity == "response_ms" and promise.percentile is None else promise.quantity
    key = (app.app if app is not None else "", FIGURES.get(name, name), promise.percentile)
    return LoadLine(
        promise.app, promise.quantity, promise.percentile, promise.relation, promise.value, promise.model,
        beside.get(key), found, verdict,
    )  # fmt: skip


def kept_or_worse(found: Estimate, promise: Promise) -> Verdict:
    """A promise of an equality was an estimate: what is better than that breaks nothing."""
    if promise.relation != "=":
        return judge(found, promise.relation, promise.value)
    more_is_better = promise.quantity in _MORE_IS_BETTER
    low, high = promise.interval or (promise.value, promise.value)
    return judge(found, ">=" if more_is_better else "<=", low if more_is_better else high)


def _figures(app: AppMeasured, beside: Simulated, lines: Sequence[LoadLine]) -> Iterable[LoadLine]:
    """What nothing was promised of, for the comparison with the simulation."""
    said = {(line.quantity, line.percentile) for line in lines if line.app == app.app}
    for at, found in app.percentiles_ms.items():
        if ("response_ms", at) not in said:
            simulated = beside.get((app.app, "response_ms", at))
            yield LoadLine(app.app, "response_ms", at, "", None, "figure", simulated, found, Verdict.REPORTED)
    for name in _ALWAYS:
        found = app.figures[name]
        if (name, None) not in said and not math.isnan(found.value):
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
