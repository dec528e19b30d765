"""`hetplan simulate`: what would happen if a plan ran, before anything does.

Of a plan with periods the day is played, hour by hour and failure by failure.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles, file_option, option
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.cli.read_files import plan_from, trace_from
from hetplan.errors import InputError
from hetplan.profiles.given_files import GivenFiles, sort_files

if TYPE_CHECKING:
    from hetplan.planner.promise_figures import Estimate
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.day import HowPlayed
    from hetplan.simulator.day_report import DayReport
    from hetplan.simulator.report import SimulationReport

__all__ = ["refuse_beside", "simulate", "simulate_day"]


Trace = Annotated[Path | None, file_option("--trace", "FILE", "Arrival times to replay, instead of a process.")]
Process = Annotated[
    str | None, option("--arrivals", "PROCESS", "poisson, deterministic, gamma:SHAPE, diurnal:PEAK,DAY_S or mmpp:....")
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of independent runs; intervals come from their spread.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first run.")]
Duration = Annotated[
    float | None,
    typer.Option("--duration", min=0.001, metavar="S", help="Simulated seconds; default: enough for the percentile."),
]
NoiseOfService = Annotated[str, option("--noise", "NAME", "How service times vary: table, mean, lognormal, p95, ...")]
Misprediction = Annotated[float, typer.Option(min=0.0, help="Relative error of the load balancer's predictions.")]
Learn = Annotated[
    bool, typer.Option("--learn", help="The load balancer begins without latency tables and learns them while serving.")
]
Baselines = Annotated[
    bool,
    typer.Option(
        "--baselines", help="Also simulate a static peak, utilization autoscaling and the cheapest machine type."
    ),
]
Replan = Annotated[
    float | None,
    typer.Option(
        "--replan", min=0.1, metavar="S",
        help="Replan as `autoscale` does: every S seconds, under rate_qps.series of the SLO file.",
    ),
]  # fmt: skip
Fail = Annotated[
    list[str] | None,
    option(
        "--fail",
        "WHAT[@PERIOD]",
        'Plan with periods: simulate only this failure ("zone a lost"), in all periods or in one (its number).',
    ),
]
Spot = Annotated[
    list[str] | None,
    option(
        "--spot",
        "rate|OFFER=FILE",
        "Plan with periods: spot machines are interrupted as often as the offers state (rate), or as recorded.",
    ),
]
Svg = Annotated[Path | None, option("--svg", "FILE", "Write the timeline as a picture.")]
Threads = Annotated[int, typer.Option(min=1, help="Runs in parallel.")]
Jobs = Annotated[
    int, typer.Option("--jobs", min=1, metavar="N", help="Number of processes for the runs, instead of threads.")
]
On = Annotated[str | None, option("--on", "ray[:ADDRESS]", "Simulate on a Ray cluster.")]


def simulate(
    files: PlanAndFiles,
    trace: Trace = None,
    arrivals: Process = None,
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    duration: Duration = None,
    noise: NoiseOfService = "table",
    misprediction: Misprediction = 0.0,
    learn: Learn = False,
    baselines: Baselines = False,
    replan: Replan = None,
    fail: Fail = None,
    spot: Spot = None,
    svg: Svg = None,
    threads: Threads = 2,
    jobs: Jobs = 1,
    on: On = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan under its demand, with failures if asked.

    Exit 6 if the simulation violates an SLO or a promise that rests on simulation. Promises without queueing are only
    reported.

    A plan with periods is simulated period by period, with each of its failures. --replan simulates the plan and the
    plans that replace it while the demand changes.
    """
    with Output("simulate", as_json=as_json) as out:
        if trace is not None and arrivals is not None:
            _refuse_both(arrivals)
        how: dict[str, Any] = {"seeds": seeds, "seed": seed, "noise": noise, "threads": threads}
        beside = {"--duration": duration, "--arrivals": arrivals, "--trace": trace, "--misprediction": misprediction}
        beside |= {"--learn": learn, "--jobs": jobs - 1, "--on": on}
        refuse_beside(replan, beside)
        if replan is None:
            how |= {"duration_s": duration, "arrivals": arrivals, "trace": trace_from(trace), "learn": learn}
            how["misprediction"] = misprediction
        if svg is not None:
            _check_writable(svg)
        named = sort_files(files, "simulate", plans=(1, 1))
        tried = plan_from(named.plan, warn=out.warn)
        if tried.parts is not None and replan is None:
            others = {"--svg": svg, "--baselines": baselines, **beside}
            simulate_day(out, tried, named, how, fail=fail, spot=spot, others=others)
            return
        spread = _spread(jobs, on, baselines=baselines)
        _refuse_of_days(fail, spot)
        reports = _run(out, tried, named.inputs, how=how, baselines=baselines, replan=replan, spread=spread)
        report = reports["plan"]
        if svg is not None:
            _write_svg(svg, report)
        _show(out, reports)
        out.end(Exit.OK if report.ok else Exit.CHECK_FAILED, _reason(report), report=report.as_dict())


def _spread(jobs: int, on: str | None, *, baselines: bool) -> dict[str, Any] | None:
    """Where runs are played, if not in this process."""
    if jobs == 1 and on is None:
        return None
    if baselines:
        raise InputError.one(
            file="--baselines", why="baselines are simulated in this process",
            remedy="Leave it out, or --jobs and --on.",
        )  # fmt: skip
    return {"jobs": jobs, "on": on}


def _refuse_of_days(fail: list[str] | None, spot: list[str] | None) -> None:
    for name, given in (("--fail", fail), ("--spot", spot)):
        if given:
            raise InputError.one(
                file=name,
                value=given[0],
                why="only for a plan with periods",
                remedy="Leave it out.",
            )


def _run(
    out: Output,
    tried: Plan,
    inputs: Inputs,
    *,
    how: dict[str, Any],
    baselines: bool,
    replan: float | None,
    spread: Mapping[str, Any] | None,
) -> dict[str, SimulationReport]:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.simulator.baselines import beside, compare
    from hetplan.simulator.simulate import simulate as play

    def work(cancel: threading.Event) -> dict[str, SimulationReport]:
        if replan is not None and tried.parts is not None:
            from hetplan.studies.replanning import replanned_fleet

            also = beside if baselines else None
            return replanned_fleet(tried, inputs, every_s=replan, beside=also, on_event=show, cancel=cancel, **how)
        if replan is not None:
            from hetplan.studies.replanning import play_replanned

            reports = {"plan": play_replanned(tried, inputs, every_s=replan, on_event=show, cancel=cancel, **how)}
            if baselines and tried.question == "llm":
                from hetplan.studies.llm_baselines import text_beside

                return reports | text_beside(tried, inputs, on_event=show, cancel=cancel, **how)
            return reports | (beside(tried, inputs, on_event=show, cancel=cancel, **how) if baselines else {})
        if baselines:
            return compare(tried, inputs, on_event=show, cancel=cancel, **how)
        if spread is None:
            return {"plan": play(tried, inputs, on_event=show, cancel=cancel, **how)}
        from hetplan.planner.spread import Spread

        with Spread(**spread, on_event=show, cancel=cancel) as over:
            return {"plan": play(tried, inputs, spread=over, cancel=cancel, **how)}

    with progress(out) as show:
        return interruptible(work, say=out.note)


def _refuse_both(arrivals: str) -> None:
    from hetplan.errors import InputError

    raise InputError.one(
        file="--arrivals",
        value=arrivals,
        why="a trace is given too, and it says itself when queries come",
        remedy="Leave one of --trace and --arrivals out.",
    )


def _reason(report: SimulationReport) -> str:
    if not report.ok:
        return f"{len(report.broken)} broken in simulation"
    open_lines = len(report.undecided)
    return f"nothing broken, {open_lines} undecided" if open_lines else "simulation meets every promise"


def _check_writable(path: Path) -> None:
    """Before minutes of simulation: whether the picture can be written at all."""
    from hetplan.errors import InputError

    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "it is a folder" if path.is_dir() else f"there is no folder {folder} to write to"
        raise InputError.one(
            file=str(path), why=f"the picture cannot be written: {why}", remedy="Name a file in a folder of yours."
        )


def _write_svg(path: Path, report: SimulationReport) -> None:
    from hetplan.errors import InputError
    from hetplan.profiles.plan_file import write_atomically
    from hetplan.simulator.timeline import timeline_svg

    try:
        write_atomically(path, timeline_svg(report.timeline, title=f"simulated {report.duration_s:g} s").encode())
    except OSError as error:
        raise InputError.one(
            file=str(path), why=f"the picture cannot be written: {error.strerror}", remedy="Name another file."
        ) from error


def _show(out: Output, reports: dict[str, SimulationReport]) -> None:
    from hetplan.cli.simulation_page import show_baselines, show_simulation

    for code, at, text in reports["plan"].warnings:
        out.warn(f"{code} {at}: {text}" if at else f"{code}: {text}")
    show_simulation(reports["plan"], out.people)
    if len(reports) > 1:
        show_baselines(reports, out.people)
        for name, report in reports.items():
            if name != "plan":
                out.send({"baseline": name, "report": report.as_dict()})


def refuse_beside(replan: float | None, given: Mapping[str, object]) -> None:
    """Options that a run with re-planning does not play."""
    named = sorted(name for name, value in given.items() if value)
    if replan is not None and named:
        raise InputError.one(
            file=named[0], value=str(given[named[0]]), why="not available together with --replan",
            remedy="Leave one of them out; loads over time are rate_qps.series of the SLO file.",
        )  # fmt: skip


def simulate_day(
    out: Output,
    plan: Plan,
    named: GivenFiles,
    how: Mapping[str, Any],
    *,
    fail: list[str] | None,
    spot: list[str] | None,
    others: Mapping[str, object],
) -> None:
    """Play the day, show it, and end the command: 6 where a promise is broken."""
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.simulator.day import play_day

    for name, value in others.items():
        if value:
            raise InputError.one(
                file=name, value=str(value), why="not available for a plan with periods", remedy="Leave it out."
            )
    inputs = named.inputs
    played = _how(inputs, how, fail, spot)

    with progress(out) as show:

        def work(cancel: threading.Event) -> DayReport:
            return play_day(plan, inputs, played, on_event=show, cancel=cancel)

        report = interruptible(work, say=out.note)
    show_day(report, out.people)
    reason = f"{len(report.broken)} broken in simulation" if report.broken else "simulation meets every promise"
    out.end(Exit.OK if report.ok else Exit.CHECK_FAILED, reason, report=report.as_dict())


def _how(inputs: Inputs, how: Mapping[str, Any], fail: list[str] | None, spot: list[str] | None) -> HowPlayed:
    from hetplan.simulator.day import HowPlayed
    from hetplan.simulator.spot_record import read_spot

    names, hours = list[str](), set[str]()
    for one in fail or []:
        name, sign, hour = one.rpartition("@")
        names.append(name if sign else one)
        hours |= {hour} if sign else set()
    if len(hours) > 1 or not all(hour.isdigit() for hour in hours):
        raise InputError.one(
            file="--fail", value=", ".join(sorted(hours)), why="failures in one period, by its number",
            remedy='Write --fail "zone a lost@17".',
        )  # fmt: skip
    records = {}
    for one in spot or []:
        offer, sign, path = one.partition("=")
        if one == "rate":
            continue
        if path == "rate" or "rate" in (spot or []):
            raise InputError.one(
                file="--spot", value=one, why="the rates of the offers are for all of them, without records",
                remedy="Write --spot rate alone, or --spot OFFER=FILE.json.",
            )  # fmt: skip
        if not sign or offer not in inputs.profile.offers:
            raise InputError.one(
                file="--spot", value=one, why="a record belongs to an offer of the profile",
                remedy=f"Write --spot {next(iter(inputs.profile.offers), 'OFFER')}=FILE.json, or --spot rate.",
            )  # fmt: skip
        records[offer] = read_spot(Path(path))
    return HowPlayed(
        seeds=how["seeds"], seed=how["seed"], noise=how["noise"], situations=tuple(names) if names else None,
        hour=int(hours.pop()) if hours else None, spot=records, spot_by_rate="rate" in (spot or []),
    )  # fmt: skip


def show_day(report: DayReport, page: Page) -> None:
    """Hours, failures, and how much of it was played."""
    page.line(
        f"{len(report.hours)} periods, {number(report.stands_for)} queries; {number(report.played)} were simulated, in "
        f"{report.windows} windows, for {report.segments} stretches of time"
    )
    page.heading("In time, hour by hour")
    page.table(
        ("period", "app", "queries per second", "in time", "interval", "promised", "verdict", "as played"),
        [
            (
                hour.period, app, number(hour.rates_qps[app]), f"{found.value:.3%}", _interval(found),
                f"{hour.promised[app]:.4g}", str(hour.verdict(app)), hour.as_played,
            )
            for hour in report.hours
            for app, found in hour.in_time.items()
        ],
        right=("queries per second", "in time", "promised"),
    )  # fmt: skip
    if report.failures:
        page.heading("After failures, each in its worst period")
        page.table(
            ("failure", "period", "app", "its first minute", "after it", "interval", "promised", "verdict"),
            [
                (
                    one.situation, one.period, app, f"{first.value:.2%}" if first is not None else "-",
                    f"{found.value:.3%}", _interval(found), f"{one.promised[app]:.4g}", str(one.verdict(app)),
                )
                for one in report.failures
                for app, found in one.after.items()
                for first in (one.at_first.get(app),)
            ],
            right=("its first minute", "after it", "promised"),
        )  # fmt: skip
    page.heading("All of it")
    for app, found in report.in_time.items():
        page.line(f"{app}: {found.value:.4%} in time ({_interval(found)})")
    if report.taken:
        page.line(f"spot machines were taken back {report.taken} times")
    if report.cost_per_hour is not None:
        page.line(f"cost {number(report.cost_per_hour)} {report.currency} per hour, as the plan says")


def _interval(found: Estimate) -> str:
    return "-" if found.low != found.low else f"{found.low:.3%} .. {found.high:.3%}"
