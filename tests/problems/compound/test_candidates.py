"""Stated candidates, end to end: totals, machines, cost, infeasible wishes, spoilt plans."""

from __future__ import annotations

import pytest

import hetplan as hp
from hetplan.profiles.load_one import load_slo
from hetplan.profiles.plan_file import with_digest
from hetplan_papers.datasets.circinus_generator import draw_packing

PROFILE = {"format": "hetplan/profile/1.0"}


def wish(apps: dict, *, objective: list | None = None, **limits: object) -> dict:
    slo: dict = {"format": "hetplan/slo/1.0", "limits": limits, "apps": apps}
    return slo if objective is None else {**slo, "objective": objective}


def candidate(price: str | None = None, **demand: float) -> dict:
    return {"demand": demand} if price is None else {"demand": demand, "price_per_hour": price}


def tiered() -> dict:
    return {
        **PROFILE,
        "tiers": ["device", "cloud"],
        "hardware": {
            "phone": {"kind": "gpu", "tier": "device", "provides": {"gpu": 1}},
            "a100": {"kind": "gpu", "tier": "cloud", "provides": {"gpu": 1}},
        },
        "offers": {
            "phone": {"hardware": "phone", "price_per_hour": "0"},
            "a100": {"hardware": "a100", "price_per_hour": "3.67"},
        },
    }


def test_a_packing_comes_back_verified_with_a_certified_gap():
    outcome = hp.solve(PROFILE, draw_packing(100, 0).slo())
    claim = outcome.claims[0]
    assert (outcome.exit_code, claim.about, claim.vouched, claim.bound) == (0, "goodput", "certified", 73)
    assert claim.value >= 72
    assert len(outcome.plan.unserved) == 100 - len(outcome.plan.dispatch)


@pytest.mark.parametrize("packing", ["dual-core", "greedy", "fcfs", "exact"])
def test_every_packer_can_be_named(packing: str):
    outcome = hp.solve(PROFILE, draw_packing(40, 1).slo(), options={"packing": packing})
    assert outcome.exit_code == 0
    assert outcome.plan.method.options["packing"] == packing


def test_the_paper_packs_greedily():
    outcome = hp.solve(PROFILE, draw_packing(40, 1).slo(), formulation="circinus")
    assert outcome.plan.method.like == "circinus"
    assert outcome.plan.solves[0].solver == "greedy-sum 1"


def test_of_equal_goodput_the_cheaper_is_chosen():
    slo = wish({"q": {"candidates": [candidate("3", a=1), candidate("2", b=1)]}}, capacity={"a": 1, "b": 1})
    outcome = hp.solve(PROFILE, slo)
    assert outcome.plan.dispatch["q"].candidate == 1
    assert [claim.about for claim in outcome.claims] == ["goodput", "candidates_per_hour"]


def test_demands_on_a_tier_stand_on_its_machines():
    apps = {f"q{i}": {"candidates": [candidate(cloud=0.6)]} for i in range(3)}
    outcome = hp.solve(tiered(), wish(apps, instances={"a100": [0, 2]}))
    assert len(outcome.plan.dispatch) == 2
    assert {rule.machines["cloud"] for rule in outcome.plan.dispatch.values()} == {(0,), (1,)}


def test_what_is_missing_to_serve_all_is_said():
    apps = {"q0": {"candidates": [candidate("1", a=0.8)]}, "q1": {"candidates": [candidate("1", a=0.5)]}}
    outcome = hp.solve(PROFILE, wish(apps, objective=["min cost"], capacity={"a": 1}))
    assert outcome.exit_code == 3
    assert outcome.repairs[0].text == "raise slo.limits.capacity.a from 1 to 1.3 (fails at 1.295)"
    machines = {f"q{i}": {"candidates": [candidate(cloud=0.6)]} for i in range(3)}
    outcome = hp.solve(tiered(), wish(machines, objective=["min cost"], instances={"a100": [0, 2]}))
    assert outcome.repairs[0].text == "raise slo.limits.instances.a100[1] from 2 to 3 machines"
    assert "tier cloud" in outcome.why[0]


def test_all_are_served_at_least_cost():
    apps = {
        "q0": {"candidates": [candidate("3", a=1), candidate("1", a=2)]},
        "q1": {"candidates": [candidate("1", a=1)]},
    }
    outcome = hp.solve(PROFILE, wish(apps, objective=["min cost"], capacity={"a": 2}))
    assert outcome.plan.dispatch["q0"].candidate == 0
    assert outcome.claims[0].value == pytest.approx(4)


def test_nothing_limits_what_has_no_total():
    outcome = hp.solve(PROFILE, wish({"q": {"candidates": [candidate(a=9)]}}))
    assert [notice.code for notice in outcome.warnings] == ["W-unlimited"]
    assert outcome.claims[0].gap == 0


def test_an_application_without_worth_is_left_out_with_its_reason():
    outcome = hp.solve(PROFILE, wish({"q": {"candidates": [candidate(a=1)], "weight": 0}}, capacity={"a": 1}))
    assert outcome.plan.unserved[0].why == "it is worth nothing"


@pytest.mark.parametrize("spoil", ["candidate", "demand", "goodput", "both", "machine"])
def test_a_spoilt_plan_is_found_out(spoil: str):
    profile, slo = PROFILE, draw_packing(20, 0).slo()
    if spoil == "machine":
        apps = {f"q{i}": {"candidates": [candidate(cloud=0.6)]} for i in range(2)}
        profile, slo = tiered(), wish(apps, instances={"a100": [0, 2]})
    plan = hp.solve(profile, slo).require()
    app, rule = next(iter(plan.dispatch.items()))
    change: dict = {}
    if spoil == "candidate":
        change["dispatch"] = {**plan.dispatch, app: rule.model_copy(update={"candidate": 99})}
    elif spoil == "demand":
        change["dispatch"] = {**plan.dispatch, app: rule.model_copy(update={"demand": {"device": 0.0}})}
    elif spoil == "goodput":
        first, *rest = plan.promises
        change["promises"] = (first.model_copy(update={"value": first.value + 1}), *rest)
    elif spoil == "both":
        change["unserved"] = plan.unserved[1:]
    else:
        change["dispatch"] = {q: r.model_copy(update={"machines": {"cloud": (0,)}}) for q, r in plan.dispatch.items()}
    spoilt = with_digest(plan.model_copy(update=change))
    assert not hp.verify(spoilt, profile, slo).ok


def test_a_candidate_that_fits_nowhere_is_dropped_by_name():
    apps = {"q": {"candidates": [candidate(cloud=1.5), candidate(cloud=0.5)]}}
    plan = hp.solve(tiered(), wish(apps, instances={"a100": [0, 1]})).require()
    assert plan.dispatch["q"].candidate == 1
    assert [one.at for one in plan.warnings if one.code == "W-dropped"] == ["apps.q.candidates[0]"]


def test_what_cannot_be_served_by_measured_plans_alone_is_no_proof():
    from pathlib import Path

    example = Path(__file__).resolve().parents[3] / "examples" / "compound"
    slo = load_slo(example / "slo.json").model_dump(mode="json", by_alias=True, exclude_unset=True)
    slo |= {"format": "hetplan/slo/1.0", "objective": ["min cost"]}
    slo["limits"]["instances"] = {"v100": [0, 0], "a100": [0, 0]}
    found = hp.solve(example / "profile.json", slo, example / "measured.json")
    assert (found.exit_code, found.status) == (3, "not-found")
    assert "more are missing" in found.why[0] or "too little of" in found.why[0]
