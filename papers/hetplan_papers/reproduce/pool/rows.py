"""One row of a reproduction: what the paper says, what is stored of its code and data, ours, and whether it fits.

A row holds when ours lies within every `Check` that it has. A check names what it is taken against and why it is as
wide as it is. Where ours truly differs the row stays off, and `note` says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

__all__ = ["Check", "Claim", "Row", "as_json", "at_least", "at_most", "between", "near", "shown"]


@dataclass(frozen=True)
class Check:
    """Ours must lie in [low, high]; `against` says what that is, `why` where the width comes from."""

    against: str
    low: float
    high: float
    why: str

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


def near(against: str, value: float, relative: float, why: str) -> Check:
    """Within a share of a value.

    >>> near("code", 100, 0.05, "seeds").holds(96)
    True
    """
    slack = abs(value) * relative
    return Check(f"{against} +-{100 * relative:g}%", value - slack, value + slack, why)


def at_least(against: str, value: float, why: str) -> Check:
    """No less than a value."""
    return Check(f"{against} >= {value:g}", value, math.inf, why)


def at_most(against: str, value: float, why: str) -> Check:
    """No more than a value."""
    return Check(f"{against} <= {value:g}", -math.inf, value, why)


def between(against: str, low: float, high: float, why: str) -> Check:
    """Within two values."""
    return Check(f"{against} {low:g} to {high:g}", low, high, why)


@dataclass(frozen=True)
class Claim:
    """What the paper's text says: its own words, and the figure in them where there is one."""

    words: str
    figure: str = ""


@dataclass(frozen=True)
class Row:
    """One figure: what the paper's text says of it, a stored value of code or data with its file, and ours.

    `paper` is a figure as text, or a `Claim`, whose words are said beneath the table.
    `said` is what is shown beside ours without being checked (a pool, a spread).
    """

    figure: str
    what: str
    unit: str
    ours: float
    paper: Claim | str = ""
    code: float | None = None
    source: str = ""
    said: str = ""
    checks: Sequence[Check] = field(default_factory=tuple)
    note: str = ""

    @property
    def claim(self) -> Claim:
        """What the paper says, as a claim."""
        return self.paper if isinstance(self.paper, Claim) else Claim("", self.paper)

    @property
    def off(self) -> bool:
        """Whether ours lies outside of a check."""
        return not all(check.holds(self.ours) for check in self.checks)

    @property
    def verdict(self) -> str:
        """How the row ended."""
        return "off" if self.off else "ok" if self.checks else "-"

    def noted_if_off(self, note: str) -> Row:
        """The row with a note where it is off."""
        return replace(self, note=note) if self.off else self

    def plain(self) -> dict[str, Any]:
        """The row as JSON would have it."""
        return {
            "figure": self.figure,
            "what": self.what,
            "unit": self.unit,
            "paper": self.claim.figure or None,
            "paper_words": self.claim.words or None,
            "code": self.code,
            "code_source": self.source if self.code is not None else None,
            "ours": self.ours,
            "said": self.said or None,
            "verdict": self.verdict,
            "checks": [{"against": c.against, "holds": c.holds(self.ours), "why": c.why} for c in self.checks],
            "note": self.note or None,
        }


def as_json(rows: Sequence[Row], **more: Any) -> str:
    """All rows, and how many are off."""
    off = [f"{row.figure}: {row.what}" for row in rows if row.off]
    return json.dumps({**more, "off": off, "rows": [row.plain() for row in rows]}, indent=1)


def shown(rows: Sequence[Row], titles: dict[str, str]) -> str:
    """The rows as tables, one per figure, with the checks and notes of rows that are off beneath."""
    lines: list[str] = []
    for figure, of_figure in groupby(rows, key=lambda row: row.figure):
        members = list(of_figure)
        lines += ["", f"{figure}. {titles.get(figure, '')}", *_table(members), *_beneath(members)]
    checked = sum(bool(row.checks) for row in rows)
    off = [row for row in rows if row.off]
    lines += ["", f"{len(rows)} rows, {checked} checked, {len(off)} off"]
    lines += [f"  off: {row.figure}: {row.what}" for row in off]
    return "\n".join(lines).lstrip("\n")


def _table(rows: Sequence[Row]) -> Iterable[str]:
    cells = [("", "paper", "published code / data", "ours", "", "checked", "")]
    for row in rows:
        within = "; ".join(check.against for check in row.checks)
        value = f"{number(row.ours)} {row.unit}".strip()
        cells.append((row.what, row.claim.figure, number(row.code), value, row.said, within, row.verdict))
    wide = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        placed = enumerate(zip(line, wide, strict=True))
        texts = [text.rjust(width) if at in (2, 3) else text.ljust(width) for at, (text, width) in placed]
        yield "  " + "  ".join(texts).rstrip()


def _beneath(rows: Sequence[Row]) -> Iterable[str]:
    said: set[str] = set()
    for row in rows:
        if row.claim.words and row.claim.words not in said:
            said.add(row.claim.words)
            yield f'    paper: "{row.claim.words}"'
    for row in rows:
        for check in row.checks:
            if check.why not in said:
                said.add(check.why)
                yield f"    width: {check.why}"
        if row.note and row.note not in said:
            said.add(row.note)
            yield f"    {row.what}: {row.note}"


def number(value: float | None) -> str:
    """A figure with four digits that matter.

    >>> number(126.914), number(0.0123), number(30503.57), number(None)
    ('126.9', '0.0123', '30504', '')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
