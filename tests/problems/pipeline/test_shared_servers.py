"""Steps and pipelines share servers: instances of one card each fill a node of several, whosever they are."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

import pytest

import hetplan as hp
from hetplan.problems.slot_packing import pack_servers
from hetplan.simulator.baselines import kinds_of

Docs = tuple[dict[str, Any], dict[str, Any]]
MS = {"see": 20.0, "name": 16.0, "read": 12.0}
"""Milliseconds for a batch of four."""


def documents(
    *,
    cards: int = 8,
    nodes: int | None = 9,
    rate: float = 300.0,
    needs: dict[str, float] | None = None,
    fanout: float = 1,
) -> Docs:
    """A chain of three steps on nodes of so many cards; each instance takes one, or as many as `needs` says."""
    wanted = dict.fromkeys(MS, 1.0) | (needs or {})
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "tasks": {step: {} for step in MS},
        "hardware": {"node": {"kind": "gpu", "provides": {"gpu": cards, "gpu_mem_gib": 24 * cards}}},
        "offers": {"node": {"hardware": "node", "price_per_hour": "8", "currency": "USD"}},
        "tables": {
            f"t-{step}": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [ms / 2, ms]}
            for step, ms in MS.items()
        },
        "variants": {
            f"{step}-m": {"task": step, "quality": {"value": 0.9},
                          "runs": [{"hardware": "node", "needs": {"gpu": wanted[step]}, "latency": f"t-{step}"}]}
            for step in MS
        },
        "pipelines": {
            "p": {
                "nodes": {step: {"task": step} for step in MS},
                "edges": [{"from": "see", "to": "name", "fanout": fanout}, {"from": "name", "to": "read", "fanout": 1}],
                "quality": {"rule": "product"},
            }
        },
    }  # fmt: skip
    app = {"pipeline": "p", "rate_qps": rate, "latency": {"p99_ms": 400}}
    limits = {"instances": {"node": [0, nodes]}} if nodes is not None else {"cost_per_hour": "800", "currency": "USD"}
    return profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}, "limits": limits}


def solved(files: Docs, *, state: Any = None, **options: Any) -> hp.Plan:
    outcome = hp.solve(*files, state, options=options, formulation="pipeline")
    assert outcome.exit_code == 0, (outcome.violations, outcome.why)
    plan = outcome.require()
    assert not hp.verify(plan, *files, state).violations
    return plan


def total(plan: hp.Plan, quantity: str) -> float:
    return next(one.value for one in plan.promises if one.app is None and one.quantity == quantity)


def on_one(plan: hp.Plan) -> list[dict[str | None, int]]:
    return [{load.node: load.instances for load in worker.loads} for worker in plan.workers]


@pytest.mark.slow
def test_a_pipeline_of_three_steps_fits_on_one_node_and_keeps_its_wish_there() -> None:
    files = documents()
    plan = solved(files)
    assert total(plan, "servers") == 1.0
    assert total(plan, "cost_per_hour") == 8.0
    (node,) = plan.workers
    assert {load.node for load in node.loads} == set(MS)
    assert sum(load.instances for load in node.loads) == 8, "what is paid is used"
    report = hp.simulate(plan, *files, seeds=3, seed=991)
    assert report.apps["a"].figures["violations"].value < 0.01
    apart = solved(files, share_machines=False)
    assert total(apart, "cost_per_hour") == 24.0
    assert all(len(worker.loads) == 1 for worker in apart.workers)


@pytest.mark.slow
def test_fewer_servers_than_steps_are_enough_where_they_have_places() -> None:
    plan = solved(documents(nodes=1), sizing="fluid")
    assert total(plan, "servers") == 1.0
    outcome = hp.solve(*documents(nodes=1), options={"share_machines": False}, formulation="pipeline")
    assert outcome.exit_code == 3
    outcome = hp.solve(*documents(nodes=1, cards=2), formulation="pipeline")
    assert outcome.exit_code == 3
    assert any("3 stages need a place on a server each, and there are 2" in why for why in outcome.why)
    assert [one.amount for one in outcome.repairs] == [2.0]


@pytest.mark.parametrize("seed", range(8))
def test_nodes_are_as_few_as_all_instances_fill(seed: int) -> None:
    """One way to run each step: what it needs is counted by hand."""
    chance = random.Random(seed)
    cards, rate, fanout = chance.choice([2, 3, 4, 8]), chance.uniform(20.0, 1500.0), chance.choice([0.5, 1.0, 2.0])
    plan = solved(documents(cards=cards, nodes=60, rate=rate, fanout=fanout), sizing="fluid")
    reach = {"see": rate, "name": fanout * rate, "read": fanout * rate}
    instances = sum(math.ceil(reach[step] * MS[step] / 4000.0 - 1e-9) for step in MS)
    assert total(plan, "servers") == math.ceil(instances / cards)
    claims = {claim.about: claim for claim in plan.claims}
    assert claims["cost_per_hour"].bound == pytest.approx(8.0 * math.ceil(instances / cards))


@pytest.mark.parametrize("seed", range(4))
def test_nodes_of_cards_are_as_good_as_so_many_cards(seed: int) -> None:
    """The most quality on few servers: a card is a card, on nodes of four or alone."""
    chance = random.Random(seed)
    rate = chance.uniform(200.0, 600.0)
    profile, slo = documents(cards=4, nodes=2, rate=rate)
    for step, ms in MS.items():
        profile["tables"][f"t-{step}-s"] = {
            "quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [1.5 * ms, chance.uniform(2.0, 4.0) * ms]
        }  # fmt: skip
        run = {"hardware": "node", "needs": {"gpu": 1}, "latency": f"t-{step}-s"}
        profile["variants"][f"{step}-s"] = {"task": step, "quality": {"value": 0.97}, "runs": [run]}
    alone_profile, alone_slo = copy.deepcopy(profile), copy.deepcopy(slo)
    alone_profile["hardware"]["node"]["provides"] = {"gpu": 1, "gpu_mem_gib": 24}
    alone_profile["offers"]["node"]["price_per_hour"] = "2"
    alone_slo["limits"]["instances"]["node"] = [0, 8]
    nodes, cards = solved((profile, slo), sizing="fluid"), solved((alone_profile, alone_slo), sizing="fluid")
    quality = [next(one.value for one in plan.promises if one.quantity == "quality") for plan in (nodes, cards)]
    assert quality[0] == pytest.approx(quality[1], abs=1e-6)
    assert total(nodes, "cost_per_hour") == 8.0 * math.ceil(total(cards, "cost_per_hour") / 8.0 - 1e-9)


def test_alike_parts_of_more_cards_are_places_too() -> None:
    """Each instance takes two cards of eight, and part of the memory: four places, whatever the memory is."""
    files = documents(needs=dict.fromkeys(MS, 2.0), rate=150.0)
    files[0]["variants"]["see-m"]["runs"][0]["needs"]["gpu_mem_gib"] = 40
    plan = solved(files, sizing="fluid")
    assert total(plan, "servers") == 1.0
    (held,) = on_one(plan)
    assert sum(held.values()) == 4


def _needing(profile: Any, cards: int) -> Any:
    """A variant like that of the first step, of so many cards."""
    other = copy.deepcopy(profile["variants"]["see-m"])
    other["runs"][0]["needs"] = {"gpu": cards}
    return other


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda profile: profile["variants"]["see-m"]["runs"][0].update(needs={}), "who does not say what it needs"),
        (lambda profile: profile["variants"]["see-m"]["runs"][0].update(needs={"gpu_mem_gib": 20}), "memory alone"),
        (lambda profile: profile["variants"]["see-m"]["runs"][0].update(needs={"gpu": 3}), "who takes a larger part"),
        (lambda profile: profile["variants"]["see-m"]["runs"][0].update(price_per_hour="1"), "who is paid by itself"),
        (
            lambda profile: profile["variants"]["see-m"]["runs"][0].update(needs={"gpu": 8}, price_per_hour="1"),
            "a node",
        ),
        (lambda profile: profile["variants"].update(large=_needing(profile, 16)), "who needs more than there is"),
        (lambda profile: profile["offers"]["node"].update(per="gpu"), "what is sold by the slice"),
    ],
)
def test_nothing_is_shared_with(change: Any, why: str) -> None:
    profile, slo = documents()
    change(profile)
    assert all(len(worker.loads) == 1 for worker in solved((profile, slo), sizing="fluid").workers), why


@pytest.mark.slow
def test_pipelines_share_nodes_and_a_budget_of_one_node_is_enough_for_both() -> None:
    profile, slo = documents(rate=60.0, nodes=None)
    slo["apps"]["b"] = copy.deepcopy(slo["apps"]["a"])
    slo["limits"]["cost_per_hour"] = "8"
    plan = solved((profile, slo))
    assert total(plan, "cost_per_hour") == 8.0
    (node,) = plan.workers
    assert {load.app for load in node.loads} == {"a", "b"}


def test_servers_that_must_run_are_used_and_resources_and_stock_are_kept() -> None:
    files = documents(rate=100.0)
    files[1]["limits"]["instances"]["node"] = [2, 2]
    plan = solved(files)
    assert total(plan, "servers") == 2.0
    files = documents(rate=300.0)
    cards = files[0]["hardware"]["node"]["provides"]["gpu"]
    files[1]["limits"]["provides"] = {"gpu": 1.5 * cards}
    plan = solved(files, sizing="fluid")
    assert sum(worker.count for worker in plan.workers) == 1
    files = documents(rate=300.0, nodes=None)
    files[0]["offers"] = {
        "dear": {"hardware": "node", "price_per_hour": "9", "currency": "USD", "stock": 5},
        "cheap": {"hardware": "node", "price_per_hour": "5", "currency": "USD", "stock": 1},
    }
    assert total(solved(files, sizing="fluid"), "cost_per_hour") == 5.0
    files[1]["apps"]["a"]["rate_qps"] = 900.0  # 5 + 4 + 3 cards
    assert total(solved(files, sizing="fluid"), "cost_per_hour") == 14.0


@pytest.mark.slow
@pytest.mark.parametrize(("least", "cost"), [(1, 5.0), (2, 14.0), (3, 23.0)])
def test_what_must_run_is_had_within_the_stock_of_each_offer(least: int, cost: float) -> None:
    files = documents(rate=100.0)
    files[1]["limits"]["instances"]["node"] = [least, 5]
    files[0]["offers"] = {
        "a": {"hardware": "node", "price_per_hour": "5", "currency": "USD", "stock": 1},
        "b": {"hardware": "node", "price_per_hour": "9", "currency": "USD", "stock": 5},
    }
    assert total(solved(files), "cost_per_hour") == cost


def test_hardware_that_must_run_and_is_of_no_use_fills_nothing_else() -> None:
    files = documents(rate=100.0)
    files[0]["hardware"]["one"] = {"kind": "gpu", "provides": {"gpu": 4}}
    files[0]["offers"]["one"] = {"hardware": "one", "price_per_hour": "0.9", "currency": "USD"}
    for step in MS:
        runs = files[0]["variants"][f"{step}-m"]["runs"]
        runs.append({**runs[0], "hardware": "one"})
    files[1]["limits"]["instances"] = {"one": [0, 9], "node": [0, 9]}
    assert total(solved(files, sizing="fluid"), "cost_per_hour") == 0.9


def test_where_moves_count_servers_are_of_one_step() -> None:
    files = documents()
    files[1]["limits"]["changes"] = 30
    state = {"format": "hetplan/state/1.0", "workers": []}
    assert all(len(worker.loads) == 1 for worker in solved(files, state=state, sizing="fluid").workers)


def test_a_plan_of_its_own_state_moves_nothing() -> None:
    files = documents(rate=500.0)
    plan = solved(files, sizing="fluid")
    state = {"format": "hetplan/state/1.0", **json.loads(plan.model_dump_json(include={"workers"}, exclude_none=True))}
    again = solved(files, state=state, sizing="fluid")
    assert total(again, "changes") == 0.0
    assert not again.actions


def _forged(plan: hp.Plan, change: Any) -> hp.Plan:
    made = json.loads(plan.model_dump_json(exclude_none=True, by_alias=True))
    change(made)
    return hp.Plan.model_validate(made)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda plan: plan["workers"][0]["loads"][0].update(instances=7), "resource"),
        (lambda plan: plan["workers"][0].update(queue="shared"), "pipeline-worker"),
        (lambda plan: plan["method"]["options"].update(share_machines=False), "pipeline-worker"),
        (lambda plan: plan["method"]["options"].pop("share_machines"), "pipeline-worker"),
        (lambda plan: plan["workers"][0]["loads"][1].update(instances=0), None),
        (lambda plan: plan["claims"][1].update(bound=16.0, value=16.0), "promise"),
    ],
)
def test_a_forged_plan_is_caught(change: Any, code: str | None) -> None:
    files = documents()
    plan = solved(files, sizing="fluid")
    if code is None:
        with pytest.raises(ValueError, match="instances"):
            _forged(plan, change)
        return
    report = hp.verify(_forged(plan, change), *files)
    assert not report.ok
    assert code in {one.code for one in report.violations} | {"promise"}


@pytest.mark.parametrize("seed", range(40))
def test_places_are_all_on_servers_that_hold_no_more(seed: int) -> None:
    chance = random.Random(seed)
    places = chance.randint(1, 8)
    wanted = {name: chance.randint(0, 20) for name in "abcd"[: chance.randint(1, 4)]}
    least = chance.randint(0, 6)
    found = pack_servers(wanted, places, least=least)
    together = {seat: sum(count * held.get(seat, 0) for held, count in found) for seat in wanted}
    assert together == wanted
    assert all(0 < sum(held.values()) <= places and count > 0 for held, count in found)
    whole = sum(wanted.values())
    assert sum(count for _, count in found) == max(math.ceil(whole / places), min(least, whole))


def test_a_bound_is_proved_again_where_of_one_hardware_there_is_no_end() -> None:
    """Few cheap cards, and nodes without a stock: only the cards are scarce."""
    profile, slo = documents(cards=6, nodes=None, rate=900.0)
    profile["hardware"]["one"] = {"kind": "gpu", "provides": {"gpu": 1, "gpu_mem_gib": 24}}
    profile["offers"]["one"] = {"hardware": "one", "price_per_hour": "1", "currency": "USD", "stock": 2}
    for step in MS:
        run = {"hardware": "one", "needs": {"gpu": 1}, "latency": f"t-{step}"}
        profile["variants"][f"{step}-m"]["runs"].append(run)
    plan = solved((profile, slo), sizing="formula")
    words = [one.word.value for one in hp.verify(plan, profile, slo).claims]
    assert words == ["proved again", "proved again"]


def test_runs_that_fill_a_server_by_unlike_resources_do_not_share_it() -> None:
    """Eight of either fit, one by cards and one by memory: of both together more would fit than there are places."""
    files = documents(needs={"name": 0.5, "read": 0.5})
    for step in ("name", "read"):
        files[0]["variants"][f"{step}-m"]["runs"][0]["needs"]["gpu_mem_gib"] = 24
    plan = solved(files, sizing="fluid")
    assert all(len(worker.loads) == 1 for worker in plan.workers)


@pytest.mark.parametrize("larger", ["see", "read"])
def test_a_plan_that_shares_what_may_not_be_shared_is_caught(larger: str) -> None:
    """By hand: two steps on one node where steps have unlike needs, so that each is planned on its own."""
    files = documents(needs={larger: 3.0}, rate=100.0)
    plan = solved(files, sizing="fluid")

    def together(made: dict[str, Any]) -> None:
        first, second = made["workers"][:2]
        loads = [{**worker["loads"][0], "instances": 1} for worker in (first, second)]
        made["workers"] = [{**first, "loads": loads, "queue": "per-load"}, *made["workers"][2:]]

    assert "pipeline-worker" in {one.code for one in hp.verify(_forged(plan, together), *files).violations}


def test_those_beside_whom_it_is_compared_fill_their_nodes_too() -> None:
    files = documents()
    plan, inputs = solved(files, sizing="fluid"), hp.load(*files)
    (kinds,) = {tuple(kind.instances for kind in found) for found in kinds_of(plan, inputs).values()}
    assert kinds == (8,)
    files[0]["offers"]["node"]["per"] = "gpu"
    sold = kinds_of(solved(files, sizing="fluid"), hp.load(*files))
    assert {kind.instances for found in sold.values() for kind in found} == {1}, "a slice holds one"
