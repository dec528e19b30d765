"""Checks for those who extend hetplan: `check_solver(MySolver())` runs an engine against everything known of its form.

>>> from hetplan.solvers.highs import Highs
>>> from hetplan.testing import solver_checks
>>> [check.name for check in solver_checks(Highs())][:2]
['answers: optimum of a maximum', 'answers: optimum of a minimum']

In pytest, one test per check::

    @pytest.mark.parametrize("check", solver_checks(MySolver()), ids=str)
    def test_my_solver(check):
        check.run(MySolver())

`check_target(target, units)` tries a place to run things (`hetplan.executor.target`) in the same way.

`Lying(solver, how)` wraps an engine so that it lies, to try whatever must find lies out.
"""

from __future__ import annotations

from hetplan.testing.conformance import check_solver, solver_checks
from hetplan.testing.known_case import Check, Skipped
from hetplan.testing.lying import LIES, Lying
from hetplan.testing.target_checks import check_target

__all__ = ["LIES", "Check", "Lying", "Skipped", "check_solver", "check_target", "solver_checks"]
