"""How every command speaks: a page for people or a stream of JSON lines, errors to stderr, one exit code at the end.

With ``--json`` standard output is NDJSON. The first line names the stream's format, the last object holds
``exit: {code, reason}``; in between come events. Nothing else is ever written there.

The exit codes:

====  ==========================================================================================================
code  meaning
====  ==========================================================================================================
0     a plan was written and verified, with the kind of claim that the method can give; or the command did its work
1     a fault of hetplan or of an engine
2     bad input or usage
3     infeasible, or a stated target cannot be met; explained, with repairs; no plan file
4     the plan is verified, but an explicit `--gap` or `--require-proof` was not reached before a limit
5     a limit or a budget ended the work with no plan
6     a check failed: verification, a `--recheck` that disagrees, a broken promise, a plugin without a check
7     apply could not reach or keep the wanted state
8     differences were found (`diff --exit-code`)
9     simulation and measurement disagree (`load`)
130   interrupted; the best plan so far is written where the method has one
====  ==========================================================================================================
"""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

import typer

from hetplan.cli.page import Page, printable
from hetplan.errors import HetplanError, InputError
from hetplan.planner.status import Exit

__all__ = ["STREAM_FORMAT", "WRITES_A_PLAN", "Ending", "Exit", "Output", "ending_of"]

WRITES_A_PLAN = frozenset({Exit.OK, Exit.GAP_NOT_REACHED, Exit.INTERRUPTED})
"""A plan that failed a check, or misses a stated target, is shown but never written."""


@dataclass(frozen=True)
class Ending:
    """How a command ends: its code, one line why, and what else the last JSON object says."""

    code: int
    reason: str
    lines: tuple[str, ...] = ()
    body: dict[str, Any] = field(default_factory=dict)


def ending_of(error: BaseException) -> Ending | None:
    """What an exception means for the process; None where it is not ours to translate (typer's own, a closed pipe).

    >>> from hetplan.errors import NoPlan
    >>> ending_of(NoPlan("the budget buys nothing")).code
    3
    """
    if isinstance(error, InputError):
        faults = [vars(fault) for fault in error.faults]
        many = f"{len(faults)} faults in the input" if len(faults) != 1 else "a fault in the input"
        lines = tuple(str(fault).replace("\n", " ") for fault in error.faults)
        return Ending(Exit.BAD_INPUT, many, lines, {"faults": faults})
    if isinstance(error, HetplanError):
        return Ending(error.exit_code, str(error), (str(error),))
    if isinstance(error, KeyboardInterrupt):
        return Ending(Exit.INTERRUPTED, "interrupted", ("interrupted; nothing was written",))
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return _of_the_system(error)
    if isinstance(error, Exception) and not isinstance(error, BrokenPipeError) and not _typers(error):
        reason = f"a fault of hetplan: {type(error).__name__}: {error}"
        line = f"{reason}\nThis should not happen. HETPLAN_DEBUG=1 shows where; please report it with the input files."
        return Ending(Exit.FAULT, reason, (line,))
    return None


def _of_the_system(error: OSError) -> Ending:
    if error.filename is None:
        reason = f"the system refused: {error.strerror or error}"
        return Ending(Exit.FAULT, reason, (reason,))
    reason = f"{error.filename}: {error.strerror or error}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Make room, or name another place." if full else "Check that the path exists and that you may use it."
    return Ending(Exit.BAD_INPUT, reason, (f"{reason}. {remedy}",))


def _typers(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in {"typer", "click"}


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
        for line in ending.lines:
            self.warn(line, kind="error")
        for line in getattr(error, "__notes__", ()):
            self.warn(line, kind="note")
        if self.as_json:
            self.send({**ending.body, "exit": {"code": int(ending.code), "reason": ending.reason}})
        raise typer.Exit(int(ending.code)) from None

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
        self._ending = Ending(code, reason, (), body)
