"""Explanations and comparisons: what they say of a plan is what solving every fleet says."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.studies.comparison import compare_plans
from hetplan.studies.explain import explain_for
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Files = tuple[dict[str, Any], dict[str, Any]]
PLANNED = {"sizing": "fluid"}


def made(profile: dict[str, Any], slo: dict[str, Any]) -> hp.Plan:
    return hp.solve(profile, slo, options=PLANNED).require()


def feasible(files: Files, counts: dict[str, int]) -> bool:
    """Whether these machines and no others carry the demand."""
    profile, slo = files
    fixed = {name.removesuffix("-spot"): [count, count] for name, count in counts.items()}
    return hp.solve(profile, {**slo, "limits": {"instances": fixed}}, options=PLANNED).plan is not None


@pytest.mark.slow
def test_the_second_best_fleet_is_that_of_all_fleets(small: Files) -> None:
    small[1]["apps"]["web"]["rate_qps"] = 120
    plan = made(*small)
    found = hp.explain(plan, *small)
    prices = {"small": 1.0, "big-spot": 2.5, "slow": 0.9}
    own = {name: found.fleet.get(name, 0) for name in prices}
    bills = sorted(
        (sum(prices[name] * count for name, count in counts.items()), tuple(counts.items()))
        for pair in product(range(11), range(6), range(3))
        if (counts := dict(zip(prices, pair, strict=True))) != own
        and any(counts[name] < own[name] for name in prices)  # not this fleet with machines added
        and sum(prices[name] * count for name, count in counts.items()) <= found.others[0].cost_per_hour + 1e-9  # type: ignore[operator]
    )
    best = next(bill for bill, counts in bills if feasible(small, dict(counts)))
    assert found.others[0].cost_per_hour == pytest.approx(best)
    assert found.others[0].worse_by == pytest.approx(best - found.value)  # type: ignore[operator]
    assert [one.worse_by or 0.0 for one in found.others] == sorted(one.worse_by or 0.0 for one in found.others)


@pytest.mark.slow
def test_what_is_left_out_comes_in_at_the_price_and_speed_that_are_said(small: Files) -> None:
    profile, slo = small
    found = hp.explain(made(*small), *small)
    (absent,) = [one for one in found.absent if one.offer == "slow"]
    assert absent.worse_by is not None
    assert absent.worse_by > 0
    assert absent.enters_at_price is not None
    for price, comes in ((absent.enters_at_price - 2e-5 * 0.9, True), (absent.enters_at_price + 2e-5 * 0.9, False)):
        profile["offers"]["slow"]["price_per_hour"] = f"{price:.9f}"
        fleet = {worker.offer for worker in made(profile, slo).workers}
        assert ("slow" in fleet) is comes
    profile["offers"]["slow"]["price_per_hour"] = "0.9"
    assert absent.enters_at_times is not None
    for part, comes in ((absent.enters_at_times, True), (absent.enters_at_times * 1.001, False)):
        profile["tables"]["slow"]["mean"] = [20 * part, 45 * part]
        assert ("slow" in {worker.offer for worker in made(profile, slo).workers}) is comes


@pytest.mark.slow
def test_the_price_that_is_said_of_the_example_is_where_its_fleet_changes() -> None:
    files = EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json"
    found = hp.explain(hp.solve(*files, options=PLANNED).require(), *files)
    entering = {one.offer: one.enters_at_price for one in found.absent}
    price = entering["cpu16"]
    assert price is not None
    profile, slo = map(shipped, files)
    for part, comes in ((0.999, True), (1.001, False)):
        profile["offers"]["cpu16"]["price_per_hour"] = f"{price * part:.9f}"
        assert ("cpu16" in {worker.offer for worker in made(profile, slo).workers}) is comes


def test_what_one_more_of_a_limit_brings(small: Files) -> None:
    profile, slo = small
    profile["offers"]["small"]["stock"] = 1
    slo["limits"] = {"instances": {"big": [4, None]}}
    found = hp.explain(made(profile, slo), profile, slo)
    slo["limits"] = {"instances": {"big": [3, None]}}
    cheaper = made(profile, slo).claims[0].value
    least = next(one for one in found.bounds if one.limit == "least big")
    assert found.value is not None
    assert least.brings == pytest.approx(found.value - cheaper)
    assert {one.limit for one in found.bounds} >= {"least big", "web: response p99", "web: rate"}


@pytest.mark.slow
def test_an_explanation_costs_queries_and_months(small: Files) -> None:
    found = hp.explain(made(*small), *small)
    assert found.cost_per_hour is not None
    assert found.cost_per_month == pytest.approx(730 * found.cost_per_hour)
    assert found.cost_per_million_queries == pytest.approx(found.cost_per_hour / (300 * 3600) * 1e6)
    assert found.cost_per_million_tokens is None
    assert json.loads(json.dumps(found.as_dict()))["fleet"] == found.fleet


@pytest.mark.slow
def test_what_the_time_does_not_allow_is_named_and_a_longer_time_goes_on(small: Files, tmp_path: Path) -> None:
    small[1]["apps"]["web"]["rate_qps"] = 120
    plan, journal = made(*small), tmp_path / "explain.jsonl"
    none = explain_for(plan, hp.load(*small), spread=Spread(seconds=0, journal=journal))
    assert none.value == pytest.approx(bill_of(plan))
    assert (none.others, none.bounds) == ((), ())
    assert {one.enters_at_price for one in none.absent} == {None}
    assert all(set(one.not_asked) == {"one", "price", "times"} for one in none.absent)
    (note,) = [note for note in none.notes if "--time-limit" in note]
    assert "one fewer of" in note
    assert "what would bring in slow" in note
    assert explain_for(plan, hp.load(*small), spread=Spread(seconds=600, journal=journal)) == hp.explain(plan, *small)


def test_plans_are_compared_by_cost_promise_risk_and_moves(small: Files) -> None:
    profile, slo = small
    today = made(profile, slo)
    profile["offers"]["big"]["price_per_hour"] = "9"
    profile["offers"]["small"]["stock"] = None
    other = made(profile, slo)
    inputs = hp.load(*small)
    compared = compare_plans({"today": today, "no big ones": other}, inputs)
    rows = {what: (*counts, 0) for what, _, counts in compared.machines}
    assert rows["big-spot"][1] == 0
    before, after, _ = rows["small"]
    assert f"start {after - before} x small (m)" in compared.moves[0]
    assert f"stop {rows['big-spot'][0]} x big-spot (m)" in compared.moves[0]
    figures = {one.label: one for one in compared.figures}
    assert figures["cost per hour"].values[1] == pytest.approx(after * 1.0 + rows["slow"][1] * 0.9)
    assert figures["machines that may be taken back"].values == (rows["big-spot"][0], 0.0)
    assert any(text.startswith("machines that may be taken back: 0 in place of") for text in compared.better[1])
    assert any("profiles" in note for note in compared.notes)
    assert all(len(row) == len(columns) for _, columns, rows in compared.tables() for row in rows)
    assert json.loads(json.dumps(compared.as_dict()))["names"] == ["today", "no big ones"]


def test_equal_machines_are_one_row_and_one_plan_is_nothing_to_compare(small: Files) -> None:
    plan = made(*small)
    worker = plan.workers[0]
    split = plan.model_copy(
        update={
            "workers": (
                worker.model_copy(update={"count": 1}),
                worker.model_copy(update={"id": "w9"}),
                *plan.workers[1:],
            )
        }
    )
    compared = compare_plans({"a": plan, "b": split})
    own = next(counts for what, _, counts in compared.machines if what == worker.offer)
    assert own == (worker.count, worker.count + 1)
    with pytest.raises(InputError, match="two plans"):
        compare_plans({"a": plan})


@pytest.mark.slow
def test_a_fleet_that_only_simulation_asks_for_is_compared_with_sized_fleets(small: Files) -> None:
    profile, slo = small
    slo["apps"]["web"]["rate_qps"] = 118
    plan = hp.solve(profile, slo).require()
    program = made(profile, slo)
    assert bill_of(plan) > bill_of(program), "the case shows nothing where the program's fleet will do"
    found = hp.explain(plan, profile, slo)
    assert found.value == pytest.approx(bill_of(plan))
    assert "without simulation" in " ".join(found.notes)
    for one in found.others:
        machine = one.without_one_of.removesuffix("-spot")
        fewer = {**profile["offers"][machine], "stock": found.fleet[one.without_one_of] - 1}
        again = hp.solve({**profile, "offers": {**profile["offers"], machine: fewer}}, slo)
        assert one.cost_per_hour == (None if again.plan is None else pytest.approx(bill_of(again.plan)))
    assert all(one.brings is None or one.brings >= 0 for one in found.bounds)


def bill_of(plan: hp.Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


@pytest.mark.slow
def test_of_a_fleet_prices_are_halved_only_where_that_is_asked_for(small: Files) -> None:
    """Every fleet is one fewer of something: those are tried, in one go, so that what is left is known."""
    profile, slo = small
    web = {**slo["apps"]["web"], "question": "pool"}
    slo = {"format": "hetplan/slo/1.0", "horizon": {"period_s": 3600, "periods": 2}, "apps": {"web": web}}
    profile["offers"]["slow"]["price_per_hour"] = "3"
    plan = hp.solve(profile, slo, formulation="fleet").require()
    seen: list[str] = []
    found = hp.explain(plan, profile, slo, on_event=lambda event: seen.append(event.detail))
    assert {one.without_one_of for one in found.others} == set(found.fleet)
    assert {one.limit for one in found.bounds} >= {"web: rate"}
    assert [(one.offer, one.looked_for) for one in found.absent] == [("slow", False)]
    assert found.absent[0].worse_by is not None
    assert any("--thorough" in note for note in found.notes)
    whole = [one for one in seen if not one.startswith("1 of 1 ")]
    assert len({one.split(" of ")[1].split()[0] for one in whole}) == 1, "one count of what there is to do"


@pytest.mark.slow
def test_of_a_fleet_limits_that_contradict_one_another_are_named(small: Files) -> None:
    """They were a fault of the engine: one machine of an offer is wanted that may not be rented at all."""
    profile, slo = small
    web = {**slo["apps"]["web"], "question": "pool"}
    limits: dict[str, Any] = {"instances": {"big": [3, None]}, "spot": {"max": 1}}
    slo = {"format": "hetplan/slo/1.0", "horizon": {"period_s": 3600, "periods": 2}, "apps": {"web": web}}
    outcome = hp.solve(profile, {**slo, "limits": limits}, formulation="fleet")
    assert outcome.why[0] == "the limits on machines contradict one another"
    assert "lower slo.limits.instances.big[0] from 3 to 1 machines" in [
        one.text.split(" (")[0] for one in outcome.repairs
    ]
    limits["instances"]["big"] = [1, None]
    # Without spot machines (a lever of its bill) there is no such fleet: no lever, and no fault.
    assert hp.solve(profile, {**slo, "limits": limits}, formulation="fleet").plan is not None
