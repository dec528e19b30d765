"""How every command speaks: a page for people or a stream of JSON lines, errors to stderr, one exit code at the end.

With ``--json`` standard output is NDJSON. The first line names the stream's format, the last object holds
``exit: {code, reason}``; in between come events. Nothing else is ever written there.
"""

from __future__ import annotations

import json
import math
import os
import sys
from types import TracebackType
from typing import IO, Any

import typer

from hetplan.cli.exits import Ending, Exit, ending_of
from hetplan.cli.page import Page, printable

__all__ = ["STREAM_FORMAT", "Output"]

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
        self._ending = Ending(Exit.OK, "done")

    def __enter__(self) -> Output:
        if self.as_json:
            from hetplan import __version__

            self.send({"format": STREAM_FORMAT, "command": self.command, "hetplan": __version__})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = self._ending if error is None else ending_of(error)
        if ending is None:
            return
        if error is not None and os.environ.get("HETPLAN_DEBUG", "") not in {"", "0"}:
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        for line in ending.told:
            self.warn(line, kind="error")
        if self.as_json:
            self.send({**ending.body, "exit": {"code": int(ending.code), "reason": ending.reason}})
        raise typer.Exit(int(ending.code)) from None

    def send(self, message: dict[str, Any]) -> None:
        """One JSON line; nothing where people read. `machine` is standard output while engines are kept off it."""
        if self.as_json:
            line = json.dumps(_finite(message), ensure_ascii=False, allow_nan=False)
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
        self._ending = Ending(code, reason, (), body)


def _finite(value: Any) -> Any:
    """JSON has no infinity: a bound that is not there yet is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
