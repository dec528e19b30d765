"""The catalog form and its searches: every engine finds the best, says what it proved, and is caught when it lies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cases.pool import CATALOG
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Answer, Limits, Status, Stop, Vouched
from hetplan.planner.forms.catalog import Catalog
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder
from hetplan.solvers.catalog import BoundOrder, CatalogEngine
from hetplan.solvers.gaussian_process import expected_improvement

ENGINES = pytest.mark.parametrize("engine", CATALOG, ids=lambda engine: engine.name)


def hill(size: int = 8, *, slack: float = 0.3, seed: int = 0) -> tuple[Catalog, list[float]]:
    """A grid with one top and bounds a little above the values."""
    place = np.array([[x, y] for x in range(size) for y in range(size)])
    worth = [100.0 - (x - 5) ** 2 - 2.0 * (y - 2) ** 2 for x, y in place]
    above = np.random.default_rng(seed).random(len(worth)) * slack
    return Catalog(place, worth.__getitem__, bound=np.array(worth) + above), worth


@ENGINES
def test_finds_the_best_and_proves_it(engine: CatalogEngine) -> None:
    form, worth = hill()
    answer = engine.solve(form, Limits(seed=3))
    assert answer.status is Status.OPTIMAL
    assert answer.point == int(np.argmax(worth))
    assert answer.value == max(worth)
    verdict = certify(form, answer)
    assert verdict.sound
    assert (verdict.value, verdict.bound, verdict.vouched) == (max(worth), max(worth), Vouched.CERTIFIED)
    assert answer.work["evaluations"] == len(form.journal)
    assert answer.work["evaluations_to_best"] <= answer.work["evaluations"] <= len(form)


@ENGINES
def test_without_pruning_everything_is_tried(engine: CatalogEngine) -> None:
    form, worth = hill()
    answer = engine.solve(replace(form, prune=False, journal={}), Limits())
    assert answer.work["evaluations"] == len(worth)
    assert answer.value == max(worth)


@ENGINES
def test_without_bounds_everything_is_tried(engine: CatalogEngine) -> None:
    form, worth = hill()
    bare = replace(form, bound=None, journal={})
    answer = engine.solve(bare, Limits())
    assert (answer.status, answer.value) == (Status.OPTIMAL, max(worth))
    assert len(bare.journal) == len(worth)


@ENGINES
def test_a_limit_on_work_leaves_an_honest_bound(engine: CatalogEngine) -> None:
    whole = replace(hill()[0], prune=False, journal={})
    answer = engine.solve(whole, Limits(work=6))
    assert (answer.status, answer.stop) == (Status.FEASIBLE, Stop.WORK)
    assert answer.work["evaluations"] == len(whole.journal) == 6
    verdict = certify(whole, answer)
    assert verdict.vouched is Vouched.CERTIFIED
    assert verdict.bound == whole.upper_bound() >= max(whole.journal.values())


@ENGINES
def test_the_forms_own_price_limits_too(engine: CatalogEngine) -> None:
    form, _ = hill()
    short = replace(form, most=4, journal={})
    answer = engine.solve(short, Limits())
    assert len(short.journal) <= 4
    verdict = certify(short, answer)
    assert verdict.sound
    assert verdict.bound is not None
    assert verdict.bound >= max(short.journal.values())


@ENGINES
def test_the_same_seed_gives_the_same_walk(engine: CatalogEngine) -> None:
    walks = []
    for seed in (7, 7):
        form, _ = hill()
        engine.solve(replace(form, prune=False, journal=(journal := {})), Limits(seed=seed, work=20))
        walks.append(list(journal))
    assert walks[0] == walks[1]


@ENGINES
def test_a_start_is_tried_first_and_never_made_worse(engine: CatalogEngine) -> None:
    form, worth = hill()
    best = int(np.argmax(worth))
    answer = engine.solve(form, Limits(work=1), start=best)
    assert (answer.point, list(form.journal)) == (best, [best])


@ENGINES
def test_cancelled_before_it_began(engine: CatalogEngine) -> None:
    cancel = threading.Event()
    cancel.set()
    answer = engine.solve(hill()[0], Limits(cancel=cancel))
    assert (answer.status, answer.stop, answer.point) == (Status.NO_ANSWER, Stop.CANCELLED, None)
    assert engine.solve(hill()[0], Limits(seconds=0.0)).stop is Stop.TIME


@ENGINES
def test_nothing_to_choose_from(engine: CatalogEngine) -> None:
    form = Catalog(np.zeros((0, 2), dtype=np.int64), lambda i: 0.0)
    answer = engine.solve(form, Limits())
    assert answer.status is Status.INFEASIBLE
    assert certify(form, answer).infeasible is Vouched.CERTIFIED


@ENGINES
def test_one_candidate(engine: CatalogEngine) -> None:
    form = Catalog(np.array([[3]]), lambda i: 2.0)
    assert engine.solve(form, Limits()).value == 2.0


@ENGINES
def test_ties_go_to_the_cheaper(engine: CatalogEngine) -> None:
    form = Catalog(np.arange(6)[:, None], lambda i: 1.0, cost=np.array([5.0, 4, 3, 2, 2, 6]))
    assert engine.solve(form, Limits()).point == 3


@ENGINES
def test_it_takes_only_catalogs(engine: CatalogEngine) -> None:
    milp = Builder("max")
    milp.columns("x", ["a"], upper=1)
    assert "not milp" in engine.refuses(milp.build())
    assert engine.refuses(hill()[0]) == ""


@ENGINES
def test_a_family_is_answered_in_order(engine: CatalogEngine) -> None:
    heard: list[str] = []
    forms = [hill(size)[0] for size in (6, 8)]
    answers = engine.solve_all(forms, Limits(), on_event=lambda event: heard.append(event.what))
    assert [answer.value for answer in answers] == [100.0, 100.0]
    assert heard.count("valued") == sum(len(form.journal) for form in forms)


def test_the_order_of_bounds_tries_least() -> None:
    form, _ = hill(slack=0.0)
    assert BoundOrder().solve(form, Limits()).work["evaluations"] == 1
    form, worth = hill(slack=30.0, seed=4)
    answer = BoundOrder().solve(form, Limits())
    assert form.bound is not None
    # Exactly those whose bound is above the best value must be tried.
    assert set(form.journal) >= set(np.flatnonzero(form.bound > max(worth)).tolist())
    assert answer.value == max(worth)


def test_containment_leaves_out_what_is_inside() -> None:
    place = np.array([[x, y] for x in range(5) for y in range(5)])
    form = Catalog(place, lambda i: float(place[i].sum()), monotone=True)
    answer = BoundOrder().solve(form, Limits())
    assert answer.value == 8.0
    # What was left out was never valued, and without bounds nothing else speaks against it.
    verdict = certify(form, answer)
    assert verdict.sound
    if len(form.journal) < len(place):
        assert verdict.vouched is Vouched.CLAIMED


LIES: dict[str, Callable[[Answer[int]], Answer[int]]] = {
    "a better value": lambda answer: replace(answer, value=999.0),
    "no such candidate": lambda answer: replace(answer, point=9999),
    "a candidate never valued": lambda answer: replace(answer, point=0),
    "a worse one as the best": lambda answer: replace(answer, point=1, value=None, bound=None),
    "a bound below what was found": lambda answer: replace(answer, bound=1.0),
    "infeasible": lambda answer: Answer(Status.INFEASIBLE),
    "unbounded": lambda answer: Answer(Status.UNBOUNDED),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_caught(lie: str) -> None:
    form, _ = hill()
    honest = BoundOrder().solve(form, Limits())
    form.value(1)
    form.journal.pop(0, None)
    assert certify(form, LIES[lie](honest)).faults
    assert certify(form, honest).sound


def test_a_false_bound_is_no_proof() -> None:
    form, _ = hill(slack=50.0)
    answer = BoundOrder().solve(replace(form, most=2, journal=form.journal), Limits())
    verdict = certify(form, replace(answer, status=Status.OPTIMAL, bound=answer.value))
    assert verdict.vouched is Vouched.CLAIMED
    assert verdict.certified_bound is not None
    assert verdict.certified_bound > (answer.value or 0.0)


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.integers(0, 20).map(float), min_size=1, max_size=25),
    slack=st.lists(st.integers(0, 6).map(float), min_size=25, max_size=25),
    which=st.sampled_from(range(len(CATALOG))),
    seed=st.integers(0, 9),
)
def test_any_catalog_any_engine(values: list[float], slack: list[float], which: int, seed: int) -> None:
    bound = np.array(values) + np.array(slack[: len(values)])
    place = np.random.default_rng(seed).integers(0, 4, size=(len(values), 2))
    form = Catalog(place, values.__getitem__, bound=bound)
    answer = CATALOG[which].solve(form, Limits(seed=seed))
    assert answer.value == max(values)
    assert certify(form, answer).vouched is Vouched.CERTIFIED


def test_the_expected_improvement() -> None:
    assert expected_improvement(np.array([1.0, 3.0]), np.array([0.0, 0.0]), 2.0).tolist() == [0.0, 1.0]
    assert expected_improvement(np.array([1.0]), np.array([1.0]), 2.0)[0] == pytest.approx(0.083315, rel=1e-4)
