"""The fluid program's golden cases, on every engine that takes them."""

import pytest
from cases.pool import CASES, G4_COSTS, G4_RATES, RATED, Rated, counts, decide, exactly, g1, g3, pose, promise

from hetplan import registry
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems.pool.program import fluid_program, fluid_program_at
from hetplan.problems.pool.question import given_counts

ENGINES = [engine.name for engine in registry.solvers("milp")]
APPROXIMATE = {
    "cp-sat-scaled": "rounds its coefficients on purpose, conservatively",
}
"""Engines of feasible answers, not of these digits."""


def takes(engine_name: str, form: object) -> None:
    (engine,) = [one for one in registry.solvers("milp") if one.name == engine_name]
    reason = engine.refuses(form)  # type: ignore[arg-type]
    if reason:
        pytest.skip(f"{engine_name} refuses: {reason}")
    if engine_name in APPROXIMATE:
        pytest.skip(f"{engine_name} {APPROXIMATE[engine_name]}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rated", RATED, ids=lambda r: f"{r.case}-{'-'.join(map(str, r.counts.values()))}-{r.eps:g}")
def test_rate_of_a_given_pool(engine: str, rated: Rated) -> None:
    case = exactly(CASES[rated.case](budget=100), rated.counts)
    problem = pose(case, formulation="pool-lp")
    takes(engine, fluid_program_at(problem, problem.of_type(given_counts(problem))))
    drafted = decide(case, formulation="pool-lp", allow_late=rated.eps, solver=engine)
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(rated.fluid_qps, rel=1e-6)
    assert promise(drafted, "rate_qps") == pytest.approx(0.8 * rated.fluid_qps, rel=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("budget", "rate"), G4_RATES.items())
def test_most_rate_for_a_budget(engine: str, budget: int, rate: float) -> None:
    case = g3(budget=budget, instances={"base": [1, None]})
    takes(engine, fluid_program(pose(case), None))
    drafted = decide(case, solver=engine, derate=1.0)
    assert promise(drafted, "rate_qps") == pytest.approx(rate, rel=1e-6)
    assert promise(drafted, "cost_per_hour") <= budget
    if budget == 1:
        assert counts(drafted) == {"base": 1}
    if budget == 3:
        assert counts(drafted) == {"base": 2, "a": 2}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("rate", "cost"), G4_COSTS.items())
def test_least_cost_for_a_rate(engine: str, rate: int, cost: float) -> None:
    case = g3(rate_qps=rate, instances={"base": [1, None]})
    takes(engine, fluid_program(pose(case), float(rate)))
    drafted = decide(case, solver=engine, derate=1.0)
    assert promise(drafted, "cost_per_hour") == cost
    assert promise(drafted, "rate_qps") >= rate * (1 - 1e-6)


def test_least_cost_is_sized_for_the_derated_rate() -> None:
    drafted = decide(g3(rate_qps=160, instances={"base": [1, None]}), derate=0.8)
    assert promise(drafted, "fluid_rate_qps") >= 200 * (1 - 1e-6)
    assert promise(drafted, "cost_per_hour") == G4_COSTS[200]


def test_without_a_base_nothing_is_served() -> None:
    found = decide(exactly(g3(budget=9), {"a": 1, "b": 1}), formulation="pool-lp")
    assert isinstance(found, Infeasibility)
    assert "late on every type that may be rented: batch=30" in found.why[0]


def test_the_cheaper_of_two_pools_of_one_rate_where_the_wish_says_so() -> None:
    # Two bases carry only so much of the largest bin: the last cent of the budget buys nothing.
    case = g3(budget="3.5", instances={"base": [1, 2], "a": [0, 0]})
    rate = promise(decide(case, derate=1.0), "rate_qps")
    case[1]["objective"] = ["max rate", "min cost"]
    drafted = decide(case, derate=1.0)
    assert isinstance(drafted, Draft)
    assert [one.about for one in drafted.reported] == ["rate_qps", "cost_per_hour", "fluid_rate_qps"]
    assert promise(drafted, "rate_qps") == pytest.approx(rate, rel=1e-6)
    # The least cost of that rate, asked for by itself.
    alone = g3(rate_qps=rate * (1 - 1e-9), instances={"base": [1, 2], "a": [0, 0]})
    assert promise(drafted, "cost_per_hour") == promise(decide(alone, derate=1.0), "cost_per_hour")


def test_a_lower_percentile_holds_too() -> None:
    # Half of the queries within 15 ms: only the small bin on base is, so half of all, all of it, must go there.
    case = g1(budget=100, instances={"base": [1, 1], "aux": [3, 3]})
    assert promise(decide(case, derate=1.0), "rate_qps") == pytest.approx(100.0, rel=1e-6)
    case[1]["apps"]["app"]["latency"]["p50_ms"] = 15
    # lam (0.5 * 10 + 0.25 * 40) / 1000 = 1 on the base.
    assert promise(decide(case, derate=1.0), "rate_qps") == pytest.approx(1000 / 15, rel=1e-6)
