"""Writing a Milp in whole numbers: exactly, or on a grid whose points are points of the form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Limits, Status
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.forms.program import point_faults
from hetplan.solvers.cp_sat import CpSatScaled
from hetplan.solvers.integer_programs import decimals, integer_grid, integer_program


def test_prices_become_whole_exactly() -> None:
    m = Builder("max", offset=1.5)
    x = m.columns("n", ["a", "b", "c"], upper=20.0, cost=[0.3, 0.2, 0.1], whole=True)
    m.add(m.rows("budget", ["usd"], lower=0.1, upper=2.5), x, [0.526, 0.432, 0.149])
    program = integer_program(m.build())
    assert program.rows.toarray().tolist() == [[526, 432, 149]]
    assert (program.row_lower.tolist(), program.row_upper.tolist()) == ([100], [2500])
    assert program.cost.tolist() == [-3, -2, -1]
    assert program.value(-16.0) == pytest.approx(3.1)


def test_a_bound_just_off_a_whole_number_by_rounding_is_that_number() -> None:
    m = Builder("max")
    m.add(m.rows("r", ["r"], upper=0.1 + 0.2), m.columns("n", ["a"], upper=9.0, cost=1.0, whole=True), 0.1)
    assert integer_program(m.build()).row_upper.tolist() == [3]


def test_infinite_sides_do_not_bind() -> None:
    m = Builder("max")
    x = m.columns("n", ["a", "b"], lower=-3.0, upper=3.0, whole=True)
    m.add(m.rows("r", ["r"], lower=-2.0), x, 1.0)
    program = integer_program(m.build())
    assert program.row_upper[0] > 6
    assert program.row_lower[0] == -2


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6), st.integers(0, 6))
def test_decimals_are_found(numbers: list[int], digits: int) -> None:
    values = np.array([number / 10**digits for number in numbers])
    assert decimals(values) <= digits


@st.composite
def mixed(draw: st.DrawFn) -> Milp:
    number = st.floats(-5, 5, allow_nan=False).map(lambda v: round(v, 3))
    n, rows = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    m = Builder("max")
    cost = draw(st.lists(number, min_size=n, max_size=n))
    m.columns("n", ["n"], upper=draw(st.sampled_from([1.0, 7.0])), cost=cost[0], whole=True)
    m.columns("x", lambda j: str(j), size=n - 1, upper=draw(st.sampled_from([0.3, 4.0, 250.0])), cost=cost[1:])
    matrix = np.array(draw(st.lists(number, min_size=rows * n, max_size=rows * n))).reshape(rows, n)
    row = m.rows("r", lambda i: str(i), size=rows, lower=-50.0, upper=draw(st.sampled_from([1.0, 40.0])))
    m.add(row[:, None], np.arange(n)[None, :], matrix)
    return m.build()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(mixed(), st.integers(0, 2**32 - 1))
def test_a_point_of_the_grid_is_a_point_of_the_form(form: Milp, seed: int) -> None:
    grid = integer_grid(form)
    program = grid.program
    random = np.random.default_rng(seed)
    z = random.integers(program.lower, program.upper + 1, size=(200, program.lower.size))
    activity = program.rows @ z.T
    on_grid = ((activity >= program.row_lower[:, None]) & (activity <= program.row_upper[:, None])).all(axis=0)
    for point in z[on_grid]:
        assert not point_faults(form, grid.lower + grid.step * point)[0]


@settings(max_examples=15, deadline=None)
@given(mixed())
def test_cp_sat_scaled_returns_true_points_and_claims_no_bound(form: Milp) -> None:
    engine = CpSatScaled()
    if engine.refuses(form):
        return
    answer = engine.solve(form, Limits(work=5))
    assert certify(form, answer).sound
    assert answer.bound is None
    assert answer.status in (Status.FEASIBLE, Status.NO_ANSWER)
