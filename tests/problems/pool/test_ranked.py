"""Listing configurations: how many there are, what Eq. 15 says of them, which is chosen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import pool_published as published
from cases.pool import Json, counts, decide, files, g1, g3, pose, promise
from hypothesis import given, settings
from hypothesis import strategies as st

import hetplan
from benchmarks.pool import estimate_rate
from hetplan.errors import InputError
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems.pool.kairos import (
    Eq15,
    best_rated,
    configurations,
    costs_of_counts,
    enumerate_counts,
    eq15_numbers,
    estimate_rates,
    most_similar,
)

needs_data = pytest.mark.skipif(not published.present(), reason="../shared/data/kairos is absent")


def drafted(*args: object, **kwargs: object) -> Draft:
    found = decide(*args, **kwargs)  # type: ignore[arg-type]
    assert isinstance(found, Draft), found
    return found


# How many configurations there are.


@pytest.mark.parametrize(("budget", "count"), [(1, 1), (2, 10), (3, 35), (4, 84)])
def test_configurations_with_a_base(budget: int, count: int) -> None:
    problem = pose(g3(budget=budget))
    found = configurations(problem, problem.request.budget or 0, with_base=True)
    assert len(found) == count
    assert (found.cost <= budget * 10**9).all()


@pytest.mark.parametrize(
    ("budget", "count"), [("2.5", 331), (5, 4996), (10, 77096), pytest.param(20, 1208985, marks=pytest.mark.slow)]
)
def test_published_counts(budget: str, count: int) -> None:
    prices = {"g4dn": "0.526", "c5n": "0.432", "r5n": "0.149", "t3": "0.1664"}
    problem = pose(files({name: [1.0] for name in prices}, [1.0], prices=prices, qos_ms=10, budget=budget))
    assert len(configurations(problem, problem.request.budget or 0, with_base=True)) == count
    if count == 331:
        assert len(configurations(problem, problem.request.budget or 0)) == 697


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_configuration_stands_once_in_order(data: st.DataObject) -> None:
    types = data.draw(st.integers(1, 3))
    prices = {f"h{t}": data.draw(st.integers(1, 9)) / 10 for t in range(types)}
    bounds = {name: data.draw(st.tuples(st.integers(0, 2), st.integers(2, 5) | st.none())) for name in prices}
    budget = data.draw(st.integers(5, 25)) / 10
    case = files({name: [1.0] for name in prices}, [1.0], prices=prices, qos_ms=10, budget=budget, instances=bounds)
    problem = pose(case)
    found = configurations(problem, problem.request.budget or 0)
    most = [range(least, (30 if top is None else top) + 1) for least, top in bounds.values()]
    by_hand = [n for n in itertools.product(*most) if problem.cost(np.array(n)) <= (problem.request.budget or 0)]
    assert found.rows(np.arange(len(found))).tolist() == [list(n) for n in by_hand]
    assert found.cost.tolist() == [problem.cost(np.array(n)) for n in by_hand]


def test_offers_are_taken_cheapest_first() -> None:
    case = files({"h": [1.0]}, [1.0], prices={"h": 1}, qos_ms=10, budget=3)
    case[0]["offers"]["h-spot"] = {"hardware": "h", "price_per_hour": "0.25", "stock": 2}
    problem = pose(case)
    assert (costs_of_counts(problem.request.machines[0], 0, 3 * 10**9) / 10**9).tolist() == [0, 0.25, 0.5, 1.5, 2.5]
    assert problem.by_offer(np.array([3])).tolist() == [2, 1]


def test_resources_limit_configurations() -> None:
    case = g1(budget=9)
    for hardware in case[0]["hardware"].values():
        hardware["provides"] = {"cpu_cores": 4}
    case[1]["limits"]["provides"] = {"cpu_cores": 9}
    problem = pose(case)
    assert configurations(problem, 9 * 10**9).counts[0].max() == 2


def test_too_many_are_refused() -> None:
    with pytest.raises(InputError, match="pool-milp"):
        enumerate_counts([np.arange(4000)] * 2, [0, 0], 10**6)
    with pytest.raises(InputError, match="pool-milp"):
        decide(
            files({"h": [1.0], "k": [1.0]}, [1.0], prices={"h": 1, "k": 1}, qos_ms=9, budget=10**5),
            formulation="kairos",
        )


# Eq. 15.


def said(case: tuple[Json, Json], *n: int) -> float:
    numbers = eq15_numbers(pose(case))
    (found,) = estimate_rates(numbers, [np.array([count], dtype=np.int32) for count in n])
    assert found == pytest.approx(estimate_rate(numbers, n), rel=1e-14)
    return float(found)


def test_golden_estimates() -> None:
    assert said(g1(budget=9), 1, 0) == pytest.approx(57.142857, rel=1e-6)
    assert said(g1(budget=9), 1, 1) == pytest.approx(85.714286, rel=1e-6)
    assert said(g1(budget=9), 1, 3) == pytest.approx(100.0)
    assert said(g3(budget=9), 1, 1, 0) == pytest.approx(75.0)
    assert said(g3(budget=9), 3, 0, 0) == pytest.approx(150.0)
    assert said(g3(budget=9), 1, 0, 4) == pytest.approx(66.666667, rel=1e-6)
    assert said(g3(budget=9), 1, 1, 4) == pytest.approx(100.0)
    assert said(g3(budget=9), 1, 1, 40) == pytest.approx(100.0)


def test_golden_numbers() -> None:
    numbers = eq15_numbers(pose(g1(budget=9)))
    assert numbers.Qb == pytest.approx(57.142857, rel=1e-6)
    assert (numbers.Qs.tolist(), numbers.Qa[1].tolist(), numbers.f.tolist()) == ([25.0], [50.0], [0.75])


def test_an_auxiliary_that_serves_all_in_time_adds_its_own_rate() -> None:
    case = files(
        {"base": [10.0, 40.0], "aux": [20.0, 50.0]}, [0.75, 0.25], prices={"base": 1, "aux": 1}, qos_ms=99, budget=9
    )
    assert said(case, 1, 2) == pytest.approx(1000 / 17.5 + 2 * 1000 / 27.5)
    assert said(case, 0, 2) == pytest.approx(2 * 1000 / 27.5)


def test_an_auxiliary_that_is_never_in_time_adds_nothing_alone() -> None:
    case = files(
        {"base": [10.0, 40.0], "aux": [120.0, 150.0]}, [0.75, 0.25], prices={"base": 1, "aux": 1}, qos_ms=99, budget=9
    )
    assert said(case, 2, 3) == pytest.approx(2 * 1000 / 17.5)


def test_without_a_base_large_queries_go_unserved() -> None:
    assert said(g1(budget=9), 0, 3) == 0.0


def test_late_small_sizes_end_the_reach_of_a_type() -> None:
    # In time at 10 and 30, late at 20: the paper's s is the last size before the first late one.
    case = files(
        {"base": [1.0, 2.0, 3.0], "aux": [5.0, 99.0, 6.0]},
        [0.5, 0.3, 0.2],
        prices={"base": 1, "aux": 1},
        qos_ms=50,
        budget=9,
    )
    assert eq15_numbers(pose(case)).f.tolist() == [0.5]


def test_the_order_of_bins_in_the_file_does_not_matter() -> None:
    profile, slo = g3(budget=9)
    mix = slo["apps"]["app"]["mix"]
    mix["bins"], mix["share"] = mix["bins"][::-1], mix["share"][::-1]
    assert said((profile, slo), 1, 1, 4) == pytest.approx(100.0)


def test_several_axes_are_no_size() -> None:
    profile, slo = g1(budget=9)
    for name in ("base", "aux"):
        table = profile["tables"][f"t-{name}"]
        table.update(axes={"batch": [10, 20], "words": [1]}, mean=[[v] for v in table["mean"]])
    slo["apps"]["app"]["mix"].update(axes=["batch", "words"], bins=[[10, 1], [20, 1]])
    with pytest.raises(InputError, match="one size of query"):
        decide((profile, slo), formulation="kairos")
    assert promise(decide((profile, slo)), "rate_qps") > 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_arrays_say_what_the_formula_says(data: st.DataObject) -> None:
    bins, types = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    times = st.lists(st.floats(1, 150), min_size=bins, max_size=bins)
    latency = {f"h{t}": data.draw(times) for t in range(types)}
    weights = data.draw(st.lists(st.integers(1, 9), min_size=bins, max_size=bins))
    share = [weight / sum(weights) for weight in weights]
    numbers = eq15_numbers(pose(files(latency, share, prices=dict.fromkeys(latency, 1), qos_ms=100, budget=9)))
    rows = data.draw(st.lists(st.lists(st.integers(0, 5), min_size=types, max_size=types), min_size=1, max_size=8))
    found = estimate_rates(numbers, list(np.array(rows, dtype=np.int32).T))
    assert found.tolist() == pytest.approx([estimate_rate(numbers, row) for row in rows], rel=1e-12)


@needs_data
@pytest.mark.parametrize("model", published.KAIROS)
def test_the_published_profile_gives_the_published_bounds(model: str) -> None:
    numbers: Eq15 = published.allocator_profile(model)
    stored = published.load("kairos_code_upperbounds_budget2.5")[model]
    rows = np.array([[int(n) for n in key.split(",")] for key in stored])
    found = estimate_rates(numbers, list(rows.astype(np.int32).T))
    assert len(rows) == 331
    assert found.tolist() == pytest.approx([bound for _, bound in stored.values()], rel=1e-12)


SIMILAR = {
    "rm2": (1, 0, 13, 0),
    "wnd": (1, 0, 13, 0),
    "ncf": (1, 0, 13, 0),
    "dien": (2, 0, 9, 0),
    "mtwnd": (2, 0, 8, 1),
}


@needs_data
@pytest.mark.parametrize("model", published.KAIROS)
def test_the_papers_choice_among_published_bounds(model: str) -> None:
    stored = published.load("kairos_code_upperbounds_budget2.5")[model]
    rows = np.array([[int(n) for n in key.split(",")] for key in stored])
    cost = (rows @ np.array([5260, 4320, 1490, 1664])).astype(np.int64)
    found = estimate_rates(published.allocator_profile(model), list(rows.astype(np.int32).T))
    ten = rows[best_rated(found, cost, 10)]
    assert tuple(ten[most_similar(ten, 0)]) == SIMILAR[model]
    if model == "mtwnd":
        apart = ((ten[:, None, :] - ten[None, :, :]) ** 2).sum(axis=(1, 2))
        assert apart.tolist() == [54, 94, 38, 58, 92, 62, 42, 62, 62, 136]


@needs_data
@pytest.mark.parametrize("model", published.KAIROS)
def test_the_exact_profile_gives_the_stored_estimates(model: str) -> None:
    stored = published.load("fluid_lp_vs_eq15_budget2.5")[f"{model}|0.0"]
    rows = np.array([[int(n) for n in key.split(",")] for key in stored])
    found = estimate_rates(eq15_numbers(pose(published.kairos(model, budget="2.5"))), list(rows.astype(np.int32).T))
    assert found.tolist() == pytest.approx([eq15 for _, eq15 in stored.values()], rel=1e-9)


@needs_data
@pytest.mark.parametrize(
    ("model", "n", "rate"),
    [
        ("rm2", (3, 1, 3, 0), 85.148246),
        ("wnd", (2, 0, 9, 0), 1398.436252),
        ("dien", (2, 0, 9, 0), 732.853889),
        ("mtwnd", (1, 0, 13, 0), 779.423735),
    ],
)
def test_golden_published_estimates(model: str, n: tuple[int, ...], rate: float) -> None:
    assert said(published.kairos(model, budget="2.5"), *n) == pytest.approx(rate, rel=1e-6)


# Ranking.


def test_ties_go_to_the_cheaper_then_to_the_first() -> None:
    rates = np.array([5.0, 7.0, 7.0 * (1 + 1e-15), 7.0, 6.0])
    cost = np.array([1, 3, 3, 2, 1])
    assert best_rated(rates, cost, 4).tolist() == [3, 1, 2, 4]
    assert best_rated(rates, cost, 99).tolist() == [3, 1, 2, 4, 0]
    assert best_rated(rates[:0], cost[:0], 3).tolist() == []


def test_the_papers_choice() -> None:
    # The best three share the base: the first. Otherwise the one nearest to all, and of two such the better ranked.
    assert most_similar(np.array([[2, 0], [2, 9], [2, 5], [1, 4]]), 0) == 0
    assert most_similar(np.array([[2, 0], [1, 9], [2, 4], [1, 4]]), 0) == 2
    assert most_similar(np.array([[0, 0], [1, 1], [0, 0], [1, 1]]), 0) == 0


# The formulations.


@pytest.mark.parametrize("formulation", ["kairos", "pool-milp"])
@pytest.mark.parametrize(("budget", "rate"), [(1, 50.0), (3, 160.0)])
def test_formulations_find_the_golden_pools(formulation: str, budget: int, rate: float) -> None:
    found = drafted(g3(budget=budget, instances={"base": [1, None]}), formulation=formulation, derate=1.0)
    assert promise(found, "rate_qps") <= rate * (1 + 1e-6)
    if formulation != "kairos":
        assert promise(found, "rate_qps") == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("formulation", ["kairos", "pool-milp"])
@pytest.mark.parametrize(("rate", "cost"), [(100, 2.0), (150, 2.75), (160, 3.0), (161, 3.25), (200, 3.5)])
def test_formulations_find_the_golden_costs(formulation: str, rate: int, cost: float) -> None:
    found = drafted(g3(rate_qps=rate, instances={"base": [1, None]}), formulation=formulation, derate=1.0)
    assert promise(found, "rate_qps") >= rate * (1 - 1e-6)
    assert promise(found, "cost_per_hour") >= cost
    if formulation != "kairos":
        assert promise(found, "cost_per_hour") == cost


def test_plans_verify() -> None:
    for case in (g3(budget=4), g3(rate_qps=120)):
        outcome = hetplan.solve(*case, formulation="kairos")
        assert (outcome.exit_code, outcome.violations) == (0, ())
        assert outcome.require().status == "heuristic"


def test_without_a_base_the_program_is_named() -> None:
    # The base costs 1; the budget buys only the others, which serve all but the largest bin.
    case = files(
        {"base": [10.0, 40.0], "aux": [20.0, 60.0]}, [0.5, 0.5], prices={"base": 5, "aux": 1}, qos_ms=90, budget=3
    )
    found = decide(case, formulation="kairos")
    assert isinstance(found, Infeasibility)
    assert "pool-milp" in " ".join(found.why)
    assert promise(decide(case), "rate_qps") > 0


def test_a_rate_beyond_the_limits_is_explained() -> None:
    case = g3(rate_qps=500, instances={"base": [0, 1], "a": [0, 2], "b": [0, 2]})
    found = decide(case, formulation="kairos")
    assert isinstance(found, Infeasibility)
    assert any(one.field.startswith("slo.limits.instances") for one in found.repairs)


@pytest.mark.slow
@needs_data
def test_the_token_trap() -> None:
    # One strong instance raises s' for all the weak ones: the estimate's best is far from what it carries.
    found = drafted(published.kairos("rm2", budget=20), formulation="kairos")
    types = published.load("kairos_instance")["types"]
    assert counts(found) == {f"{types[0]}": 4, f"{types[1]}": 1, f"{types[2]}": 117}
    assert found.alternatives[0]["eq15_qps"] == pytest.approx(1225.888881, rel=1e-6)
    assert promise(found, "fluid_rate_qps") == pytest.approx(1091.273814, rel=1e-6)
    assert "W-overestimates" in {notice.code for notice in found.warnings}


@pytest.mark.quick_cases(2)
@needs_data
@pytest.mark.parametrize("model", published.KAIROS)
def test_the_estimate_is_no_better_than_the_program_on_the_published_services(model: str) -> None:
    case = published.kairos(model, budget="2.5")
    best = promise(decide(case), "fluid_rate_qps")
    assert promise(decide(case, formulation="kairos"), "fluid_rate_qps") <= best * (1 + 1e-6)
