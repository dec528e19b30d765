"""Text for people: rich tables on a terminal, plain aligned columns when piped."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import IO

__all__ = ["Page", "number", "printable"]

Cell = object


def number(value: object) -> str:
    """A figure for reading: six significant digits, no exponent where none is needed; "-" for none.

    >>> number(85.7142857), number(3), number(None), number(1e-9), number(1234567.0)
    ('85.7143', '3', '-', '1e-09', '1234567')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def printable(text: object) -> str:
    """Text with control characters taken out: a plan is untrusted, and a terminal obeys escape sequences.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(
        "?" if unicodedata.category(letter) in {"Cc", "Cf", "Cs"} and letter not in "\n\t" else letter
        for letter in str(text)
    )


class Page:
    """A place to write readable text; `muted` pages swallow it (what `--json` wants)."""

    def __init__(self, *, stream: IO[str] | None = None, muted: bool = False) -> None:
        self._stream = stream
        self._muted = muted

    @property
    def stream(self) -> IO[str]:
        """Where the text goes, looked up late so that a redirected standard output is respected."""
        return self._stream or sys.stdout

    @property
    def rich(self) -> bool:
        """Whether a person sits at the other end."""
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def line(self, text: object = "") -> None:
        """One line (or several) as it is; on a terminal that is narrower, broken between words."""
        if self._muted:
            return
        shown = printable(text)
        if self.rich:
            from hetplan.cli.terminal import folded

            shown = "\n".join(map(folded, shown.split("\n")))
        print(shown, file=self.stream)

    def heading(self, text: str) -> None:
        """A line that opens a section, after an empty one."""
        if self._muted:
            return
        self.line()
        if self.rich:
            from hetplan.cli.terminal import show_heading

            show_heading(printable(text), self.stream)
        else:
            self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[str] = ()) -> None:
        """Rows under column titles; `right` names the columns of figures. Nothing when there are no rows."""
        cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
        if self._muted or not cells:
            return
        to_right = {columns.index(name) for name in right}
        if self.rich:
            from hetplan.cli.terminal import show_table

            show_table(columns, cells, to_right, self.stream)
        else:
            for row in [list(columns), *cells]:
                self.line(_aligned(row, _widths(columns, cells), to_right))


def _widths(columns: Sequence[str], cells: list[list[str]]) -> list[int]:
    return [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]


def _aligned(row: list[str], widths: list[int], to_right: set[int]) -> str:
    padded = (
        cell.rjust(width) if i in to_right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  " + "  ".join(padded).rstrip()
