"""The checks of the form Columns against liars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetplan.planner.answer import Limits, Status
from hetplan.planner.contract import Solver
from hetplan.solvers.columns import ColumnsEngine
from hetplan.testing import Check, solver_checks


class _Liar(ColumnsEngine):
    """Says something else than what it found."""

    def __init__(self, how: str) -> None:
        self.how = how

    def solve(self, form, limits: Limits, *, start=None, on_event=None):  # type: ignore[no-untyped-def]
        found = super().solve(form, limits, start=start, on_event=on_event)
        if found.point is None or found.value is None:
            return found
        if self.how == "cheaper":
            return replace(found, value=0.5 * found.value - 1.0)
        if self.how == "fewer":
            return replace(found, point=0.0 * found.point, value=0.0)
        if self.how == "bound":
            return replace(found, bound=found.value + 1.0)
        if self.how == "impossible":
            return replace(found, status=Status.INFEASIBLE, point=None, value=None)
        return replace(found, status=Status.OPTIMAL, point=form.upper.copy(), value=form.value(form.upper))


def _fails(check: Check, engine: Solver) -> bool:
    try:
        check.run(engine)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("how", ["cheaper", "fewer", "bound", "impossible", "most of all"])
def test_liars_are_found_out(how: str) -> None:
    liar = _Liar(how)
    assert any(_fails(check, liar) for check in solver_checks(liar) if check.name.startswith("answers"))
