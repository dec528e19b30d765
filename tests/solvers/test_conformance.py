"""Every registered engine against everything known of its form: a new engine needs no test of its own."""

from __future__ import annotations

import pytest

from hetplan import registry
from hetplan.planner.contract import Solver
from hetplan.testing import Check, Skipped, solver_checks

ENGINES = registry.solvers()


@pytest.mark.parametrize(
    ("engine", "check"),
    [
        # Those that load torch take half a minute, where it is installed.
        pytest.param(engine, check, marks=[pytest.mark.slow] if engine.name.endswith("-botorch") else [])
        for engine in ENGINES
        for check in solver_checks(engine)
    ],
    ids=lambda value: value.name,
)
def test_engine(engine: Solver, check: Check) -> None:
    try:
        check.run(engine)
    except Skipped as reason:
        pytest.skip(str(reason))


def test_every_engine_is_tried() -> None:
    assert set(registry.SOLVERS) <= {engine.name for engine in ENGINES}
