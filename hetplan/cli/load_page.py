"""A measured load for reading: promised, simulated and measured in one table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetplan.cli.page import Page, number

if TYPE_CHECKING:
    from hetplan.measure.load_report import LoadLine, LoadReport

__all__ = ["show_load"]


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
                line.quantity if line.percentile is None else f"{line.quantity} p{line.percentile:g}",
                "-" if line.promised is None else f"{line.relation} {number(line.promised)}",
                "-" if line.by == "figure" else line.by,
                "-" if line.simulated is None else _value(line.simulated[0]),
                "-" if line.measured is None else _value(line.measured.value),
                "-" if line.measured is None else f"{_value(line.measured.low)} .. {_value(line.measured.high)}",
                _difference(line),
                str(line.verdict),
            )
            for line in report.lines
        ],
        right=("promised", "simulated", "measured", "against simulation"),
    )
    page.heading("The sender")
    page.table(
        ("app", "requests", "warm-up", "sent per second", "late p50 ms", "late p99 ms", "connections", "replies"),
        [
            (
                app.app,
                app.requests,
                app.warm_up,
                number(app.offered_qps),
                number(app.late_sender_ms[0]),
                number(app.late_sender_ms[1]),
                app.connections,
                ", ".join(f"{count} x {status}" for status, count in app.statuses.items()),
            )
            for app in report.apps.values()
        ],
        right=("requests", "warm-up", "sent per second", "late p50 ms", "late p99 ms", "connections"),
    )


def _value(value: float) -> str:
    return "never" if math.isinf(value) else "-" if math.isnan(value) else number(float(f"{value:.5g}"))


_SHARES = ("violations", "dropped", "in_time", "late", "accuracy", "quality")


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
