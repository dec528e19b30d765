"""Machines are paid whole, and what fits on one shares it: against brute force, with planted bills, over machines."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from cases.random_variants import random_shared, sharing

import hetplan as hp
from hetplan.problems.variants import placement
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_bytes, with_digest

Json = dict[str, Any]


def solved(files: tuple[Json, Json], **more: Any) -> hp.Outcome:
    return hp.solve(*files, options={"sizing": "fluid", **more}, formulation="variants")


def bill(plan: Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


HALF = {"card": (0.526, {"gpu": 1, "gpu_mem_gib": 16})}


def test_two_models_of_half_a_card_rent_one() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 100, "n": 100})
    plan = solved(files).require()
    (worker,) = plan.workers
    assert sorted(load.variant or "" for load in worker.loads) == ["m", "n"]
    assert bill(plan) == 0.526
    (claim,) = plan.claims
    assert (claim.value, claim.bound, claim.scope) == (0.526, 0.526, "problem")
    assert bill(solved(files, share_machines=False).require()) == 1.052
    assert hp.simulate(plan, *files, duration_s=20.0, seeds=1).apps.keys() == {"app-m", "app-n"}


def test_an_instance_more_on_a_machine_that_is_there_costs_nothing() -> None:
    files = sharing({"node": (20.0, {"gpu": 8})}, {"m": [("node", 100.0, {"gpu": 1})]}, {"m": 750})
    plan = solved(files).require()
    assert bill(plan) == 20.0
    assert [(w.count, [load.instances for load in w.loads]) for w in plan.workers] == [(1, [8])]
    files[1]["apps"]["app-m"]["rate_qps"] = 2_900
    plan = solved(files).require()
    assert bill(plan) == 80.0
    assert sum(w.count * load.instances for w in plan.workers for load in w.loads) == 29


def test_slices_are_a_resource_as_any_other() -> None:
    ways = {"s": [("a100", 100.0, {"mig_1g": 1})], "l": [("a100", 300.0, {"mig_3g": 1})]}
    files = sharing({"a100": (4.0, {"mig_1g": 4, "mig_3g": 1})}, ways, {"s": 500, "l": 300})
    plan = solved(files).require()
    assert bill(plan) == 8.0


@pytest.mark.parametrize(
    ("needs", "cards"),
    [({"gpu_mem_gib": 4}, 2), ({"cpu_cores": 1, "gpu_mem_gib": 4}, 2), ({}, 2), ({"gpu": 0.25, "gpu_mem_gib": 4}, 1)],
)
def test_memory_alone_does_not_say_that_a_card_is_shared(needs: dict[str, float], cards: int) -> None:
    provides = {"gpu": 1, "gpu_mem_gib": 16, "cpu_cores": 4}
    files = sharing({"card": (1.0, provides)}, {n: [("card", 500.0, needs)] for n in "mn"}, {"m": 9, "n": 9})
    assert bill(solved(files).require()) == cards


def _fits(needs: list[dict[str, float]], room: dict[str, float]) -> bool:
    return all(sum(one.get(name, 0.0) for one in needs) <= size + 1e-9 for name, size in room.items())


def _bins(needs: list[dict[str, float]], room: dict[str, float]) -> float:
    """The fewest machines that hold all, by trying every way to put them."""
    if not needs:
        return 0
    best = math.inf

    def put(left: list[dict[str, float]], bins: list[list[dict[str, float]]]) -> None:
        nonlocal best
        if len(bins) >= best:
            return
        if not left:
            best = len(bins)
            return
        for one in bins:
            if _fits([*one, left[0]], room):
                one.append(left[0])
                put(left[1:], bins)
                one.pop()
        put(left[1:], [*bins, [left[0]]])

    put(needs, [])
    return best


def _least_bill(files: tuple[Json, Json]) -> float:
    """By brute force: every count of every run that serves all loads, and the fewest machines that hold them."""
    profile, slo = files
    runs = [(name, run) for name, one in profile["variants"].items() for run in one["runs"]]
    need = {name: slo["apps"][f"app-{name}"]["rate_qps"] for name in profile["variants"]}
    most = [math.ceil(need[name] / run["saturation_qps"] - 1e-9) for name, run in runs]
    best = math.inf
    for counts in itertools.product(*(range(n + 1) for n in most)):
        served = dict.fromkeys(need, 0.0)
        for (name, run), n in zip(runs, counts, strict=True):
            served[name] += n * run["saturation_qps"]
        if any(served[name] < rate - 1e-9 for name, rate in need.items()):
            continue
        cost = 0.0
        for hardware, about in profile["hardware"].items():
            mine = [
                run["needs"] for (_, run), n in zip(runs, counts, strict=True) if run["hardware"] == hardware
                for _ in range(n)
            ]  # fmt: skip
            cost += _bins(mine, about["provides"]) * float(profile["offers"][f"{hardware}"]["price_per_hour"])
        best = min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_no_other_plan_is_cheaper(seed: int) -> None:
    files = random_shared(seed)
    outcome = solved(files)
    assert outcome.exit_code == 0, outcome.violations
    assert bill(outcome.require()) == pytest.approx(_least_bill(files), rel=1e-9)
    assert outcome.require().claims[0].scope == "problem"


def test_a_wrong_bill_does_not_pass() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 100, "n": 100})
    plan = solved(files).require()
    for quantity in ("cost_per_hour", "gross_cost_per_hour", "net_cost_per_hour"):
        document = json.loads(plan_bytes(plan))
        (promise,) = [one for one in document["promises"] if one["quantity"] == quantity]
        promise["value"] = 1.052
        report = hp.verify(with_digest(Plan.model_validate(document)), *files)
        assert not report.ok, quantity
    document = json.loads(plan_bytes(plan))
    document["workers"][0]["loads"].append({**document["workers"][0]["loads"][0], "id": "third"})
    document["actions"].append({"id": 9, "do": "load", "load": "third", "after": []})
    report = hp.verify(with_digest(Plan.model_validate(document)), *files)
    assert "resource" in {violation.code for violation in report.violations}


def test_stock_counts_machines_and_not_instances() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 900, "n": 400}, stock=2)
    plan = solved(files).require()
    assert sum(worker.count for worker in plan.workers) == 2
    files[1]["apps"]["app-n"]["rate_qps"] = 1100
    outcome = solved(files)
    assert outcome.plan is None
    assert any("from 2 to 3 machines" in repair.text for repair in outcome.repairs)


def test_what_runs_stays_where_it_is_and_the_others_come_to_it() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 100, "n": 100})
    state = {
        "format": "hetplan/state/1.0",
        "workers": [{"id": "here", "hardware": "card", "offer": "card",
                     "loads": [{"id": "here.1", "variant": "m", "at": {"batch": 8}, "serve": {"max_batch": 8}}]}],
    }  # fmt: skip
    outcome = hp.solve(*files, state, options={"sizing": "fluid"}, formulation="variants")
    assert outcome.exit_code == 0, outcome.violations
    (worker,) = outcome.require().workers
    assert worker.id == "here"
    assert "here.1" in {load.id for load in worker.loads}
    assert {action.do for action in outcome.require().actions} == {"keep", "load"}
    assert bill(outcome.require()) == 0.526


def test_machines_that_must_be_there_are_shared_before_they_are_idle() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 100, "n": 100})
    files[1]["limits"] = {"instances": {"card": [3, 4]}}
    outcome = solved(files)
    assert outcome.exit_code == 0, outcome.violations
    assert bill(outcome.require()) == pytest.approx(3 * 0.526)


def test_a_budget_counts_machines() -> None:
    files = sharing(HALF, {n: [("card", 500.0, {"gpu": 0.5})] for n in "mn"}, {"m": 100, "n": 100})
    files[1]["limits"] = {"cost_per_hour": "0.6"}
    assert bill(solved(files).require()) == 0.526
    files[1]["limits"] = {"cost_per_hour": "0.5"}
    assert solved(files).plan is None


@pytest.mark.slow
def test_many_loads_on_large_machines_are_counted_in_total() -> None:
    ways = {f"m{k}": [("node", 100.0, {"gpu": 0.1 + 0.03 * k})] for k in range(12)}
    files = sharing({"node": (8.0, {"gpu": 8})}, ways, dict.fromkeys(ways, 1000.0))
    outcome = solved(files)
    assert outcome.exit_code == 0, outcome.violations
    plan = outcome.require()
    least = math.ceil(sum(10 * run[0][2]["gpu"] for run in ways.values()) / 8 - 1e-9)
    assert bill(plan) <= 8.0 * (least + 1)
    assert plan.claims[0].scope == "relaxation"


def test_machines_with_room_left_are_named() -> None:
    files = sharing({"node": (20.0, {"gpu": 8})}, {"m": [("node", 100.0, {"gpu": 1})]}, {"m": 90})
    plan = solved(files).require()
    (said,) = [warning for warning in plan.warnings if warning.code == "W-idle-machine"]
    assert "7 of 8 gpu idle" in said.text
    files[1]["apps"]["app-m"]["rate_qps"] = 800
    assert "W-idle-machine" not in {warning.code for warning in solved(files).require().warnings}
    files[1]["apps"]["app-m"] |= {"rate_qps": 90, "mix": {"axes": ["batch"], "bins": [[8]], "share": [1]}}
    pool = hp.solve(*files[:1], {"format": "hetplan/slo/1.0", "apps": files[1]["apps"]}, formulation="pool").require()
    assert "W-idle-machine" not in {warning.code for warning in pool.warnings}
    assert [len(worker.loads) for worker in pool.workers] == [8]


def test_prices_of_runs_below_those_of_their_machines_are_named() -> None:
    files = sharing(HALF, {"m": [("card", 500.0, {"gpu": 0.5})]}, {"m": 100}, stock=3)
    (run,) = files[0]["variants"]["m"]["runs"]
    run["price_per_hour"] = "0.2"
    plan = solved(files).require()
    assert bill(plan) == 0.2
    (said,) = [warning for warning in plan.warnings if warning.code == "W-run-price"]
    assert "0.526" in said.text
    run["price_per_hour"] = "0.6"
    assert "W-run-price" not in {warning.code for warning in solved(files).require().warnings}


@pytest.mark.parametrize("shares", [False, True])
def test_a_large_stock_is_not_gone_through_machine_by_machine(shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kind = list[object](), placement._Bin

    def counted(*fields: Any) -> Any:
        made.append(fields)
        return kind(*fields)

    plans = list[Plan]()
    for stock in (40, 50_000):
        files = sharing(
            {"card": (0.5, {"gpu": 1})}, {n: [("card", 90.0, {"gpu": 0.6})] for n in "mn"}, {"m": 800, "n": 500}
        )
        files[0]["offers"]["card"]["stock"] = stock
        with monkeypatch.context() as patched:
            patched.setattr(placement, "_Bin", counted)
            plans.append(solved(files, share_machines=shares).require())
    assert plans[0].workers == plans[1].workers
    assert len(made) < 1_000
