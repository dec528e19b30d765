"""Baselines of pools: the golden cases, what they cannot do, and plans that hetplan's verifier accepts."""

from __future__ import annotations

from typing import Any

import pytest
from cases import pool_published as published
from cases.pool import G4_COSTS, Json, files, g1, g3

import hetplan

BASELINES = ["eq15-rerank", "homogeneous", "enumerate-lp"]
needs_data = pytest.mark.skipif(not published.present(), reason="the published data of Kairos are absent")


def solve(case: tuple[Json, Json], formulation: str, **options: Any) -> hetplan.Outcome:
    return hetplan.solve(*case, formulation=formulation, options=options)


def promise(outcome: hetplan.Outcome, quantity: str) -> float:
    (value,) = [float(one.value) for one in outcome.require().promises if one.quantity == quantity]
    return value


def counts(outcome: hetplan.Outcome) -> dict[str, int]:
    return {worker.hardware: worker.count for worker in outcome.require().workers}


@pytest.mark.parametrize("formulation", ["eq15-rerank", "enumerate-lp"])
@pytest.mark.parametrize(("budget", "rate"), [(1, 50.0), (3, 160.0)])
def test_the_golden_pools_are_found(formulation: str, budget: int, rate: float) -> None:
    found = solve(g3(budget=budget, instances={"base": [1, None]}), formulation, derate=1.0)
    assert promise(found, "rate_qps") == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("formulation", ["eq15-rerank", "enumerate-lp"])
@pytest.mark.parametrize(("rate", "cost"), G4_COSTS.items())
def test_the_golden_costs_are_found(formulation: str, rate: int, cost: float) -> None:
    found = solve(g3(rate_qps=rate, instances={"base": [1, None]}), formulation, derate=1.0)
    assert promise(found, "rate_qps") >= rate * (1 - 1e-6)
    assert promise(found, "cost_per_hour") == cost


@pytest.mark.parametrize("formulation", BASELINES)
@pytest.mark.parametrize("wish", [{"budget": 4}, {"rate_qps": 120}])
def test_plans_verify_and_say_no_bound(formulation: str, wish: Json) -> None:
    outcome = solve(g3(**wish), formulation)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    plan = outcome.require()
    assert (plan.status, plan.method.formulation, plan.method.like) == ("heuristic", formulation, "kairos")
    assert hetplan.verify(plan, *g3(**wish)).ok


def test_homogeneous_pools() -> None:
    found = solve(g3(budget="3.6"), "homogeneous", derate=1.0)
    assert counts(found) == {"base": 3}
    assert promise(found, "rate_qps") == pytest.approx(150.0)
    assert found.require().alternatives[0]["fluid_rate_qps"] == pytest.approx(150.0 * 3.6 / 3)
    assert counts(solve(g3(rate_qps=120), "homogeneous", derate=1.0)) == {"base": 3}


@pytest.mark.parametrize("formulation", ["eq15-rerank", "homogeneous"])
def test_without_a_base_the_program_is_named(formulation: str) -> None:
    # The base costs 5; the budget buys only the others, which serve all but the largest bin.
    case = files(
        {"base": [10.0, 40.0], "more": [20.0, 60.0]}, [0.5, 0.5], prices={"base": 5, "more": 1}, qos_ms=90, budget=3
    )
    found = solve(case, formulation)
    assert found.plan is None
    assert "pool-milp" in " ".join(found.why)


def test_a_rate_beyond_the_limits_is_explained() -> None:
    case = g3(rate_qps=500, instances={"base": [0, 1], "a": [0, 2], "b": [0, 2]})
    found = solve(case, "enumerate-lp")
    assert found.plan is None
    assert any(one.field.startswith("slo.limits.instances") for one in found.repairs)
    assert "instances of the base type" in " ".join(solve(case, "homogeneous").why)


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.01, 1.0])
@pytest.mark.parametrize("formulation", BASELINES)
def test_a_small_rate_takes_the_cheapest_pool_that_serves_at_all(rate: float, formulation: str) -> None:
    assert counts(solve(g1(rate_qps=rate), formulation)) == {"base": 1}


@pytest.mark.parametrize("formulation", BASELINES)
def test_idle_minutes_give_a_plan(formulation: str) -> None:
    outcome = solve(g1(rate_qps=0), formulation)
    assert (outcome.exit_code, outcome.status) == (0, "optimal")
    assert outcome.require().workers == ()


@pytest.mark.parametrize("formulation", BASELINES)
def test_a_rate_may_be_promised_by_simulation(formulation: str) -> None:
    plan = solve(g3(budget=3), formulation, sizing="simulation", seeds=2).require()
    assert plan.promises[0].model == "simulation/1"


@pytest.mark.slow
@needs_data
def test_reranking_mends_the_token_trap() -> None:
    # One strong instance raises s' for all the weak ones: the estimate's best is far from what it carries.
    case = published.kairos("rm2", budget=20)
    kept, mended = (promise(solve(case, name), "fluid_rate_qps") for name in ("kairos", "eq15-rerank"))
    assert mended > kept


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("model", published.KAIROS)
def test_formulations_agree_on_the_published_services(model: str) -> None:
    case = published.kairos(model, budget="2.5")
    best = promise(solve(case, "pool-milp", sizing="fluid"), "fluid_rate_qps")
    assert promise(solve(case, "enumerate-lp"), "fluid_rate_qps") == pytest.approx(best, rel=1e-4)
    assert promise(solve(case, "eq15-rerank"), "fluid_rate_qps") == pytest.approx(best, rel=1e-4)
    assert promise(solve(case, "homogeneous"), "fluid_rate_qps") < best
