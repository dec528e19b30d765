"""What `hetplan simulate` does with a plan with periods: the day is played, hour by hour and failure by failure."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import Exit, Output, Page, number
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.day import HowPlayed
    from hetplan.simulator.day_report import DayReport
    from hetplan.simulator.figures import Estimate

__all__ = ["simulate_day"]


def simulate_day(
    out: Output,
    plan: Plan,
    files: tuple[list[Path], Path, Path | None],
    how: Mapping[str, Any],
    *,
    fail: list[str] | None,
    spot: list[str] | None,
    others: Mapping[str, object],
) -> None:
    """Play the day, show it, and end the command: 6 where a promise is broken."""
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.profiles.load import load_inputs
    from hetplan.simulator.day import play_day

    for name, value in others.items():
        if value:
            raise InputError.one(
                file=name, value=str(value), why="not played of a plan with periods", remedy="Leave it out."
            )
    profiles, slo, state = files
    inputs = load_inputs(profiles, slo, state=state)
    played = _how(inputs, how, fail, spot)

    with progress(out) as show:

        def work(cancel: threading.Event) -> DayReport:
            return play_day(plan, inputs, played, on_event=show, cancel=cancel)

        report = interruptible(work, say=out.note)
    show_day(report, out.people)
    reason = f"{len(report.broken)} broken in simulation" if report.broken else "simulation keeps every promise"
    out.end(Exit.OK if report.ok else Exit.CHECK_FAILED, reason, report=report.as_dict())


def _how(inputs: Inputs, how: Mapping[str, Any], fail: list[str] | None, spot: list[str] | None) -> HowPlayed:
    from hetplan.simulator.day import HowPlayed, read_spot

    names, hours = list[str](), set[str]()
    for one in fail or []:
        name, sign, hour = one.rpartition("@")
        names.append(name if sign else one)
        hours |= {hour} if sign else set()
    if len(hours) > 1 or not all(hour.isdigit() for hour in hours):
        raise InputError.one(
            file="--fail", value=", ".join(sorted(hours)), why="failures are played in one period, by its number",
            remedy='Write --fail "zone a lost@17".',
        )  # fmt: skip
    records = {}
    for one in spot or []:
        offer, sign, path = one.partition("=")
        if one == "rate":
            continue
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
        f"{len(report.hours)} periods, {number(report.stands_for)} queries; {number(report.played)} were played, in "
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
