"""The whole way: example files to verified plans, and what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases.pool import decide, exactly, files, g1, g3, solve

import hetplan
from hetplan.planner.draft import Draft
from hetplan.profiles.plan import MatchingDispatch, SharesDispatch
from hetplan.profiles.plan_file import plan_bytes, plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan.simulator.pool import Conditions
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pool"


def example(name: str) -> tuple[dict[str, object], dict[str, object]]:
    prefix = f"{name}-" if name else ""
    return tuple(shipped(EXAMPLES / f"{prefix}{kind}.json") for kind in ("profile", "slo"))  # type: ignore[return-value]


def test_the_example_rents_a_mixed_pool_that_beats_every_single_type() -> None:
    profile, slo = example("")
    outcome = solve(profile, slo)
    assert outcome.exit_code == 0
    plan = outcome.require()
    assert plan.status in ("optimal", "within-gap")
    assert {worker.hardware for worker in plan.workers} == {"t4", "cpu4"}
    rate = plan.claims[0].value
    for only in ("t4", "cpu16", "cpu4"):
        alone = {**slo, "limits": {**slo["limits"], "only_listed": True, "instances": {only: [0, None]}}}  # type: ignore[dict-item]
        other = solve(profile, alone)
        assert other.plan is None or other.plan.claims[0].value < 0.8 * rate


def test_the_language_model_example_by_hand() -> None:
    # Of 8 requests/s, the four classes are 4, 2, 1 and 1 per second. On l4 they fill 4/4 + 2/0.5 + 1/1 + 1/0.1 = 16
    # instances (11.2 per hour), on a100 4/16 + 2/4 + 1/8 + 1/2 = 1.375, so 2 (7.2). One a100 and two l4 cost 5: one l4
    # takes the short chats, the other a quarter of the long answers; the rest fills the a100: 1.5/4 + 1/8 + 1/2 = 1.
    profile, slo = example("llm")
    plan = solve(profile, slo, options={"derate": 1.0}).require()
    assert {worker.hardware: worker.count for worker in plan.workers} == {"l4": 2, "a100": 1}
    assert plan.claims[0].about == "cost_per_hour"
    assert plan.claims[0].value == 5.0
    assert isinstance(plan.dispatch["chat"], SharesDispatch)
    loads = {worker.loads[0].id: worker.hardware for worker in plan.workers}
    rates = {"l4": (4.0, 0.5, 1.0, 0.1), "a100": (16.0, 4.0, 8.0, 2.0)}
    classes = {(128, 64): (0, 4.0), (128, 512): (1, 2.0), (2048, 64): (2, 1.0), (2048, 512): (3, 1.0)}
    filled = dict.fromkeys(rates, 0.0)
    for route in plan.routing["chat"]:
        place, qps = classes[tuple(route.when.values())]
        assert sum(route.to.values()) == pytest.approx(1.0)
        for load, share in route.to.items():
            filled[loads[load]] += share * qps / rates[loads[load]][place]
    assert filled["l4"] <= 2.0 + 1e-6
    assert filled["a100"] <= 1.0 + 1e-6


@pytest.mark.parametrize(("only", "count", "cost"), [("l4", 16, 11.2), ("a100", 2, 7.2)])
def test_the_language_model_example_on_one_type(only: str, count: int, cost: float) -> None:
    profile, slo = example("llm")
    slo["limits"] = {"only_listed": True, "instances": {only: [0, None]}}
    plan = solve(profile, slo, options={"derate": 1.0}).require()
    assert [worker.count for worker in plan.workers] == [count]
    assert plan.claims[0].value == pytest.approx(cost)


def test_rates_measured_under_a_looser_target_are_refused() -> None:
    profile, slo = example("llm")
    slo["apps"]["chat"]["latency"]["tpot_p99_ms"] = 50  # type: ignore[index]
    with pytest.raises(hetplan.InputError, match="looser"):
        solve(profile, slo)
    slo["apps"]["chat"]["latency"] = {"ttft_p99_ms": 500}  # type: ignore[index]
    plan = solve(profile, slo).require()
    assert "W-latency-unchecked" in {notice.code for notice in plan.warnings}


@pytest.mark.parametrize("limit", ["ttft_p99_ms", "tpot_p95_ms"])
def test_a_limit_on_tokens_is_refused_where_tables_have_whole_times(limit: str) -> None:
    profile, slo = g1(budget="1.25")
    next(iter(slo["apps"].values()))["latency"][limit] = 50
    with pytest.raises(hetplan.InputError, match=rf"latency.{limit}.*only response times"):
        solve(profile, slo)


def test_matching_is_given_all_it_needs() -> None:
    drafted = decide(g1(budget="1.25"))
    assert isinstance(drafted, Draft)
    dispatch = drafted.dispatch["app"]
    assert isinstance(dispatch, MatchingDispatch)
    assert (dispatch.slo_ms, dispatch.xi, dispatch.penalty) == (100.0, 0.98, "paper")
    # C_j: the largest bin takes 40 ms on the base and 200 ms on the other (golden case 10).
    assert dispatch.weight == {"base": 1.0, "aux": 0.2}
    assert dispatch.predict == {"m@base": "t-base", "m@aux": "t-aux"}
    assert set(drafted.tables) == {"t-base", "t-aux"}
    assert [(one.do, one.after) for one in drafted.actions] == [
        ("start", ()),
        ("load", (1,)),
        ("start", ()),
        ("load", (3,)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "divided"),
    [({"base": 2, "aux": 49}, True), ({"base": 1, "aux": 60}, False), ({"base": 2, "aux": 48}, False)],
)
def test_a_plan_says_when_its_pool_is_divided(counts: dict[str, int], divided: bool) -> None:
    """Above 50 instances, where each part can have one of the base; smaller plans say nothing of it."""
    outcome = solve(*exactly(g1(budget=20), counts), formulation="pool-lp", options={"sizing": "simulation"})
    plan = outcome.require()
    assert outcome.violations == ()
    dispatch = plan.dispatch["app"]
    assert isinstance(dispatch, MatchingDispatch)
    assert dispatch.split_above == (Conditions().split_above if divided else None)
    assert (b"split_above" in plan_bytes(plan)) is divided
    assert read_plan(plan_dict(plan)).dispatch == plan.dispatch


def test_a_weight_under_which_late_pairs_look_cheap_is_reported() -> None:
    case = files(
        {"base": [10.0, 40.0], "aux": [20.0, 500.0]},
        [0.75, 0.25],
        prices={"base": 1, "aux": "0.25"},
        qos_ms=100,
        budget="1.25",
    )
    drafted = decide(case)
    assert isinstance(drafted, Draft)
    assert "W-late-cheap" in {notice.code for notice in drafted.warnings}
    again = decide(case, matching_cost="lexicographic")
    assert isinstance(again, Draft)
    assert "W-late-cheap" not in {notice.code for notice in again.warnings}


@pytest.mark.parametrize(("budget", "warned"), [(3, True), (20, False)])
def test_a_small_pool_is_warned_that_its_derate_promises_much(budget: int, warned: bool) -> None:
    drafted = decide(g3(budget=budget))
    assert isinstance(drafted, Draft)
    assert ("W-small-pool" in {notice.code for notice in drafted.warnings}) is warned


@pytest.mark.parametrize("formulation", ["pool-milp", "pool-lp"])
def test_plans_verify(formulation: str) -> None:
    case = g3(budget=3, instances={"base": [2, 2], "a": [1, 1], "b": [2, 2]})
    outcome = solve(*case, formulation=f"pool/{formulation}")
    assert outcome.violations == ()
    assert outcome.require().method.like == "kairos"


def test_the_certified_claim_of_a_given_pool() -> None:
    outcome = solve(*exactly(g3(budget=3), {"base": 2, "a": 2}), formulation="pool-lp", require_proof=True)
    assert outcome.exit_code == 0
    (claim,) = outcome.claims
    assert (claim.about, claim.vouched) == ("fluid_rate_qps", "certified")
    assert claim.value == pytest.approx(160.0, rel=1e-6)


def test_why_there_is_no_plan_reaches_the_outcome() -> None:
    outcome = solve(*g1(budget="0.5"))
    assert outcome.exit_code == 3
    assert "needs $1.0000, the budget is 0.5" in outcome.why[0]
    assert outcome.repairs[0].field == "slo.limits.cost_per_hour"
