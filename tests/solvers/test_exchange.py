"""Exchange: what it finds is a point, never better than the best, and the best of small divisions of servers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hetplan.planner.answer import Limits, Status
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.solvers.exchange import Exchange
from hetplan.solvers.highs import Highs


def division(seed: int, *, opened: bool = False) -> Milp:
    """Servers of two kinds over six groups; three streams may each go through two of the groups, at their worth.

    Of every stream at least a part has to be served, so that rounding down is no point. Where `opened`, a group in use
    keeps half a server free.
    """
    chance = np.random.default_rng(seed)
    m = Builder("max")
    x = m.columns("x", str, size=6, upper=3.0, whole=True)
    kinds = m.rows("servers", str, size=2, upper=[3.0, 3.0])
    m.add(kinds[np.arange(6) % 2], x, 1.0)
    rate = chance.uniform(3.0, 8.0, size=6)
    load = m.rows("load", str, size=6, upper=0.0)
    m.add(load, x, -rate)
    if opened:
        z = m.columns("z", str, size=6, upper=1.0, whole=True)
        m.add(load, z, rate / 2)
        opens = m.rows("in use", str, size=6, upper=0.0)
        m.add(opens, x, 1.0)
        m.add(opens, z, -3.0)
    for stream in range(3):
        flow = m.columns(f"flow {stream}", str, size=2, cost=chance.uniform(0.5, 1.0, size=2))
        m.add(load[2 * stream : 2 * stream + 2], flow, 1.0)
        m.add(m.rows(f"demand {stream}", ["all"], lower=1.0, upper=6.0), flow, 1.0)
    return m.build()


def best_of(form: Milp) -> float | None:
    """The best value of all divisions."""
    names = np.flatnonzero(form.whole)
    best: float | None = None
    for counts in product(*(range(int(form.upper[j]) + 1) for j in names[:6])):
        x = np.array(counts, dtype=float)
        if x[::2].sum() > 3 or x[1::2].sum() > 3:
            continue
        fixed = np.concatenate([x, (x > 0)[: names.size - 6]])
        lower, upper = form.lower.copy(), form.upper.copy()
        lower[names] = upper[names] = fixed
        given = replace(form, lower=lower, upper=upper, whole=np.zeros_like(form.whole))
        value = Highs().solve(given, Limits()).value
        best = value if value is not None and (best is None or value > best) else best
    return best


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_best_of_small_divisions(seed, opened):
    form = division(seed, opened=opened)
    answer = Exchange().solve(form, Limits())
    best = Highs().solve(form, Limits(gap=0.0)).value
    assert certify(form, answer).sound
    assert answer.status is Status.FEASIBLE
    assert answer.bound is None
    assert answer.value == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("opened", [pytest.param(one, marks=[pytest.mark.slow]) for one in (False, True)])
def test_the_best_is_that_of_all_divisions(opened):
    form = division(1, opened=opened)
    assert Exchange().solve(form, Limits()).value == pytest.approx(best_of(form), rel=1e-6)


def test_it_begins_at_the_start_and_stops_where_the_gap_is_kept():
    form = division(0)
    best = Exchange().solve(form, Limits())
    again = Exchange().solve(form, Limits(), start=best.point)
    assert again.value == pytest.approx(best.value)
    soon = Exchange().solve(form, Limits(gap=0.9))
    assert certify(form, soon).sound
    assert soon.work["iterations"] < best.work["iterations"]


def test_it_says_so_where_no_whole_point_serves_all():
    form = division(0)
    row_lower = form.row_lower.copy()
    row_lower[-3:] = 5.9
    upper = form.upper.copy()
    upper[:6] = 0.0
    none = Exchange().solve(replace(form, row_lower=row_lower, upper=upper), Limits())
    assert none.point is None
    assert none.status in (Status.NO_ANSWER, Status.INFEASIBLE)
