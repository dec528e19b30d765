"""Plans of fleets that make text, spoilt on purpose: each fault is caught."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.plan_file import plan_dict
from tests.cases import texts

RATE = 90.0


@cache
def sound() -> dict[str, Any]:
    """A plan of two types, or of one with several machines."""
    outcome = hp.solve(texts.profile(), wish(), options={"queries": 1500})
    assert outcome.plan is not None
    return plan_dict(outcome.plan)


def wish() -> dict[str, Any]:
    return texts.slo(RATE, attainment=0.9)


def load(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plan["workers"][0]["loads"][0]
    return found


def promise(plan: dict[str, Any], quantity: str) -> dict[str, Any]:
    return next(one for one in plan["promises"] if one["quantity"] == quantity)


def fewer(plan: dict[str, Any]) -> None:
    """One machine of each group, and a bill to match."""
    for worker in plan["workers"]:
        worker["count"] = 1
    price = {"big": 4.0, "small": 1.0}
    cost = sum(price[worker["hardware"]] for worker in plan["workers"])
    promise(plan, "cost_per_hour")["value"] = cost
    plan["claims"] = []
    plan["status"] = "heuristic"


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "fewer machines": (fewer, "capacity"),
    "chunk above the engine's": (lambda p: load(p)["serve"].update(most_tokens=9000), "llm-batch"),
    "no chunk": (lambda p: load(p)["serve"].pop("most_tokens"), "llm-batch"),
    "sequences above the engine's": (lambda p: load(p)["serve"].update(most_seqs=500), "llm-batch"),
    "chunk below sequences": (lambda p: load(p)["serve"].update(most_tokens=8), "llm-batch"),
    "a batch that waits": (lambda p: load(p)["serve"].update(max_wait_ms=5.0), "llm-batch"),
    "a cap under which most are refused": (lambda p: load(p)["serve"].update(concurrency=2), "simulation"),
    "more at once than sequences": (lambda p: load(p)["serve"].update(concurrency=10_000), "llm-batch"),
    "a shorter limit": (lambda p: p["dispatch"]["chat"].update(ttft_ms=100.0), "llm-rule"),
    "a better promise than was asked for": (lambda p: promise(p, "tpot_ms").update(value=5.0), "llm-promise"),
    "GPUs that are not there": (lambda p: load(p).update(instances=2), "llm-gpus"),
    "another application's load": (lambda p: load(p).pop("app"), "llm-load"),
    "another rule": (lambda p: p["dispatch"].update(chat={"rule": "fcfs/1"}), "llm-rule"),
    "another mean output": (lambda p: p["dispatch"]["chat"].update(output_tokens=7.0), "llm-rule"),
    "a longer limit": (lambda p: p["dispatch"]["chat"].update(ttft_ms=5000.0), "llm-rule"),
    "a limit of nobody": (lambda p: p["dispatch"]["chat"]["limit"].update(nobody=1.0), "llm-rule"),
    "a load without a route": (lambda p: p["routing"]["chat"][0].update(to={}), "llm-routing"),
    "a time by arithmetic": (
        lambda p: promise(p, "ttft_ms").update(model="measured", basis="us"),
        "llm-promise",
    ),
    "no simulation of tpot": (lambda p: p["promises"].remove(promise(p, "tpot_ms")), "llm-promise"),
    "no goodput": (lambda p: p["promises"].remove(promise(p, "goodput")), "llm-promise"),
    "one seed": (lambda p: promise(p, "tpot_ms").update(seeds=1), "llm-promise"),
    "an interval above the promise": (
        lambda p: promise(p, "ttft_ms").update(interval=[1.0, 9999.0]),
        "promise-interval",
    ),
    "a lower rate": (lambda p: promise(p, "rate_qps").update(value=RATE / 2), "demand"),
    "a cheaper bill": (lambda p: promise(p, "cost_per_hour").update(value=0.5), "promise"),
}


def verified(plan: dict[str, Any], slo: dict[str, Any] | None = None) -> set[str]:
    report = hp.verify({**plan, "digest": None}, texts.profile(), slo or wish())
    return {one.code for one in report.violations} - {"inputs", "input"}


def test_the_sound_plan_passes() -> None:
    assert not verified(sound())


@pytest.mark.parametrize("name", FAULTS)
def test_a_spoilt_plan_is_caught(name: str) -> None:
    spoil, code = FAULTS[name]
    plan = copy.deepcopy(sound())
    spoil(plan)
    assert code in verified(plan)


def test_requests_that_are_late_even_alone_are_caught() -> None:
    slo = wish()
    slo["apps"]["chat"]["latency"]["p99_ms"] = 20.0
    assert "latency" in verified(sound(), slo)


def test_machines_that_serve_half_of_a_request_alone_are_caught() -> None:
    profile = texts.profile()
    for engine in profile["engines"].values():
        engine["role"] = "decode"
    report = hp.verify({**sound(), "digest": None}, profile, wish())
    assert "llm-load" in {one.code for one in report.violations}


def test_a_floor_of_quality_is_kept() -> None:
    slo = wish()
    slo["apps"]["chat"]["quality"] = {"min": 0.1}
    assert "quality" in verified(sound(), slo)
