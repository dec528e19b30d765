"""Every registered engine against everything known of its form: a new engine needs no test of its own."""

from __future__ import annotations

import pytest

from hetplan import registry
from hetplan.planner.contract import Solver
from hetplan.testing import Check, Skipped, solver_checks

ENGINES = registry.solvers()
TAKES_LONGER = ("ten thousand", "reports progress", "stops for")
"""Checks that take most of a second; the engines that are used by default have them among the quick tests."""
DEFAULTS = ("highs", "cp-sat", "queue-structured", "struct")


def marks_of(engine: Solver, check: Check) -> list[pytest.MarkDecorator]:
    """What takes most of a second is not among the quick ones, but for the default engines."""
    longer = engine.name not in DEFAULTS and any(words in check.name for words in TAKES_LONGER)
    return [pytest.mark.slow] if longer else []


@pytest.mark.quick_sample(400)
@pytest.mark.parametrize(
    ("engine", "check"),
    [
        pytest.param(engine, check, marks=marks_of(engine, check))
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
