"""Why there is no fleet, and what would help: what is said names what is in the way, and what helps is a kept plan."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.draft import Repair
from hetplan.planner.outcome import Outcome
from hetplan.planner.repairs import documents, edited
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_periods import machines_of
from tests.problems.fleet.test_fleet import PROFILE, Json, app, solved, wish

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
    now = edited(documents(load_inputs(profile, slo), {}), repair.edits)
    return solved(now["slo"], now["profile"], **options)


@pytest.mark.parametrize("hosts", [14, 18, 100])
def test_more_machines_lost_than_there_are_is_refused_and_repaired(hosts: int) -> None:
    """It was an engine's error: of 18 machines, 18 lost were a program that no proof called impossible."""
    slo = limited(survive={"hosts": hosts, "keep": 0.5})
    outcome = solved(slo, SPOT, size="planned")
    assert outcome.plan is None
    assert outcome.exit_code == 3
    assert f"{hosts} big lost" in outcome.why[0]
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.survive.hosts")
    assert isinstance(repair.to, int)
    assert 0 <= repair.to < 14
    assert followed(repair, slo, SPOT, size="planned").exit_code == 0


def test_only_listed_hardware_without_any_listed_is_refused_by_name() -> None:
    with pytest.raises(hp.InputError, match=r"limits\.only_listed.*lists none"):
        solved(limited(only_listed=True))


@pytest.mark.parametrize(("hardware", "most", "is_kept"), [("big", 9, True), ("small", 9, False), ("big", 1, False)])
def test_only_listed_hardware_is_used(hardware: str, most: int, is_kept: bool) -> None:
    outcome = solved(limited(only_listed=True, instances={hardware: [0, most]}), size="planned")
    assert (outcome.plan is not None) == is_kept
    if outcome.plan is not None:
        assert all(name.startswith("big") for name in machines_of(outcome.plan, "p1"))


CASES: dict[str, tuple[Json, Json]] = {
    "budget": (limited(cost_per_hour="0.5"), SPOT),
    "spot": (limited(offers={"spot": {"share": [0.9, 1]}}, survive={"spot": "all", "keep": 0.9}), SPOT),
    "resources": (limited(resources={"gpu": 0, "cpu_cores": 4}), SPOT),
    "instances": (wish(app([100.0, 200.0]), periods=2, limits={"instances": {"big": [0, 0], "small": [0, 3]}}), SPOT),
    "quota": (limited(), {**SPOT, "zones": {"a": {"quota": {"machines": 0}}, "b": {"quota": {"gpu": 0}}}}),
    "zone": (wish(app([100.0, 900.0]), periods=2, limits={"survive": {"zones": 1}}), SPOT),
}


@pytest.mark.parametrize("case", [pytest.param(one, marks=pytest.mark.slow) if one == "zone" else one for one in CASES])
def test_each_repair_of_a_played_fleet_is_a_kept_plan(case: str) -> None:
    """They were tried without room to wait: who followed one was refused again, as not kept."""
    slo, profile = CASES[case]
    outcome = solved(slo, profile)
    assert outcome.exit_code == 3
    assert outcome.repairs
    for repair in outcome.repairs:
        assert followed(repair, slo, profile).exit_code == 0, repair.text


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0.8163, 0.815])
def test_no_commitments_and_moves_are_blamed_where_none_are_stated(keep: float) -> None:
    slo = wish(app([100.0, 900.0]), periods=2, limits={"survive": {"zones": 1, "keep": keep}})
    outcome = solved(slo, SPOT)
    assert outcome.exit_code == 3
    said = " ".join(outcome.why)
    assert "commitments" not in said
    assert "moves" not in said
    assert "on the most machines that there are for app0 it has no plan" in said
    assert outcome.repairs
    assert followed(outcome.repairs[0], slo, SPOT).exit_code == 0
