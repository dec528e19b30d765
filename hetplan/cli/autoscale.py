"""`hetplan autoscale`: follow the demand of what runs; plan anew and apply where it has moved."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import (
    AsJson,
    Files,
    Formulation,
    Settings,
    method_from,
    option,
)
from hetplan.cli.knowing import Known, Measuring, knowing
from hetplan.cli.output import Output
from hetplan.cli.places import KUBERNETES, InCluster, OnHosts, SiteFile, place_of
from hetplan.cli.read_files import KEPT_PLAN, Wait
from hetplan.cli.solve import Evaluators, JournalFile
from hetplan.errors import InputError
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.api.autoscaler import Applied, Ended, Happened
    from hetplan.api.planner import Planner
    from hetplan.cli.platform_files import Made
    from hetplan.executor.site import Site
    from hetplan.planner.outcome import Outcome
    from hetplan.planner.schedule import Schedule
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.state import State

__all__ = ["autoscale"]

Every = Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds between two readings of the arrival rate.")]
Period = Annotated[
    float, typer.Option(min=1.0, metavar="S", help="Replan after these seconds even if nothing changed.")
]
Change = Annotated[float, typer.Option(min=0.0, metavar="SHARE", help="Ignore changes of demand below this share.")]
Hold = Annotated[
    float, typer.Option(min=0.0, metavar="S", help="Reduce capacity after demand was low for these seconds.")
]
Settle = Annotated[float, typer.Option(min=0.0, metavar="S", help="Shortest time between two plans.")]
Headroom = Annotated[float, typer.Option(min=0.0, metavar="SHARE", help="Lowest headroom above the forecast.")]
Memory = Annotated[float, typer.Option("--com", min=0.01, help="Center of mass of the moving average, in readings.")]
Floor = Annotated[float, typer.Option("--floor", min=0.001, metavar="QPS", help="Lowest rate to plan for.")]
Once = Annotated[bool, typer.Option("--once", help="Read the rate once, replan if needed, and end.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Plan and print the steps; apply nothing.")]
Live = Annotated[Path | None, option("--live", "FILE", "Samples of live traffic as JSON lines; replan if they drift.")]
Begins = Annotated[
    str | None,
    option("--begins", "TIME", "Start of the plan's first period, 2026-11-23T00:00 (UTC); default: today."),
]
Seconds = Annotated[float | None, typer.Option("--time-limit", min=0.0, metavar="S", help="Seconds for each plan.")]


def autoscale(
    files: Files,
    site: SiteFile = Path("site.toml"),
    every: Every = 5.0,
    period: Period = 60.0,
    change: Change = 0.1,
    hold: Hold = 60.0,
    settle: Settle = 0.0,
    headroom: Headroom = 0.1,
    com: Memory = 1.6,
    floor: Floor = 1.0,
    once: Once = False,
    dry_run: DryRun = False,
    formulation: Formulation = None,
    settings: Settings = None,
    time_limit: Seconds = None,
    evaluate: Evaluators = None,
    journal: JournalFile = None,
    live: Live = None,
    begins: Begins = None,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Replan when the demand changes, and apply the plan.

    Reads the router's counters and forecasts the demand. If the demand changed, it replans and applies the plan. A rise
    counts at once, a fall after --hold; so --once reduces capacity only with --hold 0. If a step fails, the replicas
    keep running and it tries again later.

    If a plan with periods is among the files, it follows the schedule: machines start before their hour. It replans
    while the demand exceeds the planned rate of a period.

    With --live and --journal it tests samples of live traffic. If accuracy or latency drifted, it measures plans again
    (--evaluate), or chooses another one from the journal.

    With --time-limit a plan may not be simulated in time. It is simulated then, and applied only if it meets the SLO.

    In a cluster it follows a Prometheus ([watch] of site.toml), and renders and applies each plan.

    Ctrl-C ends it (exit 130); the replicas keep running. With --once: exit 0 done or nothing to do, 3 infeasible,
    7 not applied.
    """
    from hetplan.api.planner import Planner
    from hetplan.dispatch.replanning import Replanning
    from hetplan.executor.site import read_site
    from hetplan.planner.answer import Limits

    with Output("autoscale", as_json=as_json) as out:
        formulation, options = method_from(settings, formulation=formulation)
        how = {"formulation": formulation, "options": options}
        trigger = Replanning(
            every_s=every, period_s=period, change=change, hold_s=hold, settle_s=settle, headroom=headroom,
            floor_qps=floor, com=com,
        )  # fmt: skip
        read = read_site(site)
        if evaluate and not read.targets:
            why = "plans are measured on hosts, and this site is a cluster"
            raise InputError.one(file="--evaluate", why=why, remedy="Measure before: hetplan solve --evaluate.")
        if read.watch.prometheus is None and not read.targets:
            why = "nothing says how many queries arrive"
            remedy = 'Add [watch] prometheus = "http://HOST:PORT", and query unless hetplan\'s router counts them.'
            raise InputError.one(file=str(site), path="$.watch.prometheus", value="nothing", why=why, remedy=remedy)
        named = sort_files(files, "autoscale", plans=(0, 1), takes_state=False)
        if named.state is not None:
            why = "autoscale reads the state from the hosts"
            raise InputError.one(file=str(named.state), why=why, remedy="Leave the state out.")
        profiles, slo = list(named.profiles), named.slo
        measuring = Measuring(named.measured, evaluate, journal, live)
        with knowing(out, profiles, slo, site, measuring) as known, ExitStack() as stack:
            make_files = None if read.targets else _files_of(out, read, Planner(known.profiles, known.slo))
            place = stack.enter_context(place_of(out, read, {}, make=make_files))
            runs = _Followed(place, wait, known.streams)
            kept = _schedule(out, named.plan if named.plans else None, begins)
            planner, limits = Planner(profiles, slo), Limits(seconds=time_limit)
            make = _making(out, planner, slo, kept, {**how, "limits": limits}, known)
            ended = _run(out, runs, make, planner, trigger, known, kept, dry_run=dry_run, once=once)
        out.people.line(ended.reason)
        out.end(ended.code, ended.reason)


def _making(
    out: Output, planner: Planner, slo: Path, kept: Schedule | None, how: Mapping[str, Any], known: Known
) -> Callable[..., Outcome]:
    """What plans: the wish of the file, or beside a schedule that of one moment."""
    if kept is None:
        return _maker(out, planner, how, known)
    return _at_one_moment(out, planner, slo, kept.plan, how, known)


def _maker(out: Output, planner: Planner, how: Mapping[str, Any], known: Known) -> Callable[..., Outcome]:
    """What plans; the files were read before anything is touched, so that a bad one ends the command at once."""
    from dataclasses import replace

    from hetplan.api.solve import plan_for
    from hetplan.cli.long_work import quiet_engines

    def make(
        *, demand: Mapping[str, float] | None, state: State | None, start: Plan | None, cancel: threading.Event
    ) -> Outcome:
        more = known.choices(how, cancel)
        files = {"measured": more.pop("measured", None)}
        limits = replace(more.pop("limits"), cancel=cancel)
        if known.only_streams:
            # Plans of compound queries say how all of it comes about from nothing; what runs is left to the apply.
            demand = state = None
        with quiet_engines(out):
            outcome = plan_for(planner.inputs(demand, state=state, **files), start=start, limits=limits, **more)
        return known.signed(outcome)

    return make


def _schedule(out: Output, plan: Path | None, begins: str | None) -> Schedule | None:
    """The schedule of a plan, from the moment at which its first period began: else midnight (UTC)."""
    from datetime import UTC, datetime, timedelta

    from hetplan.cli.read_files import plan_from
    from hetplan.planner.schedule import Schedule

    if plan is None:
        if begins is not None:
            raise InputError.one(
                file="--begins", value=begins, why="nothing begins", remedy="Name a plan with periods too."
            )
        return None
    held = Schedule(plan_from(plan, warn=out.warn))
    try:
        since = datetime.fromisoformat(begins) if begins is not None else datetime.now(UTC)
    except ValueError:
        why = "no date and time"
        raise InputError.one(file="--begins", value=begins, why=why, remedy="Write 2026-11-23T00:00.") from None
    since = since.replace(tzinfo=UTC) if since.tzinfo is None else since
    if begins is None:
        # A week begins on Monday, anything else today.
        back = since.weekday() if held.length_s == 7 * 86_400 else 0
        since = since.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=back)
    held.begins_s = since.timestamp()
    return held


def _at_one_moment(
    out: Output, planner: Planner, slo: Path, scheduled: Plan, how: Mapping[str, Any], known: Known
) -> Callable[..., Outcome]:
    """Planning of one moment beside a schedule, with the machines that it paid for ahead.

    What comes back with parts is applied as the plan of its first period.
    """
    from dataclasses import replace

    from hetplan.api.commitments import PaidAhead
    from hetplan.api.planner import Planner
    from hetplan.api.plans_by_rate import at_any_moment
    from hetplan.profiles.load_one import load_slo
    from hetplan.profiles.plan_file import with_digest
    from hetplan.profiles.plan_periods import of_period

    profile = planner.loaded.model
    assert profile is not None
    now = PaidAhead.of(profile, at_any_moment(load_slo(slo)), scheduled.commitments or ())
    make = _maker(out, Planner(now.profile, now.wish), how, known)

    def made(*, state: State | None, **asked: Any) -> Outcome:
        outcome = make(state=now.state(state), **asked)
        if outcome.plan is None:
            return outcome
        single = of_period(outcome.plan, outcome.plan.periods[0])
        return replace(outcome, plan=with_digest(now.plan(single)))

    return made


def _run(
    out: Output,
    runs: _Followed,
    make: Callable[..., Outcome],
    planner: Planner,
    trigger: Any,
    known: Known,
    schedule: Schedule | None,
    *,
    dry_run: bool,
    once: bool,
) -> Ended:
    from hetplan.api.autoscaler import Watching
    from hetplan.api.planner import lead_and_limits_of, violation_of
    from hetplan.cli.long_work import interruptible

    watching = Watching(
        make,
        runs,
        trigger,
        dry_run=dry_run,
        on_event=lambda event: _show(out, event),
        service=known,
        schedule=schedule,
        simulate=lambda plan, *, demand, cancel: violation_of(plan, planner.inputs(demand), cancel),
        lead_and_limits=lambda plan: lead_and_limits_of(plan, planner.inputs()),
    )
    return interruptible(lambda cancel: watching.run(cancel, once=once), say=out.note)


def _show(out: Output, event: Happened) -> None:
    out.send({"event": {"what": event.what, "at_s": event.at_s, "text": event.text, **event.data}})
    if event.what != "look":
        out.people.line(f"{event.what}: {event.text}")
        # The reader of a pipe wants to see it now, not when the watch ends.
        sys.stdout.flush()


@dataclass
class _Followed:
    """What a site runs as the loop sees it; the plan that it last brought about is kept beside its record."""

    place: OnHosts | InCluster
    wait_s: float
    streams: frozenset[str] = frozenset()
    """Applications whose queries come as streams: no rate of theirs is followed."""
    _under_way: int | None = field(default=None, init=False)

    def arrived(self) -> Mapping[str, int]:
        self._under_way = None
        if not self.place.runs():
            return {}
        watch = self.place.of.site.watch
        if watch.prometheus is not None or isinstance(self.place, InCluster):
            from hetplan.executor.prometheus import arrived_by_prometheus

            counted = arrived_by_prometheus(watch.prometheus or "", watch.query)
            return {app: count for app, count in counted.items() if app not in self.streams}
        followed = {app: counts for app, counts in self.place.counters().items() if app not in self.streams}
        self._under_way = sum(int(counts["under_way"]) for counts in followed.values())
        return {app: int(counts["arrived"]) for app, counts in followed.items()}

    def under_way(self) -> int | None:
        # A Prometheus is asked for one counter per application, and knows of none that wait.
        return self._under_way

    def state(self) -> State | None:
        return self.place.state() if self.place.runs() else None

    def plan(self) -> Plan | None:
        return _kept_plan(self.place.of.folder, self.place.of.applied_plan())

    def difference(self, plan: Plan) -> list[str]:
        return [f"{sign} {what}: {text}" for sign, what, text in self.place.difference(plan).rows if sign != "="]

    def apply(self, plan: Plan, cancel: threading.Event) -> Applied:
        from hetplan.api.autoscaler import Applied
        from hetplan.executor.target import ApplyFailed

        try:
            done = self.place.apply(plan, lambda _: None, self.wait_s, cancel)
        except ApplyFailed as error:
            return Applied(False, why=str(error))
        return Applied(True, done.steps)


def _kept_plan(folder: Path, applied: str | None) -> Plan | None:
    """The plan that was kept in a folder, where it is the one that was applied last."""
    from hetplan.profiles.read_plan import read_plan

    try:
        plan = read_plan(folder / KEPT_PLAN) if applied is not None and (folder / KEPT_PLAN).exists() else None
    except InputError:
        return None
    return plan if plan is not None and plan.digest == applied else None


def _files_of(out: Output, site: Site, planner: Planner) -> Callable[[Plan], Made]:
    """What makes files of a plan for a cluster: judged at the rates that it was made for."""
    from hetplan.cli.platform_files import made_of, settings_of

    settings = settings_of(site, KUBERNETES, {})

    def make(plan: Plan) -> Made:
        rates = {app: most for app, (_, most) in plan.valid.rate_qps.items() if most is not None}
        return made_of(out, KUBERNETES, site, plan, planner.inputs(rates), settings)

    return make
