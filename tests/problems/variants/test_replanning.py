"""Planning again over what a plan left running: names stay, machines are not over-full, idle ones are counted."""

import random

import pytest
from cases.random_variants import random_snapshot
from cases.variants import counts, machines, money, solve

from hetplan.errors import InputError
from hetplan.planner.next_state import next_state


def changes(found):
    return [(action.do, action.worker or action.load, action.count) for action in found.plan.actions]


def stocked(load, *, stock=3, units=6.0, price="0"):
    """Machines without names: so many in stock, each of six units; instances take three."""
    documents = machines({"m": (1, {"units": units})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 3.0})}, {"x": load})
    profile = documents[0]
    del profile["hosts"]
    profile["offers"]["m"] = {"hardware": "m", "price_per_hour": price, "stock": stock}
    return documents


def again(documents, found, load):
    documents[1]["apps"]["x"]["rate_qps"] = load
    return solve((*documents[:2], next_state(found.plan)))


def test_machines_without_names_keep_theirs():
    documents = stocked(35.0)
    first = solve(documents)
    assert [(worker.count, [load.instances for load in worker.loads]) for worker in first.plan.workers] == [(2, [2])]
    same = again(documents, first, 35.0)
    assert same.exit_code == 0, same.violations
    assert same.plan.workers == first.plan.workers
    assert {do for do, *_ in changes(same)} == {"keep"}
    more = again(documents, first, 45.0)
    assert more.exit_code == 0, more.violations
    assert [change for change in changes(more) if change[0] != "keep"] == [
        ("start", "w2", 1),
        ("replicate", "w2.1", 1),
    ]
    fewer = again(documents, more, 15.0)
    assert fewer.exit_code == 0, fewer.violations
    assert [worker.id for worker in fewer.plan.workers] == ["w1"]


def test_a_full_stock_changes_on_its_own_machines():
    documents = stocked(55.0)
    profile, slo, _ = documents
    first = solve(documents)
    assert [worker.count for worker in first.plan.workers] == [3]
    # Another variant that is quick enough where the first no longer is: nothing may be started beside what runs.
    profile["tables"]["t-quick"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [5.0]}
    run = {**profile["variants"]["x-v"]["runs"][0], "latency": "t-quick"}
    profile["variants"]["x-quick"] = {"task": "t", "family": "x", "runs": [run]}
    slo["apps"]["x"]["latency"]["p99_ms"] = 6.0
    second = solve((profile, slo, next_state(first.plan)))
    assert second.exit_code == 0, second.violations
    assert counts(second) == {"x-quick": 6}
    assert [worker.id for worker in second.plan.workers] == [worker.id for worker in first.plan.workers]
    steps = {do for do, *_ in changes(second)}
    assert "move" in steps
    assert "start" not in steps


def replanned(seed, formulation, rounds=3):
    documents = random_snapshot(seed)
    profile, slo, _ = documents
    rng = random.Random(seed)
    found = solve(documents, formulation)
    for _ in range(rounds):
        if found.plan is None:
            return
        for app in slo["apps"].values():
            app["rate_qps"] = round(app["rate_qps"] * rng.choice([1, 1, 0.7, 1.3]), 2)
        found = solve((profile, slo, next_state(found.plan)), formulation)
        assert found.exit_code in (0, 3), (seed, formulation, found.violations)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["variants-columns"])
def test_plans_over_plans_are_verified(formulation):
    for seed in range(12):
        replanned(seed, formulation)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["variants-columns", "variants-milp"])
def test_many_plans_over_plans_are_verified(formulation):
    for seed in range(12, 60):
        replanned(seed, formulation)


@pytest.mark.parametrize("unnamed", [False, True])
@pytest.mark.parametrize("formulation", ["variants-columns", "variants-milp"])
def test_idle_machines_that_must_be_there_are_there_and_paid_for(formulation, unnamed):
    documents = stocked(15.0, price="5") if unnamed else machines(
        {"m": (3, {"units": 6.0})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 3.0})}, {"x": 15.0}
    )  # fmt: skip
    documents[0]["offers"]["m"]["price_per_hour"] = "5"
    documents[1]["limits"] = {"instances": {"m": [3, 3]}}
    found = solve(documents, formulation)
    assert found.exit_code == 0, found.violations
    assert sum(worker.count for worker in found.plan.workers) == 3
    # Two instances at 1, and two machines at 5 that hold nothing.
    assert money(found, "cost_per_hour") * 3600 == pytest.approx(12)
    kept = solve((*documents[:2], next_state(found.plan)), formulation)
    assert kept.exit_code == 0, kept.violations
    assert kept.plan.workers == found.plan.workers
    documents[1]["limits"] = {}
    gone = solve((*documents[:2], next_state(found.plan)), formulation)
    assert gone.exit_code == 0, gone.violations
    assert sum(worker.count for worker in gone.plan.workers) == 1


def test_more_idle_machines_than_money_or_machines():
    documents = stocked(15.0, price="5")
    documents[1]["limits"] = {"instances": {"m": [3, 3]}, "cost_per_hour": "11.9"}
    found = solve(documents)
    assert found.exit_code == 3
    assert "idle" in found.why[0]
    assert (found.repairs[0].field, found.repairs[0].to) == ("slo.limits.cost_per_hour", pytest.approx(12))
    documents[1]["limits"] = {"instances": {"m": [4, 4]}}
    with pytest.raises(InputError, match="has 3 machines"):
        solve(documents)


@pytest.mark.parametrize("formulation", ["variants-columns", "variants-milp"])
def test_whole_machines_that_must_be_there_are_used(formulation):
    # The dear type must be there twice anyway: two instances on it cost nothing more, on the cheap one they would.
    documents = stocked(15.0)
    profile, slo, _ = documents
    profile["hardware"]["c"] = {"kind": "cpu"}
    profile["offers"] = {
        "m": {"hardware": "m", "price_per_hour": "2", "stock": 6},
        "c": {"hardware": "c", "price_per_hour": "1", "stock": 6},
    }
    run = {**profile["variants"]["x-v"]["runs"][0], "price_per_hour": None, "needs": {}}
    profile["variants"]["x-v"]["runs"] = [run, {**run, "hardware": "c"}]
    slo["change"]["load_weight_per_s"] = 0.0
    costs = []
    for least in (0, 1, 2):
        slo["limits"] = {"instances": {"m": [least, 6]}}
        found = solve(documents, formulation)
        assert found.exit_code == 0, found.violations
        assert found.status == "optimal"
        costs.append(money(found, "cost_per_hour") * 3600)
    assert costs == [pytest.approx(2), pytest.approx(3), pytest.approx(4)]
