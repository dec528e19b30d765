"""`hetplan loadtest`: send a plan its demand for real, and set promise, simulation and measurement side by side.

Requests for text are sent by streaming.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles, file_option, option
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.cli.read_files import plan_from, trace_from
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hetplan.measure.load_report import LoadLine, LoadReport
    from hetplan.measure.load_send import Sent, Target
    from hetplan.planner.contract import Event
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.slo import App
    from hetplan.simulator.demand import AppDemand
    from hetplan.simulator.report import SimulationReport

__all__ = ["TextLoad", "loadtest", "show_load", "text_load"]


Endpoint = Annotated[
    str,
    option(
        "--endpoint",
        "URL",
        "Address of the router, http://HOST:PORT, or any other; {app} is the application.",
    ),
]
Trace = Annotated[Path | None, file_option("--trace", "FILE", "Arrival times to replay, instead of a process.")]
Process = Annotated[str | None, option("--arrivals", "PROCESS", "poisson, deterministic, gamma:SHAPE, ...")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the queries, sent and simulated.")]
Duration = Annotated[float, typer.Option("--duration", min=0.1, metavar="S", help="Length of the test in seconds.")]
TimeOut = Annotated[float, typer.Option("--timeout", min=0.01, metavar="S", help="A later reply counts as lost.")]
Runs = Annotated[int, typer.Option("--simulations", min=0, help="Number of simulated runs to compare with.")]
Body = Annotated[
    Path | None, file_option("--body", "FILE", "JSON to send; a text $AXIS is replaced by the query's value.")
]
Tolerance = Annotated[
    float,
    typer.Option(min=0.0, metavar="PERCENT", help="Exit 9 if percentiles differ more from the simulation; inf: never."),
]
Headers = Annotated[
    list[str] | None, option("--header", "NAME: VALUE", "Send this header with every request; @FILE reads the value.")
]
Learn = Annotated[
    Path | None, option("--learn", "NEW_PROFILE", "Write a profile with the service times that the workers report.")
]
LabelledFile = Annotated[Path | None, file_option("--labelled", "NPZ", "Send these labelled inputs: an .npz file.")]
Scorer = Annotated[
    str, typer.Option(metavar="SCORER", help="With --labelled: top1, module:function in its folder, or a command.")
]


def loadtest(
    files: PlanAndFiles,
    endpoint: Endpoint,
    trace: Trace = None,
    arrivals: Process = None,
    seed: Seed = 0,
    duration: Duration = 30.0,
    timeout: TimeOut = 10.0,
    simulations: Runs = 5,
    body: Body = None,
    header: Headers = None,
    tolerance: Tolerance = 10.0,
    learn: Learn = None,
    labelled: LabelledFile = None,
    scorer: Scorer = "top1",
    as_json: AsJson = False,
) -> None:
    """Send the demand to real replicas: promised, simulated, measured.

    Sends every request on time, even if earlier ones are late. Response times count from then. Simulates the same
    queries.

    Exit 6 if the measurement significantly violates an SLO or a simulated promise. Exit 9 if a percentile differs from
    the simulation by more than `--tolerance`, or a violation rate by more than one point.

    `--learn` writes the measured service times into a new profile. `--labelled` measures the quality of the answers.
    """
    with Output("loadtest", as_json=as_json) as out:
        from hetplan.serving.planned_system import planned_systems
        from hetplan.simulator.runs import seed_of
        from hetplan.simulator.simulate import demands_of

        named = sort_files(files, "loadtest", plans=(1, 1))
        tried, inputs = plan_from(named.plan, warn=out.warn), named.inputs
        recorded = trace_from(trace)
        if tried.question == "llm":
            asked = TextLoad(
                endpoint, duration, seed, timeout, arrivals, recorded, _template(body), _fields(header or ()),
                tolerance / 100.0, simulations > 0,
            )  # fmt: skip
            if learn is not None or labelled is not None:
                raise _not_of_text("--learn" if learn is not None else "--labelled")
            _load_text(out, tried, inputs, asked)
            return
        demands = demands_of(tried, inputs, arrivals=arrivals, trace=recorded)
        targets = _targets(demands, endpoint, duration, seed, _template(body), _fields(header or ()))
        asking = _asking(demands, targets, _Wanted(named.profiles, learn, labelled, scorer, seed))
        if simulations:
            # What cannot be simulated is said before minutes of load, not after.
            planned_systems(tried, inputs)
        sent, cancelled = _send(out, asking.targets, timeout)
        sent = asking.judged(sent)
        simulated = None
        if simulations and not cancelled:
            how: dict[str, Any] = {"seeds": simulations, "seed": seed, "duration_s": duration}
            how |= {"queries_seed": seed_of(seed, 0)}
            simulated = _simulate(out, tried, inputs, how | {"arrivals": arrivals, "trace": recorded})
        scored = labelled is not None
        report = _report(tried, inputs, demands, sent, simulated, duration, tolerance / 100.0, scored=scored)
        report = asking.named(report)
        _show(out, report, simulated)
        if learn is not None:
            note = f"of the workers of {_server(endpoint)}, {duration:g} s"
            asking.learn(out, tried, inputs, () if cancelled else sent, note)
        _end(out, report, cancelled=cancelled)


def _load_text(out: Output, plan: Plan, inputs: Inputs, how: TextLoad) -> None:
    """Send requests for text, by streaming."""
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.executor.serving.process import ask_for_short_turns

    stopped = threading.Event()

    def work(cancel: threading.Event) -> LoadReport:
        ask_for_short_turns()
        report = text_load(plan, inputs, how, on_event=show, cancel=cancel)
        if cancel.is_set():
            stopped.set()
        return report

    with progress(out) as show:
        report = interruptible(work, say=out.note)
    _show(out, report, None)
    _end(out, report, cancelled=stopped.is_set())


def _end(out: Output, report: LoadReport, *, cancelled: bool) -> None:
    if cancelled:
        out.end(Exit.INTERRUPTED, "interrupted; this is of the requests that were sent", report=report.as_dict())
        return
    code, reason = _ending(report)
    if code is Exit.DISAGREES:
        out.warn(f"{reason}. Measure again, as queries come and through the router (docs/howto/run.md)")
    out.end(code, reason, report=report.as_dict())


def _ending(report: LoadReport) -> tuple[Exit, str]:
    if not report.ok:
        return Exit.CHECK_FAILED, f"{len(report.broken)} broken in measurement"
    if report.disagreeing:
        listed = ", ".join(f"{line.app} {line.name}" for line in report.disagreeing)
        return Exit.DISAGREES, f"simulation and measurement disagree by more than {100 * report.tolerance:g}%: {listed}"
    return Exit.OK, "measurement meets every promise"


def _fields(headers: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The header fields of the command line."""
    from hetplan.errors import InputError

    fields = []
    for one in headers:
        name, colon, value = one.partition(":")
        if not colon or not name.strip() or not one.isprintable() or not one.isascii():
            why, remedy = "a header field is a name, a colon and a value", 'Write --header "authorization: Bearer ...".'
            raise InputError.one(path="--header", value=name, why=why, remedy=remedy)
        fields.append((name.strip(), _from_file(name, value.strip())))
    return tuple(fields)


def _from_file(name: str, value: str) -> str:
    """The value of a field: what a file holds where it is @FILE, so that a secret is in no list of processes."""
    from hetplan.errors import InputError

    if not value.startswith("@"):
        return value
    try:
        found = Path(value[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{value[1:]} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError.one(path="--header", value=name, why=why, remedy="Write --header NAME: @FILE.") from None
    if not found or not found.isprintable() or not found.isascii():
        why = f"{value[1:]} holds no line of printable characters"
        raise InputError.one(path="--header", value=name, why=why, remedy="Write the value alone into it.")
    return found


def _template(file: Path | None) -> Any:
    if file is None:
        return None
    from hetplan.profiles.read_json import read_json

    return read_json(file, file=str(file))


def _targets(
    demands: Sequence[AppDemand], endpoint: str, duration_s: float, seed: int, template: Any,
    fields: tuple[tuple[str, str], ...],
) -> list[Target]:  # fmt: skip
    """The requests of every application: the queries that the simulation plays too."""
    import json

    import numpy as np

    from hetplan.errors import InputError
    from hetplan.measure.load_send import Target
    from hetplan.measure.profile_models import fill_template
    from hetplan.serving.demand import points_of
    from hetplan.simulator.runs import seed_of

    targets = []
    for demand in demands:
        stream = demand.stream(seed_of(seed, 0), duration_s)
        # A simulated query is like one of the samples that were measured; a real one is whatever the body holds.
        kinds = stream.kinds if demand.samples == 0 else None
        points = points_of(demand.mix)
        bodies = [fill_template(template if template is not None else {"at": point}, point) for point in points]
        targets.append(
            Target(
                app=demand.app,
                url=_address(endpoint, demand.app),
                due_s=stream.times_ms / 1000.0,
                kinds=np.zeros(len(stream.times_ms), np.int32) if kinds is None else kinds,
                bodies=[json.dumps(one).encode() for one in bodies],
                headers=(("hetplan-reply", "brief"), *fields),
                clients=demand.clients,
                until_s=duration_s if demand.clients else 0.0,
            )
        )
    if not any(len(target.due_s) for target in targets):
        raise InputError.one(
            path="demand", value=0, why="no load to send: every rate is 0", remedy="Give a rate, or a trace."
        )
    return targets


@dataclass(frozen=True)
class _Wanted:
    """What the command line wants besides the comparison."""

    profiles: tuple[Path, ...]
    learn: Path | None
    labelled: Path | None
    scorer: str
    seed: int


@dataclass(frozen=True)
class _Asking:
    """The requests, and what replies to them are to be asked for."""

    wanted: _Wanted
    targets: list[Target]
    points: list[Sequence[dict[str, float]]]
    labels: list[Sequence[Any]]

    def judged(self, sent: list[Sent]) -> list[Sent]:
        """The replies with the quality of each, where inputs were labelled."""
        if self.wanted.labelled is None:
            return sent
        from hetplan.measure.load_score import score_answers

        folder, scorer = self.wanted.labelled.parent, self.wanted.scorer
        return [score_answers(one, labels, scorer, folder) for one, labels in zip(sent, self.labels, strict=True)]

    def named(self, report: LoadReport) -> LoadReport:
        """The report with the payload that each application was sent."""
        from dataclasses import replace

        apps = dict(report.apps)
        for target in self.targets:
            sizes = [len(target.bodies[kind]) for kind in target.kinds.tolist()]
            if sizes and target.app in apps:
                payload_bytes = float(f"{sum(sizes) / len(sizes):.6g}")
                apps[target.app] = replace(apps[target.app], payload_bytes=payload_bytes)
        return replace(report, apps=apps)

    def learn(self, out: Output, plan: Plan, inputs: Inputs, sent: Sequence[Sent], note: str) -> None:
        """Write the new profile."""
        import json

        from hetplan.measure.load_learn import Spell, learn_profile
        from hetplan.profiles.load_one import load_profile
        from hetplan.profiles.plan_file import write_atomically

        assert self.wanted.learn is not None
        if not sent:
            out.warn(f"{self.wanted.learn} is not written: the load was interrupted")
            return
        both = zip(sent, self.points, strict=True)
        is_scored = self.wanted.labelled is not None
        spells = [Spell(one, points, one.quality.tolist() if is_scored else ()) for one, points in both]
        found = learn_profile(plan, inputs.profile, spells, note)
        load_profile(found.document)
        write_atomically(self.wanted.learn, (json.dumps(found.document, indent=1, allow_nan=False) + "\n").encode())
        out.people.table(
            ("learned of", "on", "batches", "times the former profile"),
            [(variant, hardware, count, number(times)) for variant, hardware, count, times in found.changes],
            right=("batches", "times the former profile"),
        )
        out.people.line(f"written to {self.wanted.learn}; plan with it in place of {_listed(self.wanted.profiles)}")


def _asking(demands: Sequence[AppDemand], targets: list[Target], wanted: _Wanted) -> _Asking:
    """The requests as they are to be sent: with labelled inputs, and with whole replies where these are read."""
    from dataclasses import replace

    from hetplan.errors import InputError
    from hetplan.serving.demand import points_of

    points: list[Sequence[dict[str, float]]] = [points_of(demand.mix) for demand in demands]
    labels: list[Sequence[Any]] = [()] * len(targets)
    if wanted.learn is not None:
        if wanted.learn.exists():
            why, remedy = "it is there already", "Name a new file; the profile that is planned with stays."
            raise InputError.one(file=str(wanted.learn), why=why, remedy=remedy)
        if not os.access(wanted.learn.parent, os.W_OK | os.X_OK):
            why, remedy = "its folder is not there, or nothing can be written to it", "Name a file in another folder."
            raise InputError.one(file=str(wanted.learn), why=why, remedy=remedy)
        sampled = [demand.app for demand in demands if demand.samples]
        if sampled:
            why, remedy = "its operators are measured by an evaluator", "Leave --learn out; see `hetplan autoscale`."
            raise InputError.one(file="--learn", value=sampled[0], why=why, remedy=remedy)
        brief = ("hetplan-reply", "brief")
        without = [tuple(field for field in target.headers if field != brief) for target in targets]
        both = zip(targets, without, strict=True)
        targets = [replace(target, headers=headers, keep=True) for target, headers in both]
    if wanted.labelled is not None:
        from hetplan.measure.load_score import check_scorer, read_labelled_set, with_labelled

        labelled = read_labelled_set(wanted.labelled)
        check_scorer(wanted.scorer, wanted.labelled.parent)
        asked = zip(targets, points, strict=True)
        made = [with_labelled(target, of, labelled, seed=wanted.seed) for target, of in asked]
        targets, labels = [one.target for one in made], [one.labels for one in made]
        points = [[dict(point) for point in one.points] for one in made]
    return _Asking(wanted, targets, points, labels)


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def _not_of_text(option: str) -> Exception:
    from hetplan.errors import InputError

    why, remedy = "a plan of engines that make text", "Measure engines by [engines.NAME] of `hetplan profile`."
    return InputError.one(file=option, why=why, remedy=remedy)


def _server(endpoint: str) -> str:
    """The address without what may be a secret.

    >>> _server("https://h:8600/v1/{app}?key=secret")
    'https://h:8600'
    """
    from urllib.parse import urlsplit

    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}"


def _address(endpoint: str, app: str) -> str:
    """The address of an application.

    >>> _address("http://h:8600/", "rank"), _address("http://h/{app}/infer", "rank"), _address("http://h/predict", "a")
    ('http://h:8600/v1/rank', 'http://h/rank/infer', 'http://h/predict')
    """
    from urllib.parse import urlsplit

    if "{app}" in endpoint:
        return endpoint.replace("{app}", app)
    return endpoint.rstrip("/") + f"/v1/{app}" if urlsplit(endpoint).path in ("", "/") else endpoint


def _send(out: Output, targets: list[Target], timeout_s: float) -> tuple[list[Sent], bool]:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.executor.serving.process import ask_for_short_turns
    from hetplan.measure.load_send import send_load

    stopped = threading.Event()

    def work(cancel: threading.Event) -> list[Sent]:
        ask_for_short_turns()
        found = send_load(targets, timeout_s=timeout_s, on_event=show, cancel=cancel)
        if cancel.is_set():
            stopped.set()
        return found

    with progress(out) as show:
        return interruptible(work, say=out.note), stopped.is_set()


def _simulate(out: Output, plan: Plan, inputs: Inputs, how: dict[str, Any]) -> SimulationReport:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.simulator.simulate import simulate

    with progress(out) as show:
        return interruptible(lambda cancel: simulate(plan, inputs, on_event=show, cancel=cancel, **how), say=out.note)


def _report(
    plan: Plan,
    inputs: Inputs,
    demands: Sequence[AppDemand],
    sent: Sequence[Sent],
    simulated: SimulationReport | None,
    duration_s: float,
    tolerance: float,
    *,
    scored: bool,
) -> LoadReport:
    from hetplan.measure.load_report import figures_of, load_report

    asked = {target.percentile for app in inputs.slo.apps.values() for target in app.targets}
    asked |= {promise.percentile for promise in plan.promises if promise.percentile is not None}
    of = {demand.app: demand for demand in demands}
    measured = [
        figures_of(
            one,
            slo_ms=of[one.app].slo_ms,
            percentiles=sorted({50.0, 90.0, 95.0, 99.0, *asked}),
            warm_up=of[one.app].warm_up(len(one.due_s)),
            scored=scored,
        )
        for one in sent
    ]
    beside: dict[tuple[str, str, float | None], tuple[float, float, float]] = {}
    for app in simulated.apps.values() if simulated is not None else ():
        for name, found in app.figures.items():
            beside[app.id, name, None] = (found.value, found.low, found.high)
        for at, found in app.percentiles_ms.items():
            beside[app.id, "response_ms", at] = (found.value, found.low, found.high)
    return load_report(plan, measured, duration_s=duration_s, slo=inputs.slo, simulated=beside, tolerance=tolerance)


def _show(out: Output, report: LoadReport, simulated: SimulationReport | None) -> None:

    for code, at, text in (*report.warnings, *(simulated.warnings if simulated is not None else ())):
        out.warn(f"{code} {at}: {text}" if at else f"{code}: {text}")
    show_load(report, out.people)


def show_load(report: LoadReport, page: Page) -> None:
    """All that the report says, most wanted first."""
    total = sum(app.requests for app in report.apps.values())
    page.line(f"sent {total} requests in {number(report.duration_s)} s")
    page.heading("Promised, simulated and measured")
    page.table(
        ("app", "quantity", "promised", "by", "simulated", "measured", "interval", "against simulation", "verdict"),
        [
            (
                line.app or "-",
                line.quantity if line.percentile is None else f"{line.quantity} p{line.percentile:.12g}",
                "-" if line.promised is None else f"{line.relation} {number(line.promised)}",
                "-" if line.by == "figure" else line.by,
                "-" if line.simulated is None else _value(line.simulated[0]),
                "-" if line.measured is None else _value(line.measured.value),
                f"{_value(line.measured.low)} .. {_value(line.measured.high)}"
                if line.measured is not None
                else f"{_value(line.stated.value)} by the profile"
                if line.stated is not None
                else "-",
                _difference(line),
                str(line.verdict),
            )
            for line in report.lines
        ],
        right=("promised", "simulated", "measured", "against simulation"),
    )
    page.heading("The sender")
    page.table(
        (
            "app",
            "requests",
            "warm-up",
            "sent per second",
            "late p50 ms",
            "late p99 ms",
            "connections",
            "bytes each",
            "replies",
        ),
        [
            (
                app.app,
                app.requests,
                app.warm_up,
                number(app.offered_qps),
                number(app.late_sender_ms[0]),
                number(app.late_sender_ms[1]),
                app.connections,
                number(app.payload_bytes),
                ", ".join(f"{count} x {status}" for status, count in app.statuses.items()),
            )
            for app in report.apps.values()
        ],
        right=("requests", "warm-up", "sent per second", "late p50 ms", "late p99 ms", "connections", "bytes each"),
    )


def _value(value: float) -> str:
    return "never" if math.isinf(value) else "-" if math.isnan(value) else number(float(f"{value:.5g}"))


_SHARES = ("goodput", "violations", "dropped", "in_time", "late", "accuracy", "quality")


def _difference(line: LoadLine) -> str:
    """How far the measurement is from the simulation: points for shares, percent for the rest."""
    if line.simulated is None or line.measured is None:
        return "-"
    simulated, measured = line.simulated[0], line.measured.value
    if not (math.isfinite(simulated) and math.isfinite(measured)):
        return "-"
    if line.quantity in _SHARES:
        return f"{100.0 * (measured - simulated):+.2f} points"
    return "-" if simulated == 0 else f"{100.0 * (measured / simulated - 1.0):+.1f} %"


@dataclass(frozen=True)
class TextLoad:
    """What is sent, where, for how long."""

    endpoint: str
    duration_s: float
    seed: int = 0
    timeout_s: float = 60.0
    arrivals: str | None = None
    trace: NDArray[np.float64] | None = None
    template: Mapping[str, Any] | None = None
    fields: tuple[tuple[str, str], ...] = ()
    tolerance: float = 0.1
    simulate: bool = True


def text_load(
    plan: Plan, inputs: Inputs, how: TextLoad, *, on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> LoadReport:  # fmt: skip
    """Send a plan its requests, play the very same in the simulator, and compare."""
    from dataclasses import replace

    from hetplan.measure.load_send import send_load
    from hetplan.measure.load_text import text_of, text_report, text_target
    from hetplan.profiles.operating_points import limits_of
    from hetplan.serving.tokens import fleet_of_plan
    from hetplan.simulator.runs import seed_of
    from hetplan.simulator.simulate import demands_of
    from hetplan.simulator.tokens import coming_of, play

    app, wanted = next(iter(inputs.slo.apps.items()))
    (demand,) = demands_of(plan, inputs, arrivals=how.arrivals, trace=how.trace)
    coming = replace(coming_of(demand, seed_of(how.seed, 0), how.duration_s), settles_s=0.0)
    url = how.endpoint.rstrip("/")
    url = f"{url}/v1/completions" if url.count("/") == 2 else url
    target = text_target(
        app, url, coming.arrival_ms / 1e3, coming.requests, seed=how.seed, template=how.template, fields=how.fields
    )
    (sent,) = send_load([target], timeout_s=how.timeout_s, on_event=on_event, cancel=cancel)
    found = text_of(sent)
    simulated: dict[tuple[str, float | None], float] = {}
    count = len(coming.arrival_ms)
    judged = slice(count // 10, count - count // 20)
    if how.simulate:
        played = play(fleet_of_plan(plan, inputs, app), coming, gaps=True, seed=how.seed)
        judged = played.judged()
        simulated = {("goodput", None): played.goodput(limits_of(wanted)), **_percentiles(played, judged, wanted)}
    return text_report(
        plan, app, found, simulated, wanted.targets, goodput=wanted.attainment, duration_s=how.duration_s,
        tolerance=how.tolerance, judged=judged,
    )  # fmt: skip


def _percentiles(played: Any, judged: slice, wanted: App) -> dict[tuple[str, float | None], float]:
    """As a client sees them: with the network's time, which requests that are sent have on their way."""
    from hetplan.measure.load_text import SHOWN, percentile
    from hetplan.profiles.operating_points import network_ms_of

    asked = dict.fromkeys([*((limit.of, limit.percentile) for limit in wanted.targets), *SHOWN])
    times = {of: getattr(played, f"{of}_ms")[judged] + network_ms_of(wanted, of) for of, _ in asked}
    return {(of, at): percentile(times[of], at) for of, at in asked}
