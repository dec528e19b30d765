"""Pools of a fleet share machines: planned in slices, put on machines, proved, paid and played."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cases.shared_fleets import Files, Json, cost, is_refused_with_places_changed, solved, text

import hetplan as hp
from hetplan.planner.bound_verdicts import Word
from hetplan.problems.slot_packing import slots_per_server
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import plan_dict, with_digest
from hetplan.simulator.day import HowPlayed, play_day

CARRIES = 50.0
"""Queries a second of one instance, by the fluid program."""


def _files(
    rates: Mapping[str, list[float]],
    gpu: float | Mapping[str, float] = 0.5,
    zones: str = "ab",
    *,
    ahead: bool = False,
    **limits: Any,
) -> Files:
    """Pools with a model each, an instance of which takes a part of a card and 20 ms for a query."""
    parts = gpu if isinstance(gpu, Mapping) else dict.fromkeys(rates, gpu)
    commit = {"commit": {"term_s": 86400, "discount": 0.4}} if ahead else {}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"card": {"kind": "gpu", "provides": {"gpu": 1}}},
        "offers": {
            f"card-{z}": {"hardware": "card", "zone": z, "price_per_hour": "1", "stock": 40, **commit} for z in zones
        },
        "tasks": {name: {} for name in rates},
        "variants": {
            f"of-{name}": {
                "task": name,
                "runs": [{"hardware": "card", "latency": "t", "needs": {"gpu": parts[name]}}],
            }
            for name in rates
        },
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [1000.0 / CARRIES]}},
    }
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": len(next(iter(rates.values()))), "repeats": 24},
        "apps": {
            name: {
                "question": "pool",
                "model": f"of-{name}",
                "latency": {"p95_ms": 100},
                "rate_qps": {"series": series},
                "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]},
            }
            for name, series in rates.items()
        },
    }
    return profile, slo


def _text(files: Files) -> str:
    return text(solved(files, savings=False))


TWO = {"faces": [40.0, 30.0], "plates": [20.0, 35.0]}
DERATE = 0.8
"""The share of its rate that a pool of the size `planned` is asked for."""


def _slices(rate: float) -> int:
    return math.ceil(rate / (CARRIES * DERATE) - 1e-9)


@pytest.mark.slow
def test_two_pools_of_half_a_card_each_rent_one_card_and_the_bill_says_what_that_saves() -> None:
    files = _files(TWO)
    assert cost(solved(files, share_machines=False)) == pytest.approx(2.0)
    plan = solved(files).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(1.0)
    assert plan.bill.apps == pytest.approx({"faces": 0.5, "plates": 0.5})
    *_, apart, last = plan.bill.levers
    assert apart.about == "no machine is shared by applications"
    assert all(one.verified for one in plan.bill.levers)
    assert (last.name, last.cost_per_hour, last.saves_per_hour) == ("shared", pytest.approx(1.0), pytest.approx(1.0))
    (worker,) = next(iter((plan.parts or {}).values())).workers
    assert (worker.count, worker.queue, sorted(load.app or "" for load in worker.loads)) == (
        1,
        "per-load",
        ["faces", "plates"],
    )
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert [one.word for one in shown.claims] == [Word.PROVED]
    assert plan.claims[0].bound == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_cards_are_as_few_as_all_instances_fill(seed: int) -> None:
    """Counted by hand: instances of each pool by its rate, and as many cards as have places for all."""
    chance = random.Random(seed)
    places = chance.choice([2, 3, 4])
    rates = {name: [chance.uniform(5.0, 150.0)] for name in ("a", "b", "c")[: chance.randint(2, 3)]}
    files = _files(rates, 1.0 / places - 0.01, "a")
    plan = solved(files).require()
    cards = math.ceil(sum(_slices(rate) for (rate,) in rates.values()) / places)
    assert cost(solved(files)) == pytest.approx(cards)
    assert hp.verify(plan, *files).ok
    assert plan.claims[0].bound is not None
    assert plan.claims[0].bound <= cards


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_unlike_needs_share_where_places_say_what_fits(seed: int) -> None:
    """A card, a half and a quarter: as few cards as all of it comes to; by hand again."""
    chance = random.Random(seed)
    needs = dict(zip("abc", chance.choices([1.0, 0.5, 0.25], k=3), strict=True))
    rates = {name: [chance.uniform(5.0, 120.0)] for name in needs}
    files = _files(rates, needs, "a")
    plan = solved(files).require()
    taken = sum(_slices(rate) * needs[name] for name, (rate,) in rates.items())
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(math.ceil(taken - 1e-9))
    assert hp.verify(plan, *files).ok
    for part in (plan.parts or {}).values():
        for worker in part.workers:
            assert sum(needs[load.app or ""] for load in worker.loads) <= 1.0 + 1e-9


@pytest.mark.slow
def test_what_does_not_fit_exactly_is_not_shared() -> None:
    """Two of .4 leave room for .2, but not for a second one of .3."""
    files = _files(TWO, {"faces": 0.4, "plates": 0.3})
    assert cost(solved(files)) == pytest.approx(cost(solved(files, share_machines=False))) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "needs", [c for k in (2, 3) for c in itertools.combinations_with_replacement([1.0, 2.0, 3.0, 4.0, 8.0], k)]
)
def test_places_say_what_fits(needs: tuple[float, ...]) -> None:
    """Whatever takes no more than the places fits, and nothing else does: by all counts of each."""
    alone = [int(8.0 // need) for need in needs]
    places = slots_per_server({"cards": 8.0}, [{"cards": need} for need in needs], alone)
    if places == 1:
        return
    for counts in itertools.product(*(range(most + 2) for most in alone)):
        takes = sum(n * places // k for n, k in zip(counts, alone, strict=True))
        assert (takes <= places) == (sum(n * need for n, need in zip(counts, needs, strict=True)) <= 8.0)


@pytest.mark.slow
def test_a_lost_zone_leaves_what_is_kept_and_the_day_is_played() -> None:
    limits = {"survive": {"zones": 1, "serve": 0.8}}
    files = _files({"faces": [100.0, 60.0], "plates": [80.0, 120.0]}, zones="abc", ahead=True, **limits)
    plan = solved(files, sizing="simulation").require()
    apart = solved(files, sizing="simulation", share_machines=False, savings=False)
    assert plan.bill is not None
    assert plan.bill.cost_per_hour < cost(apart) - 1e-9
    assert hp.verify(plan, *files).ok
    held = plan.parts or {}
    for period in plan.periods:
        now = {worker.id: worker.loads for name in period.parts or () for worker in held[name].workers}
        for names in (period.failures or {}).values():
            for worker in (worker for name in names for worker in held[name].workers):
                assert worker.loads == now[worker.id], "a machine keeps what it holds"
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=4e3))
    assert day.ok
    assert {app for one in day.failures for app in one.after} == {"faces", "plates"}
    assert min(found.value for one in day.failures for found in one.after.values()) > 0.95


@pytest.mark.slow
def test_a_lost_card_takes_what_it_holds_of_each_and_may_hold_all_of_one() -> None:
    """Of two halves each, any card may be full of one pool: three cards of both; apart two cards each."""
    files = _files({"faces": [40.0], "plates": [40.0]}, zones="a", survive={"machines": 1, "serve": 1.0})
    apart = solved(files, share_machines=False, savings=False).require()
    plan = solved(files, savings=False).require()
    assert apart.bill is not None
    assert plan.bill is not None
    assert (apart.bill.cost_per_hour, plan.bill.cost_per_hour) == (pytest.approx(4.0), pytest.approx(3.0))
    assert (plan.claims[0].scope, plan.claims[0].vouched) == ("restriction", "claimed")
    for one in (apart, plan):
        assert hp.verify(one, *files).ok
        (failure,) = play_day(one, load_inputs(*files), HowPlayed(seeds=1, queries=4e3)).failures
        assert min(found.value for found in failure.after.values()) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("unlike", [False, True])
def test_any_card_may_be_lost_not_only_the_one_that_a_plan_says(unlike: bool) -> None:
    """One card full of each pool, and one of both: without that one both go on, without a full one a pool is short."""
    files = _files({"faces": [70.0], "plates": [70.0]}, zones="a", survive={"machines": 1, "serve": 1.0})
    data = plan_dict(solved(files, sizing="fluid", savings=False).require())
    first, after = data["parts"].values()
    (mixed,) = first["workers"]
    if unlike:
        own = {load["app"]: load for load in mixed["loads"]}
        full = [
            {**mixed, "id": app, "count": 1, "loads": [{**load, "id": f"{app}.{number}"} for number in (1, 2)]}
            for app, load in own.items()
        ]
        first["workers"], after["workers"] = [{**mixed, "count": 1}, *full], full
        for app, load in own.items():
            first["routing"][app][0]["to"] = {load["id"]: 1 / 3, f"{app}.1": 1 / 3, f"{app}.2": 1 / 3}
            after["routing"][app][0]["to"] = {f"{app}.1": 0.5, f"{app}.2": 0.5}
    plan = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    found = [one.text for one in hp.verify(plan, *files, simulate=False).violations]
    short = [text for text in found if text.startswith("without the machines that it has most of")]
    assert len(short) == 2 * unlike, found
    assert found == [] or unlike


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_sharing_beside_lost_machines_is_never_dearer(seed: int) -> None:
    chance = random.Random(300 + seed)
    names = "abcd"[: chance.randint(2, 4)]
    rates = {name: [chance.choice([5.0, 40.0, 90.0])] for name in names}
    limits: Json = {"survive": {"machines": chance.choice([1, 2]), "zones": chance.choice([0, 1]), "serve": 0.7}}
    files = _files(rates, chance.choice([0.5, 0.25]), "ab", **limits)
    own, plan = (solved(files, share_machines=share, savings=False).require() for share in (False, True))
    assert own.bill is not None
    assert plan.bill is not None
    assert plan.bill.cost_per_hour <= own.bill.cost_per_hour + 1e-9
    assert hp.verify(plan, *files).ok


@pytest.mark.slow
def test_an_hour_without_queries_of_one_application_is_planned_and_played() -> None:
    files = _files({"faces": [40.0, 0.0, 20.0], "plates": [20.0, 10.0, 0.0]})
    plan = solved(files, sizing="simulation").require()
    assert cost(solved(files)) == pytest.approx(1.0)
    assert hp.verify(plan, *files).ok
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=4e3))
    assert day.ok
    assert min(found.value for found in day.in_time.values()) > 0.95


def test_nothing_is_shared_beside_limits_on_moves() -> None:
    profile, slo = _files(TWO, changes=9)
    own, plan = (solved((profile, slo), share_machines=share, savings=False).require() for share in (False, True))
    assert own.parts == plan.parts
    assert all(len(part.rate_qps) == 1 for part in (plan.parts or {}).values())


@pytest.mark.slow
def test_another_pool_takes_whole_cards_beside_those_that_share() -> None:
    """Its instance says nothing of what it needs: nobody is on its card, and the others share theirs."""
    profile, slo = _files({**TWO, "words": [30.0, 30.0]})
    del profile["variants"]["of-words"]["runs"][0]["needs"]
    assert cost(solved((profile, slo), savings=False)) == pytest.approx(2.0)
    profile["hardware"]["box"] = {"kind": "cpu"}
    profile["offers"]["box"] = {"hardware": "box", "zone": "a", "price_per_hour": ".5"}
    profile["variants"]["of-words"]["runs"][0]["hardware"] = "box"
    plan = solved((profile, slo), savings=False).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(1.5)
    assert {frozenset(part.rate_qps) for part in (plan.parts or {}).values()} == {
        frozenset({"faces", "plates"}),
        frozenset({"words"}),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(6), 41])
def test_sharing_is_never_dearer_and_always_proved(seed: int) -> None:
    chance = random.Random(100 + seed)
    periods, names = chance.choice([1, 2, 3]), "abcd"[: chance.randint(2, 4)]
    rates = {name: [chance.choice([0.0, 5.0, 40.0, 90.0]) + 1.0 for _ in range(periods)] for name in names}
    limits = {"survive": {"zones": 1, "serve": 0.7}} if chance.random() < 0.4 else {}
    files = _files(rates, chance.choice([0.5, 0.33, 0.25]), "abc", ahead=chance.random() < 0.5, **limits)
    own, plan = (solved(files, share_machines=share, savings=False).require() for share in (False, True))
    assert own.bill is not None
    assert plan.bill is not None
    assert plan.bill.cost_per_hour <= own.bill.cost_per_hour + 1e-9
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert [one.word for one in shown.claims] == [Word.PROVED]


def _fuller(plan: Json) -> None:
    """One more instance on a card that is full."""
    worker = _shared(plan)["workers"][0]
    more = {**worker["loads"][0], "id": "one-more"}
    worker["loads"].append(more)


def _without(plan: Json) -> None:
    """An application's load is gone; the queries go to the others."""
    part = _shared(plan)
    gone = next(load["id"] for load in part["workers"][0]["loads"] if load["app"] == "plates")
    part["workers"][0]["loads"] = [load for load in part["workers"][0]["loads"] if load["id"] != gone]
    left = part["workers"][0]["loads"][0]["id"]
    for route in part["routing"]["plates"]:
        route["to"] = {left: 1.0}


def _raised(plan: Json) -> None:
    """More is promised than the instances carry."""
    part = _shared(plan)
    part["rate_qps"]["faces"] = 4 * part["rate_qps"]["faces"]
    for one in part["promises"]:
        one["value"] = 4 * one["value"] if one.get("app") == "faces" else one["value"]


def _shared(plan: Json) -> Json:
    part: Json = next(part for part in plan["parts"].values() if len(part["rate_qps"]) > 1)
    return part


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("forge", [_fuller, _without, _raised])
def test_a_forged_plan_is_caught(forge: Callable[[Json], None]) -> None:
    files = _files(TWO)
    data = json.loads(_text(files))
    forge(data)
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    assert not hp.verify(forged, *files).ok


def test_a_bound_that_no_slices_show_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three instances of half a card: by prices a card and a half is shown, and no more; by one program two are."""
    files = _files({"faces": [80.0], "plates": [30.0]}, zones="a")
    at_once = solved(files, savings=False).require()
    assert at_once.claims[0].bound == pytest.approx(2.0)
    assert [one.word for one in hp.verify(at_once, *files).claims] == [Word.PROVED]
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    plan = solved(files, savings=False).require()
    assert plan.claims[0].value == pytest.approx(2.0)
    assert plan.claims[0].bound == pytest.approx(1.5, rel=1e-6)
    data = json.loads(_text(files))
    data["claims"][0].update(bound=1.8, gap=0.1, vouched="certified")
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    shown = hp.verify(forged, *files)
    assert not shown.ok
    assert [one.word for one in shown.claims] != [Word.PROVED]


def test_machines_that_no_part_says_the_fit_of_are_refused() -> None:
    """Half a card and .33 do fit on one; bounds are of those that fit by parts, so such a plan is none of them."""
    files = _files({"x": [10.0], "y": [10.0]}, {"x": 0.5, "y": 0.5}, "a")
    data = json.loads(_text(files))
    profile = json.loads(json.dumps(files[0]))
    profile["variants"]["of-y"]["runs"][0]["needs"] = {"gpu": 0.33}
    own = solved((profile, files[1]), savings=False).require()
    assert own.bill is not None
    assert own.bill.cost_per_hour == pytest.approx(2.0)
    data["inputs"] = json.loads(own.model_dump_json(by_alias=True, exclude_none=True))["inputs"]
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    assert "pool-worker" in {one.code for one in hp.verify(forged, profile, files[1]).violations}


def test_a_pool_that_gets_another_s_place_after_a_failure_is_refused() -> None:
    files = _files({"x": [70.0], "y": [30.0]}, zones="ab", survive={"zones": 1, "serve": 0.5})
    assert is_refused_with_places_changed(files, _text(files), "zone a lost", "x", "y")


def test_five_long_names_have_parts_of_their_own() -> None:
    """All parts are named by all who share them, in so many letters: they were taken for one."""
    names = ["recommend-home", "recommend-cart", "search-ranking", "photo-moderate", "voice-hello"]
    rates = {name: [20.0, 20.0, 20.0] for name in names}
    rates["voice-hello"][1] = rates["photo-moderate"][2] = 0.0
    plan = solved(_files(rates, 0.25, "a"), savings=False).require()
    assert len({name for period in plan.periods for name in period.parts or ()}) == 3


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "limits",
    [{"on_demand": {"max": 2}}, {"instances": {"card": [0, 2]}}, {"provides": {"gpu": 2}}],
)
def test_a_limit_that_leaves_just_enough_machines_leaves_a_plan(limits: Json) -> None:
    """Three pools on two cards of two places: the cheapest of each alone do not fit."""
    files = _files({"x": [35.0, 70.0], "y": [20.0, 0.0], "z": [35.0, 10.0]}, **limits)
    assert cost(solved(files, savings=False)) == pytest.approx(2.0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("order", ["xyz", "yzx", "zxy"])
def test_the_order_of_applications_does_not_say_who_shares(order: str) -> None:
    """One is asked with an option of its own: the other two share, whatever the order."""
    rates = {"x": [10.0, 20.0], "y": [20.0, 10.0], "z": [10.0, 10.0]}
    files = _files({name: rates[name] for name in order}, zones="a")
    plan = solved(files, parts={"x": {"derate": 0.5}}, savings=False).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(2.0)


def test_machines_are_named_apart_whatever_applications_are_called() -> None:
    """One card holds one of x and one of y; another is whole of the pool "x1-y"."""
    files = _files({"x": [10.0], "y": [10.0], "x1-y": [10.0]}, {"x": 0.5, "y": 0.5, "x1-y": 1.0}, "a")
    assert cost(solved(files, savings=False)) == pytest.approx(2.0)
