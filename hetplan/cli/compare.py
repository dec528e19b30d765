"""`hetplan compare`: ways to serve one demand side by side, in money; or plan files beside one another."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, option
from hetplan.cli.given_files import plan_from
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.cli.whatif import Jobs, JournalFile, On
from hetplan.errors import InputError
from hetplan.profiles.given_files import GivenFiles, sort_files

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.rates import RatesOverTime
    from hetplan.studies.ways import Compared, Comparison

__all__ = ["compare"]

STEADY_S, STEADY_QUERIES = 900.0, 100_000
"""Three times the window over which Kubernetes' autoscaler stabilises; enough queries for a percentile of 99.9."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="PLAN... [PROFILE... SLO]", readable=False,
        help="A plan with the files that it was made from: ways to serve its demand. Several plans: what differs.",
    ),
]  # fmt: skip
DemandFile = Annotated[
    list[str] | None, option("--demand", "[APP=]FILE", "CSV with start_s,rate_qps; else demand.series of the SLO file.")
]
Mean = Annotated[
    float | None, typer.Option("--mean", min=0.0, metavar="QPS", help="Scale the demand that is played to this mean.")
]
Hours = Annotated[
    str | None, option("--hours", "FROM:TO", "Play these hours of the file; what is before them is history.")
]
Attain = Annotated[
    float | None,
    typer.Option("--attain", min=0.0, max=1.0, help="Share of queries in time that every way has to reach."),
]
Ways = Annotated[str | None, option("--ways", "NAME;NAME", "Only these ways.")]
Seeds = Annotated[int, typer.Option(min=1, help="Independent draws of the demand.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first draw.")]
Fresh = Annotated[
    int, typer.Option("--fresh", min=0, metavar="N", help="Report chosen settings under so many draws not tuned on.")
]
Noise = Annotated[str, option("--noise", "NAME", "How service times vary: table, mean, p95, ...")]
Every = Annotated[float, typer.Option("--every", min=1.0, metavar="S", help="How often replanning looks at demand.")]
Csv = Annotated[Path | None, option("--csv", "FILE", "Write every setting played; - is stdout.")]
Svg = Annotated[Path | None, option("--svg", "FILE", "Write money against lateness as a picture.")]


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
    """Compare ways to serve one demand at the same SLO attainment, or several plans.

    The plan, static peaks, Kubernetes' autoscaler, concurrency scaling, replanning and perfect foresight are played
    under the same queries. With several plan files, their figures are set side by side instead.
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
        tried, inputs = plan_from(named.plan, warn=out.warn), named.inputs
        chosen = tuple(name.strip() for name in ways.split(";")) if ways is not None else None
        what = _what(inputs, demand, mean, hours, attain=attain, ways=chosen, seeds=seeds, seed=seed, noise=noise,
                     every_s=every, fresh=fresh)  # fmt: skip
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


def _what(
    inputs: Inputs,
    demand: list[str] | None,
    mean: float | None,
    hours: str | None,
    *,
    ways: tuple[str, ...] | None,
    **how: Any,
) -> Compared:
    """The demand to be played, and what came before it."""
    from hetplan.studies.ways import WAYS, Compared

    given = _given(inputs, demand)
    first, last = _hours(hours)
    periods = {one.period_s for one in given.values()}
    if len(periods) > 1:
        raise InputError.one(
            file="--demand", value=", ".join(f"{one:g} s" for one in sorted(periods)),
            why="the applications' rates are in steps of different lengths", remedy="Bring them to one step.",
        )  # fmt: skip
    played = {app: one.cut(first, last) for app, one in given.items()}
    before = {app: one.cut(0.0, first) for app, one in given.items()}
    if not all(one.rates_qps for one in played.values()):
        raise InputError.one(
            file="--hours", value=hours, why="the demand has no step in these hours", remedy="Write --hours 0:24."
        )
    factor = 1.0
    if mean is not None:
        factor = mean / max(sum(one.mean_qps for one in played.values()), 1e-12)
    return Compared(
        series={app: one.times(factor).rates_qps for app, one in played.items()},
        history={app: one.times(factor).rates_qps for app, one in before.items()},
        period_s=periods.pop(), ways=ways or WAYS, begin_s=3600.0 * first, **how,
    )  # fmt: skip


def _given(inputs: Inputs, demand: list[str] | None) -> dict[str, RatesOverTime]:
    from hetplan.profiles.rates import RatesOverTime, read_rates

    apps = list(inputs.slo.apps)
    found: dict[str, RatesOverTime] = {}
    for one in demand or []:
        app, sign, path = one.rpartition("=")
        if not sign and len(apps) > 1:
            raise InputError.one(
                file="--demand", value=one, why=f"there are {len(apps)} applications",
                remedy=f"Write --demand {apps[0]}={one}.",
            )  # fmt: skip
        app = app or apps[0]
        if app not in apps:
            raise InputError.one(
                file="--demand", value=app, why="there is no such application in the SLO file",
                remedy=f"Choose among {', '.join(apps)}.",
            )  # fmt: skip
        found[app] = read_rates(Path(path))
    horizon = inputs.slo.horizon
    steps = max((len(one.rates_qps) for one in found.values()), default=horizon.periods)
    period_s = next((one.period_s for one in found.values()), horizon.period_s)
    for app in apps:
        if app not in found:
            wanted = inputs.slo.apps[app].demand
            rate = wanted.rate_qps
            rates = wanted.series or ((float(rate),) * steps if isinstance(rate, int | float) else None)
            if rates is None:
                raise InputError.one(
                    file="slo", path=f"$.apps.{app}.demand", why="neither a rate nor rates over time",
                    remedy=f"Give --demand {app}=FILE.csv, or write demand.series and horizon.",
                )  # fmt: skip
            found[app] = RatesOverTime(period_s, tuple(rates))
    if not demand and horizon.periods == 1:
        return {app: RatesOverTime(_steady_s(found, period_s), one.rates_qps) for app, one in found.items()}
    return found


def _steady_s(found: Mapping[str, RatesOverTime], period_s: float) -> float:
    """How long rates that never change are played: as long as it takes to tell the ways apart, a period at most."""
    rate = sum(one.mean_qps for one in found.values())
    return min(period_s, max(STEADY_S, STEADY_QUERIES / max(rate, 1e-9)))


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
    from hetplan.studies.ways import compare_ways

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
