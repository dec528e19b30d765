"""Servers are paid whole: a server of a pipeline runs as many instances of its step as its resources have room for."""

import json
from typing import Any

import pytest

import hetplan as hp
from hetplan.verifier import application_checks, plan_index

Docs = tuple[dict[str, Any], dict[str, Any]]


def documents(*, per: str | None = None, needs: dict[str, float] | None = None, rate: float = 700.0) -> Docs:
    """Two steps in a chain, on nodes of four cards."""
    runs = {"hardware": "node", "needs": needs or {"gpu": 1}}
    sold = {"hardware": "node", "price_per_hour": "8", "currency": "USD", **({"per": per} if per else {})}
    profile = {
        "format": "hetplan/profile/1.0",
        "metrics": {"relative": {"better": "higher", "range": [0, 1]}},
        "tasks": {"see": {"metric": "relative"}, "name": {"metric": "relative"}},
        "hardware": {"node": {"kind": "gpu", "provides": {"gpu": 4, "gpu_mem_gib": 96}}},
        "offers": {"node": sold},
        "tables": {
            "t-see": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [10, 20]},
            "t-name": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [8, 16]},
        },
        "variants": {
            f"{task}-m": {"task": task, "quality": {"value": 0.9}, "runs": [{**runs, "latency": f"t-{task}"}]}
            for task in ("see", "name")
        },
        "pipelines": {
            "p": {
                "nodes": {"see": {"task": "see"}, "name": {"task": "name"}},
                "edges": [{"from": "see", "to": "name", "fanout": 1}],
                "quality": {"rule": "product"},
            }
        },
    }
    app = {
        "pipeline": "p",
        "rate_qps": rate,
        "latency": {"p99_ms": 200},
    }
    return profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}, "limits": {"instances": {"node": [0, 9]}}}


def planned(files: Docs, *, state: Any = None, **options: Any) -> hp.Plan:
    outcome = hp.solve(*files, state, options={"share_machines": False, **options}, formulation="pipeline")
    assert outcome.exit_code == 0, outcome.violations
    plan = outcome.require()
    assert not hp.verify(plan, *files, state).violations
    return plan


def placed(plan: hp.Plan) -> dict[str | None, tuple[int, int]]:
    return {worker.loads[0].node: (worker.count, worker.loads[0].instances) for worker in plan.workers}


def value(plan: hp.Plan, quantity: str) -> float:
    return next(promise.value for promise in plan.promises if promise.quantity == quantity)


def test_a_node_of_four_cards_runs_four_instances() -> None:
    # A card sees 200 a second in batches of 4, and names 250: a node does the work of four.
    plan = planned(documents(), sizing="fluid")
    assert placed(plan) == {"see": (1, 4), "name": (1, 4)}
    assert value(plan, "cost_per_hour") == 16.0
    assert "W-idle-machine" not in {warning.code for warning in plan.warnings}
    plan = planned(documents(rate=1500.0), sizing="fluid")
    assert placed(plan) == {"see": (2, 4), "name": (2, 4)}
    assert {claim.about: claim.bound for claim in plan.claims}["cost_per_hour"] == pytest.approx(32.0)


def test_they_are_simulated_as_planned() -> None:
    plan = planned(documents())
    assert placed(plan) == {"see": (1, 4), "name": (1, 4)}
    assert {promise.model for promise in plan.promises if promise.quantity == "violations"} == {"simulation/1"}


def test_a_slice_is_paid_by_the_slice_and_memory_alone_says_nothing() -> None:
    assert placed(planned(documents(per="gpu"), sizing="fluid")) == {"see": (4, 1), "name": (3, 1)}
    assert placed(planned(documents(needs={"gpu_mem_gib": 20}), sizing="fluid")) == {"see": (4, 1), "name": (3, 1)}


def test_a_group_of_single_instances_makes_way() -> None:
    files = documents()
    plan = planned(files, sizing="fluid")
    state = json.loads(plan.model_dump_json(include={"workers"}, exclude_none=True, by_alias=True))
    for worker in state["workers"]:
        worker["loads"][0]["instances"] = 1
    moved = planned(files, state={"format": "hetplan/state/1.0", **state}, sizing="fluid")
    assert {worker.id for worker in moved.workers}.isdisjoint({worker["id"] for worker in state["workers"]})
    assert value(moved, "changes") == 6.0


def test_forged_instances_are_found() -> None:
    files = documents()
    plan = json.loads(planned(files, sizing="fluid").model_dump_json(exclude_none=True, by_alias=True))
    for instances, code in ((5, "resource"), (2, "capacity")):
        plan["workers"][0]["loads"][0]["instances"] = instances
        report = hp.verify(hp.Plan.model_validate(plan), *files)
        assert code in {violation.code for violation in report.violations}


def test_many_groups_of_a_plan_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is untrusted: what is kept free by alike groups together is not counted anew for each of them."""
    files, groups = documents(), 60
    plan = json.loads(planned(files, sizing="fluid", spare=0.2).model_dump_json(exclude_none=True, by_alias=True))
    first, last = plan["workers"]
    load = first["loads"][0]
    names = [f"z{k}" for k in range(groups)]
    many = [{**first, "id": name, "loads": [{**load, "id": f"{name}.a"}]} for name in names]
    for route in plan["routing"]["a"]:
        route.pop("prefix", None)
        if load["id"] in route["to"]:
            route["to"] = {f"{name}.a": 1 / groups for name in names}
    plan |= {"workers": [*many, last], "actions": []}
    plan["dispatch"]["a"]["backup"] = []
    asked, runs_alike = [], plan_index.runs_alike
    for room in (plan_index, application_checks):
        monkeypatch.setattr(
            room, "runs_alike", lambda worker, load: (asked.append(worker.id), runs_alike(worker, load))[1]
        )
    report = hp.verify(hp.Plan.model_validate(plan), *files)
    assert "instances" in {violation.code for violation in report.violations}
    assert groups < len(asked) < 10 * groups
