"""A simulation for reading: promised against simulated, figures with intervals, a timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hetplan.cli.output import Page, number

if TYPE_CHECKING:
    from hetplan.planner.promise_figures import Estimate
    from hetplan.simulator.report import OnTheWay, SimulationReport, TransitionReport

__all__ = ["as_percent", "show_baselines", "show_simulation"]


def as_percent(share: float) -> str:
    """A share for reading.

    >>> as_percent(0.7051)
    '70.5%'
    """
    return f"{share:.1%}"


def show_simulation(report: SimulationReport, page: Page) -> None:
    """All that the report says, most wanted first."""
    page.line(f"simulated {number(report.duration_s)} s with {len(report.seeds)} seeds, service noise {report.noise}")
    page.heading("Promised and simulated")
    page.table(
        ("app", "quantity", "promised", "by", "simulated", "interval", "verdict"),
        [
            (
                line.app or "-",
                line.quantity if line.percentile is None else f"{line.quantity} p{line.percentile:.12g}",
                f"{line.relation} {number(line.promised)}",
                line.by,
                "-" if line.simulated is None else number(line.simulated.value),
                _interval(line.simulated),
                str(line.verdict),
            )
            for line in report.lines
        ],
        right=("promised", "simulated"),
    )
    page.heading("What happened")
    page.table(
        ("app", "figure", "value", "interval"),
        [
            (app.id, name, number(found.value), _interval(found))
            for app in report.apps.values()
            for name, found in {
                **app.figures,
                **{f"response p{at:.12g} ms": found for at, found in app.percentiles_ms.items()},
            }.items()
        ],
        right=("value",),
    )
    page.table(
        ("workers", "count", "busy", "interval", "waiting"),
        [
            (
                group.id,
                number(group.workers),
                as_percent(group.utilisation.value),
                _interval(group.utilisation, as_percent),
                number(group.waiting.value),
            )
            for group in report.groups.values()
        ],
        right=("count", "busy", "waiting"),
    )
    if report.cost_per_hour is not None:
        cost = report.cost_per_hour
        page.line(f"cost {number(cost.value)} {report.currency} per hour ({_interval(cost)})")
    if report.transition is not None:
        _show_transition(report.transition, page)
    from hetplan.simulator.timeline import timeline_text

    page.heading("Timeline")
    for line in timeline_text(report.timeline, encoding=getattr(page.stream, "encoding", None) or "utf-8").splitlines():
        page.line(f"  {line}")


def _show_transition(way: TransitionReport, page: Page) -> None:
    page.heading("On the way to the plan")
    page.line(f"the plan's actions take {number(way.seconds)} s; {number(way.played_s)} s were simulated")
    page.table(("after s", "done"), [(number(at_s), text) for at_s, text in way.steps], right=("after s",))
    page.table(
        ("app", "in time on the way", "interval", "dropped", "settled after s"),
        [
            (name, number(app.in_time.value), _interval(app.in_time), number(app.dropped.value), _settled(app))
            for name, app in way.apps.items()
        ],
        right=("in time on the way", "dropped", "settled after s"),
    )


def _settled(app: OnTheWay) -> str:
    return "not while simulated" if app.settled_s is None else number(app.settled_s)


def show_baselines(reports: Mapping[str, SimulationReport], page: Page) -> None:
    """The plan beside what people run today, under the same queries."""
    page.heading("Beside what people run today")
    page.table(
        ("what", "app", "cost per hour", "late share", "goodput"),
        [
            (
                name,
                app.id,
                "-" if report.cost_per_hour is None else number(report.cost_per_hour.value),
                _figure(app.figures, "violations"),
                _figure(app.figures, "goodput_qps"),
            )
            for name, report in reports.items()
            for app in report.apps.values()
        ],
        right=("cost per hour", "late share", "goodput"),
    )


def _figure(figures: Mapping[str, Estimate], name: str) -> str:
    found = figures.get(name)
    return "-" if found is None else number(found.value)


def _interval(found: Estimate | None, shown: Callable[[float], str] = number) -> str:
    """The interval; "-" where a single run shows no spread."""
    return "-" if found is None or math.isnan(found.low) else f"{shown(found.low)} .. {shown(found.high)}"
