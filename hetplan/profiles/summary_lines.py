"""The summary of a plan as at most 30 lines of text: what a person checks comes first.

Words and cells are those of `summary_words`, which every face shows: this file fits them into lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.drawing.summary import SummaryText, Table
    from hetplan.profiles.plan_summary import Summary

__all__ = ["VIEWS", "WIDTH", "Closing", "opening_lines", "summary_lines"]

WIDTH = 120
"""Letters of a line; tables of more columns than fit drop what a plan's other views have."""
MOST_ROWS = {"SLO": 10, "Machines": 8, "Hours": 6, "Policies": 5}
"""The most rows of each table; fewer where there would be more lines."""
MOST_SENTENCES = {"Money": 4, "Routing": 2, "Warnings": 2, "Unserved": 2}
"""The most lines with the same label; fewer warnings where there would be more lines."""
VIEWS = {"SLO": "proof", "Machines": "machines", "Policies": "policies", "Hours": "hours"}
"""What has the rest of a table."""
REST = {"Money": "machines", "Routing": "routes"}
"""What has the rest of the lines with a label."""
MOST_LINES = 28
"""With the line on what to do next, and an empty one, a summary has at most 30."""
LABEL = 11
UNNAMED = ("metric", "verdict")
"""Columns whose cells say what they are."""
LONGEST_NAME = 20
"""A plan with a longer name is called PLAN in the commands that are advised."""


class Closing:
    """What stands below a summary: what was checked, in words, and where the plan's other views are."""

    def __init__(self, checked: tuple[str, str] | None = None, plan: str = "PLAN") -> None:
        from hetplan.profiles.summary_words import NOTHING_CHECKED

        self.checked = checked or NOTHING_CHECKED
        self.plan = plan if len(plan) <= LONGEST_NAME else "PLAN"

    def more(self, count: int | str, view: str) -> str:
        """Where the rest is."""
        return f"{count} more: hetplan show {self.plan} --view {view}"


def summary_lines(summary: Summary, closing: Closing) -> list[str]:
    """The summary, line by line; empty lines part its tables."""
    from hetplan.profiles.summary_words import summary_text

    told, most = summary_text(summary, closing.checked), MOST_ROWS | MOST_SENTENCES
    lines = _lines_of_at_most(summary, told, closing, most)
    while len(lines) > MOST_LINES and most["Warnings"] > 1:
        most["Warnings"] -= 1
        lines = _lines_of_at_most(summary, told, closing, most)
    while len(lines) > MOST_LINES and (longest := max(MOST_ROWS, key=lambda part: most[part])) and most[longest] > 2:
        most[longest] -= 1
        lines = _lines_of_at_most(summary, told, closing, most)
    return lines


def _lines_of_at_most(summary: Summary, told: SummaryText, closing: Closing, most: Mapping[str, int]) -> list[str]:
    """The summary with at most so many rows of each table, and lines with a label.

    Machines that change by the hour are named with their money: a table of them is in a view.
    """
    blocks = [opening_lines(summary, told)]
    for table in told.tables:
        if summary.hours and table.title == "Machines":
            continue
        before = [_clip(line) for line in told.reserved] if table.title in ("Machines", "Hours") else []
        blocks.append([*before, *_table_lines(table, closing, most[table.title])])
    blocks.append([_clip(f"{label:<{LABEL}}{text}") for label, text in _labeled_lines(summary, told, closing, most)])
    lines: list[str] = []
    for block in blocks:
        lines += ["", *block] if lines else block
    return lines


def opening_lines(summary: Summary, told: SummaryText) -> list[str]:
    """Money, what is served, status, bounds."""
    return [*_head_lines(summary, told), *_bound_lines(told)]


def _clip(line: str, width: int = WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def _head_lines(summary: Summary, told: SummaryText) -> list[str]:
    """Money, what is served, status; two lines where one does not hold them."""
    from hetplan.profiles.summary_words import head_text

    what = told.head if len(told.head) <= WIDTH else head_text(summary, names=False)
    whole = f"{what}  {told.status}"
    return [whole] if len(whole) <= WIDTH else [_clip(what), told.status]


def _bound_lines(told: SummaryText) -> list[str]:
    whole = "  ".join(told.bounds)
    return [f"Bound: {whole}"] if len(whole) < WIDTH - 6 else [_clip(f"Bound: {one}") for one in told.bounds]


# Tables


def _table_lines(table: Table, closing: Closing, most: int) -> list[str]:
    """The table under its title, with what does not fit named below."""
    if not table.rows:
        return [f"{table.title:<{LABEL}}none"]
    head = [table.title, *("" if name in UNNAMED else name for name in table.columns[1:])]
    rows = [list(row) for row in table.rows[:most]]
    left = [str(len(table.rows) - len(rows))] * (len(rows) < len(table.rows))
    right = set(table.right)
    if table.title == "SLO":
        rows = _name_once(rows)
    elif table.title == "Policies":
        head, rows = _policy_rows(table, most)
    elif table.title == "Hours":
        dropped, cells = _fit_columns([head, *rows], len(right))
        head, *rows = cells
        right = {place - dropped for place in right}
        left = [f"{dropped} applications"] * (dropped > 0) + [f"{one} rows" for one in left]
    lines = _align([head, *rows], right)
    indent = " " * LABEL if table.title == "Policies" else ""
    return [*lines, indent + closing.more(" and ".join(left), VIEWS[table.title])] if left else lines


def _align(rows: Sequence[Sequence[str]], right: Iterable[int]) -> list[str]:
    """Columns two spaces apart, those of figures to the right."""
    to_right = set(right)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        _clip(
            "  ".join(
                cell.rjust(width) if place in to_right else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
        for row in rows
    ]


def _name_once(rows: Sequence[list[str]]) -> list[list[str]]:
    """Rows in which an application is named where its limits begin."""
    before = [None, *(row[0] for row in rows)]
    return [["" if row[0] == name else row[0], *row[1:]] for row, name in zip(rows, before, strict=False)]


def _policy_rows(table: Table, most: int) -> tuple[list[str], list[list[str]]]:
    """Policies from the first to the last, evenly; of one application it is not named."""
    count = min(most, len(table.rows))
    places = [round(n * (len(table.rows) - 1) / max(count - 1, 1)) for n in range(count)]
    several = len({row[0] for row in table.rows}) > 1
    begin = 0 if several else 1
    return ["Policies", *table.columns[begin:]], [["", *table.rows[place][begin:]] for place in places]


def _fit_columns(rows: Sequence[list[str]], tail: int) -> tuple[int, list[list[str]]]:
    """How many columns before the last ones are dropped so that lines fit, and what is left."""
    columns, dropped, cells = len(rows[0]) - tail, 0, list(rows)
    for dropped in range(columns - 1):
        cells = [[*row[: columns - dropped], *row[columns:]] for row in rows]
        if sum(max(len(row[place]) for row in cells) + 2 for place in range(len(cells[0]))) - 2 <= WIDTH:
            break
    return dropped, cells


# Lines with a label


def _labeled_lines(
    summary: Summary, told: SummaryText, closing: Closing, most: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Each label once, before the first of its lines; what was checked, and what is missing, are the last."""
    for label, sentences in told.lines:
        if summary.hours and label == "Routing":
            continue  # a day's page has no line to spare for it: --view routes
        lines = list(sentences)
        joined = "; ".join(lines)
        if label == "Routing" and len(joined) <= WIDTH - LABEL:
            lines = [joined]
        rest = lines[most.get(label, len(lines)) :]
        shown = lines[: len(lines) - len(rest)]
        if label in REST and rest:
            where = closing.more(len(rest), REST[label])
            # Of money each application keeps its name and its sum; what is left out is on which machines.
            sums = ", ".join(line.partition(" a month: ")[0] for line in rest) if label == "Money" else ""
            is_short = sums and len(sums) <= WIDTH - LABEL
            shown.append(sums if is_short else where)
        elif label == "Warnings":
            left = sum(count for _, count, _ in summary.warnings[len(shown) :])
            tail = f"   ({closing.more(left, 'warnings')})" if left else ""
            room = WIDTH - LABEL
            shown = [*(_clip(line, room) for line in shown[:-1]), _clip(shown[-1], room - len(tail)) + tail]
        elif label == "Missing":
            shown = [f"{line}: hetplan show {closing.plan} PROFILE SLO" for line in shown]
        for place, line in enumerate(shown):
            yield "" if place else label, line
