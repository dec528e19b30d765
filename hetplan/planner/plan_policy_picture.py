"""A policy table as a picture: queue length against slack, a letter or a colour per model, smaller batches marked."""

from __future__ import annotations

from html import escape

from hetplan.planner.plan_policy import PolicyTable

__all__ = ["svg_of", "text_of"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DROP = "."


def text_of(table: PolicyTable, *, width: int = 72, rows: int = 16) -> list[str]:
    """Lines for a terminal: a row per queue length (up to `rows`), a column per stretch of slack, letters by speed.

    A capital letter takes fewer than wait, a dot drops the oldest. Rows that all look like the last one shown are left
    out.

    >>> table = PolicyTable(
    ...     workers="w", slo_ms=20, rate_qps=5, queue_max=2, slack_ms=(0, 10, 20), models=("fast", "slow"),
    ...     choice={"1": "fastx2 slowx1", "2": "fastx1 slowx2"}, batch={"1": "1x3", "2": "2x1 1x1 2x1"},
    ...     otherwise={"model": "fast"},
    ... )
    >>> print("\\n".join(text_of(table, width=9)))
    5 qps, SLO 20 ms; slack 0 to 20 ms from left to right
      1  aaaaaabbb
      2  aaaBBBbbb
    a fast, b slow; capital: fewer than wait
    """
    cells = _cells(table)
    columns = [min(len(table.slack_ms) * k // width, len(table.slack_ms) - 1) for k in range(width)]
    lines = [
        f"{table.rate_qps:g} qps, SLO {table.slo_ms:g} ms; slack 0 to {table.slack_ms[-1]:g} ms from left to right"
    ]
    shown = ["".join(_letter(*cells[n][j], n + 1) for j in columns) for n in range(len(cells))]
    last = max((n for n in range(len(shown)) if shown[n] != shown[-1]), default=0) + 1
    kept = min(last + 1, rows, len(shown))
    lines += [f"{n + 1:3d}  {shown[n]}" for n in range(kept)]
    if kept < len(shown):
        lines.append(f"     ... to {len(shown)}")
    used = sorted({m for row in cells[:kept] for m, batch in row if batch})
    legend = ", ".join(f"{_LETTERS[m % 26]} {table.models[m]}" for m in used)
    marks = ["capital: fewer than wait"] if any(c.isupper() for row in shown for c in row) else []
    marks += [f"{_DROP} drops the oldest"] if any(_DROP in row for row in shown) else []
    return [*lines, "; ".join([legend, *marks])]


def svg_of(table: PolicyTable, *, cell: int = 6) -> str:
    """A page of SVG: slack to the right, queue length downwards, a colour per model from fast (pale) to slow (dark)."""
    cells = _cells(table)
    left, top = 40, 24
    wide, high = left + cell * len(table.slack_ms) + 160, top + cell * len(cells) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-size="10">',
        f'<text x="{left}" y="14">{table.rate_qps:g} qps, SLO {table.slo_ms:g} ms</text>',
        f'<text x="{left}" y="{high - 8}">slack 0 to {table.slack_ms[-1]:g} ms</text>',
        f'<text x="4" y="{top + 8}">1</text><text x="4" y="{top + cell * len(cells)}">{len(cells)}</text>',
    ]
    for n, row in enumerate(cells):
        start = 0
        for j in range(1, len(row) + 1):
            if j == len(row) or row[j] != row[start]:
                parts.append(
                    _box(left + cell * start, top + cell * n, cell * (j - start), cell, table, *row[start], n + 1)
                )
                start = j
    for m, name in enumerate(table.models):
        x, y = wide - 150, top + 14 * m
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{_colour(table, m)}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 9}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cells(table: PolicyTable) -> list[list[tuple[int, int]]]:
    return [list(zip(m, b, strict=True)) for m, b in zip(table.model_rows(), table.batch_rows(), strict=True)]


def _letter(model: int, batch: int, waiting: int) -> str:
    if batch == 0:
        return _DROP
    letter = _LETTERS[model % 26]
    return letter.upper() if batch < waiting else letter


def _colour(table: PolicyTable, model: int) -> str:
    share = model / max(len(table.models) - 1, 1)
    return f"hsl({210 - 170 * share:.0f},60%,{85 - 45 * share:.0f}%)"


def _box(x: int, y: int, width: int, height: int, table: PolicyTable, model: int, batch: int, waiting: int) -> str:
    fill = "#fff" if batch == 0 else _colour(table, model)
    stroke = ' stroke="#000" stroke-width="0.5"' if 0 < batch < waiting else ""
    what = "drop" if batch == 0 else f"{escape(table.models[model])} on {batch} of {waiting}"
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"{stroke}><title>{what}</title></rect>'
