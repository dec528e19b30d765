"""Plans and traces by the paths that a command was given, and the plan that was applied last."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan

__all__ = ["KEPT_PLAN", "keep_plan", "plan_from", "trace_from"]

KEPT_PLAN = "watched-plan.json"
"""The plan that was applied last, beside the record of its deployment."""


def keep_plan(folder: Path, plan: Plan) -> None:
    """Keep a plan that was applied, for those who watch it."""
    from hetplan.profiles.plan_file import write_plan

    write_plan(plan, folder / KEPT_PLAN)


def plan_from(source: Path, *, warn: Callable[[str], None] | None = None) -> Plan:
    """The plan in a file or, for `-`, on standard input; raises InputError when it is none.

    With `warn` an edited plan is only warned about: looking at one, or verifying it, trusts nothing it says.
    """
    from hetplan.profiles.plan_file import plan_digest
    from hetplan.profiles.read_json import read_json
    from hetplan.profiles.read_plan import read_plan

    if str(source) == "-":
        given = read_json(sys.stdin.buffer.read(), file="<stdin>")
        plan = read_plan(given if isinstance(given, dict) else {"format": given}, trust_digest=warn is not None)
    else:
        plan = read_plan(source, trust_digest=warn is not None)
    if warn is not None and plan.digest != plan_digest(plan):
        warn(f"{source}: edited since it was made (its digest is not that of its content)")
    return plan


def trace_from(file: Path | None) -> Any:
    """The arrival times in a file; None where none is named."""
    if file is None:
        return None
    from hetplan.profiles.traces import parse_arrivals

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError.one(
            file=str(file), why=f"the trace cannot be read: {error.strerror}", remedy="Name a readable CSV file."
        ) from error
    return parse_arrivals(data, name=str(file))
