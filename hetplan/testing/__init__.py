"""Checks for those who extend hetplan: `check_solver(MySolver())` runs an engine against everything known of its form.

>>> from hetplan.solvers.highs import Highs
>>> from hetplan.testing import solver_checks
>>> [check.name for check in solver_checks(Highs())][:2]
['answers: optimum of a maximum', 'answers: optimum of a minimum']

In pytest, one test per check::

    @pytest.mark.parametrize("check", solver_checks(MySolver()), ids=str)
    def test_my_solver(check):
        check.run(MySolver())

`Lying(solver, how)` wraps an engine so that it lies, to try whatever must find lies out.
"""

from __future__ import annotations

from hetplan.testing.conformance import Check, Skipped, check_solver, solver_checks
from hetplan.testing.lying import LIES, Lying

__all__ = ["LIES", "Check", "Lying", "Skipped", "check_solver", "solver_checks"]
