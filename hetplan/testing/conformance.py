"""The conformance kit: what every engine must do, whatever it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hetplan.testing.known_case import Check, Skipped

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["check_solver", "solver_checks"]

_CHECKS_OF = {
    "milp": "milp_checks:milp_checks",
    "packing": "packing_checks:packing_checks",
    "columns": "columns_checks:columns_checks",
    "black-box": "black_box_checks:black_box_checks",
    "priced": "priced_checks:priced_checks",
    "catalog": "catalog_checks:catalog_checks",
    "queue-process": "decision_checks:queue_process_checks",
}
"""Form -> what writes the checks of its engines."""


def check_solver(solver: Solver) -> dict[str, str]:
    """Run every check; raises AssertionError listing all that failed. Returns what was skipped, and why."""
    failed: list[str] = []
    skipped: dict[str, str] = {}
    for check in solver_checks(solver):
        try:
            check.run(solver)
        except Skipped as reason:
            skipped[check.name] = str(reason)
        except Exception as error:  # an engine may break in any way; all of them belong in the list
            failed.append(f"{check.name}: {type(error).__name__}: {error}")
    assert not failed, f"{solver.name} failed {len(failed)} checks:\n" + "\n".join(failed)
    return skipped


def solver_checks(solver: Solver) -> list[Check]:
    """Every check for engines of this one's form."""
    if solver.form not in _CHECKS_OF:
        raise ValueError(f"there are no known cases of the {solver.form} form yet")
    module, _, name = _CHECKS_OF[solver.form].partition(":")
    checks: list[Check] = getattr(import_module(f"hetplan.testing.{module}"), name)(solver)
    return checks
