"""The known cases are themselves right: their own points and duals satisfy the optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.planner.answer import Answer, Status, Vouched
from hetplan.planner.forms.form import certify
from hetplan.testing.milp_cases import MilpCase, milp_cases, warm_family

CASES = milp_cases()


@pytest.mark.parametrize("case", [case for case in CASES if case.point is not None], ids=lambda case: case.name)
def test_the_point_is_feasible_and_has_the_value(case: MilpCase) -> None:
    point = np.array(case.point, dtype=float)
    answer = Answer(Status.FEASIBLE, point=point, value=case.value)
    certificate = certify(case.form, answer)
    assert certificate.sound
    assert certificate.value == pytest.approx(case.value, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case.row_duals is not None], ids=lambda case: case.name)
def test_the_duals_prove_the_value(case: MilpCase) -> None:
    duals = np.array(case.row_duals, dtype=float)
    answer = Answer(
        Status.OPTIMAL, point=np.array(case.point, dtype=float), value=case.value, bound=case.value, row_duals=duals
    )
    certificate = certify(case.form, answer)
    assert certificate.sound
    if case.certifiable:
        assert certificate.vouched is Vouched.CERTIFIED
        assert certificate.certified_bound == pytest.approx(case.value, rel=1e-9, abs=1e-9)


def test_every_linear_case_with_an_optimum_has_duals_or_is_large() -> None:
    for case in CASES:
        if case.form.pure_lp and case.status is Status.OPTIMAL and case.form.cost.size < 100:
            assert case.row_duals is not None, case.name


def test_integer_optima_hold_against_enumeration() -> None:
    for case in CASES:
        form = case.form
        if case.status is not Status.OPTIMAL or not form.whole.all() or not form.cost.size or form.cost.size > 6:
            continue
        lower, upper = np.ceil(form.lower), np.minimum(np.floor(form.upper), 60)
        grid = np.meshgrid(*[np.arange(a, b + 1) for a, b in zip(lower, upper, strict=True)], indexing="ij")
        points = np.stack([axis.ravel() for axis in grid])
        activity = form.matrix @ points
        kept = (activity <= form.row_upper[:, None] + 1e-9) & (activity >= form.row_lower[:, None] - 1e-9)
        values = (form.cost @ points + form.offset)[kept.all(axis=0)]
        assert (values.min() if form.sense == "min" else values.max()) == pytest.approx(case.value), case.name


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


def test_the_family_differs_where_it_says() -> None:
    one, *others = warm_family(10)
    assert any(not np.array_equal(one.row_upper, form.row_upper) for form in others)
    assert any(not np.array_equal(one.upper, form.upper) for form in others)
    assert any(not np.array_equal(one.cost, form.cost) for form in others)
    assert any(not np.array_equal(one.matrix.data, form.matrix.data) for form in others)
    assert any(one.offset != form.offset for form in others)
