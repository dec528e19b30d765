"""From files to a verified plan and back: policies, sets, several applications and workers, targets."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.policy import files

import hetplan as hp
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.errors import InputError
from hetplan.planner.contract import Tools
from hetplan.planner.outcome import Outcome
from hetplan.problems.policy.formulations import best_split
from hetplan.problems.policy.group import fewest_possible
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.question import Policy
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_bytes, write_plan
from hetplan.profiles.read_plan import read_plan

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "policy"
SMALL: dict[str, Any] = {"queue_max": 8, "grid": "fld{20}", "queries": 20_000, "seeds": 2}


def solve(profile: Any, slo: Any, *, formulation: str | None = None, **options: Any) -> Outcome:
    return hp.solve(
        profile, slo, options={**SMALL, **options}, formulation=f"policy/{formulation}" if formulation else "policy"
    )


def pose(profile: Any, slo: Any) -> Policy:
    return Policy.from_inputs(
        load_inputs(profile, slo), PolicyOptions(**SMALL), formulation="policy-mdp", tools=Tools()
    )


def planned(profile: Any, slo: Any, **how: Any) -> Plan:
    outcome = solve(profile, slo, **how)
    assert outcome.exit_code == 0, (outcome.why, outcome.reason, outcome.violations)
    return outcome.require()


def codes(plan: Plan) -> set[str]:
    return {notice.code for notice in plan.warnings}


def test_one_load() -> None:
    plan = planned(*files())
    (table,) = plan.policies["a"]
    (worker,) = plan.workers
    assert (plan.question, plan.status, plan.requires) == ("policy", "optimal", ("queue-slack/1",))
    assert (worker.count, worker.queue, [load.variant for load in worker.loads]) == (
        4,
        "shared",
        ["fast", "middle", "slow"],
    )
    assert (table.workers, table.slo_ms, table.rate_qps, table.queue_max) == (worker.id, 100.0, 100.0, 8)
    assert table.expected is not None
    assert table.simulated is not None
    assert table.gain == pytest.approx(table.expected.goodput, abs=1e-9)
    assert table.simulated["goodput"] >= table.expected.goodput - 2e-3
    (claim,) = plan.claims
    assert (claim.about, claim.sense, claim.scope, claim.vouched) == ("goodput", "max", "model", "certified")
    assert claim.gap is not None
    assert claim.gap < 1e-6
    models = {promise.model for promise in plan.promises}
    assert models == {"stationary/1", "simulation/1"}
    assert plan.valid.rate_qps == {"a": (0.0, 100.0)}
    assert [action.do for action in plan.actions] == ["start", "load", "load", "load"]


def test_the_plan_file_reads_back_and_drives_a_selector(tmp_path: Path) -> None:
    plan = planned(*files())
    write_plan(plan, tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert plan_bytes(again) == plan_bytes(plan)
    (table,) = again.policies["a"]
    selector = PolicySelector([table])
    idle = selector.select(waiting=1, slack_ms=100.0, rate_qps=90.0)
    assert (idle.model, idle.batch) == ("slow", 1), "an idle worker under a light load takes the best model"
    late = selector.select(waiting=3, slack_ms=0.0, rate_qps=90.0)
    assert (late.model, late.batch) == ("fast", 3)
    assert json.loads((tmp_path / "plan.json").read_text())["policies"]["a"][0]["choice"]["1"]


def test_the_same_files_give_the_same_bytes() -> None:
    assert plan_bytes(planned(*files())) == plan_bytes(planned(*files()))


def test_a_set_over_a_range() -> None:
    plan = planned(*files(rate_qps={"low": 40.0, "high": 240.0}), batching="max")
    tables = plan.policies["a"]
    rates = [table.rate_qps for table in tables]
    assert rates[0] == 40.0
    assert rates[-1] == 240.0
    assert rates == sorted(rates)
    exact = [table.expected.accuracy_by_query for table in tables if table.expected is not None]
    gaps = np.diff(rates)
    assert all(abs(a - b) <= 0.01 or gap <= 4.0 for a, b, gap in zip(exact, exact[1:], gaps, strict=False))
    assert len(plan.claims) == len(tables)
    assert plan.valid.rate_qps["a"] == (0.0, 240.0)
    coarse = planned(*files(rate_qps={"low": 40.0, "high": 240.0}), batching="max", accuracy_step=0.05)
    assert len(coarse.policies["a"]) < len(tables)


def test_a_set_goes_on_from_a_previous_plan() -> None:
    """A plan of some loads is where the next set begins."""
    whole = files(rate_qps={"low": 40.0, "high": 240.0})
    first = planned(*whole, batching="max", accuracy_step=0.05, sizing="fluid")
    loads = {table.rate_qps for table in first.policies["a"]}
    outcome = hp.solve(
        *whole,
        options={**SMALL, "batching": "max", "accuracy_step": 0.2, "sizing": "fluid"},
        start=first,
        formulation="policy",
    )
    assert loads <= {table.rate_qps for table in outcome.require().policies["a"]}


def test_a_set_that_a_deadline_ends_says_what_is_missing() -> None:
    outcome = hp.solve(
        *files(rate_qps={"low": 40.0, "high": 240.0}),
        options={**SMALL, "batching": "max", "sizing": "fluid"},
        time_limit=1e-9,
        formulation="policy",
    )
    plan = outcome.plan
    assert plan is not None
    assert plan.policies["a"][0].rate_qps == 40.0
    assert "W-set-open" in codes(plan)


def test_the_paper_s_formulation() -> None:
    plan = planned(*files(), formulation="ramsis")
    (table,) = plan.policies["a"]
    assert (table.objective, table.batching, plan.method.like) == ("per_decision", "max", "ramsis")
    assert plan.claims[0].about == "accuracy_per_decision"
    swept = planned(*files(), formulation="ramsis", sweeps=100, sizing="fluid")
    assert swept.claims[0].about == "accuracy_of_100_decisions"


@pytest.mark.parametrize("late", ["serve", "drop"])
@pytest.mark.parametrize("batching", ["max", "variable"])
def test_ways_of_serving(late: str, batching: str) -> None:
    plan = planned(*files(late=late), batching=batching, sizing="fluid")
    (table,) = plan.policies["a"]
    assert table.batching == batching
    dropped = any("0x" in f" {row}" and f" {row}".find(" 0x") >= 0 for row in table.batch.values())
    assert dropped == (late == "drop")


def test_auto_tries_both_and_says_so() -> None:
    plan = planned(*files())
    (notice,) = [notice for notice in plan.warnings if notice.code == "W-batching"]
    assert "goodput" in notice.text
    without = planned(*files(), sizing="fluid")
    assert "W-batching" not in codes(without)
    assert without.policies["a"][0].batching == "variable"
    overloaded = planned(*files(rate_qps=5000.0), sizing="fluid")
    assert overloaded.policies["a"][0].batching == "max"


@pytest.mark.parametrize("option", [{"empty_state": "paper"}, {"overflow": "truncate"}, {"grid": "md"}])
def test_other_readings_of_the_paper(option: Any) -> None:
    planned(*files(), formulation="ramsis", sizing="fluid", **option)


def test_shortest_queue() -> None:
    pair = files(dispatch="shortest-queue")
    plan = planned(*pair)
    assert "W-approximate" in codes(plan)
    assert plan.dispatch["a"].balancing == "shortest_queue"  # type: ignore[union-attr]
    fitted = planned(*pair, rates="fitted")
    first, second = plan.policies["a"][0].simulated, fitted.policies["a"][0].simulated
    assert first is not None
    assert second is not None
    assert second["goodput"] >= first["goodput"] - 5e-3
    with pytest.raises(InputError, match="no simulator"):
        solve(*pair, rates="fitted", sizing="fluid")


def test_several_workers_share_the_load_by_what_they_can_do() -> None:
    profile, slo = files(rate_qps=150.0)
    profile["hardware"]["big"] = {"kind": "cpu"}
    for name, variant in profile["variants"].items():
        table = profile["tables"][f"t-{name}"]
        profile["tables"][f"b-{name}"] = {**table, "p95": [0.5 * ms for ms in table["p95"]]}
        variant["runs"].append({"hardware": "big", "latency": f"b-{name}"})
    slo["limits"]["instances"]["big"] = [2, 2]
    plan = planned(profile, slo, sizing="fluid")
    slow, fast = plan.policies["a"]
    assert slow.rate_qps + fast.rate_qps == pytest.approx(150.0)
    assert fast.rate_qps == pytest.approx(slow.rate_qps, rel=0.3), "half as many, about twice as fast"
    optimal = planned(profile, slo, sizing="fluid", split="dp")

    def goodput(found: Plan) -> float:
        return next(p.value for p in found.promises if p.quantity == "goodput")

    assert goodput(optimal) >= goodput(plan) - 1e-3


def test_several_applications_share_the_workers() -> None:
    profile, slo = files(workers=(5, 5), rate_qps=60.0)
    app = slo["apps"]["a"]
    slo["apps"]["b"] = {**app, "latency": {"p99_ms": 60.0}, "rate_qps": 120.0}
    plan = planned(profile, slo, sizing="fluid")
    counts = {worker.loads[0].app: worker.count for worker in plan.workers}
    assert sum(counts.values()) == 5
    assert counts["b"] > counts["a"], "twice the load and little slack"


def test_the_best_split_is_found_where_gains_are_not_concave() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        gains = rng.uniform(0, 10, (3, 8))
        found = best_split([list(row) for row in gains], 7, least=1)
        assert sum(found) == 7
        assert min(found) >= 1
        every = [(i, j, 7 - i - j) for i in range(1, 6) for j in range(1, 7 - i)]
        best = max(sum(gains[k][part] for k, part in enumerate(parts)) for parts in every)
        assert sum(gains[k][part] for k, part in enumerate(found)) == pytest.approx(best)


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fewest_workers() -> None:
    profile, slo = files(workers=(1, 12), quality={"min": 0.8}, rate_qps=120.0)
    slo["objective"] = ["min machines"]
    plan = planned(profile, slo)
    (worker,) = plan.workers
    claim = plan.claims[0]
    assert (claim.about, claim.value) == ("servers", worker.count)
    assert claim.bound is not None
    assert 1 <= claim.bound <= claim.value
    (table,) = plan.policies["a"]
    assert table.simulated is not None
    assert table.simulated["accuracy"] >= 0.8
    assert table.simulated["violation"] <= 0.01
    slo["limits"]["instances"] = {"cpu": [worker.count - 1, worker.count - 1]}
    slo["objective"] = ["max goodput"]
    fewer = solve(profile, slo)
    assert fewer.exit_code == 3
    assert fewer.plan is None


def test_a_bound_without_a_solve_that_verify_proves_again_is_proof_enough() -> None:
    profile, slo = files(workers=(1, 12), quality={"min": 0.8}, rate_qps=120.0)
    slo["objective"] = ["min machines"]
    outcome = hp.solve(profile, slo, options={"batching": "max"}, require_proof=True)
    claim = outcome.require().claims[0]
    assert (claim.vouched, claim.solve) == ("claimed", None)
    assert outcome.exit_code == 0, outcome.reason


def test_fewest_workers_are_as_many_as_leave_each_arrivals_that_can_be_planned() -> None:
    """In turn each of two has gaps of gamma shape 1, a single one of .5."""
    bursty = {"process": "gamma", "shape": 0.5}
    profile, slo = files(rate_qps=0.01, workers=(1, 8), arrivals=bursty)
    slo["objective"] = ["min machines"]
    assert solve(profile, slo, batching="max").require().workers[0].count == 2


def test_fewest_workers_over_a_range_keep_every_load() -> None:
    profile, slo = files(workers=(1, 12), quality={"min": 0.75}, rate_qps={"low": 40.0, "high": 160.0})
    slo["objective"] = ["min machines"]
    plan = planned(profile, slo, batching="max")
    for table in plan.policies["a"]:
        assert table.simulated is not None
        assert table.simulated["accuracy"] >= 0.75


def test_the_fewest_workers_for_an_accuracy_are_in_time_too() -> None:
    """Accuracy is of queries in time; the percentile says how many are late."""
    profile, slo = files(workers=(1, 12), quality={"min": 0.8}, rate_qps=120.0)
    slo["objective"] = ["min machines"]
    plan = planned(profile, slo, batching="max")
    (table,) = plan.policies["a"]
    assert table.simulated is not None
    assert table.simulated["accuracy"] >= 0.8
    assert table.simulated["violation"] <= 1.0 - 99 / 100.0 + 1e-12


@pytest.mark.parametrize(("quality", "late"), [(0.0, 0.01), (0.7, 0.01), (0.8, 0.1), (0.85, 0.05)])
def test_the_bound_on_workers_is_the_fluid_program_s(quality: float, late: float) -> None:
    """Shares of time on models, in batches of most throughput within the SLO: worked out by scipy's linear program."""
    from scipy.optimize import linprog

    wanted: Any = {"quality": {"min": quality}, "percentile": 100 * (1 - late)}
    profile, slo = files(workers=(1, 50), rate_qps=500.0, **wanted)
    (group,) = pose(profile, slo).asked.groups()
    models = group.models
    sizes = np.arange(1, models.latency_s.shape[1])
    in_time = models.latency_s[:, :-1] <= group.wish.slo_s
    rates = np.where(in_time, sizes / models.latency_s[:, :-1], 0.0).max(axis=1)
    found = linprog(
        np.ones(rates.size),
        A_ub=[-rates * (models.accuracy - quality)],
        b_ub=[0.0],
        A_eq=[rates],
        b_eq=[500.0 * (1.0 - late)],
    )
    assert fewest_possible(group, 500.0) == max(1, int(np.ceil(found.fun - 1e-9)))


@pytest.mark.slow
def test_too_few_workers_at_most() -> None:
    profile, slo = files(workers=(1, 2), quality={"min": 0.84}, rate_qps=200.0)
    slo["objective"] = ["min machines"]
    outcome = solve(profile, slo, batching="max")
    assert outcome.exit_code == 3
    assert "2 workers do not meet the SLO" in outcome.why[0]
    assert any("raise slo.limits.instances.cpu[1] from 2 to" in repair.text for repair in outcome.repairs)


@pytest.mark.slow
def test_a_missed_target_comes_with_repairs_that_work() -> None:
    profile, slo = files(workers=(2, 2), quality={"min": 0.8}, rate_qps=160.0)
    outcome = solve(profile, slo, batching="max")
    assert outcome.exit_code == 3
    assert outcome.plan is None
    assert "accuracy" in outcome.why[0]
    by_verb = {(repair.verb, repair.unit): repair for repair in outcome.repairs}
    more = by_verb["raise", "workers"].to
    slo["limits"]["instances"] = {"cpu": [more, more]}
    planned(profile, slo, batching="max")
    slo["limits"]["instances"] = {"cpu": [2, 2]}
    slo["apps"]["a"]["rate_qps"] = by_verb["lower", "qps"].to
    planned(profile, slo, batching="max")
    slo["apps"]["a"]["rate_qps"] = 160.0
    slo["apps"]["a"]["latency"]["p99_ms"] = by_verb["raise", "ms"].to
    planned(profile, slo, batching="max")


def test_an_accuracy_that_no_model_has() -> None:
    outcome = solve(*files(quality={"min": 0.9}))
    assert outcome.exit_code == 3
    assert outcome.repairs[0].to == pytest.approx(0.85)


@pytest.mark.slow
def test_an_accuracy_that_no_model_has_is_lowered_to_what_is_reached() -> None:
    profile, slo = files(workers=(2, 2), quality={"min": 0.9}, rate_qps=160.0)
    outcome = solve(profile, slo, batching="max")
    (repair,) = outcome.repairs
    assert repair.to < 0.8
    assert "the most accurate model has 0.85" in repair.text
    slo["apps"]["a"]["quality"]["min"] = repair.to
    planned(profile, slo, batching="max")
    slo["apps"]["a"]["quality"]["min"] = repair.to + 0.001
    assert solve(profile, slo, batching="max").exit_code == 3


def test_overload_is_planned_and_reported() -> None:
    plan = planned(*files(rate_qps=3000.0), sizing="fluid")
    (table,) = plan.policies["a"]
    assert table.overload
    (notice,) = [notice for notice in plan.warnings if notice.code == "W-overload"]
    assert "4 workers can serve" in notice.text
    assert "workers can" in notice.text.partition(";")[2]
    assert "W-percentile" in codes(plan)


def test_an_slo_below_every_latency() -> None:
    outcome = solve(*files(slo_ms=5.0))
    assert outcome.exit_code == 3
    assert outcome.repairs[0].to == pytest.approx(6.0)


def test_one_model_one_worker_queue_of_one() -> None:
    profile, slo = files(models={"only": (0.8, 5.0, 3.0)}, workers=(1, 1), rate_qps=20.0)
    plan = planned(profile, slo, queue_max=1)
    (table,) = plan.policies["a"]
    assert table.choice == {"1": f"onlyx{len(table.slack_ms)}"}
    assert "W-short-queue" in codes(plan)


# --- the house -------------------------------------------------------------------------------------------------------


def test_the_question_is_inferred_and_has_its_names() -> None:
    profile, slo = files()
    outcome = hp.solve(profile, slo, options={**SMALL, "sizing": "fluid"})
    assert outcome.require().question == "policy"


def test_offers_and_stock() -> None:
    profile, slo = files()
    profile["offers"] = {
        "dear": {"hardware": "cpu", "price_per_hour": "2"},
        "cheap": {"hardware": "cpu", "price_per_hour": "1", "stock": 3},
    }
    both = planned(profile, slo, sizing="fluid")
    assert [(worker.offer, worker.count) for worker in both.workers] == [("cpu-cheap", 3), ("cpu-dear", 1)]
    assert hp.verify(both, profile, slo).ok
    profile["offers"]["cheap"]["stock"] = 4
    assert planned(profile, slo, sizing="fluid").workers[0].offer == "cpu-cheap"
    profile["offers"] = {"cheap": {"hardware": "cpu", "price_per_hour": "1", "stock": 3}}
    with pytest.raises(InputError, match="4 in stock"):
        solve(profile, slo, sizing="fluid")


def test_an_offer_by_the_unit_is_compared_by_its_whole_machine() -> None:
    profile, slo = files()
    profile["hardware"]["cpu"]["provides"] = {"mem_gib": 16}
    profile["offers"] = {
        "by-gib": {"hardware": "cpu", "price_per_hour": "0.1", "per": "mem_gib"},
        "whole": {"hardware": "cpu", "price_per_hour": "1"},
    }
    assert planned(profile, slo, sizing="fluid").workers[0].offer == "cpu-whole"
    profile["offers"]["whole"]["price_per_hour"] = "1.7"
    assert planned(profile, slo, sizing="fluid").workers[0].offer == "cpu-by-gib"


@pytest.mark.slow
@pytest.mark.parametrize("slo", ["slo.json", "fewest.slo.json"])
def test_the_examples(slo: str) -> None:
    outcome = hp.solve(
        EXAMPLES / "profile.json",
        EXAMPLES / slo,
        options={"batching": "max", "queries": 50_000, "grid": "fld{50}"},
    )
    assert outcome.exit_code == 0, (outcome.why, outcome.violations)
    assert outcome.require().question == "policy"


def test_a_service_that_takes_just_the_slack_is_in_time_whatever_rounding_says() -> None:
    """Of equal steps and of latencies on a line some differ by the last digit alone; the verifier reads twelve."""
    models = {"fast": (0.3, 4.0, 2.0), "slow": (0.95, 14.0, 6.0)}
    outcome = solve(*files(rate_qps=30.0, slo_ms=40.0, workers=(1, 1), models=models), formulation="ramsis",
                    grid="fld{100}")  # fmt: skip
    assert outcome.reason == "verified", outcome.violations
