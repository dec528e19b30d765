"""What hetplan's own engines prove beyond what any engine must: duals, rays, directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetplan import registry
from hetplan.planner.answer import Limits, Status, Vouched
from hetplan.planner.contract import Solver
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.solvers.highs import Highs
from hetplan.testing.milp_cases import MilpCase, milp_cases

LINEAR = [case for case in milp_cases() if case.form.pure_lp]
ENGINES = [engine for engine in registry.solvers("milp") if not getattr(engine, "heuristic", False)]
GIVE_DUALS = {"highs", "glop", "pyomo"}


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Solver:
    return request.param


@pytest.mark.parametrize("case", [case for case in LINEAR if case.status is Status.OPTIMAL], ids=lambda c: c.name)
def test_duals_certify_the_optimum(engine: Solver, case: MilpCase) -> None:
    if engine.name not in GIVE_DUALS or engine.refuses(case.form):
        pytest.skip("no linear programs, or no duals")
    answer = engine.solve(case.form, Limits())
    assert answer.row_duals is not None
    if case.certifiable:
        assert certify(case.form, answer).vouched is Vouched.CERTIFIED


def test_a_dual_is_the_derivative_of_the_optimum(engine: Solver) -> None:
    for sense in ("min", "max"):
        form = _priced(sense)
        if engine.name not in GIVE_DUALS or engine.refuses(form):
            pytest.skip("no linear programs, or no duals")
        answer = engine.solve(form, Limits())
        assert answer.row_duals is not None
        for i in range(2):
            step = np.eye(1, 2, i)[0] * 1e-2
            moved = engine.solve(
                replace(form, row_lower=form.row_lower + step, row_upper=form.row_upper + step), Limits()
            )
            assert moved.value is not None
            assert answer.value is not None
            assert (moved.value - answer.value) / 1e-2 == pytest.approx(answer.row_duals[i], abs=1e-5)


def _priced(sense: str) -> Milp:
    """An optimum between an equation and an inequality that both carry a price."""
    sign = 1.0 if sense == "min" else -1.0
    m = Builder("min" if sense == "min" else "max")
    x = m.columns("x", ["a", "b", "c"], upper=[10, 10, 1], cost=sign * np.array([2.0, 3.0, 1.0]))
    m.add(m.rows("equal", ["r"], lower=5.0, upper=5.0), x, [1, 1, 1])
    m.add(m.rows("least", ["r"], lower=6.0), x, [1, 2, 0])
    return m.build()


@pytest.mark.parametrize(
    "case", [case for case in milp_cases() if case.status is Status.INFEASIBLE], ids=lambda case: case.name
)
def test_infeasible_is_proved_where_the_relaxation_is(engine: Solver, case: MilpCase) -> None:
    if engine.refuses(case.form):
        pytest.skip("not its kind of form")
    certificate = certify(case.form, engine.solve(case.form, Limits()))
    integers_only = {"infeasible in integers only", "no integer between the bounds"}
    assert certificate.infeasible is (Vouched.CLAIMED if case.name in integers_only else Vouched.CERTIFIED)


@pytest.mark.parametrize(
    "case", [case for case in milp_cases() if case.status is Status.UNBOUNDED], ids=lambda case: case.name
)
def test_unbounded_comes_with_a_point_and_a_direction(engine: Solver, case: MilpCase) -> None:
    if engine.refuses(case.form):
        pytest.skip("not its kind of form")
    certificate = certify(case.form, engine.solve(case.form, Limits()))
    assert certificate.vouched is Vouched.CERTIFIED


@pytest.mark.slow
def test_mixed_integer_answers_stand_on_integers(engine: Solver) -> None:
    for case in milp_cases():
        if case.form.pure_lp or engine.refuses(case.form):
            continue
        answer = engine.solve(case.form, Limits())
        if answer.point is not None and case.status is Status.OPTIMAL:
            whole = answer.point[case.form.whole]
            assert np.array_equal(whole, np.round(whole)), case.name


def test_a_time_limited_linear_program_claims_no_bound() -> None:
    form = next(case.form for case in milp_cases() if case.name == "ten thousand columns")
    answer = Highs().solve(form, Limits(work=3))
    assert answer.status in (Status.FEASIBLE, Status.NO_ANSWER)
    assert answer.bound is None
    assert answer.row_duals is None
