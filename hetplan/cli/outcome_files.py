"""Files that `hetplan solve` writes on request: a repaired SLO or profile, or the alternative plans."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import WRITES_A_PLAN, Output
from hetplan.errors import InputError
from hetplan.planner.repairs import edited_files, files_beside
from hetplan.profiles.plan_file import write_atomically

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome

__all__ = ["repaired", "write_alternatives"]


def repaired(out: Output, outcome: Outcome, number: int, slo: Path, profiles: list[Path], output: str) -> None:
    """Write the file that a repair changes, or into a folder those that it changes, each under its own name."""
    repairs = outcome.repairs
    if number > len(repairs):
        why = f"there are {len(repairs)} repairs" if repairs else "there are no repairs: " + outcome.reason
        remedy = "Leave it out to see them." if repairs else "Leave it out."
        raise InputError.one(file="--apply-repair", value=number, why=why, remedy=remedy)
    repair, folder = repairs[number - 1], output.endswith(("/", os.sep)) or (output != "-" and Path(output).is_dir())
    changed = edited_files(repair, slo, profiles)
    if len(changed) > 1 and not folder:
        why = f"this repair changes {len(changed)} files: {', '.join(map(str, changed))}"
        raise InputError.one(file="--apply-repair", value=number, why=why, remedy="Name a folder: -o changed/")
    written = []
    for path, content in changed.items():
        if output == "-":
            sys.stdout.buffer.write(content)
        else:
            to = Path(output, path.name) if folder else Path(output)
            to.parent.mkdir(exist_ok=True)
            _take_along(path, to)
            write_atomically(to, content)
            written.append(str(to))
    out.note(": written to ".join([repair.text, *([", ".join(written)] if written else [])]))
    files = "the files were" if len(changed) > 1 else "the SLO file was" if slo in changed else "the profile was"
    out.end(0, f"{files} changed", written=written[0] if len(written) == 1 else written or None, repair=number)


def _take_along(path: Path, to: Path) -> None:
    """Copy the files that a file names beside it to where it goes: it is read from there then."""
    for name in files_beside(path):
        here, there = path.parent / name, to.parent / name
        if there.exists() and there.read_bytes() != here.read_bytes():
            why = f"{path} names {name}, and here is another file of that name"
            raise InputError.one(file=str(there), why=why, remedy="Name another place with -o.")
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(there, here.read_bytes())


def write_alternatives(out: Output, outcome: Outcome, folder: Path | None) -> dict[str, Any]:
    """Write the plans of a front, or of the ways to buy of a bill, into a folder: what the last JSON object says."""
    from hetplan.cli.fleet_page import write_ways
    from hetplan.cli.pareto_page import front_of

    if outcome.front is not None:
        return {"front": front_of(outcome, out.people, folder)}
    if folder is None or outcome.exit_code not in WRITES_A_PLAN:
        return {}
    return {"ways": write_ways(outcome, out, folder)}
