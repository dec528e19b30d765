"""Reads what a command takes beside its files: a plan or "-", traces, methods, the plan applied last."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.errors import Fault, InputError

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan

__all__ = [
    "KEPT_PLAN",
    "Wait",
    "keep_plan",
    "plan_from",
    "read_method",
    "trace_from",
]

Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0.0, help="Wait up to these seconds for another command to end."),
]

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


_METHOD_KEYS = ("formulation", "options", "like", "question")


def read_method(file: Path) -> dict[str, Any]:
    """What a file of ``--set @FILE`` says: the formulation and its options."""
    from hetplan.profiles.read_json import read_json

    method = read_json(file, file=str(file))
    if not isinstance(method, dict):
        raise InputError.one(
            file=str(file), path="$", why="a method file is an object", remedy='Write {"options": {"derate": 0.8}}.'
        )
    faults = [
        Fault(str(file), f"$.{name}", "", "unknown key of a method file", f"Known: {', '.join(_METHOD_KEYS)}.")
        for name in method
        if name not in _METHOD_KEYS
    ]
    for name, kind in (("formulation", str), ("options", dict)):
        if not isinstance(method.get(name, kind()), kind):
            expected = "an object" if kind is dict else "a text"
            faults.append(Fault(str(file), f"$.{name}", repr(method[name])[:60], f"must be {expected}", "Correct it."))
    if faults:
        raise InputError(faults)
    return method
