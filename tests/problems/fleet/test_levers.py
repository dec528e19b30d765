"""What each way to buy saves: each is a plan of the files, played and verified, or the bill says that it is not."""

from __future__ import annotations

import copy
import csv
import io
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import plan_for, verified
from hetplan.cli.fleet_page import bill_csv, totals
from hetplan.planner.outcome import Outcome
from hetplan.planner.terms import Tools
from hetplan.problems.fleet import formulations
from hetplan.profiles.plan_parts import Bill, Lever
from hetplan.verifier.report import Report, Violation
from tests.problems.fleet.test_fleet import PROFILE, Json, app, cost, solved, wish

RATES = [40.0, 120.0, 90.0]


def sold(*, spot: int = 3, ahead: bool = True) -> Json:
    """Machines of both kinds, by the hour, and so many spot machines; some are paid for ahead."""
    profile: Json = copy.deepcopy(PROFILE)
    if spot:
        own = {"hardware": "big", "zone": "a", "price_per_hour": ".3", "stock": spot, "interruptions_per_hour": 0.1}
        profile["offers"]["big-a-spot"] = own
    if ahead:
        profile["offers"]["big-b"]["commit"] = {"term_s": 7200, "discount": 0.4}
    return profile


def bill_of(outcome: Outcome) -> Bill:
    assert outcome.violations == ()
    bill = outcome.require().bill
    assert bill is not None
    return bill


@pytest.mark.slow
def test_each_way_to_buy_is_a_plan_that_is_played_and_verified() -> None:
    """Each is what the files come to with that way alone."""
    slo = wish(app(RATES), periods=3)
    bill = bill_of(solved(slo, sold(), savings=True))
    named = {one.name: one for one in bill.levers}
    assert list(named) == ["one type", "best mix", "by the hour", "spot", "commitments"]
    assert all(one.verified and one.kept for one in bill.levers)
    assert all(one.saves_per_hour is None or one.saves_per_hour >= 0 for one in bill.levers)
    assert named["by the hour"].cost_per_hour == pytest.approx(cost(solved(slo, sold(spot=0, ahead=False))))
    assert named["spot"].cost_per_hour == pytest.approx(cost(solved(slo, sold(ahead=False))))
    flat = wish(app([max(RATES)] * 3), periods=3)
    assert named["best mix"].cost_per_hour == pytest.approx(cost(solved(flat, sold(spot=0, ahead=False))))
    assert bill.levers[-1].cost_per_hour == bill.cost_per_hour


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sizing", ["fluid", "formula"])
def test_what_is_not_played_says_so(sizing: str) -> None:
    bill = bill_of(solved(wish(app(RATES), periods=3), sold(), savings=True, sizing=sizing))
    assert all(one.verified and one.kept is None for one in bill.levers)


@pytest.mark.slow
@pytest.mark.parametrize(("levers", "kept"), [(True, None), ("played", True)])
def test_of_many_periods_ways_by_the_hour_are_played_where_that_is_asked(
    levers: Any, kept: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is the same all day is played anyway: that is one period."""
    monkeypatch.setattr(formulations, "FEW_PAIRS", 1)
    bill = bill_of(solved(wish(app([20.0, 60.0]), periods=2), sold(ahead=False), savings=levers))
    assert [one.kept for one in bill.levers] == [True, True, kept, True]
    assert all(one.verified for one in bill.levers)


@pytest.mark.slow
def test_what_the_verifier_refuses_is_not_called_verified() -> None:
    """The ways to buy are handed to it as plans of these very files, with machines in all periods."""
    seen: list[hp.Plan] = []

    def refused(plan: hp.Plan, inputs: Any, **how: Any) -> Report:
        assert verified(plan, inputs, **how).violations == ()
        seen.append(plan)
        return Report((Violation("money", "bill", "planted"),), ())

    slo = wish(app(RATES), periods=3, limits={"survive": {"zones": 1, "serve": 0.5}})
    tools = Tools(extra={"verified": refused})
    outcome = plan_for(hp.load(sold(), slo), options={"gap": 0.0, "sizing": "fluid"}, tools=tools, formulation="fleet")
    bill = bill_of(outcome)
    assert [one.verified for one in bill.levers] == [False] * 4 + [True]
    assert [len(plan.periods) for plan in seen] == [3] * 4
    assert [plan.bill.cost_per_hour for plan in seen if plan.bill] == [one.cost_per_hour for one in bill.levers[:-1]]


@pytest.mark.slow
def test_a_way_that_is_not_kept_or_not_there_says_so() -> None:
    """Without spot machines there are too few for the queues, or for the queries."""
    profile = sold(ahead=False, spot=8)
    for name in ("big-a", "big-b", "small-a", "small-b"):
        profile["offers"][name]["stock"] = 1
    late, absent = (
        bill_of(solved(wish(app([40.0, rate]), periods=2), profile, savings=True)) for rate in (200.0, 240.0)
    )
    named = {one.name: one for one in late.levers}
    assert (named["by the hour"].kept, named["spot"].kept) == (False, True)
    assert named["by the hour"].cost_per_hour is not None
    named = {one.name: one for one in absent.levers}
    assert (named["by the hour"].cost_per_hour, named["by the hour"].verified, named["by the hour"].kept) == (
        None,
        False,
        None,
    )


@pytest.mark.slow
def test_a_bill_as_a_table_has_lines_totals_and_ways() -> None:
    bill = bill_of(solved(wish(app(RATES), periods=3), sold(), savings=True, sizing="fluid"))
    rows = list(csv.DictReader(io.StringIO(bill_csv(bill))))
    lines, ways = ([row for row in rows if row["of"] == of] for of in ("line", "way"))
    assert sum(float(row["cost_per_hour"]) for row in lines) == pytest.approx(3 * bill.cost_per_hour)
    assert [row["name"] for row in ways] == [one.name for one in bill.levers]
    assert float(ways[-1]["cost_per_month"]) == pytest.approx(bill.cost_per_month)
    assert (ways[0]["verified"], ways[0]["kept"]) == ("True", "")
    (total,) = (row for row in rows if row["of"] == "total")
    assert float(total["cost_per_day"]) == pytest.approx(bill.cost_per_day)
    whose = [one for one in totals(bill) if one["of"] in ("application", "idle")]
    assert sum(one["cost_per_month"] for one in whose) == pytest.approx(bill.cost_per_month)


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", [{"cost_per_hour": 0.1}, {"saves_per_hour": 0.1}])
def test_the_last_way_is_the_plan(spoilt: dict[str, Any]) -> None:
    slo = wish(app(RATES), periods=3)
    plan = solved(slo, sold(), savings=True, sizing="fluid").require()
    assert plan.bill is not None
    *ways, last = plan.bill.levers
    levers = (*ways, Lever.model_validate({**last.model_dump(), **spoilt}))
    changed = plan.model_copy(update={"bill": plan.bill.model_copy(update={"levers": levers})})
    codes = [one.code for one in hp.verify(changed.model_copy(update={"digest": None}), sold(), slo).violations]
    assert "bill" in codes
