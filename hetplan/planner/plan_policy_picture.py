"""Policy tables as pictures: queue length against slack, a letter or a colour per model, smaller batches marked.

Slack runs to the right in equal steps of time, whatever the table's grid; the longer queue is the lower row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from hetplan.drawing.svg import plain
from hetplan.profiles.plan_policy import PolicyTable

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan

__all__ = [
    "PALETTE",
    "busiest_policies",
    "colour_of",
    "heading_of",
    "list_policies",
    "policies_by_group",
    "svg_of",
    "text_of",
]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DROP = "."
_LEAST_COLUMNS = 8

PALETTE = ("#fde725", "#addc30", "#5ec962", "#28ae80", "#21918c", "#2c728e", "#3b528b", "#472d7b", "#440154")
"""Bright for fast models, dark for slow ones; different also for people who see few colours, and in grey."""


def list_policies(plan: Plan) -> Iterator[tuple[str, PolicyTable]]:
    """Every table of a plan, with its application."""
    for app, tables in plan.policies.items():
        for one in tables:
            yield app, one if isinstance(one, PolicyTable) else PolicyTable.model_validate(one)


def policies_by_group(plan: Plan) -> list[tuple[str, list[PolicyTable]]]:
    """The tables of each application on each group of workers, by load."""
    found: dict[tuple[str, str], list[PolicyTable]] = {}
    for app, table in list_policies(plan):
        found.setdefault((app, table.workers), []).append(table)
    return [(app, sorted(tables, key=lambda one: one.rate_qps)) for (app, _), tables in found.items()]


def busiest_policies(plan: Plan) -> list[PolicyTable]:
    """Per group of workers, the policy of the highest load."""
    return [tables[-1] for _, tables in policies_by_group(plan)]


def heading_of(table: PolicyTable) -> str:
    """What a picture is of."""
    return f"{table.rate_qps:g} qps, SLO {table.slo_ms:g} ms, workers {table.workers}"


def text_of(table: PolicyTable, *, width: int = 72, rows: int = 24) -> list[str]:
    """Lines for a terminal: a row per queue length, a column per stretch of slack, letters from fast to slow.

    A capital letter takes fewer than wait, a dot drops the oldest. Neighbouring rows that look alike are one; beyond
    `rows` rows the rest is left out.

    >>> table = PolicyTable(
    ...     workers="w", slo_ms=20, rate_qps=5, queue_max=3, slack_ms=(0, 10, 20), models=("fast", "slow"),
    ...     choice={"1": "fastx1 slowx2", "2": "fastx1 slowx2", "3": "fastx3"},
    ...     batch={"1": "1x3", "2": "2x1 1x1 2x1", "3": "3x3"}, otherwise={"model": "fast", "batch": 4},
    ... )
    >>> print("\\n".join(text_of(table, width=17)))
    waiting
          1  aaaaaaaabbbbbbbbb
          2  aaaaaaaaBBBBBBBBb
          3  aaaaaaaaaaaaaaaaa
       more  a, 4 at most
             0       10     20 ms of slack
    a fast, b slow; capital: fewer than wait
    """
    width = max(width, _LEAST_COLUMNS)
    cells = _cells(table)
    columns = [
        bisect_right(table.slack_ms, table.slack_ms[-1] * k / (width - 1) * (1 + 1e-12)) - 1 for k in range(width)
    ]
    shown = ["".join(_letter(*cells[n][max(j, 0)], n + 1) for j in columns) for n in range(len(cells))]
    lines = ["waiting"]
    first = 1
    for looks, alike in groupby(shown):
        last = first + sum(1 for _ in alike) - 1
        if len(lines) > rows:
            lines.append(f"{f'{first}-{len(shown)}':>7}  ...")
            break
        lines.append(f"{f'{first}-{last}' if last > first else str(first):>7}  {looks}")
        first = last + 1
    lines += [_overflow_text(table), _ruler(table.slack_ms[-1], width)]
    used = sorted({m for row in cells for m, batch in row if batch} | {table.models.index(table.otherwise.model)})
    legend = ", ".join(f"{_LETTERS[m % 26]} {table.models[m]}" for m in used)
    drawn = "".join(shown)
    marks = ["capital: fewer than wait"] if any(c.isupper() for c in drawn) else []
    marks += [f"{_DROP} drops the oldest"] if _DROP in drawn else []
    return [*lines, "; ".join([legend, *marks])]


def _overflow_text(table: PolicyTable) -> str:
    model = _LETTERS[table.models.index(table.otherwise.model) % 26]
    most = "all of them" if table.otherwise.batch == "max" else f"{table.otherwise.batch} at most"
    return f"   more  {model}, {most}"


def _ruler(slo_ms: float, width: int) -> str:
    """Marks at the ends and the middle, under the columns that they belong to."""
    middle, end = f"{slo_ms / 2:g}", f"{slo_ms:g}"
    line = list(" " * (width + len(end)))
    places = [(0, "0"), ((width - 1) // 2, middle), (width - len(end), end)]
    if places[1][0] + len(middle) >= places[2][0]:
        del places[1]
    for place, text in places:
        line[place : place + len(text)] = text
    return f"         {''.join(line).rstrip()} ms of slack"


def svg_of(tables: PolicyTable | Sequence[PolicyTable], *, title: str = "", wide: int = 560, cell: int = 9) -> str:
    """A page of SVG, the tables one below the other: slack to the right, queue length downwards, a colour per model.

    A batch smaller than the queue has a hatch; every field says under the pointer what it does.
    """
    several = [tables] if isinstance(tables, PolicyTable) else list(tables)
    names = list(dict.fromkeys(name for table in several for name in table.models))
    colour = {name: colour_of(k, len(names)) for k, name in enumerate(names)}
    left, top = 48, 40 if title else 16
    parts: list[str] = []
    for table in several:
        parts += [
            f'<g transform="translate({left},{top + 22})">',
            *_draw_table(table, colour, wide, cell),
            "</g>",
        ]
        top += 22 + cell * table.queue_max + 48
    height = max(top, 60 + 18 * (len(names) + 2))
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 190}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect class="ground" width="100%" height="100%" fill="#fff"/>',
        '<defs><pattern id="fewer" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="1" height="5" fill="#fff" fill-opacity="0.6"/></pattern></defs>',
    ]
    if title:
        head.append(f'<text x="{left}" y="22" font-size="15" font-weight="bold">{plain(title)}</text>')
    return "\n".join([*head, *parts, *_legend(several, colour, left + wide + 24, 64), "</svg>"]) + "\n"


def colour_of(place: int, count: int) -> str:
    """The colour of one of so many models, fastest first."""
    return PALETTE[round(place * (len(PALETTE) - 1) / max(count - 1, 1))]


def _draw_table(table: PolicyTable, colour: dict[str, str], wide: int, cell: int) -> list[str]:
    """One table: its fields, axes and heading, with the upper left field at the origin."""
    slo_ms, high = table.slack_ms[-1], cell * table.queue_max
    edges = [wide * slack / slo_ms for slack in table.slack_ms] + [wide + 4.0]
    # The largest slack is a point, not a stretch: it gets a few pixels.
    parts = [f'<text x="0" y="-8" font-size="12" font-weight="bold">{plain(heading_of(table))}</text>']
    for n, row in enumerate(_cells(table)):
        start = 0
        for j in range(1, len(row) + 1):
            if j == len(row) or row[j] != row[start]:
                box = (edges[start], cell * n, edges[j] - edges[start], cell)
                parts += _field(box, table, colour, row[start], n + 1)
                start = j
    step = 1 if table.queue_max <= 8 else 4 if table.queue_max <= 40 else 16
    for n in [1, *range(step, table.queue_max + 1, step)]:
        parts.append(f'<text x="-6" y="{cell * n - 1}" text-anchor="end" font-size="9">{n}</text>')
    for k in range(5):
        x, text = wide * k / 4, f"{slo_ms * k / 4:g}{' ms of slack' if k == 4 else ''}"
        parts.append(f'<path d="M{x:.1f} {high}v4" stroke="#444"/>')
        parts.append(f'<text x="{x:.1f}" y="{high + 15}" text-anchor="middle" font-size="9">{text}</text>')
    parts.append(
        f'<text transform="translate(-30,{high / 2:.1f}) rotate(-90)" text-anchor="middle" font-size="9">waiting</text>'
    )
    return parts


def _field(
    box: tuple[float, float, float, float],
    table: PolicyTable,
    colour: dict[str, str],
    chosen: tuple[int, int],
    waiting: int,
) -> list[str]:
    x, y, width, height = box
    model, batch = chosen
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    what = "drop the oldest" if batch == 0 else f"{plain(table.models[model])} on {batch} of {waiting}"
    fill = "#fff" if batch == 0 else colour[table.models[model]]
    title = f"<title>{what}</title>"
    parts = [f'<rect {place} fill="{fill}">{title}</rect>']
    if 0 < batch < waiting:
        parts.append(f'<rect {place} fill="url(#fewer)">{title}</rect>')
    return parts


def _legend(tables: Sequence[PolicyTable], colour: dict[str, str], x: int, top: int) -> list[str]:
    entries = [(f'fill="{hue}"', name) for name, hue in colour.items()]
    decided = {(batch, n) for table in tables for n, row in enumerate(table.batch_rows(), start=1) for batch in row}
    if any(0 < batch < n for batch, n in decided):
        entries.append(('fill="#888"', "fewer than wait"))
    if any(batch == 0 for batch, _ in decided):
        entries.append(('fill="#fff" stroke="#444"', "drop the oldest"))
    parts = []
    for k, (style, name) in enumerate(entries):
        y = top + 18 * k
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" {style}/>')
        if name == "fewer than wait":
            parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="url(#fewer)"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}">{plain(name)}</text>')
    return parts


def _cells(table: PolicyTable) -> list[list[tuple[int, int]]]:
    return [list(zip(m, b, strict=True)) for m, b in zip(table.model_rows(), table.batch_rows(), strict=True)]


def _letter(model: int, batch: int, waiting: int) -> str:
    if batch == 0:
        return _DROP
    letter = _LETTERS[model % 26]
    return letter.upper() if batch < waiting else letter
