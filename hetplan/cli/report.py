"""`hetplan report`: a plan as one page for people, with what was simulated and verified of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles, option
from hetplan.cli.given_files import plan_from
from hetplan.cli.output import Exit, Output
from hetplan.cli.plans import has_unproved_bound
from hetplan.errors import InputError
from hetplan.profiles.given_files import GivenFiles, sort_files

if TYPE_CHECKING:
    from hetplan.drawing.report import Documents
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.verifier.report import Report

__all__ = ["report", "write_page"]

PageTo = Annotated[Path, option("-o --output", "FILE", "Write the page here.")]
Simulation = Annotated[
    Path | None, option("--simulation", "FILE", "What `hetplan simulate --json` wrote; else it is played here.")
]
Whatif = Annotated[Path | None, option("--whatif", "FILE", "What `hetplan whatif --json` wrote: its curves.")]
Compared = Annotated[Path | None, option("--compare", "FILE", "What `hetplan compare --json` wrote of several ways.")]
NoPlay = Annotated[bool, typer.Option("--no-simulation", help="Simulate nothing.")]
Baselines = Annotated[bool, typer.Option("--baselines", help="Also play what people run today under the same queries.")]


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

    It begins with the summary. With the files that the plan was made from it also has a verification and a simulation.
    """
    with Output("report", as_json=as_json) as out:
        from hetplan.drawing.report import Documents, report_page
        from hetplan.planner.summary import summarize
        from hetplan.profiles.summary_words import summary_text

        named = sort_files(files, "report", plans=(1, 1), needs_inputs=False)
        found = plan_from(named.plan, warn=out.warn)
        document = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        told = summary_text(summarize(found))
        given = Documents(document, told, pictures=_policies(found))
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
            given = _with_files(out, found, given, named, play=play, baselines=baselines)
        write_page(output, report_page(given))
        out.people.line(f"written to {output}")
        out.end(Exit.OK, "done", written=str(output))


def _with_files(
    out: Output,
    plan: Plan,
    given: Documents,
    named: GivenFiles,
    *,
    play: bool,
    baselines: bool,
) -> Documents:
    """What the plan's own files add: limits, money, the verification, and a simulation where one is wanted."""
    from hetplan.api.judge import verify
    from hetplan.planner.summary import summarize
    from hetplan.planner.summary_rows import spot_offers
    from hetplan.profiles.summary_words import summary_text

    inputs = named.inputs
    checked = verify(plan, inputs, prove=False)
    verified = {
        "reason": checked.reason,
        "violations": [str(one) for one in checked.violations],
        "checked": list(checked.checked),
        "skipped": [str(what) for what in checked.skipped],
        "claims": [{"about": one.about, "word": str(one.word), "text": one.text} for one in checked.claims],
    }
    wish = inputs.slo.model_dump(mode="json", by_alias=True, exclude_none=True)
    again = checked.reason == "verified" and not has_unproved_bound(plan, checked.claims)
    summary = summarize(plan, inputs, made_here=again)
    if not checked.ok:
        summary = replace(summary, status="not verified")
    told, spot = summary_text(summary, _checked_words(checked)), spot_offers(inputs)
    given = replace(given, summary=told, slo=wish, verified=verified, spot=spot)
    if not play or not plan.workers:
        return given
    ways = _played(out, plan, inputs, baselines=baselines)
    return given if ways is None else replace(given, simulation=ways.pop("plan"), baselines=ways)


def _checked_words(report: Report) -> tuple[str, str]:
    """What separate code found when it recomputed the plan from its files."""
    if report.reason == "verified":
        return "Verified", "independent arithmetic over the same files finds nothing that contradicts it"
    return "Checked", "; ".join([report.reason, *map(str, report.violations[:3])])


def _played(out: Output, plan: Plan, inputs: Inputs, *, baselines: bool) -> dict[str, Any] | None:
    from hetplan.cli.long_work import interruptible, progress
    from hetplan.simulator.baselines import compare
    from hetplan.simulator.simulate import simulate

    def work(cancel: threading.Event) -> Mapping[str, Any]:
        if baselines:
            return compare(plan, inputs, on_event=show, cancel=cancel)
        return {"plan": simulate(plan, inputs, on_event=show, cancel=cancel)}

    try:
        with progress(out) as show:
            return {name: one.as_dict() for name, one in interruptible(work, say=out.note).items()}
    except InputError as error:
        out.warn(f"not simulated: {error.faults[0].why}")
        return None


def _policies(plan: Plan) -> dict[str, str]:
    """The pictures of a plan's policies: the busiest of each group."""
    if not plan.policies:
        return {}
    from hetplan.cli.policy_page import busiest_policies
    from hetplan.planner.plan_policy_picture import svg_of

    return {"Which model answers which queue": svg_of(busiest_policies(plan), title=", ".join(plan.policies))}


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
