"""What a packing certifies, and that planted lies are found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.packing import Choice, Items, Packing
from hetplan.solvers.packing_exact import Exact


def small() -> Packing:
    return Packing(
        "max", np.array([0, 2, 3]), np.array([2.0, 1.0, 3.0]), np.array([[2.0], [1.0], [1.0]]), np.array([2.0])
    )


def answered(form: Packing, option: list[int], **how: object) -> Answer[Choice]:
    choice = Choice(np.array(option))
    return Answer(Status.FEASIBLE, point=choice, value=form.value(choice), **how)  # type: ignore[arg-type]


def test_a_sound_choice_has_its_value_and_the_bound_of_its_prices():
    form = small()
    certificate = certify(form, answered(form, [1, 2], proof={"prices": np.array([1.0])}))
    assert certificate.sound
    assert certificate.value == 4.0
    assert certificate.vouched is Vouched.CERTIFIED
    assert certificate.bound == 4.0


@pytest.mark.parametrize(
    ("option", "what"),
    [([0, 2], "takes 3"), ([2, 0], "does not have"), ([0], "choices for"), ([5, 2], "does not have")],
)
def test_an_infeasible_choice_is_found_out(option: list[int], what: str):
    certificate = certify(small(), Answer(Status.FEASIBLE, point=Choice(np.array(option))))
    assert what in certificate.faults[0]


def test_a_wrong_value_and_a_false_bound_are_found_out():
    form = small()
    wrong = replace(answered(form, [1, 2]), value=5.0)
    assert "recomputed" in certify(form, wrong).faults[0]
    false = replace(answered(form, [1, 2]), bound=3.0)
    assert "bounds all" in certify(form, false).faults[0]


def test_infeasible_is_never_true_of_a_maximum_and_must_be_proved_of_a_minimum():
    form = small()
    assert certify(form, Answer(Status.INFEASIBLE)).faults
    least = replace(form, sense="min")
    assert certify(least, Answer(Status.INFEASIBLE)).infeasible is Vouched.CLAIMED
    tight = replace(least, capacity=np.array([1.5]))
    proved = certify(tight, Answer(Status.INFEASIBLE, proof={"prices": np.array([1.0])}))
    assert proved.infeasible is Vouched.CERTIFIED


def machines() -> Packing:
    items = Items(
        np.arange(4), np.zeros(3, np.int64), np.full((3, 1), 0.6), np.array([2.0]), np.ones((1, 1)), np.zeros(1)
    )
    return Packing("max", np.arange(4), np.ones(3), np.zeros((3, 0)), np.zeros(0), items)


@pytest.mark.parametrize(
    ("machine", "what"),
    [([0, 0, -1], "overfull"), ([0, 2, -1], "beyond"), ([0, -1, -1], "are on machines"), ([0, 1, 1], "no others are")],
)
def test_misplaced_items_are_found_out(machine: list[int], what: str):
    choice = Choice(np.array([0, 1, -1]), np.array(machine))
    assert what in certify(machines(), Answer(Status.FEASIBLE, point=choice)).faults[0]


@st.composite
def packings(draw: st.DrawFn) -> Packing:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    counts = rng.integers(0, 4, size=draw(st.integers(1, 5)))
    options = int(counts.sum())
    sense = draw(st.sampled_from(["max", "min"]))
    demand = rng.integers(0, 5, size=(options, 2)) / 4
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Packing(sense, first, rng.integers(0, 4, options).astype(float), demand, rng.integers(0, 9, 2) / 4)


def best_of_all(form: Packing) -> float | None:
    """By trying every choice."""
    best: float | None = None
    groups = form.first.size - 1
    ways = [[*range(form.first[i], form.first[i + 1]), *([-1] if form.sense == "max" else [])] for i in range(groups)]
    stack: list[list[int]] = [[]]
    for options in ways:
        stack = [[*chosen, option] for chosen in stack for option in options]
    for option in stack:
        choice = Choice(np.array(option, dtype=np.int64))
        if not certify(form, Answer(Status.FEASIBLE, point=choice)).faults:
            value = form.value(choice)
            better = best is None or (value > best if form.sense == "max" else value < best)
            best = value if better else best
    return best


@settings(max_examples=60, deadline=None)
@given(form=packings(), seed=st.integers(0, 99))
def test_any_prices_bound_the_best_choice(form: Packing, seed: int):
    best = best_of_all(form)
    prices = np.random.default_rng(seed).exponential(1.0, 2)
    bound = form.whole(form.bound(prices))
    if best is not None:
        assert (bound >= best - 1e-9) if form.sense == "max" else (bound <= best + 1e-9)


@settings(max_examples=25, deadline=None)
@given(form=packings())
def test_the_whole_program_finds_the_best_choice(form: Packing):
    answer, best = Exact().solve(form, Limits()), best_of_all(form)
    certificate = certify(form, answer)
    assert certificate.sound
    if best is None:
        assert answer.status is Status.INFEASIBLE
    else:
        assert certificate.value == pytest.approx(best)
