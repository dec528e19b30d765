"""Random tiny programs against enumeration, on every engine that takes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetplan import registry
from hetplan.planner.answer import Limits, Status
from hetplan.planner.contract import Solver
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.solvers.highs import Highs

EXACT = [engine for engine in registry.solvers("milp") if not getattr(engine, "heuristic", False)]
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def programs(draw: st.DrawFn, *, mixed: bool) -> Milp:
    """Up to three whole columns, and one continuous where `mixed`; small whole data, so that ties abound."""
    n, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    width = n + mixed
    entry = st.integers(-3, 4).map(float)
    m = Builder(draw(st.sampled_from(["min", "max"])), offset=draw(entry))
    lower = draw(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5]), min_size=n, max_size=n))
    span = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, 3.0]), min_size=n, max_size=n))
    cost = np.array(draw(st.lists(entry, min_size=width, max_size=width))) / draw(st.sampled_from([1.0, 4.0]))
    upper = np.array(lower) + np.array(span)
    m.columns("x", lambda j: str(j), size=n, lower=lower, upper=upper, cost=cost[:n], whole=True)
    if mixed:
        m.columns("y", ["y"], lower=0.0, upper=draw(st.sampled_from([0.75, 3.0])), cost=cost[n])
    matrix = np.array(draw(st.lists(entry, min_size=rows * width, max_size=rows * width))).reshape(rows, width)
    low = np.array(draw(st.lists(st.sampled_from([-np.inf, -4.0, -1.0, 0.0, 1.5]), min_size=rows, max_size=rows)))
    high = np.array(draw(st.lists(st.sampled_from([np.inf, 0.0, 2.0, 2.5, 6.0]), min_size=rows, max_size=rows)))
    row = m.rows("r", lambda i: str(i), size=rows, lower=np.minimum(low, high), upper=high)
    m.add(row[:, None], np.arange(width)[None, :], matrix)
    return m.build()


def enumerated(form: Milp) -> float | None:
    """The best value by trying all integers and, for each, the ends of the continuous column's interval."""
    n = int(form.whole.sum())
    dense = form.matrix.toarray()
    axes = [np.arange(np.ceil(a), np.floor(b) + 1) for a, b in zip(form.lower[:n], form.upper[:n], strict=True)]
    best: float | None = None
    for point in np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]).T:
        ends = _interval(form, dense, point) if form.cost.size > n else [0.0]
        for end in ends:
            x = np.append(point, end)[: form.cost.size]
            activity = dense @ x
            if (activity < form.row_lower - 1e-9).any() or (activity > form.row_upper + 1e-9).any():
                continue
            value = form.value(x)
            better = best is None or (value < best if form.sense == "min" else value > best)
            best = value if better else best
    return best


def _interval(form: Milp, dense: np.ndarray, point: np.ndarray) -> list[float]:
    low, high = float(form.lower[-1]), float(form.upper[-1])
    rest, a = dense[:, :-1] @ point, dense[:, -1]
    for i in np.flatnonzero(a):
        ends = sorted(((form.row_lower[i] - rest[i]) / a[i], (form.row_upper[i] - rest[i]) / a[i]))
        low, high = max(low, ends[0]), min(high, ends[1])
    return [low, high] if low <= high + 1e-9 else []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mixed", [False, True], ids=["integer", "mixed"])
@pytest.mark.parametrize("engine", EXACT, ids=lambda engine: engine.name)
def test_agrees_with_enumeration(engine: Solver, mixed: bool) -> None:
    @QUICK
    @given(form=programs(mixed=mixed))
    def agree(form: Milp) -> None:
        if engine.refuses(form):
            return
        best, answer = enumerated(form), engine.solve(form, Limits())
        assert certify(form, answer).sound
        assert answer.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        if best is not None:
            assert answer.value == pytest.approx(best, abs=1e-6)

    agree()


@pytest.mark.parametrize("engine", EXACT, ids=lambda engine: engine.name)
def test_a_point_that_presolve_takes_out_of_its_bounds_is_no_answer(engine: Solver) -> None:
    """HiGHS 1.13 calls this a solve error: 4 x + 4 y + z = 0 where z is -2 and x + y would have to be 1/2."""
    m = Builder("min")
    m.columns("x", ["x", "y", "z"], lower=[-2.0, -0.5, -2.0], upper=[-1.0, 2.0, -2.0], whole=True)
    m.add(m.rows("r", ["r"], lower=0.0, upper=0.0), np.arange(3), np.array([4.0, 4.0, 1.0]))
    form = m.build()
    if reason := engine.refuses(form):
        pytest.skip(reason)
    assert engine.solve(form, Limits()).status is Status.INFEASIBLE


@pytest.mark.slow
@QUICK
@given(forms=st.lists(programs(mixed=True), min_size=2, max_size=5))
def test_a_warm_family_of_anything_agrees_with_enumeration(forms: list[Milp]) -> None:
    for form, answer in zip(forms, Highs().solve_all(forms, Limits()), strict=True):
        best = enumerated(form)
        assert answer.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        if best is not None:
            assert answer.value == pytest.approx(best, abs=1e-6)
