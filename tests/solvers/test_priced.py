"""Every registered engine of the Priced form against everything known of it."""

from __future__ import annotations

import pytest

from hetplan import registry
from hetplan.planner.contract import Solver
from hetplan.testing import Check, Skipped, solver_checks

ENGINES = registry.solvers("priced")


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
    assert {"priced-columns"} <= {engine.name for engine in ENGINES}
