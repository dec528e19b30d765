"""What a plan costs is what its machines and shares cost, however they are paid for; limits are kept or refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.measure.evaluator_profiler import measuring
from hetplan_papers.datasets.circinus_generator import draw
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
SHARED = {"v100": [0, 1], "a100": [0, 1]}


def document(name: str) -> dict[str, Any]:
    return shipped(EXAMPLE / name)


def solved(profile: dict[str, Any], **slo: object) -> hp.Outcome:
    return hp.solve(profile, {**document("slo.json"), **slo}, EXAMPLE / "measured.json")


def promised(outcome: hp.Outcome, quantity: str) -> float:
    assert outcome.plan is not None
    (value,) = [one.value for one in outcome.plan.promises if one.quantity == quantity and one.app is None]
    return value


def paid(how: str) -> dict[str, Any]:
    profile = copy.deepcopy(document("profile.json"))
    offers = profile["offers"]
    if how == "whole":
        for name in ("v100", "a100"):
            del offers[name]["per"]
    elif how == "device":
        offers["phone"]["price_per_hour"] = "2"
    elif how == "device by share":
        offers["phone"] |= {"price_per_hour": "2", "per": "gpu"}
    elif how == "nothing offered":
        profile["offers"] = {}
    return profile


def test_candidates_share_a_machine_of_several_gpus() -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "tiers": ["cloud"],
        "hardware": {"rig": {"kind": "gpu", "tier": "cloud", "provides": {"gpu": 4}}},
        "offers": {"rig": {"hardware": "rig", "price_per_hour": "3"}},
    }
    apps = {f"cam-{n}": {"candidates": [{"demand": {"cloud": 1.5}}]} for n in range(3)}
    limits = {"instances": {"rig": [0, 1]}}
    outcome = hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": apps, "limits": limits})
    assert promised(outcome, "served") == 2.0


def test_devices_of_which_there_is_a_stock_are_no_more_than_that() -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "tiers": ["device", "cloud"],
        "hardware": {"phone": {"kind": "gpu", "tier": "device"}, "rig": {"kind": "gpu", "tier": "cloud"}},
        "offers": {"phone": {"hardware": "phone", "price_per_hour": "0", "stock": 2}},
    }
    apps = {f"cam-{n}": {"candidates": [{"demand": {"device": 1}}]} for n in range(3)}
    outcome = hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": apps})
    assert outcome.exit_code == 0
    assert promised(outcome, "served") == 2.0


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("how", ["shares", "whole", "device", "device by share", "nothing offered"])
@pytest.mark.parametrize("objective", [["max goodput", "min cost"], ["min cost"]])
def test_what_is_packed_at_least_cost_is_what_the_plan_costs(how: str, objective: list[dict[str, str]]) -> None:
    outcome = solved(paid(how), objective=objective)
    assert outcome.exit_code == 0
    (claim,) = [one for one in outcome.claims if one.about == "packed_per_hour"]
    assert claim.value == pytest.approx(promised(outcome, "cost_per_hour"))


def test_offers_by_the_share_and_by_the_machine_are_compared_by_what_a_machine_costs() -> None:
    profile = paid("whole")
    for name, each in (("a", "3"), ("b", "1000")):
        profile["hardware"]["a100"]["provides"] = {"gpu": 1, "cpu_cores": 64}
        profile["offers"]["a100-core"] = {"hardware": "a100", "price_per_hour": each, "per": "cpu_cores"}
        outcome = solved(profile, objective=["min cost"])
        assert outcome.plan is not None, name
        assert {worker.offer for worker in outcome.plan.workers if worker.hardware == "a100"} <= {"a100-a100"}


def test_without_any_offer_a_machine_costs_1() -> None:
    outcome = solved(paid("nothing offered"))
    assert outcome.plan is not None
    assert promised(outcome, "cost_per_hour") == sum(worker.count for worker in outcome.plan.workers)


def test_candidates_on_shares_of_a_gpu_promise_no_price_that_they_do_not_state() -> None:
    profile = {
        "format": "hetplan/profile/1.0", "tiers": ["cloud"],
        "hardware": {"a100": {"kind": "gpu", "tier": "cloud", "provides": {"gpu": 1}}},
        "offers": {"a100": {"hardware": "a100", "price_per_hour": "2", "per": "gpu"}},
    }  # fmt: skip
    apps = {"q": {"candidates": [{"demand": {"cloud": 0.75}}, {"demand": {"cloud": 0.5}}]}}
    outcome = hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": apps})
    assert (outcome.exit_code, outcome.plan.dispatch["q"].candidate) == (0, 1)
    assert [(one.about, one.value) for one in outcome.claims] == [("goodput", 1.0), ("packed_per_hour", 1.0)]


@pytest.mark.parametrize(
    ("slo", "path"),
    [
        ({"limits": {"instances": {"v100": [1, 3]}}}, "$.limits.instances.v100"),
        ({"limits": {"instances": SHARED, "survive": {"machines": 1}}}, "$.limits.survive.machines"),
        ({"limits": {"instances": SHARED, "capacity": {"edge": 1}}}, "$.limits.capacity.edge"),
        ({"horizon": {"period_s": 60, "periods": 2}}, "$.horizon.periods"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(slo: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        solved(document("profile.json"), **slo)
    assert path in {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("latency", {"ttft_p50_ms": 100}, "$.apps.gate.latency.ttft_p50_ms"),
        ("rate_qps", {"history": [1, 2]}, "$.apps.gate.rate_qps.history"),
    ],
)
def test_wishes_of_other_questions_are_refused(key: str, value: object, path: str) -> None:
    apps = document("slo.json")["apps"]
    apps["gate"][key] = value
    with pytest.raises(InputError) as caught:
        solved(document("profile.json"), apps=apps)
    assert path in {fault.path for fault in caught.value.faults}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("kind", "total"), [("gpu", 0.5), ("gpu_mem_gib", 8), ("cpu_cores", 4)])
def test_totals_count_what_operators_need(kind: str, total: float) -> None:
    profile = document("profile.json")
    needs = profile["pipelines"]["track"]["nodes"]["detect"]["needs"]
    needs |= {"cpu_cores": 2}  # which no hardware lists: counted in total alone
    free = solved(profile, limits={"instances": SHARED, "capacity": {kind: 1000, "cpu_cores": 1000}})
    tight = solved(profile, limits={"instances": SHARED, "capacity": {"cpu_cores": 1000, kind: total}})
    assert (free.exit_code, tight.exit_code) == (0, 0)
    assert promised(tight, "served") < promised(free, "served")
    none = solved(profile, limits={"instances": SHARED, "capacity": {"cpu_cores": 1000, kind: total}},
                  objective=["min cost"])  # fmt: skip
    assert none.exit_code == 3
    assert kind in none.why[0]


def test_plans_on_tiers_without_machines_take_the_place_of_no_others() -> None:
    profile = document("profile.json")
    profile["offers"]["a100"]["price_per_hour"] = "20"
    slo = {**document("slo.json"), "limits": {"instances": {"v100": [0, 0], "a100": [0, 8]}}}
    outcome = hp.solve(profile, slo, EXAMPLE / "measured.json", options={"alternatives": 1})
    assert promised(outcome, "served") == len(slo["apps"])


def test_only_listed_hardware_is_used() -> None:
    outcome = solved(document("profile.json"), limits={"only_listed": True, "instances": {"a100": [0, 3]}})
    assert outcome.exit_code == 0
    assert {worker.hardware for worker in outcome.plan.workers} == {"a100"}


@pytest.mark.slow
def test_a_search_passes_over_tiers_without_machines() -> None:
    query = draw("VT", 500)
    slo = query.slo()
    slo["limits"] = {"instances": {"edge-device": [0, 0], "v100": [0, 0], "a100": [0, 1]}}
    outcome = hp.solve(query.profile(), slo, evaluate=measuring(query), options={"max_measurements": 20})
    assert outcome.plan is not None
    assert set(outcome.plan.dispatch["query"].placement.values()) == {"cloud"}
