"""Ends a command after an exception: its exit code, one line that says why, and what else is printed.

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
6     a check failed: verification, a broken promise, a problem without a check
7     apply could not reach or keep the wanted state
8     differences were found (`diff --exit-code`)
9     simulation and measurement disagree (`loadtest`)
130   interrupted; the best plan so far is written where the method has one
====  ==========================================================================================================
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

from hetplan.errors import HetplanError, InputError
from hetplan.planner.status import Exit

__all__ = ["Ending", "ending_of"]


@dataclass(frozen=True)
class Ending:
    """How a command ends: its code, one line why, and what else the last JSON object says."""

    code: int
    reason: str
    lines: tuple[str, ...] = ()
    body: dict[str, Any] = field(default_factory=dict)


def ending_of(error: BaseException) -> Ending | None:
    """What an exception means for the process; None where it is not ours to translate (typer's own, a closed pipe).

    >>> from hetplan.errors import Infeasible
    >>> ending_of(Infeasible(["the budget buys nothing"])).code
    3
    """
    if isinstance(error, InputError):
        faults = [vars(fault) for fault in error.faults]
        what = "fault" if error.exit_code == Exit.BAD_INPUT else "obstacle"
        many = (
            f"{len(faults)} {what}s in the input"
            if len(faults) != 1
            else f"a {what} in the input".replace("a o", "an o")
        )
        lines = tuple(str(fault) for fault in error.faults)
        return Ending(error.exit_code, many, lines, {"faults": faults})
    if isinstance(error, HetplanError):
        return Ending(error.exit_code, str(error), (str(error),))
    if isinstance(error, KeyboardInterrupt):
        return Ending(Exit.INTERRUPTED, "interrupted", ("interrupted; nothing was written",))
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return _of_the_system(error)
    if isinstance(error, Exception) and not isinstance(error, BrokenPipeError) and not _typers(error):
        reason = f"a fault of hetplan: {type(error).__name__}: {error}"
        line = f"{reason}. This should not happen. HETPLAN_DEBUG=1 shows where; please report it with the input files."
        return Ending(Exit.FAULT, reason, (line,))
    return None


def _of_the_system(error: OSError) -> Ending:
    if error.filename is None and _is_said(error):
        error.filename = "standard output"
    if error.filename is None:
        reason = f"the system refused: {error.strerror or error}"
        return Ending(Exit.FAULT, reason, (reason,))
    reason = f"{error.filename}: {error.strerror or error}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Make room, or name another place." if full else "Check that the path exists and that you may use it."
    return Ending(Exit.BAD_INPUT, reason, (f"{reason}. {remedy}",))


def _is_said(error: OSError) -> bool:
    """Whether it was a line for people or machines that could not be written: such an error names no file."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__name__") == "hetplan.cli.output"


def _typers(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in {"typer", "click"}
