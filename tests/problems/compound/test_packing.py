"""The second stage against the specification's cases, and every packer against the exact one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases.compound import four_queries, three_alike, two_tiers_at_a_price
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan import registry
from hetplan.planner.answer import Limits, Status, Vouched
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.packing import Items, Packing
from hetplan.solvers.packing import Fcfs, Greedy, GreedyL2, GreedyMax, GreedyNorm, GreedyStop, GreedySum, filled_up
from hetplan.solvers.packing_exact import Dual, DualCore, Exact
from hetplan.solvers.packing_local import by_moves
from hetplan_papers.datasets.circinus_generator import draw_machines, draw_packing

NORMS = [GreedySum(), GreedyNorm(), GreedyMax(), GreedyL2()]


def value(engine, form: Packing) -> float:
    certificate = certify(form, engine.solve(form, Limits()))
    assert certificate.sound, certificate.faults
    return certificate.value


@pytest.mark.parametrize("engine", NORMS, ids=lambda engine: engine.name)
def test_every_norm_falls_for_the_case_that_prices_solve(engine):
    assert value(engine, four_queries()) == 2


def test_prices_solve_it_and_bound_it():
    form = four_queries()
    answer = Dual().solve(form, Limits())
    certificate = certify(form, answer)
    assert certificate.value == 3
    assert certificate.vouched is Vouched.CERTIFIED
    assert form.bound(answer.proof["prices"]) == pytest.approx(11 / 3, rel=2e-4)
    assert value(Exact(), form) == 3


def test_what_fits_in_total_may_not_fit_on_machines():
    form = three_alike()
    assert value(Exact(), form) == value(Dual(), form) == 2
    total = Packing("max", form.first, form.worth, np.full((3, 1), 0.6), np.array([2.0]))
    assert value(Exact(), total) == 3


def test_sharing_a_machine_is_cheaper_than_the_cheapest_plan_of_each():
    form = two_tiers_at_a_price()
    assert value(Exact(), form) == pytest.approx(3.67)
    assert value(Dual(), form) == pytest.approx(3.67)


@pytest.mark.parametrize(
    ("count", "seed", "fcfs", "dual", "bound"),
    [(100, 0, 43, 72, 73.2563), (100, 1, 41, 68, 68.6992), (1000, 0, 310, 643, 644.8283)],
)
def test_the_specified_packings(count: int, seed: int, fcfs: int, dual: int, bound: float):
    form = draw_packing(count, seed).in_totals()
    answer = Dual().solve(form, Limits())
    reached = value(Dual(), form)
    assert value(Fcfs(), form) == fcfs
    assert reached >= dual
    assert all(value(engine, form) < reached for engine in NORMS)
    assert form.bound(answer.proof["prices"]) == pytest.approx(bound, rel=2e-4)
    assert certify(form, answer).bound == np.floor(bound)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_ten_thousand_queries_are_packed_to_within_a_fifth_of_a_percent(seed: int):
    form = draw_packing(10_000, seed).in_totals()
    verdict = certify(form, Dual().solve(form, Limits()))
    assert verdict.sound
    assert verdict.value >= 0.998 * verdict.certified_bound


def test_filling_up_keeps_what_is_chosen_and_what_there_is():
    first, worth = np.array([0, 1, 3, 4]), np.array([1.0, 5.0, 2.0, 9.0])
    form = Packing("max", first, worth, np.array([[2.0], [3.0], [1.0], [4.0]]), np.array([3.0]))
    chosen = np.array([0, -1, -1])
    assert filled_up(form, chosen, np.array([3, 1, 0, 2])).option.tolist() == [0, 2, -1]
    assert chosen.tolist() == [0, -1, -1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_exact_program_ends_where_the_bound_is(seed: int):
    form = draw_packing(100, seed).in_totals()
    answer = Exact().solve(form, Limits())
    assert (answer.status, answer.value) == (Status.OPTIMAL, [73, 68][seed])
    assert value(DualCore(), form) == [73, 68][seed]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seed", "gpus", "best"), [(100, 0, 4, 83.571), (30, 1, 1, 27.967)])
def test_the_specified_machines(count: int, seed: int, gpus: int, best: float):
    form = draw_machines(count, seed, gpus).on_machines()
    assert value(Exact(), form) == pytest.approx(best, abs=5e-4)
    assert value(Dual(), form) >= 0.99 * best


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 30), seed=st.integers(0, 999), weighted=st.booleans(), machines=st.booleans())
def test_every_packer_is_sound_and_none_beats_a_certified_bound(count: int, seed: int, weighted: bool, machines: bool):
    if machines:
        form = draw_machines(count, seed, 1).on_machines()
    else:
        form = draw_packing(count, seed, weighted=weighted).in_totals()
    certificate = certify(form, Dual().solve(form, Limits()))
    assert certificate.sound, certificate.faults
    bound = certificate.bound
    assert certificate.value <= bound + 1e-6 * max(1.0, bound)
    for name in ("dual-core", "greedy", "greedy-stop", "fcfs"):
        engine = next(engine for engine in registry.solvers("packing") if engine.name == name)
        assert value(engine, form) <= bound + 1e-6 * max(1.0, bound)


def test_to_stop_at_the_first_that_does_not_fit_never_serves_more():
    for seed in range(5):
        form = draw_packing(60, seed).in_totals()
        assert value(GreedyStop(), form) <= value(Greedy(), form)


def test_scaling_a_resource_changes_nothing():
    form = draw_packing(80, 3).in_totals()
    scaled = Packing("max", form.first, form.worth, form.demand * [1000, 1, 0.01], form.capacity * [1000, 1, 0.01])
    assert value(Dual(), scaled) == value(Dual(), form)


def test_a_choice_to_begin_from_is_never_made_worse():
    form = draw_packing(100, 0).in_totals()
    best = Exact().solve(form, Limits())
    assert Dual().solve(form, Limits(), start=best.point).value == best.value


@pytest.mark.parametrize("empty", ["nothing there", "no queries", "no worth"])
def test_nothing_to_serve_is_an_empty_plan(empty: str):
    form = four_queries()
    if empty == "nothing there":
        form = Packing("max", form.first, form.worth, form.demand, np.zeros(2))
    elif empty == "no queries":
        form = Packing("max", np.array([0]), np.zeros(0), np.zeros((0, 2)), np.ones(2))
    else:
        form = Packing("max", form.first, np.zeros(6), form.demand, form.capacity)
    for engine in (Dual(), DualCore(), Greedy(), Fcfs(), Exact()):
        assert value(engine, form) == 0


@pytest.mark.parametrize("seed", range(5))
def test_least_cost_on_machines_is_near_the_best_and_its_bound_is_a_sum_below_it(seed: int):
    drawn = draw_machines(8, seed, 1).on_machines()
    price = np.array([0.0, 2.48, 3.67])
    items = replace(drawn.items, machines=np.full(3, np.inf), price=price)
    form = Packing("min", drawn.first, np.zeros_like(drawn.worth), drawn.demand, drawn.capacity, items)
    best, bound = value(Exact(), form), certify(form, Dual().solve(form, Limits())).bound
    assert bound - 1e-9 <= best <= value(Dual(), form) <= 1.05 * best
    assert any(abs(bound - (2.48 * a + 3.67 * b)) < 1e-9 for a in range(5) for b in range(5))


def test_a_bound_is_moved_to_the_next_sum_of_prices_only_where_nothing_else_costs():
    form = two_tiers_at_a_price()
    assert form.whole(3.0) == pytest.approx(3.67)
    assert form.whole(3.67) == pytest.approx(3.67)
    assert form.whole(5.0) == pytest.approx(6.15)
    assert replace(form, worth=form.worth + 0.1).whole(3.0) == 3.0


@pytest.mark.parametrize(("count", "seed"), [(6, 0), (6, 1), (20, 2), (30, 1)])
def test_least_cost_within_totals_is_found_near_the_best(count: int, seed: int):
    """Where the greedy ways found nothing, or were a tenth dearer: prices, repair, single changes and pairs."""
    flat, rng = draw_packing(count, seed).in_totals(), np.random.default_rng(seed)
    cost = flat.demand @ [0.2, 2.48, 3.67] * rng.lognormal(0, 0.3, len(flat.demand))
    cheapest = [flat.options_of(i)[cost[flat.options_of(i)].argmin()] for i in range(count)]
    form = Packing("min", flat.first, cost, flat.demand, flat.demand[cheapest].sum(axis=0) * [0.5, 1.5, 3.0])
    answer, best = Dual().solve(form, Limits()), value(Exact(), form)
    certificate = certify(form, answer)
    assert certificate.sound
    assert certificate.bound - 1e-9 <= best <= certificate.value <= 1.01 * best


def test_a_repair_that_cannot_end_is_no_choice():
    form = Packing("min", np.array([0, 1, 2]), np.ones(2), np.ones((2, 1)), np.ones(1))
    assert by_moves(form, np.zeros(1)) is None
    assert certify(form, Exact().solve(form, Limits())).infeasible is not Vouched.NONE


def light(seed: int, sense: str, *, emptied: bool = False) -> Packing:
    """Items that take nothing of their machines (operators on processors that need nothing), or of half of them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0 if emptied else 1, 4, 4)
    options = int(counts.sum())
    of_option = rng.integers(0, 4, options)
    count, kinds = int(of_option.sum()), seed % 2
    items = Items(
        first=np.concatenate([[0], np.cumsum(of_option)]), tier=rng.integers(0, 3, count),
        size=rng.choice([0.0, 0.5], (count, kinds)), machines=np.array([np.inf, 2.0, 1.0]), room=np.ones((3, kinds)),
        price=rng.choice([0.0, 1.0, 2.5], 3),
    )  # fmt: skip
    first, worth = np.concatenate([[0], np.cumsum(counts)]), rng.choice([0.0, 1.0, 2.0], options)
    return Packing(sense, first, worth, np.zeros((options, 0)), np.zeros(0), items)


def least_by_hand(form: Packing) -> float:
    """Where items take nothing, one machine of every tier in use is enough for all of them."""
    assert form.items is not None
    tiers = [frozenset(form.items.tier[form.items.option == option].tolist()) for option in range(form.worth.size)]
    best = {frozenset(): 0.0}
    for group in range(form.first.size - 1):
        longer: dict[frozenset[int], float] = {}
        for used, cost in best.items():
            for option in form.options_of(group).tolist():
                both = used | tiers[option]
                longer[both] = min(longer.get(both, np.inf), cost + form.worth[option])
        best = longer
    return min(cost + sum(form.items.price[tier] for tier in used) for used, cost in best.items())


@pytest.mark.parametrize("seed", range(0, 16, 2))
def test_what_takes_nothing_of_a_machine_still_needs_one(seed: int):
    form = light(seed, "min")
    answer = Exact().solve(form, Limits())
    assert answer.status is Status.OPTIMAL
    assert answer.value == answer.bound == pytest.approx(least_by_hand(form))
    assert value(Exact(), light(seed, "max")) == value(Dual(), light(seed, "max"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("sense", ["max", "min"])
def test_light_items_and_groups_without_options_break_no_packer(sense: str, emptied: bool):
    for seed in range(12):
        form = light(seed, sense, emptied=emptied)
        values = {}
        for engine in (Dual(), DualCore(), Exact(), Greedy(), Fcfs()):
            certificate = certify(form, engine.solve(form, Limits()))
            assert certificate.sound, (seed, engine.name, certificate.faults)
            values[engine.name] = certificate.value
        if values["greedy"] is not None:
            assert values["dual"] is not None
            ahead = values["dual"] - values["greedy"]
            assert ahead >= -1e-9 if sense == "max" else ahead <= 1e-9


def test_of_options_that_take_nothing_the_best_is_taken():
    form = Packing("max", np.array([0, 3]), np.array([1.0, 5.0, 2.0]), np.zeros((3, 1)), np.ones(1))
    for engine in (*NORMS, Greedy(), Dual()):
        assert value(engine, form) == 5
