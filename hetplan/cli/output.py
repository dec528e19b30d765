"""How every command speaks: a page for people or a stream of JSON lines, errors to stderr, one exit code at the end.

With ``--json`` standard output is NDJSON. The first line names the stream's format, the last object holds
``exit: {code, reason}``; in between come events. Nothing else is ever written there.

`ending.py` says which code means what.
"""

from __future__ import annotations

import json
import os
import sys
from types import TracebackType
from typing import IO, Any

import typer

from hetplan.cli.page import Page, printable
from hetplan.planner.status import Exit

__all__ = ["STREAM_FORMAT", "WRITES_A_PLAN", "Exit", "Output"]

WRITES_A_PLAN = frozenset({Exit.OK, Exit.GAP_NOT_REACHED, Exit.INTERRUPTED})
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
            from hetplan.cli.ending import ending_of

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
