"""`hetplan report`: a plan as one page for people, with what was simulated and verified of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles, option
from hetplan.cli.output import Exit, Output
from hetplan.cli.read_files import plan_from
from hetplan.errors import InputError
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.drawing.report import Documents
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["report", "write_page"]

PageTo = Annotated[Path, option("-o --output", "FILE", "Write the page here.")]
Simulation = Annotated[
    Path | None, option("--simulation", "FILE", "Output of `hetplan simulate --json`; default: simulates now.")
]
Whatif = Annotated[Path | None, option("--whatif", "FILE", "Output of `hetplan whatif --json`: adds its curves.")]
Compared = Annotated[Path | None, option("--compare", "FILE", "Output of `hetplan compare --json`: adds its policies.")]
NoPlay = Annotated[bool, typer.Option("--no-simulation", help="Simulate nothing.")]
Baselines = Annotated[bool, typer.Option("--baselines", help="Also simulate the baselines of `simulate --baselines`.")]


def report(
    files: PlanAndFiles,
    output: PageTo = Path("report.html"),
    simulation: Simulation = None,
    whatif: Whatif = None,
    compared: Compared = None,
    baselines: Baselines = False,
    no_simulation: NoPlay = False,
    as_json: AsJson = False,
) -> None:
    """Write a plan as one web page.

    The page begins with the summary. With the files that the plan was made from it also shows a verification and a
    simulation.
    """
    with Output("report", as_json=as_json) as out:
        from hetplan.drawing.report import report_page
        from hetplan.studies.report import documents_of

        named = sort_files(files, "report", plans=(1, 1), needs_inputs=False)
        found = plan_from(named.plan, warn=out.warn)
        given = documents_of(found)
        if simulation is not None:
            ways = _simulated(simulation)
            given = replace(given, simulation=ways.pop("plan", None), baselines=ways)
        if whatif is not None:
            given = replace(given, whatif=_last_object(whatif, "curves", "hetplan whatif --json"))
        if compared is not None:
            ways = _last_object(compared, "comparison", "hetplan compare --json")
            given = replace(given, compared=ways["comparison"])
        if named.has_inputs:
            play = simulation is None and not no_simulation
            given = _with_files(out, found, given, named.inputs, play=play, baselines=baselines)
        write_page(output, report_page(given))
        out.people.line(f"written to {output}")
        out.end(Exit.OK, "done", written=str(output))


def _with_files(out: Output, plan: Plan, given: Documents, inputs: Inputs, *, play: bool, baselines: bool) -> Documents:
    """What the plan's own files add: limits, money, the verification, and a simulation where one is wanted."""
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.studies.report import with_simulation, with_verification

    given = with_verification(given, plan, inputs)
    if not play or not plan.workers:
        return given
    try:
        with progress(out) as show:
            return interruptible(
                lambda cancel: with_simulation(given, plan, inputs, baselines=baselines, on_event=show, cancel=cancel),
                say=out.note,
            )
    except InputError as error:
        out.warn(f"not simulated: {error.faults[0].why}")
        return replace(given, unplayed=error.faults[0].why)


def _lines(file: Path) -> list[Any]:
    """The objects of a file of JSON lines, or the one object of a JSON file."""
    from hetplan.profiles.read_json import read_json

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError.one(
            file=str(file), why=f"cannot be read: {error.strerror}", remedy="Name a readable file."
        ) from error
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return [read_json(data, file=str(file))]


def _simulated(file: Path) -> dict[str, Any]:
    """The simulations in the output of `hetplan simulate --json`: of the plan, and of each baseline by its name."""
    found: dict[str, Any] = {}
    for one in _lines(file):
        if isinstance(one, dict) and isinstance(one.get("report"), dict):
            found[str(one.get("baseline", "plan"))] = one["report"]
        elif isinstance(one, dict) and str(one.get("format", "")).startswith("hetplan/simulation/"):
            found["plan"] = one
    if "plan" not in found:
        why = "there is no simulation in it"
        raise InputError.one(file=str(file), why=why, remedy="Give what `hetplan simulate ... --json` wrote.")
    return found


def _last_object(file: Path, key: str, maker: str) -> dict[str, Any]:
    for one in reversed(_lines(file)):
        if isinstance(one, dict) and key in one:
            return one
    raise InputError.one(file=str(file), path=f"$.{key}", why=f"it has no {key}", remedy=f"Give what `{maker}` wrote.")


def write_page(path: Path, text: str) -> None:
    """The file, whole or not at all; InputError where it cannot be written."""
    from hetplan.profiles.plan_file import write_atomically

    if path.is_dir() or not path.absolute().parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.absolute().parent}"
        raise InputError.one(
            file=str(path), why=f"cannot be written: {why}", remedy="Name a file in a folder of yours."
        )
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        why = f"cannot be written: {error.strerror}"
        raise InputError.one(file=str(path), why=why, remedy="Name another file.") from error
