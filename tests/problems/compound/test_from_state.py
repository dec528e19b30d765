"""What runs already stays as it is where the plan wants it so; the rest is started before what is spare is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.next_state import next_state
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"


def document(name: str) -> dict[str, Any]:
    return shipped(EXAMPLE / name)


def solved(slo: dict[str, Any], state: Any = None) -> hp.Plan:
    files = document("profile.json"), slo, EXAMPLE / "measured.json", state
    plan = hp.solve(*files).plan
    assert plan is not None
    report = hp.verify(plan, *files)
    assert report.ok, report.violations
    return plan


def state_of(plan: hp.Plan) -> dict[str, Any]:
    return {
        "format": "hetplan/state/1.0",
        **next_state(plan).model_dump(mode="json", by_alias=True, exclude={"format"}),
    }


def test_what_runs_as_it_is_wanted_is_left_alone() -> None:
    first = solved(document("slo.json"))
    again = solved(document("slo.json"), state_of(first))
    assert again.actions == ()
    assert {one.id: one.loads for one in again.workers} == {one.id: one.loads for one in first.workers}


@pytest.mark.parametrize("gone", ["gate", "yard"])
def test_an_application_that_comes_starts_its_machines_only(gone: str) -> None:
    wish = document("slo.json")
    fewer = {**wish, "apps": {name: app for name, app in wish["apps"].items() if name != gone}}
    before = solved(fewer)
    after = solved(wish, state_of(before))
    kept = {one.id for one in before.workers} & {one.id for one in after.workers}
    assert kept
    touched = {one.worker for one in after.actions if one.worker is not None}
    assert not touched & kept
    fresh = {one.id for one in after.workers} - kept
    assert {one.worker for one in after.actions if one.do == "start"} == fresh


def test_machines_that_are_not_wanted_any_more_are_stopped_and_no_others() -> None:
    wish = document("slo.json")
    before = solved(wish)
    less = {**wish, "limits": {"instances": {**wish["limits"]["instances"], "a100": [0, 0]}}}
    after = solved(less, state_of(before))
    kept = {one.id for one in before.workers} & {one.id for one in after.workers}
    assert kept
    stopped = {one.worker for one in after.actions if one.do == "stop"}
    assert stopped == {one.id for one in before.workers} - kept
