"""Pools judged by a simulator that is handed in: the promise, the smallest pool for a rate, the searches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cases import pool_published as published
from cases.pool import CATALOG, Json, by_rule, counts, decide, exactly, files, g1, g3, inputs, pose, promise

import hetplan
from hetplan import registry
from hetplan.dispatch.queue_rules import Threshold
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.make_plan import make_plan
from hetplan.planner.solver_calls import Asking
from hetplan.problems.pool.capacity import SimulatedRate, rate_at, simulate
from hetplan.problems.pool.question import PoolQuestion
from hetplan.profiles.plan import Method
from hetplan.profiles.plan_dispatch_rules import ThresholdDispatch
from hetplan.verifier.check import verify_plan

ENGINES = ["bound-order", "exhaustive"]
"""Those that search a catalog."""


@dataclass
class Rates:
    per_seed: tuple[float, ...]


@dataclass
class Simulator:
    """Says that every pool carries a share of its fluid rate, less for small pools, and keeps what it was asked."""

    share: float = 0.85
    spread: float = 0.01
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, latency_ms: Any, counts: Any, pmf: Any, qos_ms: float, **more: Any) -> Rates:
        self.calls.append({"latency_ms": latency_ms, "counts": counts, "pmf": pmf, "qos_ms": qos_ms, **more})
        rate = more["lp_qps"] * self.share * (1 - 0.3 / sum(counts))
        return Rates(tuple(rate * (1 + self.spread * (seed % 3 - 1)) for seed in more["seeds"]))


def drafted(case: tuple[Json, Json], tools: Tools, **options: Any) -> Draft:
    found = decide(case, tools=tools, **options)
    assert isinstance(found, Draft), found
    return found


def test_what_the_simulator_is_given() -> None:
    profile, slo = g1(budget="1.25")
    mix = slo["apps"]["app"]["mix"]
    mix["bins"], mix["share"] = [[20], [10]], [0.25, 0.75]
    slo["apps"]["app"]["network_ms_per_hop"] = 5
    simulator = Simulator()
    found = drafted(by_rule((profile, slo), "earliest"), Tools(simulate=simulator), seeds=3)
    (call,) = simulator.calls
    # Rows are types, columns classes in growing size, whatever order the file has; the network is no time to serve in.
    assert call["latency_ms"].tolist() == [[10, 40], [20, 200]]
    assert (call["counts"], call["pmf"].tolist(), call["qos_ms"]) == ((1, 1), [0.75, 0.25], 95.0)
    assert (call["seeds"], call["base"], call["sizes"]) == ((0, 1, 2), 0, [10.0, 20.0])
    assert call["rule"] == "earliest/1"
    assert call["lp_qps"] == pytest.approx(promise(found, "fluid_rate_qps"))
    assert call["most_late"] == pytest.approx(0.01)
    assert "noise" not in call


def test_noise_goes_along_with_its_numbers() -> None:
    profile, slo = g1(budget="1.25")
    with pytest.raises(InputError, match="std and max"):
        decide(by_rule((profile, slo), "earliest"), tools=Tools(simulate=Simulator()), service_times="lognormal")
    for name in ("base", "aux"):
        profile["tables"][f"t-{name}"].update(std=[1, 2], max=[50, 300])
    simulator = Simulator()
    decide(by_rule((profile, slo), "earliest"), tools=Tools(simulate=simulator), service_times="lognormal")
    assert simulator.calls[0]["noise"] == "lognormal"
    assert simulator.calls[0]["std_ms"].tolist() == [[1, 2], [1, 2]]
    assert simulator.calls[0]["max_ms"].tolist() == [[50, 300], [50, 300]]


def test_the_promise_is_below_every_seed() -> None:
    one = SimulatedRate((100.0, 104.0, 102.0))
    assert one.median == 102.0
    assert one.promise("a", None).interval == (100.0, 104.0)
    assert one.promised == pytest.approx(102.0 - 3 * 2.0)
    assert SimulatedRate((5.0,)).promised == 5.0
    assert SimulatedRate((5.0,), at_most=4.0).promised == SimulatedRate((5.0, 5.0), at_most=4.0).promised == 4.0
    assert SimulatedRate((0.0, 9.0)).promised == 0.0


def test_a_simulated_rate_takes_the_place_of_the_derated_one() -> None:
    found = drafted(by_rule(g3(budget=4), "earliest"), Tools(simulate=Simulator()))
    rate = next(one for one in found.promises if one.quantity == "rate_qps")
    assert (rate.model, rate.seeds) == ("simulation/1", 5)
    assert rate.interval is not None
    assert rate.value <= rate.interval[0]
    claim = found.reported[0]
    assert (claim.about, claim.scope, claim.value) == ("rate_qps", "relaxation", rate.value)
    assert claim.answer is not None
    # The bound has no derate, and all the lateness that percentile 99 leaves.
    assert (claim.answer.value or 0.0) >= promise(found, "fluid_rate_qps") * (1 - 1e-9)
    assert "W-small-pool" not in {notice.code for notice in found.warnings}


@pytest.mark.parametrize("formulation", ["kairos", "pool-lp"])
def test_every_formulation_can_promise_by_simulation(formulation: str) -> None:
    case = exactly(g3(budget=4), {"base": 2}) if formulation == "pool-lp" else g3(budget=4)
    found = drafted(by_rule(case, "earliest"), Tools(simulate=Simulator()), formulation=formulation)
    assert found.promises[0].model == "simulation/1"
    assert found.reported[0].value == found.promises[0].value


def test_the_smallest_pool_for_a_rate() -> None:
    case, simulator = by_rule(g3(rate_qps=100, instances={"base": [1, None]}), "earliest"), Simulator()
    found = drafted(case, Tools(simulate=simulator))
    problem = pose(case, tools=Tools(simulate=simulator))
    assert found.promises[0].value >= 100
    assert found.searched
    # Brute force over everything cheaper: none carries the rate in the same simulator.
    cost = promise(found, "cost_per_hour")
    ask = Asking(registry.solvers("milp"), Limits())
    for n in np.ndindex(5, 9, 17):
        cheaper = problem.cost(np.array(n)) < cost * 10**9 - 1 and n[0] >= 1
        if cheaper and (rated := rate_at(problem, ask, np.array(n))).lam > 0:
            assert simulate(problem, n, rated.lam, first_seed=0).promised < 100
    claim = found.reported[0]
    assert (claim.about, claim.scope, claim.value) == ("cost_per_hour", "relaxation", cost)
    assert claim.answer is not None
    # Two base instances carry 100 qps where nothing ever waits.
    assert claim.answer.value == pytest.approx(2.0)


@pytest.mark.slow
def test_a_short_search_says_that_it_was() -> None:
    found = drafted(by_rule(g3(rate_qps=400), "earliest"), Tools(simulate=Simulator(share=0.5)), max_simulations=5)
    assert found.promises[0].value >= 400
    assert "W-not-all-tried" in {notice.code for notice in found.warnings}


def test_a_rate_that_no_pool_carries_in_simulation() -> None:
    case = g3(rate_qps=100, instances={"base": [2, 2], "a": [0, 1], "b": [0, 1]})
    found = decide(by_rule(case, "earliest"), tools=Tools(simulate=Simulator(share=0.4)))
    assert isinstance(found, Infeasibility)
    assert not found.proved
    assert found.repairs[0].field == "slo.apps.app.rate_qps"
    one = by_rule(g3(rate_qps=900, instances={"base": [1, 1]}), "earliest")
    never = decide(one, tools=Tools(simulate=Simulator()))
    assert isinstance(never, Infeasibility)
    assert any(one.field == "slo.limits.instances.base[1]" for one in never.repairs)


def test_another_formulation_that_misses_the_rate_says_so() -> None:
    found = drafted(by_rule(g3(rate_qps=100), "earliest"), Tools(simulate=Simulator(share=0.5)), formulation="kairos")
    assert "100 qps are asked for" in found.target_missed
    assert found.repairs[0].field == "slo.apps.app.rate_qps"


def test_nobody_to_simulate() -> None:
    with pytest.raises(InputError, match="no simulator"):
        decide(by_rule(g1(budget=3), "earliest"))
    with pytest.raises(InputError, match="no simulator"):
        decide(g1(budget=3), formulation="kairos-plus")
    with pytest.raises(InputError, match="nothing was handed in"):
        decide(g1(budget=3), formulation="kairos-plus", evaluator="evaluate")


def test_rates_of_several_at_once_are_not_simulated_as_single_queries() -> None:
    profile, slo = g1(budget=3)
    profile["variants"]["m"]["runs"][1] = {"hardware": "aux", "rate": "r"}
    profile["tables"]["r"] = {"quantity": "requests_per_s", "axes": {"batch": [10, 20]}, "mean": [9, 0]}
    with pytest.raises(InputError, match="not of rates"):
        decide((profile, slo), tools=Tools(simulate=Simulator()), formulation="kairos-plus")


# Searches.


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bound", ["lp", "eq15"])
def test_simulations_that_end_early_change_no_plan(engine: str, bound: str) -> None:
    """The same pool, promises, claims and number of pools tried as where each is simulated to the end."""
    from hetplan.simulator.pool_allowable import allowable_rate

    spent = {True: 0, False: 0}

    def simulator(early: bool) -> Any:
        def run(*given: Any, above: float = 0.0, **options: Any) -> Any:
            found = allowable_rate(*given, **options, above=above if early else 0.0, least_queries=2000)
            spent[early] += found.evaluations
            return found

        return run

    plans = []
    for early in (True, False):
        case = g3(budget=3, instances={"base": [1, None], "b": [0, 0]})
        tools, how = Tools(simulate=simulator(early)), {"bound": bound, "seeds": 3, "prune": engine == "bound-order"}
        found = drafted(case, tools, solver=engine, formulation="kairos-plus", **how)
        plans.append(
            (found.workers, found.promises, found.dispatch, [replace(one, answer=None) for one in found.reported])
        )
    assert plans[0] == plans[1]
    # Listed from the smallest on, each of these pools beats those before it.
    assert spent[True] < spent[False] or engine == "exhaustive"


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bound", ["lp", "eq15"])
def test_searches_find_the_best_pool(engine: str, bound: str) -> None:
    simulator = Simulator()
    case = g3(budget=4, instances={"base": [1, None]})
    tools, how = Tools(simulate=simulator), {"bound": bound, "seeds": 3, "prune": bound == "lp"}
    found = drafted(case, tools, solver=engine, formulation="kairos-plus", **how)
    assert found.searched
    problem = pose(case, tools=tools, formulation="kairos-plus", seeds=3)
    ask = Asking(registry.solvers("milp"), Limits())
    best = 0.0
    for n in np.ndindex(5, 9, 17):
        if (
            n[0] >= 1
            and problem.cost(np.array(n)) <= 4 * 10**9
            and (rated := rate_at(problem, ask, np.array(n))).lam > 0
        ):
            best = max(best, simulate(problem, n, rated.lam, first_seed=0).median)
    rate = found.promises[0]
    assert rate.interval is not None
    assert promise(found, "fluid_rate_qps") * 0.85 > best * 0.9
    if bound == "lp":
        # The simulator takes its share of what it is given as the bound, here with 1% of lateness in it.
        assert sum(rate.interval) / 2 >= best * (1 - 1e-6)
        assert found.reported[0].bound is not None
        assert found.reported[0].bound >= sum(rate.interval) / 2 * (1 - 1e-9)


def test_the_order_of_bounds_needs_few_tries() -> None:
    tries = {}
    for prune in (True, False):
        simulator = Simulator(spread=0.0)
        drafted(g3(budget=4), Tools(simulate=simulator), formulation="kairos-plus", prune=prune, seeds=1)
        tries[prune] = len(simulator.calls)
    assert tries[True] * 3 < tries[False]


def test_a_number_of_tries_is_kept() -> None:
    simulator = Simulator()
    found = drafted(g3(budget=4), Tools(simulate=simulator), formulation="kairos-plus", prune=False, max_simulations=7)
    assert len(simulator.calls) == 7
    assert found.reported[0].note is not None
    assert found.reported[0].note.startswith("7 of ")


def test_measurements_in_place_of_simulation() -> None:
    asked = []

    def measured(point: Json) -> float:
        asked.append(point)
        return float(10 * point["counts"]["base"] + point["counts"]["aux"])

    found = drafted(g1(budget=3), Tools(evaluate=measured), formulation="kairos-plus", evaluator="evaluate")
    # As the measurement has it, every base is worth ten.
    assert counts(found) == {"base": 3}
    assert (found.promises[0].model, found.promises[0].value) == ("measured", 30.0)
    # A measurement above what the plan's own shares carry is not promised.
    found = drafted(g1(budget=3), Tools(evaluate=lambda point: 999.0), formulation="kairos-plus", evaluator="evaluate")
    assert found.promises[0].value == promise(found, "fluid_rate_qps")
    assert all(point["counts"].keys() == {"base", "aux"} for point in asked)


def test_searches_are_for_budgets() -> None:
    with pytest.raises(InputError, match="within a budget"):
        decide(g1(rate_qps=30), tools=Tools(simulate=Simulator()), formulation="kairos-plus")


def test_pruning_by_the_estimate_is_reported() -> None:
    found = drafted(g3(budget=4), Tools(simulate=Simulator()), formulation="kairos-plus", bound="eq15")
    assert "W-no-bound" in {notice.code for notice in found.warnings}
    assert found.reported[0].bound is None


def test_nothing_carries_anything() -> None:
    found = decide(g1(budget=3), tools=Tools(simulate=Simulator(share=0.0)), formulation="kairos-plus")
    assert isinstance(found, Infeasibility)
    assert "tried carries any rate" in found.why[0]
    poor = decide(g1(budget="0.3"), tools=Tools(simulate=Simulator()), formulation="kairos-plus")
    assert isinstance(poor, Infeasibility)
    assert "needs $1.0000, the budget is 0.3" in poor.why[0]


@pytest.mark.parametrize(
    ("formulation", "options"),
    [
        ("pool-milp", {}),
        ("kairos-plus", {}),
        ("kairos-plus", {"bound": "eq15"}),
        ("kairos", {}),
    ],
)
@pytest.mark.parametrize("wish", [{"budget": 4}, {"rate_qps": 90}])
def test_simulated_plans_verify(formulation: str, options: Json, wish: Json) -> None:
    if formulation == "kairos-plus" and "rate_qps" in wish:
        pytest.skip("searches are for budgets")
    case = g3(**wish)
    files_ = inputs(*(case if formulation == "kairos-plus" else by_rule(case, "earliest")))
    chosen = PoolQuestion.formulations[formulation](**options)
    tools = Tools(simulate=Simulator())
    problem = PoolQuestion.from_inputs(files_, chosen, formulation=formulation, tools=tools)
    method = Method(formulation=formulation, options=chosen.model_dump(mode="json", exclude_none=True))
    ask = Asking([*registry.solvers("milp"), *CATALOG], Limits())
    outcome = make_plan(problem, files_, ask, method=method)
    if outcome.plan is None:
        assert outcome.finding.target_missed or formulation == "kairos"
        return
    report = verify_plan(outcome.plan, files_, registry.check_of("pool"))
    assert report.violations == ()
    assert outcome.plan.promises[0].model == "simulation/1"


# With the real simulator.


@pytest.mark.slow
def test_promises_by_the_real_simulator_are_kept_on_fresh_seeds() -> None:
    from hetplan.simulator.pool_allowable import allowable_rate

    case = files(
        {"base": [10.0, 40.0], "aux": [20.0, 200.0]},
        [0.75, 0.25],
        prices={"base": 1, "aux": "0.25"},
        qos_ms=100,
        rate_qps=150,
    )
    found = drafted(by_rule(case, "earliest"), Tools(simulate=allowable_rate), max_simulations=8, seeds=4)
    have = counts(found)
    n = (have.get("base", 0), have.get("aux", 0))
    fresh = allowable_rate([[10, 40], [20, 200]], n, [0.75, 0.25], 100, seeds=(50, 51, 52))
    assert found.promises[0].value >= 150
    assert fresh.median >= 150
    assert (found.reported[0].answer.value or 0) <= promise(found, "cost_per_hour") + 1e-9  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(not published.present(), reason="../shared/data/kairos is absent")
@pytest.mark.parametrize("model", published.KAIROS)
def test_published_services_keep_their_promise_on_fresh_seeds(model: str) -> None:
    from hetplan.simulator.pool_allowable import allowable_rate

    case = published.kairos(model, budget="2.5")
    found = drafted(by_rule(case, "earliest"), Tools(simulate=allowable_rate), seeds=3)
    problem = pose(case)
    have = counts(found)
    n = [have.get(f"{kind.hardware}", 0) for kind in problem.types]
    lam = promise(found, "fluid_rate_qps")
    fresh = allowable_rate(problem.L.T, n, problem.p, problem.qos, lp_qps=lam, seeds=(90, 91, 92))
    assert fresh.min >= found.promises[0].value


@pytest.mark.slow
@pytest.mark.skipif(not published.present(), reason="../shared/data/kairos is absent")
@pytest.mark.parametrize("budget", ["0.6", "1.1"])
@pytest.mark.parametrize("model", published.KAIROS)
def test_one_machine_and_four_keep_what_was_promised_of_them(model: str, budget: str) -> None:
    """Where a derate of 0.8 would promise two to three times too much; by the general engine, on seeds of its own."""
    import hetplan

    profile, slo = published.kairos(model, budget=budget)
    plan = hetplan.solve(profile, slo).require()
    assert sum(worker.count for worker in plan.workers) <= 4
    promised, fluid, *_ = plan.promises
    assert promised.value < 0.75 * fluid.value
    (app,) = slo["apps"].values()
    app["rate_qps"] = promised.value
    del slo["limits"]["cost_per_hour"]
    report = hetplan.simulate(plan, profile, slo, seed=77, seeds=10, noise="mean", threads=1)
    assert report.ok
    late = next(iter(report.apps.values())).figures["violations"]
    assert late.high <= 0.01
    # And it is no promise that costs nothing to keep.
    assert late.value > 0.004


# Other rules.


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("formulation", ["pool-milp", "kairos-plus"])
@pytest.mark.parametrize("dispatch", ["threshold", "earliest"])
def test_plans_of_other_rules_verify_and_promise_what_their_simulation_shows(dispatch: str, formulation: str) -> None:
    from hetplan.simulator.pool_allowable import allowable_rate

    options: Json = {"seeds": 2, "max_simulations": 3}
    if formulation == "kairos-plus":
        options["prune"] = False
    outcome = hetplan.solve(*by_rule(g1(budget=2), dispatch), formulation=formulation, options=options)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    plan = outcome.require()
    rule = plan.dispatch["app"]
    assert rule.rule == f"{dispatch}/1"
    n = [sum(w.count for w in plan.workers if w.hardware == name) for name in ("base", "aux")]
    parameters: Json = {"rule": f"{dispatch}/1"}
    if isinstance(rule, ThresholdDispatch):
        assert rule.base in {worker.hardware for worker in plan.workers}
        parameters = {"rule": Threshold(rule.threshold, base=["base", "aux"].index(rule.base))}
    fresh = allowable_rate(
        [[10, 40], [20, 200]], n, [0.75, 0.25], 100, sizes=[10, 20], seeds=(70, 71, 72), **parameters
    )
    # Two seeds tell their spread but roughly.
    assert fresh.median >= 0.97 * plan.promises[0].value


def test_a_threshold_where_the_base_is_not_rented() -> None:
    case = files({"big": [10.0], "small": [20.0]}, [1.0], prices={"big": 9, "small": "0.1"}, qos_ms=100, budget="0.3")
    outcome = hetplan.solve(*by_rule(case, "threshold"), options={"seeds": 2})
    assert (outcome.exit_code, outcome.violations) == (0, ())
    rule = outcome.require().dispatch["app"]
    assert isinstance(rule, ThresholdDispatch)
    assert rule.base == "small"


def test_a_threshold_beside_a_measured_rate() -> None:
    found = hetplan.solve(
        *by_rule(g1(budget=2), "threshold"),
        options={"evaluator": "evaluate", "seeds": 1},
        evaluate=lambda point: 5.0,
        formulation="kairos-plus",
    )
    assert (found.exit_code, found.violations) == (0, ())
    assert (found.require().promises[0].model, found.require().promises[0].value) == ("measured", 5.0)
    assert found.require().dispatch["app"].rule == "threshold/1"
