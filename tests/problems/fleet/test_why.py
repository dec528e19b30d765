"""Why there is no fleet, and what would help: what is said names what is in the way, and what helps is a kept plan."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.draft import Repair
from hetplan.planner.outcome import Outcome
from hetplan.planner.repairs import documents, edit_documents
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_periods import machines_of
from tests.build import shipped
from tests.problems.fleet.test_fleet import PROFILE, Json, app, solved, wish

PIPELINE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
SPOT: Json = copy.deepcopy(PROFILE)
SPOT["offers"]["big-a-spot"] = {
    "hardware": "big",
    "zone": "a",
    "price_per_hour": ".3",
    "stock": 3,
    "interruptions_per_hour": 0.1,
}


def limited(**limits: Any) -> Json:
    return wish(app([100.0, 200.0]), app(60.0, small=0.9), periods=2, limits=limits)


def followed(repair: Repair, slo: Json, profile: Json, **options: Any) -> Outcome:
    """What comes of the files with a repair."""
    now = edit_documents(documents(load_inputs(profile, slo), {}), repair.edits)
    return solved(now["slo"], now["profile"], **options)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [100, *(pytest.param(one, marks=pytest.mark.longest) for one in (14, 18))])
def test_more_machines_lost_than_there_are_is_refused_and_repaired(hosts: int) -> None:
    """It was an engine's error: of 18 machines, 18 lost were a program that no proof called impossible."""
    slo = limited(survive={"machines": hosts, "serve": 0.5})
    outcome = solved(slo, SPOT, sizing="fluid")
    assert outcome.plan is None
    assert outcome.exit_code == 3
    assert f"{hosts} big lost" in outcome.why[0]
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.survive.machines")
    assert isinstance(repair.to, int)
    assert 0 <= repair.to < 14
    assert followed(repair, slo, SPOT, sizing="fluid").exit_code == 0


def test_nothing_lost_is_a_repair_where_a_share_is_kept() -> None:
    """A share that is kept is refused where nothing may fail: it is taken back with the last failure."""
    profile = copy.deepcopy(PROFILE)
    for name in ("big-a", "big-b"):
        profile["offers"][name]["stock"] = 1
    slo = wish(app(180.0), limits={"survive": {"machines": 2, "serve": 0.9}})
    outcome = solved(slo, profile, sizing="fluid")
    assert outcome.exit_code == 3
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.survive.machines")
    assert repair.to == 0
    assert "survive.serve" in repair.text
    assert followed(repair, slo, profile, sizing="fluid").exit_code == 0


@pytest.mark.parametrize("what", [{"zones": 1}, {"machines": 2}, {"spot": "all"}])
def test_a_share_of_nothing_is_refused_by_name(what: Json) -> None:
    """Parts that serve nothing after a failure failed the verification: exit 6."""
    with pytest.raises(hp.InputError, match=r"survive\.serve \(found 0\): a failure is stated.* Write a share above 0"):
        solved(limited(survive={**what, "serve": 0}), SPOT)


def test_only_listed_hardware_without_any_listed_is_refused_by_name() -> None:
    with pytest.raises(hp.InputError, match=r"limits\.only_listed.*lists none"):
        solved(limited(only_listed=True))


@pytest.mark.parametrize(("hardware", "most", "is_kept"), [("big", 9, True), ("small", 9, False), ("big", 1, False)])
def test_only_listed_hardware_is_used(hardware: str, most: int, is_kept: bool) -> None:
    outcome = solved(limited(only_listed=True, instances={hardware: [0, most]}), sizing="fluid")
    assert (outcome.plan is not None) == is_kept
    if outcome.plan is not None:
        assert all(name.startswith("big") for name in machines_of(outcome.plan, "p1"))


CASES: dict[str, tuple[Json, Json]] = {
    "budget": (limited(cost_per_hour="0.5"), SPOT),
    "spot": (limited(spot={"min_share": 0.9}, survive={"spot": "all", "serve": 0.9}), SPOT),
    "resources": (limited(provides={"gpu": 0, "cpu_cores": 4}), SPOT),
    "instances": (wish(app([100.0, 200.0]), periods=2, limits={"instances": {"big": [0, 0], "small": [0, 3]}}), SPOT),
    "quota": (limited(), {**SPOT, "zones": {"a": {"quota": {"machines": 0}}, "b": {"quota": {"gpu": 0}}}}),
    "zone": (wish(app([100.0, 900.0]), periods=2, limits={"survive": {"zones": 1}}), SPOT),
}


QUICK, SLOW = ("resources", "instances"), ("budget",)
MARKS = {name: pytest.mark.slow if name in SLOW else pytest.mark.longest for name in CASES if name not in QUICK}


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(one, marks=MARKS.get(one, ())) for one in CASES])
def test_each_repair_of_a_played_fleet_is_a_kept_plan(case: str) -> None:
    """They were tried without room to wait: who followed one was refused again, as not kept."""
    slo, profile = CASES[case]
    outcome = solved(slo, profile)
    assert outcome.exit_code == 3
    assert outcome.repairs
    for repair in outcome.repairs:
        assert followed(repair, slo, profile).exit_code == 0, repair.text


@pytest.mark.longest
@pytest.mark.parametrize("keep", [0.8163, pytest.param(0.815, marks=pytest.mark.longest)])
def test_no_commitments_and_moves_are_blamed_where_none_are_stated(keep: float) -> None:
    slo = wish(app([100.0, 900.0]), periods=2, limits={"survive": {"zones": 1, "serve": keep}})
    outcome = solved(slo, SPOT)
    assert outcome.exit_code == 3
    said = " ".join(outcome.why)
    assert "commitments" not in said
    assert "changes" not in said
    assert ("on the most machines that there are for app0 it has no plan" if keep > 0.816 else "big-a has 6") in said
    assert outcome.repairs
    assert followed(outcome.repairs[0], slo, SPOT).exit_code == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("least", "most"), [(40, 50), (40, None), (16, 16)])
def test_what_a_repair_of_a_floor_says_is_what_it_changes(least: int, most: int | None) -> None:
    """Its number was that of the ceiling, which stays as it is."""
    outcome = solved(limited(instances={"big": [least, most]}), SPOT)
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.instances.big[0]")
    assert repair.to == repair.edits[0].value[0]
    assert repair.edits[0].value[1] == most
    assert isinstance(repair.to, int)
    assert repair.amount == least - repair.to
    assert repair.text.startswith(f"lower slo.limits.instances.big[0] from {least} to {repair.to}")


@pytest.mark.parametrize(
    ("limits", "demand", "path"),
    [
        ({"provides": {"gpus": 1}}, {}, "limits.provides.gpus"),
        ({"survive": {"serve": 0.9}}, {}, "limits.survive.serve"),
        ({}, {"series": [100.0, 200.0], "trace": {"period_s": 60.0}}, "rate_qps.trace.period_s"),
        ({}, {"mean": 5.0, "trace": {"period_s": 60.0}}, "rate_qps.trace.period_s"),
        ({}, {"series": [100.0, 200.0], "trace": {"percentile": 95.0}}, "rate_qps.trace.percentile"),
    ],
)
def test_what_would_change_nothing_is_refused_by_name(limits: Json, demand: Json, path: str) -> None:
    slo = limited(**limits)
    if demand:
        trace = {"file": "tests/cases/profiles/azure.csv", **demand["trace"]}
        slo["apps"]["app0"]["rate_qps"] = {**demand, "trace": trace}
    with pytest.raises(hp.InputError) as caught:
        solved(slo)
    fault = next(one for one in caught.value.faults if one.path.endswith(path))
    assert "ask fleet" not in fault.remedy


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("bought", "field"),
    [
        ({"spot": {"max_share": 0.2}, "on_demand": {"max": 1}}, "spot.max_share"),
        ({"spot": {"min_share": 1}}, "spot.min_share"),
        ({"reserved": {"min_share": 0.5}}, "reserved.min_share"),
    ],
)
def test_shares_that_leave_no_machines_are_named_and_repaired(bought: Json, field: str) -> None:
    survive = {"survive": {"spot": "all", "serve": 0.9}} if bought == {"spot": {"min_share": 1}} else {}
    slo = limited(**bought, **survive)
    outcome = solved(slo, SPOT)
    assert "every demand loosened" not in " ".join(outcome.why)
    repair = next(one for one in outcome.repairs if one.field == f"slo.limits.{field}")
    assert followed(repair, slo, SPOT).exit_code == 0


def test_a_pipeline_of_which_the_most_is_wanted_needs_offers() -> None:
    profile, slo = (shipped(PIPELINE / name) for name in ("profile.json", "slo.json"))
    slo["apps"]["cameras"]["rate_qps"] = "max"
    with pytest.raises(hp.InputError, match=r'Write a number\. Or give the profile "offers"'):
        hp.solve(profile, slo, formulation="pipeline")


@pytest.mark.parametrize(("rates", "keep"), [([100.0, 1e-6], None), ([1.0, 1.0], 1e-9)])
def test_so_few_queries_that_no_engine_sees_them_are_refused(rates: list[float], keep: float | None) -> None:
    """Programs called no machines enough, and were asked again and again."""
    limits = {"survive": {"zones": 1, "serve": keep}} if keep else {}
    with pytest.raises(hp.InputError, match=r"apps\.[a-z0-9]+\.rate_qps .*so few queries"):
        solved(wish(app(rates), periods=2, limits=limits), SPOT, sizing="fluid")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spot", ["none", "zone", "all"])
def test_spot_machines_are_warned_of_where_nothing_is_kept_for_their_loss(spot: str) -> None:
    """The plans of other questions say so; fleets did not, and promised the same without a word."""
    survive = {} if spot == "none" else {"survive": {"spot": spot, "serve": 0.5}}
    slo = limited(**survive, spot={"min": 1})
    plan = solved(slo, SPOT, sizing="fluid").require()
    warned = [one for one in plan.warnings if one.code == "W-interruptions"]
    assert [one.at for one in warned] == (["machines.big.zones.a.spot"] if spot == "none" else [])
    silent = plan.model_copy(update={"warnings": tuple(set(plan.warnings) - set(warned)), "digest": None})
    assert ("interruptions" in [one.code for one in hp.verify(silent, SPOT, slo).violations]) == bool(warned)
