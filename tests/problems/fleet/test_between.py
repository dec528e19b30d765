"""Wishes of one period that no question's own program says: equal to brute force where they are tiny."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import machines_of
from hetplan.simulator.day import HowPlayed, play_day
from tests.build import answered
from tests.problems.fleet.test_fleet import PROFILE, Json, _carried, app, wish

EVERY = [(big, small) for big in range(7) for small in range(8)]

TWO: Json = copy.deepcopy(PROFILE)
"""A second, better variant, which is half as fast."""
TWO["variants"]["m"]["quality"] = {"value": 0.8}
TWO["variants"]["n"] = {
    "task": "rank",
    "quality": {"value": 0.9},
    "runs": [{"hardware": "big", "latency": "t-big-n"}, {"hardware": "small", "latency": "t-small-n"}],
}
TWO["tables"]["t-big-n"] = {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [10, 30]}
TWO["tables"]["t-small-n"] = {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [24, 140]}


def one(rate: float | str, small: float = 0.5, by: Json | None = None, **more: Any) -> Json:
    found: Json = app(1.0, small)
    del found["question"]
    found["rate_qps"] = rate
    return {**(answered(found, **by) if by else found), **more}


def asked(
    profile: Json,
    *apps: Json,
    budget: str | None = None,
    aim: str | None = None,
    sizing: str = "fluid",
    gap: float = 0.0,
) -> Any:
    """Solved by the question that the files ask by themselves: nothing names one."""
    limits = {} if budget is None else {"cost_per_hour": budget}
    slo = wish(*apps, limits=limits)
    del slo["horizon"]
    if aim is not None:
        slo["objective"] = [f"max {aim}", "min cost"]
    return hp.solve(profile, slo, options={"gap": gap, "sizing": sizing}), slo


def money(big: int, small: int) -> float:
    return big * 1.0 + small * 0.3


def cheapest(rate: float, share: float, speed: float = 1.0) -> float:
    return min(money(*n) for n in EVERY if _carried(*n, share) * speed >= rate - 1e-9)


@pytest.mark.slow
def test_two_pools_on_one_budget_or_by_how_much_it_is_too_small() -> None:
    apps = one(100.0), one(60.0, 0.9)
    least = cheapest(100.0, 0.5) + cheapest(60.0, 0.9)
    outcome, slo = asked(PROFILE, *apps, budget=f"{least:.2f}")
    plan = outcome.require()
    assert (plan.question, outcome.violations) == ("fleet", ())
    assert plan.claims[0].value == pytest.approx(least) == plan.claims[0].bound
    assert "W-queueing" in {one.code for one in plan.warnings}, "of rates alone"
    how = HowPlayed(seeds=2, queries=4e4)
    assert not play_day(plan, hp.load(PROFILE, slo), how).ok, "the case shows nothing where fluid sizes will do"
    outcome, slo = asked(PROFILE, *apps, budget=f"{least + 1.0:.2f}", sizing="formula")
    plan = outcome.require()
    assert play_day(plan, hp.load(PROFILE, slo), how).ok
    assert plan.claims[0].value > least == pytest.approx(plan.claims[0].bound)
    assert (plan.claims[0].scope, [one.code for one in plan.warnings if one.code == "W-queueing"]) == ("relaxation", [])
    outcome, slo = asked(PROFILE, *apps, budget=f"{least:.2f}", sizing="formula")
    plan = outcome.require()
    assert [(one.code, one.at) for one in plan.warnings if one.code == "W-queueing"] == [("W-queueing", "apps.app0")]
    outcome, slo = asked(PROFILE, *apps, budget=f"{least - 0.1:.2f}")
    assert outcome.plan is None
    (repair,) = [one for one in outcome.repairs if one.field == "slo.limits.cost_per_hour"]
    assert repair.to == pytest.approx(least)


@pytest.mark.slow
def test_sized_by_their_own_questions_they_keep_their_promise() -> None:
    slo = wish(one(100.0), one(60.0, 0.9), limits={"cost_per_hour": "5"})
    plan = hp.solve(PROFILE, slo, options={"sizing": "simulation"}).require()
    assert play_day(plan, hp.load(PROFILE, slo), HowPlayed(seeds=2, queries=4e4)).ok


def test_a_rate_and_a_budget_of_one_pool_are_a_question_too() -> None:
    least = cheapest(100.0, 0.5)
    assert asked(PROFILE, one(100.0), budget=f"{least:.2f}")[0].require().claims[0].value == pytest.approx(least)
    assert asked(PROFILE, one(100.0), budget=f"{least - 0.1:.2f}")[0].status == "infeasible"


@pytest.mark.parametrize("budget", [3.2, 2.0])
def test_the_most_rate_beside_another_application_is_that_of_brute_force(budget: float) -> None:
    outcome, slo = asked(PROFILE, one("max"), one(60.0, 0.9), budget=str(budget))
    carried = {mine: _carried(*mine, 0.5) for mine in EVERY}
    others = [its for its in EVERY if _carried(*its, 0.9) >= 60.0 - 1e-9]
    best = max(
        carried[mine]
        for mine, its in itertools.product(EVERY, others)
        if mine[0] + its[0] <= 12 and mine[1] + its[1] <= 18 and money(*mine) + money(*its) <= budget + 1e-9
    )
    plan = outcome.require()
    (claim,) = [one for one in plan.claims if one.about == "rate_qps"]
    assert claim.value == pytest.approx(best, rel=1e-4)
    assert claim.bound is not None
    assert claim.value <= claim.bound <= claim.value * (1 + 1e-4)
    lie = claim.model_copy(update={"value": claim.value * 1.1, "bound": claim.bound * 2})
    spoilt = with_digest(plan.model_copy(update={"claims": (lie,)}))
    assert "claim" in {found.code for found in hp.verify(spoilt, PROFILE, slo).violations}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("budget", [1.6, 2.4, 2.9, 4.5])
def test_the_most_quality_for_a_budget_is_that_of_brute_force(budget: float) -> None:
    task = {"task": "rank"}
    outcome, slo = asked(TWO, one(100.0, by=task), one(60.0, 0.9, by=task), budget=str(budget), aim="quality")
    best = -1.0, 0.0
    for first, second in itertools.product((1.0, 0.5), repeat=2):
        bill = _cost_of(100.0, 0.5, first) + _cost_of(60.0, 0.9, second)
        quality = sum(rate * (0.8 if speed == 1.0 else 0.9) for rate, speed in ((100, first), (60, second))) / 160
        if bill <= budget + 1e-9:
            best = max(best, (quality, -bill))
    if best[0] < 0:
        assert outcome.plan is None
        return
    plan = outcome.require()
    assert outcome.violations == ()
    assert plan.claims[0].value == pytest.approx(best[0]) == plan.claims[0].bound
    assert plan.claims[1].value == pytest.approx(-best[1])
    assert sum(machines_of(plan, "p0").values()) > 0
    lie = plan.claims[0].model_copy(update={"value": 0.95, "bound": 0.95})
    spoilt = with_digest(plan.model_copy(update={"claims": (lie,)}))
    assert "claim" in {found.code for found in hp.verify(spoilt, TWO, slo).violations}


def _cost_of(rate: float, share: float, speed: float) -> float:
    """At half the speed small machines are too slow for 50 ms on neither size that they were in time for."""
    return cheapest(rate, share, speed)


def test_of_several_variants_the_cheapest_that_is_good_enough_runs() -> None:
    task = {"task": "rank"}
    any_one, _ = asked(TWO, one(100.0, by=task))
    good, slo = asked(TWO, one(100.0, by=task, quality={"min": 0.85}))
    assert any_one.require().claims[0].value == pytest.approx(cheapest(100.0, 0.5))
    plan = good.require()
    assert good.violations == ()
    assert plan.claims[0].value == pytest.approx(cheapest(100.0, 0.5, 0.5))
    slo["apps"]["app0"]["quality"]["min"] = 0.95
    with pytest.raises(hp.InputError, match="quality"):
        hp.solve(TWO, slo)
    slo["apps"]["app0"]["quality"] = {"min": 0.1, "max": 0.8}
    assert "quality" in {found.code for found in hp.verify(plan, TWO, slo).violations}


@pytest.mark.slow
def test_the_most_of_variants_alone_is_asked_of_their_question_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "hardware": {"big": {"kind": "gpu", "provides": {"gpu": 1}}},
        "offers": {"big": {"hardware": "big", "price_per_hour": "1.0", "stock": 5}},
        "tasks": {"rank": {}},
        "variants": {
            name: {"task": "rank", "quality": {"value": quality}, "runs": [
                {"hardware": "big", "latency": "t", "at": {"batch": 1}, "saturation_qps": rate, "needs": {"gpu": 1}}]}
            for name, quality, rate in (("good", 0.9, 20.0), ("quick", 0.7, 50.0))
        },
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
    }  # fmt: skip
    runs, most = {"task": "rank"}, []
    for budget, floor in (("3", 0.8), ("9", 0.5)):
        asked_of = one("max", by=runs, quality={"min": floor})
        del asked_of["mix"]
        outcome, _ = asked(profile, asked_of, budget=budget, gap=0.02)
        assert outcome.violations == ()
        most.append(outcome.require().claims[0].value)
        with monkeypatch.context() as plain:
            plain.setattr("hetplan.problems.fleet.max_objectives.is_own_problem", lambda search: False)
            assert asked(profile, asked_of, budget=budget, gap=0.02)[0].require().claims[0].value == most[-1]
    assert most == pytest.approx([3 * 20.0 / 1.05, 5 * 50.0 / 1.05], rel=0.02)


OFFERS = ("big-a", "big-b", "small-a", "small-b")


def running(*counts: int) -> Json:
    load = {"app": "app0", "variant": "m"}
    workers = [
        {"id": name, "hardware": name[:-2], "offer": name, "count": n, "loads": [{"id": f"{name}.1", **load}]}
        for name, n in zip(OFFERS, counts, strict=True)
        if n
    ]
    return {"format": "hetplan/state/1.0", "workers": workers}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("runs", [(1, 0, 2, 0), (0, 2, 0, 1), (0, 0, 5, 0)])
def test_fewest_moves_from_what_runs_are_those_of_brute_force(runs: tuple[int, ...]) -> None:
    slo, counts = wish(one(150.0)), list(itertools.product(range(5), range(4), range(7), range(4)))
    fits = [n for n in counts if _carried(n[0] + n[1], n[2] + n[3], 0.5) >= 150.0 - 1e-9]

    def moves(n: tuple[int, ...]) -> int:
        return sum(max(new - old, 0) for new, old in zip(n, runs, strict=True))

    def bill(n: tuple[int, ...]) -> float:
        return round(money(n[0] + n[1], n[2] + n[3]), 6)

    def best(*aims: str, **limits: int) -> tuple[float, float]:
        outcome = hp.solve(
            PROFILE,
            {**slo, "limits": limits, "objective": [f"min {aim}" for aim in aims]},
            running(*runs),
            options={"sizing": "fluid", "gap": 0.0},
        )
        assert outcome.violations == ()
        found = machines_of(outcome.require(), "p0")
        machines = tuple(found.get(name, 0) for name in OFFERS)
        return moves(machines), bill(machines)

    assert best("changes", "cost") == min((moves(n), bill(n)) for n in fits)
    least = min(bill(n) for n in fits)
    assert best("cost", "changes") == (min(moves(n) for n in fits if bill(n) == least), least)
    assert best("cost", "changes", changes=2)[1] == min(bill(n) for n in fits if moves(n) <= 2)


def test_of_moves_nothing_is_said_without_a_state_and_not_by_the_plan_alone() -> None:
    slo = {**wish(one(150.0)), "objective": ["min changes"]}
    with pytest.raises(hp.InputError, match="state file"):
        hp.solve(PROFILE, slo)
    unknown = running(1, 0, 0, 0)
    del unknown["workers"][0]["offer"]
    with pytest.raises(hp.InputError, match="by their offer"):
        hp.solve(PROFILE, slo, unknown)
    plan = hp.solve(PROFILE, slo, running(0, 0, 5, 0)).require()
    lie = plan.claims[0].model_copy(update={"value": 0.0, "bound": 0.0})
    spoilt = with_digest(plan.model_copy(update={"claims": (lie,)}))
    assert "claim" in {found.code for found in hp.verify(spoilt, PROFILE, slo, running(0, 0, 5, 0)).violations}


REFUSALS = {
    "two of the most": (("max", "max"), None, "5", "most is wanted of app0 already"),
    "rates are given": ((5.0, 6.0), "rate", "5", "rates are given"),
    "quality needs rates": (("max", 6.0), "quality", "5", "quality needs rates"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_contradicts_itself_is_refused(case: str) -> None:
    rates, aim, budget, why = REFUSALS[case]
    with pytest.raises(hp.InputError, match=why) as caught:
        asked(PROFILE, *(one(rate) for rate in rates), budget=budget, aim=aim)
    assert all(fault.remedy for fault in caught.value.faults)


def test_without_budget_and_stock_there_is_no_most() -> None:
    endless = copy.deepcopy(PROFILE)
    del endless["offers"]["big-a"]["stock"]
    with pytest.raises(hp.InputError, match="neither a budget nor stock"):
        asked(endless, one("max"), one(60.0))
