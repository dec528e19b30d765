"""Brute force on tiny pools, and what must not change or must only grow."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from build import limits_at
from cases import pool_published as published
from cases.pool import Json, counts, decide, exactly, files, pose, promise
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.solver_calls import Asking
from hetplan.problems.pool.program import fluid_program_at, fluid_programs_at
from hetplan.problems.pool.question import PoolQuestion


@st.composite
def tiny(draw: st.DrawFn) -> tuple[Json, Json]:
    """Two or three types, two or three bins, a budget of few instances."""
    types = draw(st.integers(2, 3))
    bins = draw(st.integers(1, 3))
    times = st.integers(5, 150).map(float)
    latency = {f"h{t}": sorted(draw(st.lists(times, min_size=bins, max_size=bins))) for t in range(types)}
    weights = draw(st.lists(st.integers(1, 9), min_size=bins, max_size=bins))
    share = [weight / sum(weights) for weight in weights]
    prices = {name: draw(st.integers(10, 60)) / 100 for name in latency}
    return files(latency, share, prices=prices, qos_ms=100, budget=draw(st.integers(50, 180)) / 100)


def rate_by_scipy(problem: PoolQuestion, per_type: Any) -> float:
    """The fluid rate at given counts, written down a second time: shares r[s,t] of each class, busy time per query."""
    p, times = problem.p, np.where(problem.qos >= problem.L, problem.L, np.nan)
    pairs = [(s, t) for s, t in itertools.product(*map(range, times.shape)) if times[s, t] == times[s, t]]
    cost = np.zeros(len(pairs) + 1)
    cost[-1] = -1.0
    equal = np.zeros((p.size, cost.size))
    busy = np.zeros((times.shape[1], cost.size))
    for k, (s, t) in enumerate(pairs):
        equal[s, k], busy[t, k] = 1.0, times[s, t]
    equal[:, -1] = -p
    found = linprog(cost, A_ub=busy, b_ub=1000.0 * np.asarray(per_type), A_eq=equal, b_eq=np.zeros(p.size))
    return float(found.x[-1])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=tiny())
def test_the_program_finds_what_brute_force_finds(case: tuple[Json, Json]) -> None:
    problem = pose(case)
    budget = problem.request.budget or 0
    most = [range(int(budget // price) + 1) for price in problem.c]
    affordable = [n for n in itertools.product(*most) if problem.cost(np.array(n)) <= budget]
    rates = {n: rate_by_scipy(problem, n) for n in affordable}
    best = max(rates.values())
    drafted = decide(case)
    if best < 1e-9:
        assert isinstance(drafted, Infeasibility)
        return
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(best, rel=1e-6)
    # And the least cost for a rate a little below that of some pool.
    rate = sorted(rates.values())[len(rates) // 2] * 0.999
    if rate > 1e-3:
        cheapest = min(problem.cost(np.array(n)) for n, found in rates.items() if found >= rate)
        profile, slo = case
        slo["limits"].pop("cost_per_hour")
        slo["apps"]["app"]["rate_qps"] = rate
        assert promise(decide((profile, slo), derate=1.0), "cost_per_hour") == pytest.approx(cheapest / 1e9, rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(case=tiny(), seed=st.integers(0, 5))
def test_neither_order_nor_currency_nor_offers_matter(case: tuple[Json, Json], seed: int) -> None:
    found = decide(case)
    if isinstance(found, Infeasibility):
        return
    rate = promise(found, "fluid_rate_qps")
    profile, slo = case
    order = list(np.random.default_rng(seed).permutation(sorted(profile["hardware"])))
    shuffled = {**profile, "variants": {"m": {**profile["variants"]["m"], "runs": [
        {"hardware": str(name), "latency": f"t-{name}"} for name in order
    ]}}}  # fmt: skip
    assert promise(decide((shuffled, slo)), "fluid_rate_qps") == pytest.approx(rate, rel=1e-6)
    dearer = {
        name: {**o, "price_per_hour": str(float(o["price_per_hour"]) * 8)} for name, o in profile["offers"].items()
    }
    scaled = {**slo, "limits": {"cost_per_hour": str(float(slo["limits"]["cost_per_hour"]) * 8)}}
    assert promise(decide(({**profile, "offers": dearer}, scaled)), "fluid_rate_qps") == pytest.approx(rate, rel=1e-6)
    first = profile["offers"]["h0"]
    halved = {**profile["offers"], "h0": {**first, "stock": 1}, "h0-more": {**first, "stock": None}}
    assert promise(decide(({**profile, "offers": halved}, slo)), "fluid_rate_qps") == pytest.approx(rate, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(case=tiny(), more=st.floats(1.05, 3.0))
def test_more_money_time_or_tolerance_never_lowers_the_rate(case: tuple[Json, Json], more: float) -> None:
    profile, slo = case
    found = decide(case)
    rate = 0.0 if isinstance(found, Infeasibility) else promise(found, "fluid_rate_qps")
    richer = {**slo, "limits": {"cost_per_hour": f"{float(slo['limits']['cost_per_hour']) * more:.6f}"}}
    app = slo["apps"]["app"]
    slower = {**slo, "apps": {"app": {**app, "latency": {"p99_ms": 100 * more}}}}
    for other, options in ((richer, {}), (slower, {}), (slo, {"allow_late": 0.01})):
        again = decide((profile, other), **options)
        assert (0.0 if isinstance(again, Infeasibility) else promise(again, "fluid_rate_qps")) >= rate * (1 - 1e-6)


@settings(max_examples=15, deadline=None)
@given(case=tiny(), n=st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_more_instances_never_lower_the_rate(case: tuple[Json, Json], n: list[int]) -> None:
    problem = pose(case)
    base = np.array(n[: len(problem.types)])
    family = [base, *(base + np.eye(len(base), dtype=int))]
    answers = Asking(registry.solvers("milp"), Limits()).all(fluid_programs_at(problem, np.array(family)))
    rates = [answer.value or 0.0 for answer in answers]
    assert all(other >= rates[0] * (1 - 1e-7) - 1e-7 for other in rates)
    assert rates == pytest.approx([rate_by_scipy(problem, one) for one in family], rel=1e-6, abs=1e-6)


def test_homogeneous_pools_add_up() -> None:
    case = files({"only": [10.0, 40.0]}, [0.75, 0.25], prices={"only": 1}, qos_ms=100, budget=9)
    for u in range(1, 10):
        drafted = decide(exactly(case, {"only": u}), formulation="pool-lp")
        assert promise(drafted, "fluid_rate_qps") == pytest.approx(u * 1000 / 17.5, rel=1e-9)


@pytest.mark.quick_cases(2)
@pytest.mark.skipif(not published.present(), reason="../shared/data/kairos is absent")
@pytest.mark.parametrize("model", published.KAIROS)
def test_the_program_is_the_best_of_all_331(model: str) -> None:
    stored = published.load("fluid_lp_vs_eq15_budget2.5")[f"{model}|0.0"]
    problem = pose(published.kairos(model, budget="2.5", instances={"g4dn.xlarge": [1, None]}))
    family = np.array([[int(n) for n in key.split(",")] for key in stored])
    answers = Asking(registry.solvers("milp"), Limits()).all(fluid_programs_at(problem, family))
    rates = [answer.value for answer in answers]
    assert rates == pytest.approx([lp for lp, _ in stored.values()], rel=1e-6)
    drafted = decide(published.kairos(model, budget="2.5", instances={"g4dn.xlarge": [1, None]}))
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(max(lp for lp, _ in stored.values()), rel=1e-6)


def test_two_offers_share_the_flow_by_their_instances() -> None:
    case = files({"only": [10.0]}, [1.0], prices={"only": 1}, qos_ms=100, budget=3, stock={"only": 1})
    case[0]["offers"]["only-spot"] = {"hardware": "only", "price_per_hour": "0.5", "stock": 3}
    drafted = decide(case)
    assert counts(drafted) == {"only": 1, "only-spot": 3}
    assert isinstance(drafted, Draft)
    assert drafted.routing["app"][0].to == {"w1.a": pytest.approx(0.75), "w2.a": pytest.approx(0.25)}


def test_the_same_form_for_the_same_question() -> None:
    case = files({"only": [10.0, 20.0]}, [0.5, 0.5], prices={"only": 1}, qos_ms=15, budget=3)
    case[1]["apps"]["app"]["latency"] = limits_at(50, case[1]["apps"]["app"]["latency"])
    problem = pose(case, allow_late=0.1)
    one, other = fluid_program_at(problem, np.array([1])), fluid_programs_at(problem, np.array([[1]]))[0]
    assert one.size() == other.size()
    assert (one.matrix.toarray() == other.matrix.toarray()).all()
    assert one.row_upper.tolist() == other.row_upper.tolist()
    assert one.row_name(2) == "late[15 ms]"
