"""`hetplan compare`: ways to serve one demand side by side, in money; or plan files beside one another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, option
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.cli.read_files import plan_from
from hetplan.cli.whatif import Jobs, JournalFile, On
from hetplan.errors import InputError
from hetplan.profiles.given_files import GivenFiles, sort_files

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.studies.strategies import Compared, Comparison

__all__ = ["compare"]


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="PLAN... [PROFILE... SLO]", readable=False,
        help="A plan and the files that it was made from: compares policies. Or several plans.",
    ),
]  # fmt: skip
DemandFile = Annotated[
    list[str] | None,
    option("--demand", "[APP=]FILE", "CSV with start_s,rate_qps; else rate_qps.series of the SLO."),
]
Mean = Annotated[
    float | None, typer.Option("--mean", min=0.0, metavar="QPS", help="Scale the simulated demand to this mean rate.")
]
Hours = Annotated[
    str | None, option("--hours", "FROM:TO", "Simulate these hours of the file; earlier hours are history.")
]
Attain = Annotated[
    float | None,
    typer.Option("--attain", min=0.0, max=1.0, help="The SLO attainment that every policy has to reach."),
]
Ways = Annotated[str | None, option("--ways", "NAME;NAME", "Compare only these policies.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of independent draws of the demand.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first draw.")]
Fresh = Annotated[
    int,
    typer.Option("--fresh", min=0, metavar="N", help="Number of fresh draws under which tuned settings are reported."),
]
Noise = Annotated[str, option("--noise", "NAME", "How service times vary: table, mean, p95, ...")]
Every = Annotated[
    float, typer.Option("--every", min=1.0, metavar="S", help="Seconds between two looks of the replanning policy.")
]
Csv = Annotated[Path | None, option("--csv", "FILE", "Write every simulated setting here as CSV; - is stdout.")]
Svg = Annotated[Path | None, option("--svg", "FILE", "Draw cost against violation rate into this SVG file.")]


def compare(
    files: Files,
    demand: DemandFile = None,
    mean: Mean = None,
    hours: Hours = None,
    attain: Attain = None,
    ways: Ways = None,
    seeds: Seeds = 1,
    seed: FirstSeed = 0,
    fresh: Fresh = 1,
    noise: Noise = "table",
    every: Every = 15.0,
    csv: Csv = None,
    svg: Svg = None,
    jobs: Jobs = 1,
    on: On = None,
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare autoscaling policies and plans at the same SLO attainment.

    The plan, static peaks, Kubernetes' autoscaler, concurrency scaling, replanning and perfect foresight are simulated
    under the same queries. Several plan files: prints their costs, machines and promises side by side.
    """
    with Output("compare", as_json=as_json, quiet=str(csv) == "-") as out:
        named = sort_files(files, "compare", plans=(1, len(files)), needs_inputs=False)
        if len(named.plans) > 1:
            _plans(out, named)
            return
        if not named.has_inputs:
            raise InputError.one(
                file=str(named.plan), why="a plan, its profiles and its SLO file are compared, or several plans",
                remedy="Write hetplan compare plan.json profile.json slo.json, or name two plans.",
            )  # fmt: skip
        from hetplan.studies.compare import compared_demand

        tried, inputs = plan_from(named.plan, warn=out.warn), named.inputs
        chosen = tuple(name.strip() for name in ways.split(";")) if ways is not None else None
        what = compared_demand(
            inputs, _demand_files(inputs, demand), mean_qps=mean, hours=_hours(hours), attain=attain, ways=chosen,
            seeds=seeds, seed=seed, noise=noise, every_s=every, fresh=fresh,
        )  # fmt: skip
        found = _run(out, tried, inputs, what, {"jobs": jobs, "on": on, "journal": journal})
        for file, text in ((csv, found.as_csv), (svg, lambda: _picture(found))):
            if file is not None:
                _write(file, text())
        _show(found, out.people)
        missed = [row.way for row in found.rows if row.best is None]
        reason = f"not reached by any setting: {', '.join(missed)}" if missed else "every way reaches it"
        out.end(Exit.OK, reason, comparison=found.as_dict())


def _plans(out: Output, named: GivenFiles) -> None:
    """Plan files beside one another; with the files that they were made from, at their prices."""
    from hetplan.studies.comparison import compare_plans

    found = compare_plans(named.plans, named.inputs if named.has_inputs else None)
    for title, columns, rows in found.tables():
        out.people.heading(title)
        out.people.table(columns, [[number(cell) for cell in row] for row in rows])
    for note in found.notes:
        out.warn(note)
    out.end(Exit.OK, f"{len(named.plans)} plans side by side", comparison=found.as_dict())


def _demand_files(inputs: Inputs, demand: list[str] | None) -> dict[str, Path]:
    """The file that each application's rates are in."""
    apps, found = list(inputs.slo.apps), dict[str, Path]()
    for one in demand or []:
        app, sign, path = one.rpartition("=")
        if not sign and len(apps) > 1:
            raise InputError.one(
                file="--demand", value=one, why=f"there are {len(apps)} applications",
                remedy=f"Write --demand {apps[0]}={one}.",
            )  # fmt: skip
        found[app or apps[0]] = Path(path)
    return found


def _hours(text: str | None) -> tuple[float, float]:
    if text is None:
        return 0.0, 1e9
    first, sign, last = text.partition(":")
    try:
        found = float(first or 0.0), float(last)
    except ValueError:
        found = (0.0, 0.0)
    if not sign or not 0.0 <= found[0] < found[1]:
        raise InputError.one(file="--hours", value=text, why="hours are FROM:TO", remedy="Write --hours 24:48.")
    return found


def _run(out: Output, plan: Plan, inputs: Inputs, what: Compared, where: dict[str, Any]) -> Comparison:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.planner.spread import Spread
    from hetplan.studies.strategies import compare_ways

    def work(cancel: threading.Event) -> Comparison:
        alone = where == {"jobs": 1, "on": None, "journal": None}
        spread = None if alone else Spread(**where, on_event=show, cancel=cancel)
        return compare_ways(plan, inputs, what, on_event=show, cancel=cancel, spread=spread)

    with progress(out) as show:
        return interruptible(work, say=out.note)


def _write(file: Path, text: str) -> None:
    from hetplan.profiles.plan_file import write_atomically

    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise InputError.one(
            file=str(file), why=f"it cannot be written: {error.strerror}", remedy="Name another file."
        ) from error


def _show(found: Comparison, page: Page) -> None:
    from hetplan.profiles.plan_summary import per_month

    asked = ", ".join(f"{app} {share:.4g}" for app, share in found.attain.items())
    page.line(f"{number(found.hours)} h under the same queries; in time at least: {asked}")
    page.heading("Each way at its cheapest setting that reaches it")
    page.table(
        ("way", "setting", "per hour", "per month", "per million in time", "late", "worst hour in time"),
        [
            (
                row.way,
                one.setting if row.best is not None else f"not reached; nearest: {one.setting}",
                f"{one.cost_per_hour:.4g}",
                f"{per_month(one.cost_per_hour):.0f}",
                f"{found.per_million(one):.4g}",
                f"{one.late:.3%}",
                f"{min(one.worst.values(), default=1.0):.2%}",
            )
            for row in found.rows
            if (one := row.shown) is not None
        ],
        right=("per hour", "per month", "per million in time", "late", "worst hour in time"),
    )
    missed = [row.way for row in found.rows if row.fresh is not None and not row.fresh.reaches(found.attain)]
    if any(row.fresh is not None for row in found.rows):
        page.line("figures are of queries that no setting was tuned on")
    if missed:
        page.line(f"there, less is in time than asked: {', '.join(missed)}")
    for row in found.rows:
        if row.note:
            page.line(f"{row.way}: {row.note}")
    if found.least is not None:
        page.line(f"no way costs less than {found.least:.4g} {found.currency} per hour ({found.least_is})")


def _picture(found: Comparison) -> str:
    """Money against the share that is late, a curve for each way through all that was played of it."""
    from hetplan.drawing.charts import Curve, curves

    drawn = []
    for row in found.rows:
        points = sorted((100.0 * one.late, one.cost_per_hour) for one in row.tried)
        drawn.append(Curve(row.way, [late for late, _ in points], [cost for _, cost in points], "min"))
    limits = {"asked": 100.0 * (1.0 - min(found.attain.values(), default=1.0))}
    picture = curves(
        drawn, label="Money against lateness", x="late, percent of queries", y=f"{found.currency} per hour",
        limits=limits,
    )  # fmt: skip
    return picture.svg(alone=True)
