"""What binds, and the three smallest repairs."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from cases.pipelines import fluid, random_pipeline
from scipy.optimize import linprog

from hetplan.problems.pipeline import infeasible, latency_levels
from hetplan.problems.pipeline.infeasible import Reach, best_reach
from hetplan.problems.pipeline.programs import Aim
from hetplan_papers.datasets import loki, loki_by_hand, loki_generator
from hetplan_papers.datasets.sources import present

published = pytest.mark.skipif(not present("loki"), reason="the published data are not at hand (HETPLAN_DATA)")


def repair(outcome, part):
    return next((one for one in outcome.repairs if part in one.field), None)


def test_tiny():
    outcome = fluid(*loki_by_hand.tiny(0.2, 101))
    assert outcome.exit_code == 3
    assert "stage a" in outcome.why[0]
    assert "no latency limit" in outcome.why[1]
    assert repair(outcome, "rate_qps").to == pytest.approx(100)
    assert repair(outcome, "instances").to == 6
    assert repair(outcome, "latency") is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("hair", [1e-5, 1e-6, 1e-7, 1e-9])
def test_beyond_capacity_by_a_hair_is_infeasible_and_repaired(hair):
    """Less than engines tell apart: some call it feasible, some not."""
    outcome = fluid(*loki_by_hand.tiny(0.2, 100 * (1 + hair)))
    assert (outcome.status, outcome.exit_code) == ("infeasible", 3)
    assert repair(outcome, "rate_qps").to == 100
    assert "stage a of x binds" in outcome.why[0]


@pytest.mark.slow
@published
def test_beyond_the_chain_by_a_hair():
    outcome = fluid(*loki.traffic_chain(2305.57))
    assert outcome.status == "infeasible"
    assert repair(outcome, "rate_qps").to == 2305.56


def test_a_resource_that_is_short_is_named_and_raised():
    profile, slo = loki_by_hand.tiny(0.2, 90)
    for variant in profile["variants"].values():
        for run in variant["runs"]:
            run["needs"] = {"gpus": 1}
    for hardware in profile["hardware"].values():
        hardware["provides"] = {"gpus": 1}
    slo["limits"]["provides"] = {"gpus": 4}
    outcome = fluid(profile, slo)
    assert "provides: gpus is too little" in outcome.why
    assert repair(outcome, "provides.gpus").to == 5


def test_top_variants_of_the_tiny_case():
    outcome = fluid(*loki_by_hand.tiny(0.2, 31), options={"models": "top"})
    assert repair(outcome, "instances").to == 6
    assert fluid(*loki_by_hand.tiny(0.2, 31, servers=6), options={"models": "top"}).exit_code == 0


@published
def test_beyond_the_chain():
    outcome = fluid(*loki.traffic_chain(2306))
    assert repair(outcome, "rate_qps").to == pytest.approx(
        2305.565, abs=6e-3
    )  # six digits, rounded down so that it does
    assert repair(outcome, "instances").to == 21
    assert repair(outcome, "latency") is None
    assert any("however long it may take" in line for line in outcome.why)


@pytest.mark.slow
@published
def test_beyond_the_top_variants():
    outcome = fluid(*loki.traffic_chain(208), options={"models": "top"})
    assert "stage" in outcome.why[0]
    assert repair(outcome, "rate_qps").to == pytest.approx(
        207.9635, abs=6e-4
    )  # six digits, rounded down so that it does
    assert repair(outcome, "instances").to == 21
    assert repair(outcome, "latency").to == pytest.approx(336.79, abs=5e-3)


def test_the_repairs_work():
    profile, slo = loki_by_hand.tiny(0.2, 31)
    top = {"models": "top"}
    outcome = fluid(profile, slo, options=top)
    slo["apps"]["x"]["rate_qps"] = repair(outcome, "rate_qps").to * (1 - 1e-9)
    assert fluid(profile, slo, options=top).exit_code == 0


def test_no_path_in_time_names_the_fastest_and_what_it_needs():
    profile, slo = loki_by_hand.tiny(0.05, 20)
    outcome = fluid(profile, slo)
    assert "a=a2, b=b2" in outcome.why[0]
    needs = repair(outcome, "latency").to
    assert needs == pytest.approx(90)
    slo["apps"]["x"]["latency"]["p99_ms"] = needs
    assert fluid(profile, slo).exit_code == 0


def test_a_floor_above_the_best():
    profile, slo = loki_by_hand.tiny(0.19, 20)
    slo["apps"]["x"]["quality"] = {"min": 0.95}
    outcome = fluid(profile, slo)
    assert "the best in time is 0.9" in outcome.why[0]
    assert repair(outcome, "quality").to == pytest.approx(0.9)


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_floor_above_the_best_is_lowered_to_what_the_servers_carry(monkeypatch, large):
    if large:
        monkeypatch.setattr(infeasible, "MOST_PREFIXES", 0)
    profile, slo = loki_by_hand.tiny(0.19, 60)
    slo["apps"]["x"]["quality"] = {"min": 0.95}
    outcome = fluid(profile, slo)
    assert len(outcome.why) == 1
    assert "the best in time is 0.9" in outcome.why[0]
    assert repair(outcome, "quality").to == pytest.approx(0.84)
    slo["apps"]["x"]["rate_qps"] = 101
    outcome = fluid(profile, slo)
    (joint,) = outcome.repairs
    assert {edit.path[-1] for edit in joint.edits} == {"min", "rate_qps"}
    assert "no lower floor" in outcome.why[1]


def test_no_limit_found_is_no_proof_that_there_is_none(monkeypatch):
    def undecided(problem, ask, trees, asked, about):
        return None if about.startswith("is ") else best_reach(problem, ask, trees, asked, about)

    monkeypatch.setattr(infeasible, "best_reach", undecided)
    outcome = fluid(*levelled(400))
    assert outcome.why[-1] == "no latency limit of x was found to help"


def test_what_bounds_few_configurations_bounds_no_others(monkeypatch):
    """Without the rule of one batch 10, with it 9 of the few; of all configurations the engine had no time to say."""
    found = iter([Reach(10.0, 10.0, (), ()), Reach(9.0, 9.0, (), ()), None])
    monkeypatch.setattr(infeasible, "_best_reach", lambda *_: next(found))
    monkeypatch.setattr(infeasible, "_one_batch_each", lambda _: False)
    problem = SimpleNamespace(wish=SimpleNamespace(fleet=None))
    most = best_reach(problem, None, [], Aim("rate"), "largest demand")
    assert (most.value, most.bound, most.is_exact) == (9.0, 10.0, False)


def test_money_that_does_not_reach():
    profile, slo = loki_by_hand.tiny(0.2, 100)
    profile["offers"] = {"g": {"hardware": "g", "price_per_hour": "2"}}
    slo["limits"]["cost_per_hour"] = "9"
    slo["objective"] = ["max quality", "min cost"]
    outcome = fluid(profile, slo)
    assert repair(outcome, "cost_per_hour").to == pytest.approx(10)


def priced(rate: float, *, stock: int, budget: str | None = None) -> tuple[dict, dict]:
    """The tiny chain, which takes five servers at 100 qps, with a stock of servers at 2 an hour."""
    profile, slo = loki_by_hand.tiny(0.2, rate, servers=9)
    profile["offers"] = {"g": {"hardware": "g", "price_per_hour": "2", "stock": stock}}
    if budget is not None:
        slo["limits"]["cost_per_hour"] = budget
    return profile, slo


def test_a_stock_that_is_short_is_raised():
    outcome = fluid(*priced(100, stock=4))
    assert repair(outcome, "machines.g.stock").to == 5
    assert repair(outcome, "instances") is None, "there may be nine already"


def test_limits_of_which_nothing_helps_alone_are_moved_together():
    """One server for two steps: no demand at all can be served, and neither money nor stock alone is enough."""
    outcome = fluid(*priced(20, stock=1, budget="2"))
    (joint,) = outcome.repairs
    assert {edit.path[-1]: edit.value for edit in joint.edits} == {"stock": 2, "cost_per_hour": "4"}
    assert fluid(*priced(20, stock=2, budget="4")).exit_code == 0


def test_servers_that_must_run_where_nothing_is_in_time_have_no_plan():
    profile, slo = loki_by_hand.tiny(0.2, 20)
    profile["hardware"]["slow"] = profile["hardware"]["g"]
    table = profile["tables"][profile["variants"]["a1"]["runs"][0]["latency"]]
    profile["tables"]["late"] = table | {
        name: [9000.0 for _ in table[name]] for name in ("mean", "p50") if name in table
    }
    profile["variants"]["a1"]["runs"].append({"hardware": "slow", "latency": "late"})
    slo["limits"]["instances"]["slow"] = [0, 2]
    assert fluid(profile, slo).exit_code == 0
    slo["limits"]["instances"]["slow"] = [2, 2]
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3
    assert (repair(outcome, "instances.slow").verb, repair(outcome, "instances.slow").to) == ("lower", 0)


@pytest.fixture
def by_levels(monkeypatch):
    """As where the exact program would be too large to explain with."""
    monkeypatch.setattr(infeasible, "MOST_PREFIXES", 0)


def test_the_repairs_at_latency_levels_suffice(by_levels):
    profile, slo = loki_by_hand.tiny(0.2, 101)
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3
    assert "stage a of x binds" in outcome.why[0]
    assert "no latency limit of x was found to help" in outcome.why[1]
    rate, count = repair(outcome, "rate_qps"), repair(outcome, "instances")
    assert rate.to == pytest.approx(100, rel=1e-3)
    assert count.to == 6
    assert "may" in rate.text
    assert fluid(*loki_by_hand.tiny(0.2, rate.to)).exit_code == 0
    assert fluid(*loki_by_hand.tiny(0.2, 101, servers=int(count.to))).exit_code == 0


@pytest.mark.parametrize("seed", [9, 12, 34])
def test_each_limit_on_machines_that_is_named_at_latency_levels_suffices(by_levels, seed):
    profile, slo = random_pipeline(seed, gpus=2, tasks=2)
    slo["apps"]["x"]["rate_qps"] *= 5
    limits = slo["limits"]["instances"]
    more = [one for one in fluid(profile, slo).repairs if "instances" in one.field]
    assert more
    for one in more:
        gpu = one.field.removeprefix("slo.limits.instances.").removesuffix("[1]")
        before, limits[gpu] = limits[gpu], [0, int(one.to)]
        assert fluid(profile, slo).exit_code == 0
        limits[gpu] = before


def test_several_are_lowered_together_at_latency_levels(by_levels):
    outcome = fluid(*loki_by_hand.two_pipelines(1))
    assert outcome.exit_code == 3  # fewer servers than steps
    profile, slo = loki_by_hand.two_pipelines(2)
    for app in slo["apps"].values():
        app["rate_qps"] *= 3
    outcome = fluid(profile, slo)
    part = repair(outcome, "rate_qps").to
    assert part == pytest.approx(60 / 180, rel=1e-3)
    for app in slo["apps"].values():
        app["rate_qps"] *= part * (1 - 1e-9)
    assert fluid(profile, slo).exit_code == 0


@published
def test_a_latency_limit_at_latency_levels_suffices(by_levels):
    top = {"models": "top"}
    profile, slo = loki.traffic_chain(208)
    to = repair(fluid(profile, slo, options=top), "latency").to
    assert to >= 336.78
    slo["apps"]["cars"]["latency"]["p99_ms"] = to
    assert fluid(profile, slo, options=top).exit_code == 0


@pytest.mark.longest
def test_a_large_tree_has_a_binding_step_and_repairs():
    outcome = fluid(*loki_generator.inputs(loki_generator.T5, servers=20, utilisation=30, variants=3))
    assert outcome.exit_code == 3
    assert "binds" in outcome.why[0]
    assert {one.verb for one in outcome.repairs} == {"lower", "raise"}


def levelled(demand: float) -> tuple[dict, dict]:
    """Two steps on two servers; batches of 1, 8 and 32 take 10, 50 and 90 of 100 ms: 160 qps, 100 by the outermost."""
    profile, slo = loki_by_hand.tiny(0.2, demand, servers=2)
    profile["pipelines"]["p"]["edges"][0]["fanout"] = 1.0
    for table in profile["tables"].values():
        table |= {"axes": {"batch": [1, 8, 32]}, "mean": [10, 50, 90], "p50": [10, 50, 90]}
    return profile, slo


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("demand", "status"), [(158, "not-found"), (400, "infeasible")])
def test_levels_that_fail_prove_nothing_but_what_beats_every_batch_does(monkeypatch, demand, status):
    monkeypatch.setattr(latency_levels, "SMALL", 0)
    for module in (latency_levels, infeasible):
        monkeypatch.setattr(module, "LEVELS", 2)
    outcome = fluid(*levelled(demand), formulation="loki-budget")
    assert (outcome.status, outcome.exit_code) == (status, 3)
    assert ("no plan was found" in outcome.why[0]) == (status == "not-found")
    assert repair(outcome, "rate_qps").to < demand
    assert fluid(*levelled(demand)).exit_code == (0 if demand < 160 else 3)


def test_money_at_latency_levels(by_levels):
    """More servers are no repair where the money for the cheapest does not reach."""
    profile, slo = loki_by_hand.tiny(0.2, 100)
    profile["offers"] = {"g": {"hardware": "g", "price_per_hour": "2"}}
    slo["limits"]["cost_per_hour"] = "9"
    slo["objective"] = ["max quality", "min cost"]
    outcome = fluid(profile, slo)
    assert repair(outcome, "cost_per_hour").to == pytest.approx(10)
    assert repair(outcome, "instances") is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [9, 12, 34])
def test_no_smaller_change_would_do(seed):
    """At each repair there is a plan, a little short of it there is none: whatever was left out on the way to it."""
    profile, slo = random_pipeline(seed, gpus=2, tasks=2)
    app, limits = slo["apps"]["x"], slo["limits"]["instances"]
    app["rate_qps"] *= 5
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3

    def exits(holder, key, value):
        before, holder[key] = holder[key], value
        code = fluid(profile, slo).exit_code
        holder[key] = before
        return code

    rate = repair(outcome, "rate_qps")
    assert exits(app, "rate_qps", rate.to * (1 - 1e-9)) == 0
    assert exits(app, "rate_qps", rate.to * 1.001) == 3
    more = [one for one in outcome.repairs if "instances" in one.field]
    assert len(more) == len(limits)
    for one in more:
        gpu = one.field.removeprefix("slo.limits.instances.").removesuffix("[1]")
        assert exits(limits, gpu, [0, int(one.to)]) == 0
        assert exits(limits, gpu, [0, int(one.to) - 1]) == 3


@pytest.mark.slow
def test_fewer_servers_than_steps_of_a_large_tree():
    outcome = fluid(*loki_generator.inputs(loki_generator.T5, servers=4, utilisation=1.5, variants=5))
    assert "5 stages need a server each" in outcome.why[0]
    assert repair(outcome, "instances.c").to == 1
    assert repair(outcome, "instances.b").to == 3


def by_hand(demand: float, servers: int) -> float:
    """The best accuracy of the tiny chain at 200 ms, where every path is in time: the best of all counts of servers."""
    accuracy = np.array([1.0, 0.9, 0.8, 0.72])  # of a1|b1, a1|b2, a2|b1, a2|b2
    loads = demand * np.array([[1, 1, 0, 0], [0, 0, 1, 1], [2, 0, 1, 0], [0, 2, 0, 1]])
    best = 0.0
    for counts in product(range(servers + 1), repeat=4):
        if sum(counts) == servers:
            room = np.array([20, 40, 20, 50]) * counts
            found = linprog(-accuracy, A_ub=loads, b_ub=room, A_eq=np.ones((1, 4)), b_eq=[1.0])
            best = max(best, -found.fun if found.success else 0.0)
    return best


def test_a_floor_at_latency_levels(by_levels):
    profile, slo = loki_by_hand.tiny(0.2, 70)
    slo["apps"]["x"]["quality"] = {"min": 0.97}
    outcome = fluid(profile, slo)
    assert outcome.exit_code == 3
    floor = repair(outcome, "quality.min")
    best = by_hand(70, 5)
    assert best * (1 - 1e-3) <= floor.to <= best + 1e-9
    slo["apps"]["x"]["quality"] = {"min": floor.to - 1e-6}
    assert fluid(profile, slo).exit_code == 0


def test_a_floor_above_what_the_servers_reach():
    profile, slo = loki_by_hand.tiny(0.2, 70)
    slo["apps"]["x"]["quality"] = {"min": 0.97}
    assert repair(fluid(profile, slo), "quality.min").to == pytest.approx(by_hand(70, 5), abs=1e-6)
