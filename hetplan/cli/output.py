"""How every command speaks: a page for people or a stream of JSON lines, errors to stderr, one exit code at the end.

With ``--json`` standard output is NDJSON. The first line names the stream's format, the last object holds
``exit: {code, reason}``; in between come events. Nothing else is ever written there.

`exits.py` says which code means what.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any

import typer

from hetplan.planner.status import Exit

__all__ = ["STREAM_FORMAT", "WRITES_A_PLAN", "Exit", "Output", "Page", "number", "printable"]


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
    """Text as one line that a terminal only shows: white space is a space, other control characters are "?".

    A plan is untrusted: a terminal obeys escape sequences, and a line break would begin a line in hetplan's name.

    >>> printable("a\\x1b[31mb\\nc")
    'a?[31mb c'
    """
    return "".join(
        " " if letter.isspace() else "?" if unicodedata.category(letter) in {"Cc", "Cf", "Cs"} else letter
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
        """One line as it is; on a terminal that is narrower, broken between words."""
        if self._muted:
            return
        shown = printable(text)
        if self.rich:
            from hetplan.cli.terminal import folded

            shown = folded(shown)
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

    def columns(self, text: str) -> None:
        """The titles of a table that is aligned already."""
        if self.rich and not self._muted:
            from hetplan.cli.terminal import show_columns

            show_columns(printable(text), self.stream)
        else:
            self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[str] = ()) -> None:
        """Rows under column titles; `right` names the columns of figures. Nothing when there are no rows."""
        cells = [[printable(cell) for cell in row] for row in rows]
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


WRITES_A_PLAN = frozenset({Exit.OK, Exit.GAP_NOT_REACHED, Exit.LIMIT, Exit.INTERRUPTED})
"""A plan that failed a check, or misses a stated target, is shown but never written."""


STREAM_FORMAT = "hetplan/stream/1.0"


class Output:
    """The voice of one command; leaving the `with` block ends the command with the right exit code.

    `people` is muted when machines read standard output: with `as_json`, or when a plan goes there (`quiet`).
    """

    def __init__(self, command: str, *, as_json: bool = False, quiet: bool = False) -> None:
        self.command = command
        self.as_json = as_json
        self.people = Page(muted=as_json or quiet)
        self.machine: IO[str] | None = None
        self._code, self._reason, self._body = int(Exit.OK), "done", dict[str, Any]()

    def __enter__(self) -> Output:
        if self.as_json:
            from hetplan import __version__

            self.send({"format": STREAM_FORMAT, "command": self.command, "hetplan": __version__})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            from hetplan.cli.exits import ending_of

            ending = ending_of(error)
            if ending is None:
                return
            if os.environ.get("HETPLAN_DEBUG", "") not in {"", "0"}:
                import traceback

                traceback.print_exception(error, file=sys.stderr)
            for line in ending.lines:
                self.warn(line, kind="error")
            for line in getattr(error, "__notes__", ()):
                self.warn(line, kind="note")
            self.end(ending.code, ending.reason, **ending.body)
        if self.as_json:
            self.send({**self._body, "exit": {"code": self._code, "reason": self._reason}})
        raise typer.Exit(self._code) from None

    def send(self, message: dict[str, Any]) -> None:
        """One JSON line; nothing where people read. `machine` is standard output while engines are kept off it."""
        if self.as_json:
            from hetplan.profiles.plain_data import finite

            line = json.dumps(finite(message), ensure_ascii=False, allow_nan=False)
            print(line, file=self.machine or sys.stdout, flush=True)

    def warn(self, text: str, *, kind: str = "warning") -> None:
        """A line on standard error."""
        print(f"{kind}: {printable(text)}", file=sys.stderr)

    def note(self, text: str) -> None:
        """A remark on standard error for people; kept from pipes that read JSON."""
        if not self.as_json:
            print(printable(text), file=sys.stderr)

    def end(self, code: int, reason: str, **body: Any) -> None:
        """Set how the command ends; `body` goes into the last JSON object."""
        self._code, self._reason, self._body = int(code), reason, body
