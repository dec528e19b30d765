"""`hetplan solve`: from profiles and a wish to a proved, verified plan."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import (
    AsJson,
    Files,
    Formulation,
    Settings,
    Unchecked,
    file_option,
    method_from,
    option,
)
from hetplan.cli.output import WRITES_A_PLAN, Output
from hetplan.cli.read_files import plan_from
from hetplan.errors import InputError
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.cli.measuring import Measurer
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.inputs import Inputs

__all__ = ["solve"]


def _solvers() -> list[str]:
    from hetplan.registry import solver_names

    return solver_names()


PlanTo = Annotated[str | None, option("-o --output", "FILE", "Write the plan here; - writes only the plan to stdout.")]
Start = Annotated[Path | None, file_option("--from", "PLAN", "Start the search from this plan.")]
Engine = Annotated[
    str | None, typer.Option(metavar="NAME", help="The solver (`hetplan list solvers`).", autocompletion=_solvers)
]
Gap = Annotated[float | None, typer.Option(min=0.0, help="Stop at this relative gap; exit 4 if it is not reached.")]
RequireProof = Annotated[
    bool, typer.Option("--require-proof", help="Print only certified bounds; exit 4 if one is not.")
]
Seconds = Annotated[
    float | None, typer.Option("--time-limit", min=0.0, help="Stop after these seconds, and keep the best plan.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Evaluators = Annotated[
    list[str] | None, option("--evaluate", "NAME", "Measure with this evaluator of --site; repeatable.")
]
SiteFile = Annotated[Path | None, file_option("--site", "FILE", "Trusted file with the commands of evaluators.")]
JournalFile = Annotated[Path | None, option("--journal", "FILE", "Keep every measurement here, and go on from it.")]
History = Annotated[
    Path | None, file_option("--history", "FILE", "Measurements of earlier queries; the search begins with them.")
]
Jobs = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Number of candidates measured in parallel.")]
On = Annotated[str | None, option("--on", "ray[:ADDRESS]", "Measure on a Ray cluster.")]
Alternatives = Annotated[
    Path | None, option("--alternatives", "FOLDER", "Also write the other plans: a Pareto front, or purchase options.")
]
ApplyRepair = Annotated[
    int | None,
    typer.Option(
        "--apply-repair",
        metavar="N",
        min=1,
        help="If infeasible: write the file changed by repair N to -o, and no plan.",
    ),
]
Details = Annotated[
    bool, typer.Option("--details", help="Also print all tables of the plan, as `show --view all` does.")
]


def solve(
    files: Files,
    output: PlanTo = None,
    formulation: Formulation = None,
    settings: Settings = None,
    start: Start = None,
    evaluate: Evaluators = None,
    site: SiteFile = None,
    journal: JournalFile = None,
    history: History = None,
    jobs: Jobs = 1,
    on: On = None,
    solver: Engine = None,
    gap: Gap = None,
    require_proof: RequireProof = False,
    time_limit: Seconds = None,
    seed: Seed = 0,
    allow_unchecked: Unchecked = False,
    apply_repair: ApplyRepair = None,
    alternatives: Alternatives = None,
    details: Details = False,
    as_json: AsJson = False,
) -> None:
    """Make a plan.

    Prints the best plan found, its cost and a bound. Separate code verifies the plan. By default every latency SLO is
    simulated. -o writes the plan to a file.

    Exit 0: verified; 3: infeasible, with the smallest repairs; 4: --gap or --require-proof not reached; 5: a limit
    ended the solve; 6: verification failed; 130: interrupted.
    """
    with Output("solve", as_json=as_json, quiet=output == "-") as out:
        _ready(output, alternatives, as_json=as_json, repair=apply_repair)
        formulation, options = method_from(settings, formulation=formulation)
        named = sort_files(files, "solve")
        profiles, slo = list(named.profiles), named.slo
        outcome = _solve(
            out, named.inputs, profiles, slo,
            limits={"seconds": time_limit, "gap": gap, "seed": seed},
            who={"names": evaluate, "site": site, "journal": journal, "history": history, "jobs": jobs - 1, "on": on},
            state=named.state, formulation=formulation, options=options, start=start,
            solver=solver, require_proof=require_proof, allow_unchecked=allow_unchecked,
        )  # fmt: skip
        if apply_repair is not None and output is not None:
            from hetplan.cli.outcome_files import repaired

            repaired(out, outcome, apply_repair, slo, profiles, output)
            return
        _show(out, outcome, output, alternatives, files=files, details=details)


def _ready(output: str | None, folder: Path | None, *, as_json: bool, repair: int | None) -> None:
    """Refuse a place where the plan cannot go before the work, not after it."""
    if folder is not None and (folder.is_file() or not folder.parent.is_dir()):
        why = "this is a file" if folder.is_file() else "there is no folder for it"
        raise InputError.one(file=str(folder), why=why, remedy="Make a folder, or name another.")
    if repair is not None and output is None:
        why = "the changed file needs a name"
        raise InputError.one(file="--apply-repair", why=why, remedy="Add -o changed.json.")
    if output is None:
        return
    if output == "-":
        if as_json:
            why = "--json writes to stdout as well"
            raise InputError.one(file="-o -", why=why, remedy="Give the plan a file: -o plan.json.")
        return
    parent = Path(output).resolve().parent
    if not parent.is_dir():
        raise InputError.one(file=output, why=f"there is no folder {parent}", remedy="Make it, or name another.")
    if Path(output).is_dir() and repair is None:
        raise InputError.one(file=output, why="this is a folder", remedy=f"Name a file, such as {output}/plan.json.")
    if not os.access(parent, os.W_OK):
        why = f"the folder {parent} is read-only for you"
        raise InputError.one(file=output, why=why, remedy="Name another, or use -o - for stdout.")


def _solve(
    out: Output, inputs: Inputs, profiles: list[Path], slo: Path, *, limits: dict[str, Any], who: dict[str, Any],
    state: Path | None, **how: Any,
) -> Outcome:  # fmt: skip
    from hetplan.api.solve import plan_for
    from hetplan.cli.long_work import interruptible, progress, quiet_engines
    from hetplan.planner.answer import Limits

    def work(cancel: threading.Event) -> Outcome:
        tools = None if measurer is None else measurer.tools(cancel, show)
        outcome = plan_for(inputs, limits=Limits(**limits, cancel=cancel), on_event=show, tools=tools, **how)
        return outcome if measurer is None else measurer.signed(outcome, profiles, slo, state)

    if how["start"] is not None:
        how["start"] = plan_from(how["start"])
    if any(who.values()):
        from hetplan.cli.measuring import measuring

        at_hand: AbstractContextManager[Measurer | None] = measuring(profiles, slo, **who, out=out)
    else:
        at_hand = nullcontext()
    with at_hand as measurer, quiet_engines(out), progress(out) as show:
        return interruptible(work, say=out.note)


def _show(
    out: Output, outcome: Outcome, output: str | None, folder: Path | None, *, files: list[Path], details: bool
) -> None:
    from hetplan.cli.plan_page import show_outcome

    written = None
    if outcome.plan is not None and outcome.exit_code in WRITES_A_PLAN and output is not None:
        from hetplan.profiles.plan_file import plan_bytes, write_plan

        if output == "-":
            sys.stdout.buffer.write(plan_bytes(outcome.plan))
            sys.stdout.flush()
        else:
            write_plan(outcome.plan, Path(output))
            written = output
    show_outcome(outcome, out.people, written=written, files=files, details=details)
    body = outcome.as_dict()
    if outcome.front is not None or (folder is not None and outcome.plan is not None):
        from hetplan.cli.outcome_files import write_alternatives

        body |= write_alternatives(out, outcome, folder)
    if output == "-":
        for line in (*outcome.why, *outcome.violations):
            out.warn(line, kind="note")
    if written is None and output not in (None, "-") and Path(str(output)).exists():
        out.warn(f"{output} was left as it was: it is an older plan")
    out.end(outcome.exit_code, outcome.reason, written=written, **body)
