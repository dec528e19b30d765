"""A small honest engine for the planner's own tests, so that they depend on none of hetplan's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.forms.milp import Milp


@dataclass
class Reference:
    """scipy's milp/linprog behind the Solver protocol; counts its calls."""

    name: ClassVar[str] = "reference"
    form: ClassVar[str] = "milp"
    calls: int = 0

    def version(self) -> str:
        return "test"

    def refuses(self, form: Any) -> str:
        return ""

    def solve(self, form: Milp, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        self.calls += 1
        return lp(form) if form.pure_lp else mip(form)

    def solve_all(self, forms: Any, limits: Limits, *, on_event: Any = None) -> list[Answer[Any]]:
        return [self.solve(form, limits) for form in forms]


def mip(form: Milp) -> Answer[Any]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    sign = 1.0 if form.sense == "min" else -1.0
    rows = [LinearConstraint(form.matrix, form.row_lower, form.row_upper)] if form.row_lower.size else []
    got = milp(sign * form.cost, constraints=rows, bounds=Bounds(form.lower, form.upper), integrality=form.whole)
    if got.status == 2:
        return Answer(Status.INFEASIBLE)
    bound = sign * got.mip_dual_bound + form.offset
    return Answer(Status.OPTIMAL, point=got.x, value=form.value(got.x), bound=bound)


def lp(form: Milp) -> Answer[Any]:
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    sign = 1.0 if form.sense == "min" else -1.0
    up, down = np.isfinite(form.row_upper), np.isfinite(form.row_lower)
    matrix = form.matrix.tocsr()
    a = vstack([matrix[up], -matrix[down]]) if (up | down).any() else None
    b = np.concatenate([form.row_upper[up], -form.row_lower[down]]) if (up | down).any() else None
    got = linprog(sign * form.cost, A_ub=a, b_ub=b, bounds=np.column_stack([form.lower, form.upper]), method="highs")
    if got.status == 2:
        return Answer(Status.INFEASIBLE)
    if got.status == 3:
        return Answer(Status.UNBOUNDED)
    duals = np.zeros(form.row_lower.size)
    if a is not None:
        duals[up] += got.ineqlin.marginals[: up.sum()]
        duals[down] -= got.ineqlin.marginals[up.sum() :]
    value = form.value(got.x)
    return Answer(Status.OPTIMAL, point=got.x, value=value, bound=value, row_duals=sign * duals)


@pytest.fixture
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="session")
def reference_type() -> type[Reference]:
    return Reference
