"""A summary in words, whoever reads it: sentences, tables, lines with a label; and the same as the top of a page."""

from __future__ import annotations

from dataclasses import dataclass

from hetplan.drawing.charts import Bar, bars
from hetplan.drawing.page import Html

__all__ = ["SummaryText", "Table", "draw_costs", "write_summary"]

_KINDS = {"met": "good", "violated": "bad", "undecided": "maybe", "not simulated": "maybe"}
"""Colours of what is said of a limit."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns; `right` are the places of those that hold figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class SummaryText:
    """What a person checks of a plan, in words; `lines` are labels, each with its sentences."""

    head: str
    """Money, and what is served for it."""
    status: str
    bounds: tuple[str, ...]
    reserved: tuple[str, ...]
    tables: tuple[Table, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    is_wrong: bool = False
    """Whether the status says that something is missed, violated or not known."""
    costs: tuple[Bar, ...] = ()
    """Money a month of each group of machines, or of each application where machines change by the hour."""


def write_summary(page: Html, told: SummaryText, *, level: int = 1) -> None:
    """The whole summary, below a heading of this level that says the money."""
    page.heading(told.head, level)
    page.text(told.status, "bad" if told.is_wrong else "")
    for bound in told.bounds:
        page.text(f"Bound: {bound}")
    for table in told.tables:
        page.heading(table.title, level + 1)
        if table.title in ("Machines", "Hours"):
            page.items(told.reserved)
        kinds = [_KINDS.get(row[-1].split(" in ")[0], "") for row in table.rows]
        right = [table.columns[place] for place in table.right]
        page.table(table.columns, table.rows, right=right, kinds=kinds)
        if not table.rows:
            page.text("none")
    page.heading("What else to know", level + 1)
    page.items(f"{label}: {line}" for label, lines in told.lines for line in lines)


def draw_costs(page: Html, told: SummaryText) -> None:
    """A bar for each cost; nothing where nothing has a price."""
    if told.costs:
        page.picture(bars(told.costs, title="money a month"))
