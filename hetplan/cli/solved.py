"""What `hetplan solve` does with an outcome where that is asked for: simulate, write repairs, fronts, ways to buy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.long_work import interruptible, progress
from hetplan.cli.output import WRITES_A_PLAN, Output
from hetplan.cli.simulation_page import show_simulation
from hetplan.errors import InputError
from hetplan.judging import simulate
from hetplan.planner.repairs import edited_slo
from hetplan.profiles.plan_file import write_atomically

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome

__all__ = ["in_folders", "repaired", "simulated_too"]


def simulated_too(
    out: Output,
    outcome: Outcome,
    profiles: list[Path],
    slo: Path,
    *,
    state: Path | None,
    measured: Any,
    seed: int,
) -> Outcome:
    """The outcome with what simulation says of its plan; what it breaks fails the plan."""
    assert outcome.plan is not None
    made = outcome.plan
    with progress(out) as show:
        report = interruptible(
            lambda cancel: simulate(
                made, profiles, slo, state=state, measured=measured, seed=seed, on_event=show, cancel=cancel
            ),
            say=out.note,
        )
    out.send({"simulation": report.as_dict()})
    show_simulation(report, out.people)
    return outcome.tried(broken=tuple(str(line) for line in report.broken))


def repaired(out: Output, outcome: Outcome, number: int, slo: Path, output: str) -> None:
    """Write the SLO file with a repair in it."""
    repairs = outcome.repairs
    if number > len(repairs):
        why = f"there are {len(repairs)} repairs" if repairs else "there are no repairs: " + outcome.reason
        remedy = "Leave it out to see them." if repairs else "Leave it out."
        raise InputError.one(file="--apply-repair", value=number, why=why, remedy=remedy)
    content = edited_slo(slo, repairs[number - 1])
    if output == "-":
        sys.stdout.buffer.write(content)
    else:
        write_atomically(Path(output), content)
    out.note(f"{repairs[number - 1].text}: {'' if output == '-' else f'written to {output}'}".removesuffix(": "))
    out.end(0, "the SLO file was changed", written=None if output == "-" else output, repair=number)


def in_folders(out: Output, outcome: Outcome, front: Path | None, ways: Path | None) -> dict[str, Any]:
    """Write the plans of a front, and of the ways to buy, where that is asked for: what the last JSON object says."""
    from hetplan.cli.fleet_page import write_ways
    from hetplan.cli.front_page import front_of

    said: dict[str, Any] = {}
    if outcome.front is not None or front is not None:
        said["front"] = front_of(outcome, out.people, front)
    if ways is not None and outcome.exit_code in WRITES_A_PLAN:
        said["ways"] = write_ways(outcome, out, ways)
    return said
