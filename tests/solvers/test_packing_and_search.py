"""Every registered engine of the forms Packing and BlackBox against everything known of them."""

from __future__ import annotations

import pytest

from hetplan import registry
from hetplan.planner.contract import Solver
from hetplan.testing import Check, Skipped, solver_checks

ENGINES = [*registry.solvers("packing"), *registry.solvers("black-box")]


@pytest.mark.parametrize(
    ("engine", "check"),
    [(engine, check) for engine in ENGINES for check in solver_checks(engine)],
    ids=lambda value: value.name,
)
def test_engine(engine: Solver, check: Check) -> None:
    try:
        check.run(engine)
    except Skipped as reason:
        pytest.skip(str(reason))


def test_every_engine_is_tried() -> None:
    assert {"dual", "dual-core", "exact", "greedy", "fcfs", "struct-ci", "cmbo", "vulcan"} <= {e.name for e in ENGINES}
