"""Applications of text share machines of a fleet: each engine has its own cards."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from cases.packing import fewest
from cases.shared_fleets import Files, Json, add_pools, cost, goes_on, is_refused_with_places_changed, solved, text

import hetplan as hp
from hetplan.planner.bound_verdicts import Word
from hetplan.problems.fleet import sizing
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_dispatch_rules import LeastWorkDispatch
from hetplan.profiles.plan_file import with_digest
from hetplan.simulator.day import HowPlayed, _Day, play_day
from hetplan.studies.strategies import Compared, compare_ways

NODE = 8
"""Cards of a machine."""


def _files(
    rates: Mapping[str, list[float]],
    cards: int | Mapping[str, int] = 4,
    zones: str = "a",
    *,
    node: int = NODE,
    **limits: Any,
) -> Files:
    """Text with a model each, whose engine takes so many cards of a node."""
    takes = cards if isinstance(cards, Mapping) else dict.fromkeys(rates, cards)
    engine = {
        "pieces": [{"base_ms": 8.0, "token_ms": 0.05}], "kv_tokens": 100_000, "context_tokens": 8192,
        "most_tokens": 2048, "most_seqs": 64, "overlap": "assumed", "fitted": {"error": 0.02, "tokens": 200},
    }  # fmt: skip
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"node": {"kind": "gpu", "provides": {"gpu": node}, "startup_s": 60}},
        "offers": {f"node-{z}": {"hardware": "node", "zone": z, "price_per_hour": "1", "stock": 40} for z in zones},
        "tasks": {name: {} for name in rates},
        "variants": {
            f"of-{name}": {"task": name, "runs": [{"hardware": "node", "engine": f"e-{name}", "load_s": 5}]}
            for name in rates
        },
        "engines": {f"e-{name}": {**engine, "tensor": takes[name]} for name in rates},
    }
    lengths = {"axes": ["input_tokens", "output_tokens"], "bins": [[200, 50], [1000, 100]], "share": [0.5, 0.5]}
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": len(next(iter(rates.values()))), "repeats": 24},
        "apps": {
            name: {
                "question": "llm",
                "model": f"of-{name}",
                "latency": {"ttft_p95_ms": 1500, "tpot_p95_ms": 50},
                "rate_qps": {"series": series},
                "mix": lengths,
            }
            for name, series in rates.items()
        },
    }
    return profile, slo


_solved = partial(solved, savings=False)


@cache
def _engines(rate: float) -> int:
    """The fewest engines for a rate: machines that hold one, for one application."""
    return round(cost(_solved(_files({"alone": [rate]}, 1, node=1))))


TWO = {"chat": [4.0, 3.0], "code": [2.0, 4.0]}


@cache
def _text() -> str:
    return text(_solved(_files(TWO)))


@pytest.mark.slow
def test_two_engines_of_four_cards_rent_one_node_of_eight_and_the_bill_says_what_that_saves() -> None:
    files = _files(TWO)
    assert cost(_solved(files, share_machines=False)) == pytest.approx(2.0)
    plan = _solved(files, savings=True).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(1.0)
    assert plan.bill.apps == pytest.approx({"chat": 0.5, "code": 0.5})
    last = plan.bill.levers[-1]
    assert (last.name, last.saves_per_hour) == ("shared", pytest.approx(1.0))
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert [one.word for one in shown.claims] == [Word.PROVED]
    assert goes_on(files, plan)


def test_the_part_of_those_who_share_says_of_each_all_that_text_needs() -> None:
    plan = _solved(_files(TWO)).require()
    part = next(iter((plan.parts or {}).values()))
    (worker,) = part.workers
    assert (worker.count, worker.queue) == (1, "per-load")
    assert [(load.app, load.instances) for load in worker.loads] == [("chat", 1), ("code", 1)]
    for load in worker.loads:
        app = load.app or ""
        assert load.serve.most_tokens
        assert load.serve.most_seqs
        assert part.routing[app][0].to == {load.id: 1.0}
        rule = part.dispatch[app]
        assert isinstance(rule, LeastWorkDispatch)
        assert (rule.ttft_ms, rule.output_tokens, set(rule.limit)) == (1500.0, 75.0, {load.id})
        assert part.rate_qps[app] == part.valid.rate_qps[app][1] == TWO[app][0]
        assert (app, "rate_qps") in {(one.app, one.quantity) for one in part.promises}
    assert {one.code for one in part.warnings} == {"W-overlap", "W-extrapolated", "W-queueing"}
    assert {one.at for one in part.warnings if one.code == "W-overlap"} == {
        "models.of-chat.runs.node",
        "models.of-code.runs.node",
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_nodes_are_as_few_as_hold_the_fewest_engines_of_all(seed: int) -> None:
    """By hand: the fewest engines of each application alone, and all ways to put them on nodes."""
    chance = random.Random(seed)
    cards = dict(zip("abc", chance.choice([(4, 4, 4), (2, 4, 8), (1, 2, 4), (2, 2, 2), (3, 3, 4)]), strict=True))
    rates = {name: [chance.choice([2.0, 20.0, 50.0])] for name in list(cards)[: chance.randint(2, 3)]}
    files = _files(rates, cards)
    plan = _solved(files).require()
    nodes = fewest([cards[name] for name, (rate,) in rates.items() for _ in range(_engines(rate))], NODE)
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(nodes)
    assert hp.verify(plan, *files).ok
    assert plan.claims[0].bound is not None
    assert plan.claims[0].bound <= nodes + 1e-9


@pytest.mark.slow_cases(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_sharing_is_never_dearer_and_always_verified(seed: int) -> None:
    chance = random.Random(200 + seed)
    periods, names = chance.choice([1, 2]), "abc"[: chance.randint(2, 3)]
    rates = {name: [chance.choice([0.0, 20.0, 60.0]) + 1.0 for _ in range(periods)] for name in names}
    limits: Json = {"survive": {"zones": 1, "serve": 0.7}} if chance.random() < 0.4 else {}
    cards = {name: chance.choice([1, 2, 4]) for name in names}
    files = _files(rates, cards, "ab", **limits)
    plan = _solved(files).require()
    assert cost(_solved(files)) <= cost(_solved(files, share_machines=False)) + 1e-9
    assert hp.verify(plan, *files).ok
    for part in (plan.parts or {}).values():
        for worker in part.workers:
            assert sum(load.instances * cards[load.app or ""] for load in worker.loads) <= NODE


@pytest.mark.slow
def test_what_does_not_fit_exactly_is_not_shared() -> None:
    """Two engines of three cards leave room for one of two, and parts of a machine do not say so."""
    files = _files(TWO, {"chat": 3, "code": 2})
    assert cost(_solved(files)) == pytest.approx(cost(_solved(files, share_machines=False))) == pytest.approx(2.0)


@pytest.mark.slow
def test_a_lost_zone_leaves_what_is_kept_and_the_day_is_played() -> None:
    files = _files({"chat": [10.0], "code": [20.0]}, zones="ab", survive={"zones": 1, "serve": 0.5})
    plan = _solved(files, sizing="simulation").require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(2.0)
    assert cost(_solved(files, share_machines=False)) == pytest.approx(4.0)
    assert hp.verify(plan, *files).ok
    assert all(part.method.options["sizing"] == "simulation" for part in (plan.parts or {}).values())
    assert not any(one.code == "W-queueing" for one in plan.warnings)
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=1e3))
    assert day.ok
    assert {app for one in day.failures for app in one.after} == {"chat", "code"}
    assert min(found.value for one in day.failures for found in one.after.values()) > 0.9


@pytest.mark.slow
def test_nobody_shares_where_playing_finds_that_dearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine each is too slow when it is played, by itself; were several times as many asked for, two nodes do."""
    files, roomier = _files({"chat": [18.5], "code": [18.5]}), sizing._roomier
    for app in files[1]["apps"].values():
        app["latency"]["ttft_p95_ms"] = 300

    def too_much(found: Any, short: Any, *_: Any) -> Any:
        wish = roomier(found, short)
        more = {key: dict.fromkeys(own, 4.0) for key, own in wish.rooms.items()}
        return replace(wish, rooms=more) if wish.slices else wish

    monkeypatch.setattr(sizing, "_roomier", too_much)
    plan = _solved(files, sizing="simulation").require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(2.0)
    assert all(len(part.rate_qps) == 1 for part in (plan.parts or {}).values())
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert [one.word for one in shown.claims] == [Word.PROVED]
    assert plan.claims[0].bound is not None
    assert plan.claims[0].bound <= 1.0 + 1e-9, "one node of both is not shown to be too little"
    assert "shared by chat, code alone" in (plan.claims[0].note or "")


@pytest.mark.slow
def test_an_hour_without_requests_of_one_application_is_planned_and_played() -> None:
    files = _files({"chat": [4.0, 0.0], "code": [2.0, 1.0]})
    plan = _solved(files, sizing="simulation").require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(1.0)
    assert hp.verify(plan, *files).ok
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=1e3))
    assert day.ok
    assert set(day.in_time) == {"chat", "code"}


@pytest.mark.parametrize(
    "change",
    [
        lambda slo: slo["limits"].update(changes=9),
        lambda slo: slo.update(objective=["max quality"], horizon={"period_s": 3600, "periods": 1}),
    ],
)
def test_nothing_is_shared_beside(change: Callable[[Json], None]) -> None:
    profile, slo = _files({"chat": [4.0], "code": [2.0]})
    for one in profile["variants"].values():
        one["quality"] = {"value": 0.9}
    change(slo)
    plan = _solved((profile, slo)).require()
    assert all(len(part.rate_qps) == 1 for part in (plan.parts or {}).values())


@pytest.mark.slow
def test_hardware_with_engines_of_two_sizes_for_one_application_is_not_shared_by_it() -> None:
    """It has whole machines, of which the two others have one together; nothing of its own engines is lost."""
    profile, slo = _files({**TWO, "tools": [3.0, 3.0]})
    profile["engines"]["small"] = {**profile["engines"]["e-tools"], "tensor": 2}
    profile["variants"]["of-tools"]["runs"].append({"hardware": "node", "engine": "small", "at": {"tp": 2}})
    plan = _solved((profile, slo)).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(2.0)
    assert hp.verify(plan, profile, slo).ok
    assert {frozenset(part.rate_qps) for part in (plan.parts or {}).values()} == {frozenset(TWO), frozenset({"tools"})}


@pytest.mark.slow
def test_pools_share_with_pools_and_text_with_text() -> None:
    """A machine is shared by one of the two questions: nodes by text, cards by pools."""
    profile, slo = _files(TWO)
    profile["hardware"]["card"] = {"kind": "gpu", "provides": {"gpu": 1}}
    profile["offers"]["card"] = {"hardware": "card", "zone": "a", "price_per_hour": ".1"}
    add_pools((profile, slo), ("faces", "plates"), [{"hardware": "card", "needs": {"gpu": 0.5}}], [10.0, 20.0])
    plan = _solved((profile, slo)).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(1.1)
    assert hp.verify(plan, profile, slo).ok
    found = {(part.question, *part.rate_qps) for part in (plan.parts or {}).values()}
    assert found == {("llm", "chat", "code"), ("pool", "faces", "plates")}


def test_a_day_begins_with_the_machines_that_run_whoever_they_are_of() -> None:
    """Two engines of `code` on one node, and one of each on another."""
    files = _files({"chat": [4.0], "code": [50.0]})
    plan = _solved(files).require()
    (part,) = (plan.parts or {}).values()
    assert len(part.workers) == 2
    workers = [
        {"id": one.id, "hardware": "node", "offer": one.offer, "count": one.count,
         "loads": [{"id": load.id, "app": load.app, "variant": load.variant} for load in one.loads]}
        for one in part.workers
    ]  # fmt: skip
    for state, missing in ((workers, 0), (workers[:1], 1), (workers[1:], 1)):
        inputs = load_inputs(*files, state={"format": "hetplan/state/1.0", "workers": state})
        assert len(_Day(plan, inputs, HowPlayed(seeds=1), None, None)._missing()) == missing


# Faults that are planted


def _part(plan: Json) -> Json:
    part: Json = next(part for part in plan["parts"].values() if len(part["rate_qps"]) > 1)
    return part


def _fuller(plan: Json) -> None:
    """One more engine on a node whose cards are all taken."""
    worker = _part(plan)["workers"][0]
    worker["loads"].append({**worker["loads"][0], "id": "one-more"})


def _twice(plan: Json) -> None:
    """The cards of an engine count for two."""
    _part(plan)["workers"][0]["loads"][0]["instances"] = 2


def _without(plan: Json) -> None:
    """The engine of an application is gone; its requests go to that of the other."""
    part = _part(plan)
    kept = part["workers"][0]["loads"] = [one for one in part["workers"][0]["loads"] if one["app"] != "code"]
    part["routing"]["code"][0]["to"] = {kept[0]["id"]: 1.0}
    part["dispatch"]["code"]["limit"] = {kept[0]["id"]: 0.5}


def _unpaid(plan: Json) -> None:
    """One node too few is paid for."""
    plan["bill"]["lines"] = [line for line in plan["bill"]["lines"] if line["period"] != "p0"]


def _by_the_card(plan: Json) -> None:
    """Of each node the cards that are taken are paid for: slices at the price of whole machines, or less."""
    for line in plan["bill"]["lines"]:
        line["cost_per_hour"] = line["cost_per_hour"] / 2


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("forge", [_fuller, _twice, _without, _unpaid, _by_the_card])
def test_a_forged_plan_is_caught(forge: Callable[[Json], None]) -> None:
    data = json.loads(_text())
    forge(data)
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    assert not hp.verify(forged, *_files(TWO)).ok


@pytest.mark.slow
def test_a_bound_that_no_slices_show_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three engines of half a node: a node and a half is shown by prices, and no more."""
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    files = _files({"chat": [20.0], "code": [2.0]})
    assert (_engines(20.0), _engines(2.0)) == (2, 1)
    plan = _solved(files).require()
    assert plan.claims[0].value == pytest.approx(2.0)
    assert plan.claims[0].bound == pytest.approx(1.5, rel=1e-6)
    data = json.loads(plan.model_dump_json(by_alias=True, exclude_none=True))
    data["claims"][0].update(bound=1.8, gap=0.1, vouched="certified")
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    shown = hp.verify(forged, *files)
    assert not shown.ok
    assert [one.word for one in shown.claims] != [Word.PROVED]


@pytest.mark.slow
def test_engines_that_change_places_after_a_failure_are_refused() -> None:
    files = _files({"chat": [20.0], "code": [2.0]}, zones="ab", survive={"zones": 1, "serve": 0.5})
    assert is_refused_with_places_changed(files, text(_solved(files)), "zone a lost", "chat", "code")


@pytest.mark.slow
def test_a_machine_that_has_most_of_an_application_may_be_the_one_that_is_lost() -> None:
    """Three engines of `chat`, of which two are kept: one node has two of them, and the plan has another one lost."""
    files = _files({"chat": [20.0], "code": [2.0]}, survive={"machines": 1, "serve": 1.0})
    data = json.loads(_solved(files).require().model_dump_json(by_alias=True, exclude_none=True))
    part = data["parts"][data["periods"][0]["parts"][0]]
    (worker,) = part["workers"]
    assert (worker["count"], sorted(load["app"] for load in worker["loads"])) == (4, ["chat", "code"])
    chat, code = sorted(worker["loads"], key=lambda load: str(load["app"]))
    worker["count"] = 1
    for name, load, count in (("full", chat, 1), ("rest", code, 2)):
        loads = [{**load, "id": f"{name}.{place}"} for place in (1, 2)]
        part["workers"].append({**worker, "id": name, "count": count, "loads": loads})
    part["routing"]["chat"][0]["to"] = {chat["id"]: 1 / 3, "full.1": 1 / 3, "full.2": 1 / 3}
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    found = hp.verify(forged, *files).violations
    assert any(one.code == "survive" and "that it has most of, chat carries" in one.text for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sharing_beside_lost_machines_is_never_dearer(seed: int) -> None:
    chance = random.Random(400 + seed)
    rates = {name: [chance.choice([2.0, 20.0, 50.0])] for name in "abc"[: chance.randint(2, 3)]}
    files = _files(rates, {name: chance.choice([1, 2, 4]) for name in rates}, survive={"machines": 1, "serve": 0.8})
    plan = _solved(files).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour < cost(_solved(files, share_machines=False)) - 1e-9
    assert hp.verify(plan, *files).ok
    (failure,) = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=5e2)).failures
    assert min(found.value for found in failure.after.values()) > 0.9


def test_machines_that_no_part_says_the_fit_of_are_refused() -> None:
    """Three cards and two do fit on a node; bounds are of what fits by parts, so such a plan is none of them."""
    data, (profile, slo) = json.loads(_text()), _files(TWO, {"chat": 3, "code": 2})
    own = _solved((profile, slo)).require()
    data["inputs"] = json.loads(own.model_dump_json(by_alias=True, exclude_none=True))["inputs"]
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    assert "llm-worker" in {one.code for one in hp.verify(forged, profile, slo).violations}


def test_plans_of_those_who_share_are_as_many_as_machines_can_be_alike() -> None:
    """Ten engines on nodes of four: three nodes, of which no card is idle that an engine could take."""
    rates = {"chat": [150.0], "code": [150.0]}
    files = _files(rates, 2)
    plan = _solved(files).require()
    nodes = math.ceil(sum(_engines(rate) for (rate,) in rates.values()) / 4)
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(nodes)
    held = [len(worker.loads) for part in (plan.parts or {}).values() for worker in part.workers]
    assert set(held) == {4}


@pytest.mark.slow
def test_a_comparison_adds_no_bounds_of_those_who_share() -> None:
    """Alone each costs two a node of its own; together they have one."""
    profile, slo = _files(TWO)
    profile["hardware"]["card"] = {"kind": "gpu", "provides": {"gpu": 1}}
    profile["offers"]["card"] = {"hardware": "card", "price_per_hour": ".1"}
    profile["tables"] = {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [20.0]}}
    profile["tasks"]["faces"] = {}
    profile["variants"]["of-faces"] = {"task": "faces", "runs": [{"hardware": "card", "latency": "t"}]}
    mix = {"axes": ["batch"], "bins": [[1]], "share": [1]}
    limit = {"p95_ms": 100}
    slo["apps"]["faces"] = {"question": "pool", "model": "of-faces", "latency": limit,
                            "rate_qps": {"series": [10.0, 20.0]}, "mix": mix}  # fmt: skip
    slo["horizon"]["period_s"] = 60
    plan = _solved((profile, slo)).require()
    inputs = load_inputs(profile, slo)
    series = {name: app.series or () for name, app in inputs.slo.apps.items()}
    what = Compared(series=series, period_s=60.0, ways=("plan",), fresh=0)
    found = compare_ways(plan, inputs, what)
    assert found.least is None
    (row,) = found.rows
    assert row.nearest is not None
    assert row.nearest.cost_per_hour == pytest.approx(1.1)
