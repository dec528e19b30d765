"""Machines looked up in lists cost what the program over whole machines says, and keep the rate after every failure."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan import registry
from hetplan.planner.fleet_part import Cone
from hetplan.planner.solver_calls import Asking
from hetplan.problems.faults import Faults
from hetplan.problems.fleet.candidate_columns import LOOK, STEP, CandidateColumns
from hetplan.problems.fleet.formulations import parts_of
from hetplan.problems.fleet.request import FleetOptions, FleetRequest, read_fleet
from hetplan.problems.fleet.zones import LONGEST, Places


def files(rng: random.Random, *, alike: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pool over two or three zones that sell the same (or not), with spot or without, after random failures."""
    zones = [f"z{n}" for n in range(rng.randint(2, 3))]
    types = {name: round(rng.uniform(0.2, 1.2), 2) for name in ("big", "small", "tiny")[: rng.randint(1, 3)]}
    spot, stock = rng.random() < 0.7, rng.choice((None, 4, 9))
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "machine"} for name in types},
        "offers": {},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": name, "latency": name} for name in types]}},
        "tables": {},
    }
    for name, price in types.items():
        fast = rng.uniform(3, 20)
        means = [round(fast * grown, 2) for grown in (1, rng.uniform(1.2, 3), rng.uniform(3, 6))]
        profile["tables"][name] = {"quantity": "latency_ms", "axes": {"batch": [8, 32, 128]}, "mean": means}
        for zone in zones:
            dearer = 1.0 if alike else rng.uniform(1.0, 1.5)
            sold = {"hardware": name, "zone": zone, **({"stock": stock} if stock is not None else {})}
            profile["offers"][f"{name}-{zone}"] = {**sold, "price_per_hour": f"{price * dearer:.3f}"}
            if spot:
                profile["offers"][f"{name}-{zone}-spot"] = {
                    **sold, "price_per_hour": f"{0.4 * price:.3f}", "interruptions_per_hour": 0.05
                }  # fmt: skip
    weights = [rng.uniform(0.2, 1.0) for _ in range(3)]
    mix = {"axes": ["batch"], "bins": [[8], [32], [128]], "share": [one / sum(weights) for one in weights]}
    lost = rng.choice(({"zones": 1}, {"zones": 1, "spot": "all"}, {"spot": "all"}, {}))
    slo = {
        "format": "hetplan/slo/1.0",
        "horizon": {"period_s": 3600, "periods": 1},
        "limits": {"survive": {**lost, "serve": rng.choice((0.6, 0.9, 1.0))}} if lost else {},
        "apps": {
            "app": {
                "question": "pool",
                "model": "m",
                "latency": {"p99_ms": round(rng.uniform(60, 150), 1)},
                "rate_qps": round(rng.uniform(20, 250), 1),
                "mix": mix,
            }
        },
    }
    return profile, slo


def menus_of(profile: dict[str, Any], slo: dict[str, Any]) -> tuple[FleetRequest, CandidateColumns, Asking]:
    inputs = hp.load(profile, slo)
    wish = read_fleet(inputs, FleetOptions(sizing="fluid"), Faults.of(inputs))
    return wish, CandidateColumns(wish, parts_of(wish, registry.tools_of("fleet"))), Asking(registry.Engines())


@pytest.mark.slow
def test_lists_say_what_the_program_says() -> None:
    looked = 0
    for seed in range(9):
        rng = random.Random(f"lists {seed}")
        wish, menus, ask = menus_of(*files(rng))
        (app,) = wish.apps
        rate = app.rates[0]
        if seed % 3 == 2:  # machines are worth less than the program says
            wish = replace(wish, rooms={("app", rate): {h: rng.uniform(1.0, 2.0) for h in menus.parts["app"].hardware}})
            menus = menus.roomier(wish)
        kinds = {(o.machine, o.spot): rng.uniform(0.0, 1.0) for o in wish.offers}
        for turn in range(3):
            at = [wish.prices, [kinds[o.machine, o.spot] for o in wish.offers], np.array(wish.prices) * 0.5][turn]
            before = menus.n_programs
            ((cost, choice),) = menus.price(ask, [(app, rate, np.array(at))])
            grid = tuple(int(n) for n in np.floor(np.array(at) / STEP + 1e-9))
            if choice is not None:
                assert menus.holds(app, rate, choice.machines)
                assert cost == pytest.approx(choice.array @ np.array(grid) * STEP, rel=1e-9)
            by_lists = menus.n_programs - before < 1.0
            looked += by_lists
            if by_lists:
                answer = ask(menus.form(app, rate, grid), gap=0.0)
                assert (answer.value is None) == (choice is None), (seed, turn)
                assert answer.value is None or answer.value == pytest.approx(cost, rel=1e-6), (seed, turn)
    assert looked > 18, "most of these are looked up"
    assert LOOK < 1.0


def test_lists_are_made_anew_where_more_room_is_needed() -> None:
    profile, slo = files(random.Random("lists 6"))
    for offer in profile["offers"].values():
        offer.pop("stock", None)
    wish, menus, ask = menus_of(profile, slo)
    (app,) = wish.apps
    costs = []
    for room in (1.0, 1.5, 2.5):
        rooms = {} if room == 1.0 else {("app", app.rates[0]): dict.fromkeys(menus.parts["app"].hardware, room)}
        menus = menus.roomier(replace(wish, rooms=rooms))
        before = menus.n_programs
        ((cost, _),) = menus.price(ask, [(app, app.rates[0], wish.prices)])
        assert menus.n_programs - before < 1.0, "no program is asked"
        costs.append(cost)
    assert costs[0] < costs[1] < costs[2] < np.inf


def test_zones_that_sell_other_things_have_no_lists() -> None:
    rng = random.Random("other zones 1")
    wish, menus, ask = menus_of(*files(rng, alike=False))
    (app,) = wish.apps
    assert Places.of(wish, menus.parts["app"].hardware) is None
    ((_, choice),) = menus.price(ask, [(app, app.rates[0], wish.prices)])
    assert menus.n_programs >= 1.0
    assert choice is not None


def test_a_loss_of_machines_has_no_lists() -> None:
    profile, slo = files(random.Random("hosts"))
    slo["limits"] = {"survive": {"machines": 1, "serve": 0.9}}
    wish, menus, _ = menus_of(profile, slo)
    assert Places.of(wish, menus.parts["app"].hardware) is None


def test_longer_lists_are_not_made() -> None:
    wish, menus, _ = menus_of(*files(random.Random("lists 3")))
    part = menus.parts["app"]
    assert isinstance(part, Cone)
    (app,) = wish.apps
    assert not menus._looked(app, 1e3 * LONGEST, tuple(int(n) for n in wish.prices / STEP))
    assert not menus.n_programs


@pytest.mark.slow
def test_the_program_of_zones_that_are_alike_says_what_that_of_all_offers_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where lists are too long, or more room is needed: with tight stock, without spot, after every failure."""
    monkeypatch.setattr("hetplan.problems.fleet.zones.LONGEST", 0)
    without = zoned_only = 0
    for seed in range(25):
        rng = random.Random(f"zoned {seed}")
        wish, menus, ask = menus_of(*files(rng))
        (app,) = wish.apps
        rate = app.rates[0]
        if rng.random() < 0.5:
            wish = replace(wish, rooms={("app", rate): {h: rng.uniform(1.0, 2.0) for h in menus.parts["app"].hardware}})
            menus = menus.roomier(wish)
        kinds = {(o.machine, o.spot): rng.uniform(0.0, 1.0) for o in wish.offers}
        for at in (wish.prices, np.array([kinds[o.machine, o.spot] for o in wish.offers])):
            before = menus.n_programs
            ((bound, choice),) = menus.price(ask, [(app, rate, at)])
            zoned_only += menus.n_programs - before < 1.0
            grid = tuple(int(n) for n in np.floor(at / STEP + 1e-9))
            answer = ask(menus.form(app, rate, grid), gap=0.0)
            assert (answer.value is None) == (choice is None), seed
            if choice is None:
                without += 1
                continue
            assert menus.holds(app, rate, choice.machines)
            assert bound <= answer.value + 1e-6
            assert choice.array @ np.array(grid) * STEP == pytest.approx(answer.value, rel=1e-5), seed
    assert zoned_only > 25, "hardly ever is the program of all offers asked"
    assert without < 15
