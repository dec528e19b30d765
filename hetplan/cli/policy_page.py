"""The policies of a plan: a line per load, and which model answers which queue as a picture."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetplan.cli.output import Page, number, printable
from hetplan.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_policy import PolicyTable

__all__ = ["draw_policies", "show_policies", "write_svg"]

_MARGIN = 28
"""Columns of a terminal that the labels beside a picture take."""
_PIPED = 100
"""Columns where nobody says how many there are."""
_WIDEST = 130
_ROW = re.compile(r" *\d+(?:-\d+)?  ([A-Za-z.]+)")
"""A row of a picture: how many wait, then a letter per column."""


def show_policies(plan: Plan, page: Page) -> None:
    """A line per load: what is expected of its policy, and what it gave in simulation."""
    from hetplan.planner.plan_policy_picture import list_policies

    page.heading("Policies")
    columns = ["app", "workers", "qps", "slo_ms", "batches", "goodput", "late", "busy", "simulated", "late there"]
    rows = [_row(app, table) for app, table in list_policies(plan)]
    page.table(columns, rows, right=columns[2:4] + columns[5:])


def draw_policies(plan: Plan, page: Page, *, load_qps: float | None = None) -> None:
    """Which model answers which queue: per group of workers the policy that serves `load_qps`, or the busiest one."""
    from hetplan.planner.plan_policy_picture import policies_by_group

    for app, tables in policies_by_group(plan):
        table = _serving(tables, load_qps)
        note = ""
        if load_qps is not None and load_qps > table.rate_qps:
            note = f" ({number(load_qps)} qps is above every table: this one serves; plan again)"
        elif len(tables) > 1 and load_qps is None:
            note = f" (one of {len(tables)} loads; --load QPS draws another, --svg FILE all)"
        _draw(app, table, page, note)


def write_svg(plan: Plan, path: Path, *, load_qps: float | None = None) -> None:
    """The plan as one SVG file: its policies (or those that serve one load), else its day, else where queries go."""
    from hetplan.drawing.day import day_picture, hours_of
    from hetplan.drawing.routes import routes_picture
    from hetplan.planner.plan_policy_picture import policies_by_group, svg_of

    groups = policies_by_group(plan)
    if groups:
        kept = [table for _, many in groups for table in (many if load_qps is None else [_serving(many, load_qps)])]
        text = svg_of(kept, title=", ".join(dict.fromkeys(app for app, _ in groups)))
    else:
        document = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
        hours = hours_of(document)
        money = plan.bill.currency if plan.bill is not None else "money"
        drawn = day_picture(hours, 1000.0, money=money) if len(hours) > 1 else routes_picture(document)
        text = drawn.svg(alone=True)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"cannot be written: {error.strerror}"
        raise InputError.one(file=str(path), why=why, remedy="Name another file.") from None


def _serving(tables: Sequence[PolicyTable], load_qps: float | None) -> PolicyTable:
    """The lowest table made for at least this load; the top one beyond all, and where none is named."""
    if load_qps is None:
        return tables[-1]
    return next((table for table in tables if table.rate_qps >= load_qps), tables[-1])


def _row(app: str, table: PolicyTable) -> list[object]:
    expected, run = table.expected, table.simulated or {}
    modelled = (
        ["-"] * 3
        if expected is None
        else [f"{expected.goodput:.4f}", f"{expected.violation_by_query:.2%}", f"{expected.utilisation:.0%}"]
    )
    tried = [
        f"{run['goodput']:.4f}" if "goodput" in run else "-",
        f"{run['violation']:.2%}" if "violation" in run else "-",
    ]
    load = f"{number(table.rate_qps)}{' overload' if table.overload else ''}"
    return [app, table.workers, load, number(table.slo_ms), table.batching, *modelled, *tried]


def _draw(app: str, table: PolicyTable, page: Page, note: str) -> None:
    from hetplan.planner.plan_policy_picture import heading_of, text_of

    page.heading(f"{app}: {heading_of(table)}{note}")
    columns = shutil.get_terminal_size((_PIPED, 24)).columns if page.rich else _PIPED
    lines = text_of(table, width=min(columns, _WIDEST) - _MARGIN)
    if not page.rich:
        for line in lines:
            page.line(f"  {line}")
        return
    from rich.console import Console

    console = Console(file=page.stream)
    for line in lines:
        console.print(_painted(f"  {printable(line)}", table), soft_wrap=True)


def _painted(line: str, table: PolicyTable) -> Text:
    """A row of letters on the colours of their models; the other lines as they are."""
    from rich.text import Text

    from hetplan.planner.plan_policy_picture import PALETTE, colour_of

    painted = Text(line)
    row = _ROW.fullmatch(line)
    if row is None:
        return painted
    letters, start = row.group(1), row.start(1)
    for k, letter in enumerate(letters):
        if letter != ".":
            hue = colour_of((ord(letter.lower()) - ord("a")) % 26, min(len(table.models), 26))
            dark = PALETTE.index(hue) >= len(PALETTE) // 2
            painted.stylize(f"{'white' if dark else 'black'} on {hue}", start + k, start + k + 1)
    return painted
