"""Machines are paid whole: a pool puts as many instances on each as its resources have room for."""

import json
from typing import Any

import pytest

import hetplan as hp

Docs = tuple[dict[str, Any], dict[str, Any]]


def documents(
    needs: dict[str, float], *, provides: dict[str, float] | None = None, run: dict[str, Any] | None = None
) -> Docs:
    """A node of eight cards for 20 an hour, and a slower card for 3."""
    profile = {
        "format": "hetplan/profile/1.0",
        "tasks": {"t": {}},
        "hardware": {
            "node": {"kind": "gpu", "provides": provides or {"gpu": 8, "gpu_mem_gib": 640, "cpu_cores": 64}},
            "card": {"kind": "gpu", "provides": {"gpu": 1}},
        },
        "offers": {
            "node": {"hardware": "node", "price_per_hour": "20", "currency": "USD"},
            "card": {"hardware": "card", "price_per_hour": "3", "currency": "USD"},
        },
        "tables": {
            "fast": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [10, 40]},
            "slow": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [12, 50]},
        },
        "variants": {
            "m": {
                "task": "t",
                "runs": [
                    {"hardware": "node", "latency": "fast", "needs": needs, **(run or {})},
                    {"hardware": "card", "latency": "slow", "needs": {"gpu": 1}},
                ],
            }
        },
    }
    mix = {"axes": ["batch"], "bins": [[1], [8]], "share": [0.7, 0.3]}
    app = {
        "rate_qps": "max",
        "mix": mix,
        "latency": {"p99_ms": 100},
        "model": "m",
    }
    return profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}, "limits": {"cost_per_hour": "50"}}


def planned(files: Docs, **options: Any) -> hp.Plan:
    outcome = hp.solve(*files, options={"sizing": "fluid", **options}, formulation="pool")
    assert outcome.exit_code == 0, outcome.violations
    return outcome.require()


def value(plan: hp.Plan, quantity: str) -> float:
    return next(promise.value for promise in plan.promises if promise.quantity == quantity)


def test_all_cards_of_a_node_serve_and_the_bound_is_proved() -> None:
    files = documents({"gpu": 1})
    plan = planned(files)
    assert [(w.hardware, w.count, len(w.loads), w.queue) for w in plan.workers] == [
        ("card", 3, 1, "shared"),
        ("node", 2, 8, "per-load"),
    ]
    # 16 cards at 19 ms a query and 3 at 23.4 ms.
    assert value(plan, "fluid_rate_qps") == pytest.approx(16 / 0.019 + 3 / 0.0234, rel=0.01)
    assert {warning.code for warning in plan.warnings}.isdisjoint({"W-idle-machine", "W-small-pool"})
    assert [claim.vouched for claim in plan.claims] == ["certified"] * 2
    report = hp.verify(plan, *files)
    assert not report.violations
    fluid = sum(route.to[load] for route in plan.routing["a"] for load in route.to if load.startswith("w2."))
    assert fluid == pytest.approx(sum(8 * route.to.get("w2.h", 0.0) for route in plan.routing["a"]))


@pytest.mark.parametrize(
    ("needs", "more", "expected"),
    [
        ({"gpu": 0.5}, {}, 16),
        ({"gpu": 0.5, "gpu_mem_gib": 100}, {}, 6),
        ({"gpu": 3}, {}, 2),
        ({"mig_1g": 1}, {"provides": {"mig_1g": 7, "gpu_mem_gib": 80}}, 7),
        ({"gpu_mem_gib": 10}, {}, 1),  # memory alone says nothing of what computes
        ({"cpu_cores": 4}, {}, 1),  # it has GPUs, and nobody says how much of them a run takes
        ({"gpu": 1}, {"run": {"price_per_hour": "2"}}, 1),  # paid by the instance
        ({"gpu": 0.001}, {}, 64),  # no more are planned
    ],
)
def test_how_many_fit_follows_from_needs_and_resources(
    needs: dict[str, float], more: dict[str, Any], expected: int
) -> None:
    files = documents(needs, **more)
    files[1]["limits"]["instances"] = {"node": [1, None]}
    plan = planned(files)
    (node,) = [worker for worker in plan.workers if worker.hardware == "node"]
    assert len(node.loads) == expected
    assert all(claim.vouched == "certified" for claim in plan.claims)


def test_a_rate_is_kept_by_simulation_on_one_node_and_not_on_eight() -> None:
    files = documents({"gpu": 1})
    files[1]["apps"]["a"]["rate_qps"] = 300
    del files[1]["limits"]
    outcome = hp.solve(*files, formulation="pool")
    assert outcome.exit_code == 0
    plan = outcome.require()
    assert value(plan, "cost_per_hour") == 20.0
    assert {promise.model for promise in plan.promises if promise.quantity == "violations"} == {"simulation/1"}


@pytest.mark.parametrize(
    ("forge", "code"),
    [("queue", "capacity"), ("more", "resource"), ("unknown", "pool-worker"), ("other", "pool-worker")],
)
def test_forged_machines_are_found(forge: str, code: str) -> None:
    files = documents({"gpu": 1})
    plan = json.loads(planned(files).model_dump_json(exclude_none=True, by_alias=True))
    worker = next(one for one in plan["workers"] if one["hardware"] == "node")
    if forge == "queue":
        worker["queue"] = "shared"
    elif forge == "unknown":
        # Of a machine that does not say what it has nobody knows that it has room for a second.
        del files[0]["hardware"]["node"]["provides"]
    elif forge == "more":
        worker["loads"].append({**worker["loads"][0], "id": "w2.i"})
    else:
        worker["loads"][3]["serve"] = {"max_batch": 4}
    report = hp.verify(hp.Plan.model_validate(plan), *files)
    assert code in {violation.code for violation in report.violations}
