"""What tests run in other processes: by itself, so that those processes import no more than this."""

from __future__ import annotations

import hetplan as hp
from hetplan.errors import Fault, NoSolver, SolverFailed

FAULT = Fault("slo.json", "$.apps", "3", "an object", "Write {}.")
PLANNED = {"sizing": "fluid"}


def raise_it(number: int) -> None:
    raise [NoSolver("milp", {"a": "b"}), SolverFailed("a", "b"), hp.InputError([FAULT])][number]


def plan_in_another_process(planner: hp.Planner) -> str:
    return planner.plan().require().digest or ""
