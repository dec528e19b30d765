"""`hetplan simulate`: what would happen if a plan ran, before anything does."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, Measured, PlanFile, Profiles, SloFile, StateFile, file_option, option
from hetplan.cli.given_files import plan_from, trace_from
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.report import SimulationReport

__all__ = ["refuse_beside", "simulate"]

Trace = Annotated[Path | None, file_option("--trace", "FILE", "Arrival times to replay, instead of a process.")]
Process = Annotated[
    str | None, option("--arrivals", "PROCESS", "poisson, deterministic, gamma:SHAPE, diurnal:PEAK,DAY_S or mmpp:....")
]
Seeds = Annotated[int, typer.Option(min=1, help="Independent runs; intervals come from their spread.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first run: the same seed gives the same figures.")]
Duration = Annotated[
    float | None,
    typer.Option("--duration", min=0.001, metavar="S", help="Simulated seconds; default: what the percentile needs."),
]
NoiseOfService = Annotated[str, option("--noise", "NAME", "How service times vary: table, mean, lognormal, p95, ...")]
Misprediction = Annotated[float, typer.Option(min=0.0, help="Relative error of the dispatcher's predictions.")]
Learn = Annotated[
    bool, typer.Option("--learn", help="The dispatcher begins without latency tables and learns them while serving.")
]
Baselines = Annotated[
    bool, typer.Option("--baselines", help="Beside static peak, target-utilisation autoscaling and the cheapest type.")
]
Replan = Annotated[
    float | None,
    typer.Option(
        "--replan", min=0.1, metavar="S",
        help="Plan again every S seconds for the rates seen, under demand.series of the SLO file.",
    ),
]  # fmt: skip
Fail = Annotated[
    list[str] | None,
    option(
        "--fail",
        "WHAT[@PERIOD]",
        'Of a plan with periods: only this failure ("zone a lost"), in each period or in that with this number.',
    ),
]
Spot = Annotated[
    list[str] | None,
    option(
        "--spot",
        "OFFER=FILE|rate",
        "Of a plan with periods: spot machines as recorded, or taken as often as the offers say.",
    ),
]
Svg = Annotated[Path | None, option("--svg", "FILE", "Write the timeline as a picture.")]
Threads = Annotated[int, typer.Option(min=1, help="Runs that go side by side.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Play runs in so many processes, not threads.")]
On = Annotated[str | None, option("--on", "ray[:ADDRESS]", "Play runs on a Ray cluster.")]


def simulate(
    plan: PlanFile,
    profiles: Profiles,
    slo: SloFile,
    state: StateFile = None,
    measured: Measured = None,
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
    """Play a plan under its demand and set promised against simulated, line by line.

    With --replan the plan and its successors are played under loads that change, and the wishes of the SLO file judged.
    A promise by a model without queueing is reported, not failed. A plan with periods is played hour by hour, with each
    of its failures in each hour. Exit 6 when simulation breaks a wish of the SLO file or a simulated promise.
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
        tried = plan_from(plan, warn=out.warn)
        if tried.parts is not None and replan is None:
            from hetplan.cli.simulate_day import simulate_day

            others = {"--svg": svg, "--baselines": baselines, **beside}
            simulate_day(out, tried, (profiles, slo, state), how, fail=fail, spot=spot, others=others)
            return
        spread = _spread(jobs, on, baselines=baselines)
        _refuse_of_days(fail, spot)
        files = (profiles, slo, state, measured)
        reports = _run(out, tried, files, how=how, baselines=baselines, replan=replan, spread=spread)
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
            file="--baselines", why="what is set beside a plan is played in this process",
            remedy="Leave it out, or --jobs and --on.",
        )  # fmt: skip
    return {"jobs": jobs, "on": on}


def _refuse_of_days(fail: list[str] | None, spot: list[str] | None) -> None:
    for name, given in (("--fail", fail), ("--spot", spot)):
        if given:
            raise InputError.one(
                file=name,
                value=given[0],
                why="this is played of a plan with periods, hour by hour",
                remedy="Leave it out.",
            )


def _run(
    out: Output,
    tried: Plan,
    files: tuple[list[Path], Path, Path | None, Path | None],
    *,
    how: dict[str, Any],
    baselines: bool,
    replan: float | None,
    spread: Mapping[str, Any] | None,
) -> dict[str, SimulationReport]:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.profiles.load import load_inputs
    from hetplan.simulator.baselines import beside, compare
    from hetplan.simulator.simulate import simulator_of

    profiles, slo, state, measured = files
    inputs = load_inputs(profiles, slo, state=state, measured=measured)

    def work(cancel: threading.Event) -> dict[str, SimulationReport]:
        if replan is not None and tried.parts is not None:
            from hetplan.comparing_fleets import replanned_fleet

            also = beside if baselines else None
            return replanned_fleet(tried, inputs, every_s=replan, beside=also, on_event=show, cancel=cancel, **how)
        if replan is not None:
            from hetplan.replanned import play_replanned

            reports = {"plan": play_replanned(tried, inputs, every_s=replan, on_event=show, cancel=cancel, **how)}
            if baselines and tried.question == "llm":
                from hetplan.replanned_text import text_beside

                return reports | text_beside(tried, inputs, on_event=show, cancel=cancel, **how)
            return reports | (beside(tried, inputs, on_event=show, cancel=cancel, **how) if baselines else {})
        if baselines:
            return compare(tried, inputs, on_event=show, cancel=cancel, **how)
        if spread is None:
            return {"plan": simulator_of(tried)(tried, inputs, on_event=show, cancel=cancel, **how)}
        from hetplan.planner.spread import Spread

        with Spread(**spread, on_event=show, cancel=cancel) as over:
            return {"plan": simulator_of(tried)(tried, inputs, spread=over, cancel=cancel, **how)}

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
    return f"nothing broken, {open_lines} undecided" if open_lines else "simulation keeps every promise"


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
            file=named[0], value=str(given[named[0]]), why="not played together with --replan",
            remedy="Leave one of them out; loads over time are demand.series of the SLO file.",
        )  # fmt: skip
