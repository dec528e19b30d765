"""Wrong answers planted behind every engine are found out by `certify`, as far as an answer alone can show them."""

from __future__ import annotations

import pytest

from hetplan import registry
from hetplan.planner.answer import Answer, Certificate, Limits, Status, Vouched, relative_gap
from hetplan.planner.contract import Solver
from hetplan.planner.forms.form import certify
from hetplan.testing import LIES, Lying
from hetplan.testing.milp_cases import MilpCase, milp_cases

CASES = {
    "linear": "optimum of a maximum",
    "ranges": "a row bound on both sides, met below",
    "integer": "a knapsack",
    "mixed": "integers beside continuous columns",
}
BY_NAME = {case.name: case for case in milp_cases()}


@pytest.fixture(params=registry.solvers("milp"), ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Solver:
    return request.param


@pytest.fixture(params=CASES.values())
def case(request: pytest.FixtureRequest, engine: Solver) -> MilpCase:
    case = BY_NAME[request.param]
    if reason := engine.refuses(case.form):
        pytest.skip(reason)
    return case


def said(engine: Solver, case: MilpCase, lie: str) -> tuple[Answer, Certificate]:
    answer = Lying(engine, lie).solve(case.form, Limits())
    return answer, certify(case.form, answer)


@pytest.mark.parametrize("lie", ["infeasible-point", "wrong-value", "false-bound"])
def test_found_out(engine: Solver, case: MilpCase, lie: str) -> None:
    _, certificate = said(engine, case, lie)
    assert not certificate.sound


def test_a_fraction_is_found_out(engine: Solver, case: MilpCase) -> None:
    if case.form.pure_lp:
        pytest.skip("nothing must be whole")
    _, certificate = said(engine, case, "fractional-point")
    assert any("whole" in fault for fault in certificate.faults)


@pytest.mark.parametrize("lie", ["false-infeasible", "forged-ray"])
def test_a_false_infeasible_is_never_certified(engine: Solver, case: MilpCase, lie: str) -> None:
    answer, certificate = said(engine, case, lie)
    assert answer.status is Status.INFEASIBLE
    assert certificate.infeasible is Vouched.CLAIMED


def test_a_false_infeasible_is_refuted_by_a_start_that_holds(engine: Solver, case: MilpCase) -> None:
    truth = engine.solve(case.form, Limits())
    answer = Answer(Status.INFEASIBLE, point=truth.point)
    assert certify(case.form, answer).faults


def test_a_false_optimum_shows_where_there_are_duals_and_is_a_claim_elsewhere(engine: Solver, case: MilpCase) -> None:
    answer, certificate = said(engine, case, "false-optimal")
    if answer.status is not Status.OPTIMAL:
        pytest.skip("it never claims an optimum")
    assert certificate.value is not None
    assert abs(certificate.value - case.value) > 0.1, "the engine did not lie"
    if answer.row_duals is not None and case.certifiable:
        assert certificate.vouched is Vouched.CERTIFIED
        assert certificate.bound is not None
        assert relative_gap(certificate.value, certificate.bound) > 0.01
    else:
        assert certificate.vouched is Vouched.CLAIMED


def test_all_lies_are_tried_here() -> None:
    tried = {"infeasible-point", "wrong-value", "false-bound", "fractional-point", "false-infeasible", "forged-ray"}
    assert set(LIES) == tried | {"false-optimal"}


def test_an_unknown_lie_is_refused(engine: Solver) -> None:
    with pytest.raises(ValueError, match="no such lie"):
        Lying(engine, "white")
