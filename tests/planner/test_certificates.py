"""Certificates: honest answers pass, planted lies are named, and safe bounds hold on random programs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.certify_rays import proves_infeasible
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.safe_bound import dual_bound, implied_bounds


def knapsack(*, whole: bool = False) -> Milp:
    m = Builder("max", offset=5.0)
    x = m.columns("take", ["a", "b", "c"], upper=[3, 3, 3], cost=[4, 3, 1], whole=whole)
    m.add(m.rows("room", ["kg"], upper=6.5), x, [3, 2, 1])
    m.add(m.rows("least", ["c"], lower=0.5), x[2], 1)
    return m.build()


def random_lp(seed: int, *, rows: int = 4, columns: int = 5) -> Milp:
    rng = np.random.default_rng(seed)
    m = Builder(rng.choice(["min", "max"]).item())
    upper = np.where(rng.random(columns) < 0.3, np.inf, rng.integers(1, 9, columns))
    x = m.columns("x", [str(j) for j in range(columns)], upper=upper, cost=rng.integers(-5, 6, columns))
    r = m.rows("r", [str(i) for i in range(rows)], upper=rng.integers(5, 30, rows), lower=-40.0)
    m.add(r[:, None], x, rng.integers(0, 5, (rows, columns)))
    cover = m.rows("cover", ["all"], upper=200.0)
    m.add(cover, x, 1.0)
    return m.build()


def test_an_honest_answer_is_certified(reference) -> None:
    form = knapsack()
    verdict = certify(form, reference.solve(form, Limits()))
    assert verdict.sound
    assert verdict.vouched is Vouched.CERTIFIED
    assert verdict.value == pytest.approx(14.5)  # b 3, c 0.5: 5 + 9 + 0.5
    assert verdict.bound == pytest.approx(verdict.value, rel=1e-9)


def test_a_mip_bound_is_the_engines_word(reference) -> None:
    form = knapsack(whole=True)
    verdict = certify(form, reference.solve(form, Limits()))
    assert verdict.sound
    assert verdict.value == pytest.approx(13.0)  # 8 is the most that 6.5 kg with one c can hold
    assert verdict.vouched is Vouched.CLAIMED


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (lambda a: replace(a, point=a.point + 1.0), "take["),
        (lambda a: replace(a, point=np.array([2.0, 0.25, 0.0])), "least"),
        (lambda a: replace(a, point=np.array([3.0, 3.0, 3.0])), "room"),
        (lambda a: replace(a, point=a.point[:2]), "entries"),
        (lambda a: replace(a, point=a.point * np.nan), "not finite"),
        (lambda a: replace(a, value=a.value + 0.1), "stated value"),
        (lambda a: replace(a, value=None), "stated value"),
        (lambda a: replace(a, bound=a.value - 1.0), "refuted"),
        (lambda a: replace(a, point=None), "without a point"),
        (lambda a: Answer(Status.UNBOUNDED, ray=np.array([1.0, 0.0, 0.0])), "ray"),
    ],
)
def test_a_lie_is_named(reference, lie, named) -> None:
    form = knapsack()
    verdict = certify(form, lie(reference.solve(form, Limits())))
    assert any(named in fault for fault in verdict.faults), verdict.faults


def test_a_fraction_where_a_whole_number_must_stand_is_named(reference) -> None:
    answer = reference.solve(knapsack(), Limits())
    verdict = certify(knapsack(whole=True), answer)
    assert any("must be whole" in fault for fault in verdict.faults)


def test_a_bound_tighter_than_its_duals_prove_is_not_passed_on(reference) -> None:
    form = knapsack()
    honest = reference.solve(form, Limits())
    poor = np.array([0.0, 1.0, 0.5])
    poor_point = replace(honest, point=poor, value=form.value(poor), bound=form.value(poor))
    verdict = certify(form, poor_point)
    assert verdict.sound
    assert verdict.bound == pytest.approx(honest.value)
    assert verdict.bound > verdict.value


def test_no_duals_means_the_bound_is_claimed(reference) -> None:
    form = knapsack()
    verdict = certify(form, replace(reference.solve(form, Limits()), row_duals=None))
    assert verdict.vouched is Vouched.CLAIMED


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(-3, 3), min_size=5, max_size=5))
def test_any_multipliers_give_a_bound_in_exact_arithmetic(seed: int, duals: list[float]) -> None:
    form = random_lp(seed)
    from scipy.optimize import linprog

    bound = dual_bound(form, np.array(duals))
    sign = 1 if form.sense == "min" else -1
    rng = np.random.default_rng(seed)
    box = np.where(np.isfinite(form.upper), form.upper, 40.0)
    best = linprog(
        sign * form.cost,
        A_ub=np.vstack([form.matrix.toarray(), -form.matrix.toarray()[:-1]]),
        b_ub=np.concatenate([form.row_upper, -form.row_lower[:-1]]),
        bounds=np.column_stack([form.lower, form.upper]),
    )
    points = [rng.random(form.cost.size) * box for _ in range(5)] + ([best.x] if best.status == 0 else [])
    for x in points:
        exact = [Fraction(float(v)) for v in x]
        activity = [
            sum(Fraction(float(a)) * e for a, e in zip(row, exact, strict=True)) for row in form.matrix.toarray()
        ]
        inside = all(
            (np.isinf(lo) or Fraction(float(lo)) <= v) and v <= Fraction(float(up))
            for lo, up, v in zip(form.row_lower, form.row_upper, activity, strict=True)
        )
        if inside and np.isfinite(bound):
            value = sum(Fraction(float(c)) * e for c, e in zip(form.cost, exact, strict=True))
            assert sign * (value - Fraction(bound)) >= 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_optimal_duals_close_the_gap(seed: int, reference_type) -> None:
    form = random_lp(seed)
    answer = reference_type().solve(form, Limits())
    if answer.status is Status.OPTIMAL:
        verdict = certify(form, answer)
        assert verdict.sound
        assert verdict.vouched is Vouched.CERTIFIED
        assert verdict.bound == pytest.approx(verdict.value, rel=1e-9, abs=1e-9)


def test_rows_imply_bounds_for_unbounded_columns() -> None:
    m = Builder("max")
    total, part = m.columns("total", ["t"], cost=1.0), m.columns("part", ["a", "b"])
    m.add(m.rows("capacity", ["a", "b"], upper=[4.0, 6.0]), part, [2.0, 3.0])
    m.add(balance := m.rows("balance", ["t"], lower=0.0, upper=0.0), part, 1.0)
    m.add(balance, total, -0.5)
    lower, upper = implied_bounds(m.build())
    assert upper == pytest.approx([8.0, 2.0, 2.0])
    assert lower == pytest.approx([0.0, 0.0, 0.0])


def test_a_ray_proves_infeasibility_in_either_sign_and_a_wrong_one_does_not() -> None:
    m = Builder("min")
    x = m.columns("x", ["a"], upper=2.0)
    m.add(m.rows("more", ["a"], lower=3.0), x, 1.0)
    m.add(m.rows("any", ["a"], lower=0.0), x, 1.0)
    form = m.build()
    assert proves_infeasible(form, np.array([1.0, 0.0]))
    assert proves_infeasible(form, np.array([-1.0, 0.0]))
    assert not proves_infeasible(form, np.array([0.0, 1.0]))
    assert certify(form, Answer(Status.INFEASIBLE, ray=np.array([1.0, 0.0]))).infeasible is Vouched.CERTIFIED
    assert certify(form, Answer(Status.INFEASIBLE)).infeasible is Vouched.CLAIMED


def test_an_unbounded_answer_needs_a_ray_and_a_point() -> None:
    m = Builder("max")
    x = m.columns("x", ["a", "b"], cost=[1.0, 0.0])
    m.add(m.rows("apart", ["r"], upper=1.0), x, [1.0, -1.0])
    form = m.build()
    good = Answer(Status.UNBOUNDED, ray=np.array([1.0, 1.0]), point=np.zeros(2))
    assert certify(form, good).vouched is Vouched.CERTIFIED
    assert not certify(form, replace(good, ray=np.array([1.0, 0.0]))).sound
    assert certify(form, Answer(Status.UNBOUNDED)).vouched is Vouched.NONE


@pytest.mark.parametrize("large", [1e9, 1e12, 1e15])
def test_large_terms_that_cancel_leave_no_false_bound(large: float) -> None:
    """max x over z = 1, M z + x + y <= M + 1: what y gives x room for is lost in the rounding of M + 1."""
    least = -0.48 * float(np.spacing(large))
    m = Builder("max")
    columns = m.columns("v", ["z", "x", "y"], lower=[1.0, 0.0, least], upper=[1.0, np.inf, 0.0], cost=[0.0, 1.0, 0.0])
    m.add(m.rows("room", ["r"], upper=large + 1.0), columns, [large, 1.0, 1.0])
    form = m.build()
    answer = Answer(Status.OPTIMAL, point=np.array([1.0, 1.0, 0.0]), value=1.0, bound=1.0, row_duals=np.zeros(1))
    proved = certify(form, answer).certified_bound
    best = Fraction(large + 1.0) - Fraction(large) - Fraction(least)
    assert proved is None or Fraction(proved) >= best
