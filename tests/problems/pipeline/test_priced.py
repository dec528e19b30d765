"""The form of prices: its oracle against brute force, its certificate against lies."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hetplan.api.solve import choose, pose
from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.priced import Choice, Menu, Options, Priced
from hetplan.profiles.load import load_inputs
from hetplan.solvers.priced_columns import PricedColumns
from hetplan_papers.datasets import loki_generator


def menu(seed, children=((1, 2), (), ()), *, additive=False):
    chance = np.random.default_rng(seed)
    parent = tuple(next((t for t, below in enumerate(children) if c in below), -1) for c in range(len(children)))
    options = tuple(
        Options(
            np.array([0, 0, 1]), chance.uniform(1, 10, 3), chance.uniform(1, 9, (3, 2)) * (chance.random((3, 2)) > 0.2)
        )
        for _ in children
    )
    options = tuple(replace(o, rate=np.maximum(o.rate, [[0.5, 0.0]])) for o in options)
    factor = tuple({c: chance.uniform(0.5, 2, 2) for c in below} for below in children)
    quality = tuple(chance.uniform(0.5, 1, 2) for _ in children)
    limits = {t: 14.0 for t, below in enumerate(children) if not below}
    return Menu("m", parent, quality, factor, options, limits, demand=3.0, weight=0.5, additive=additive)


def by_force(form, prices):
    best = -np.inf
    for option in itertools.product(range(3), repeat=3):
        for resource in itertools.product(range(2), repeat=3):
            value, use, in_time = form.worth(0, Choice(option, resource))
            if in_time:
                best = max(best, value - float(prices @ use))
    return best


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_oracle_is_exact(seed, additive):
    form = Priced((menu(seed, additive=additive),), np.array([2.0, 2.0]))
    for prices in (np.zeros(2), np.array([0.01, 0.05]), np.array([0.3, 0.1])):
        value, choice = form.best(0, prices)
        own, use, in_time = form.worth(0, choice)
        assert in_time
        assert value == pytest.approx(by_force(form, prices))
        assert own - float(prices @ use) == pytest.approx(value)


@pytest.fixture(scope="module")
def solved():
    form = Priced((menu(1), menu(2)), np.array([2.5, 2.5]))
    return form, PricedColumns().solve(form, Limits())


def test_bound_meets_value_and_is_proved_again(solved):
    form, answer = solved
    verdict = certify(form, answer)
    assert answer.status is Status.OPTIMAL
    assert verdict.sound
    assert verdict.vouched is Vouched.CERTIFIED
    assert verdict.bound == pytest.approx(answer.value, rel=1e-4)
    assert verdict.bound >= answer.value - 1e-12


def test_any_prices_prove_a_bound(solved):
    form, answer = solved
    for prices in (np.zeros(2), np.array([5.0, 0.0])):
        assert form.bound(prices) >= answer.value - 1e-9


def lies(answer):
    first = answer.point[0]
    prices = answer.proof["prices"]
    slow = Choice(tuple(int(o) for o in (0, 0, 0)), first[0][1].resource)
    return {
        "value": replace(answer, value=answer.value + 0.1),
        "bound": replace(answer, bound=answer.value - 0.1),
        "weights": replace(answer, point=(((0.5, first[0][1]),), answer.point[1])),
        "prices": replace(answer, proof={"prices": -prices - 1.0}),
        "too much": replace(answer, point=tuple(((3.0, part[0][1]), (-2.0, part[0][1])) for part in answer.point)),
        "shape": replace(answer, proof={"prices": np.zeros(5)}),
        "slow": replace(answer, point=(((1.0, slow),), answer.point[1])),
    }


@pytest.mark.parametrize("kind", ["value", "bound", "weights", "prices", "too much", "shape"])
def test_lies_are_found(solved, kind):
    form, answer = solved
    assert certify(form, lies(answer)[kind]).faults


def test_without_prices_a_bound_is_only_claimed(solved):
    form, answer = solved
    assert certify(form, replace(answer, proof={})).vouched is Vouched.CLAIMED


def test_nothing_fits():
    form = Priced((menu(1),), np.array([1e-6, 1e-6]))
    answer = PricedColumns().solve(form, Limits(work=50))
    assert answer.point is None
    assert certify(form, answer).sound


def test_the_bound_is_that_of_the_program_of_whole_levels():
    from hetplan.problems.pipeline.latency_levels import priced_form
    from hetplan.problems.pipeline.tree import all_levels, thin_out

    inputs = load_inputs(*loki_generator.inputs(loki_generator.T5, servers=200, utilisation=1.5))
    problem = pose(inputs, choose(inputs, question="pipeline", formulation="loki-budget"))
    levels = [[thin_out(values, 8) for values in all_levels(tree)] for tree in problem.served]
    answer: Answer = PricedColumns().solve(priced_form(problem, levels), Limits())
    assert 100 * answer.bound == pytest.approx(97.6300, abs=0.02)
