"""What runs already and what files it is of: kept by every plan that names machines; and the currency of a bill."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import plan_for, verified
from hetplan.planner.next_state import next_state
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import with_digest
from tests.problems.test_fields import Files, files_of

Json = dict[str, Any]
ONE_STEP = ("pool", "policy", "llm")
SHA256 = "ab" * 32


def solved(files: Files, state: Json | None = None) -> Plan:
    inputs = load_inputs(files.profile, files.slo, state=state)
    outcome = plan_for(inputs, question=files.question, options=files.options, try_repairs=False)
    assert outcome.plan is not None
    assert not outcome.violations
    return outcome.plan


def left_by(plan: Plan) -> Json:
    document: Json = json.loads(next_state(plan).model_dump_json(by_alias=True, exclude={"format"}))
    return {"format": "hetplan/state/1.0", **document}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("question", ONE_STEP)
def test_what_runs_as_it_is_wanted_is_left_alone(question: str) -> None:
    files = files_of(question)
    first = solved(files)
    again = solved(files, left_by(first))
    assert again.actions == ()
    assert again.workers == first.workers


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", ["policy", "llm"])
def test_more_machines_of_a_group_are_started_and_the_rest_goes_on(question: str) -> None:
    files = files_of(question)
    state = left_by(solved(files))
    state["workers"][0]["count"] -= 1
    again = solved(files, state)
    name = state["workers"][0]["id"]
    assert [(one.do, one.worker, one.count) for one in again.actions] == [("start", name, 1)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", ["policy", "llm"])
def test_a_group_with_another_batch_gives_way_to_one_that_is_wanted(question: str) -> None:
    files = files_of(question)
    state = left_by(solved(files))
    running = state["workers"][0]
    running["id"] = "before"
    running["loads"][0]["serve"]["max_batch"] = 3
    state["workers"] = [running]
    again = solved(files, state)
    stopped = [one.worker for one in again.actions if one.do == "stop"]
    started = {one.worker for one in again.actions if one.do == "start"}
    assert set(stopped) == {"before"}
    assert started == {worker.id for worker in again.workers}
    # What is wanted is there before the last of what it replaces is gone, as far as there is stock.
    assert sum(one.count or 0 for one in again.actions if one.do == "stop") == running["count"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", ["policy", "llm"])
def test_a_state_in_which_nothing_runs_is_a_start_from_nothing(question: str) -> None:
    files = files_of(question)
    first, again = solved(files), solved(files, {"format": "hetplan/state/1.0"})
    assert again.workers == first.workers
    assert {one.worker for one in again.actions if one.do == "start"} == {worker.id for worker in first.workers}


def test_steps_that_are_left_out_of_a_plan_that_makes_text_are_found() -> None:
    files = files_of("llm")
    state = left_by(solved(files))
    state["workers"][0]["count"] -= 1
    plan, inputs = solved(files, state), load_inputs(files.profile, files.slo, state=state)
    assert verified(plan, inputs).ok
    forged = plan.model_copy(update={"actions": ()})
    assert "actions-end" in {one.code for one in verified(with_digest(forged), inputs).violations}


def with_artifacts(files: Files) -> Files:
    for variant in files.profile["variants"].values():
        variant["artifact"] = {"kind": "onnx", "sha256": SHA256}
    return files


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", ["pool", "pipeline", "variants", "policy", "llm"])
def test_every_load_names_the_file_that_its_variant_is(question: str) -> None:
    files = with_artifacts(files_of(question))
    plan = solved(files, files.state)
    loads = [load for worker in plan.workers for load in worker.loads]
    assert {load.artifact for load in loads} == {f"sha256:{SHA256}"}
    inputs = load_inputs(files.profile, files.slo, state=files.state)
    first = plan.workers[0]
    bare = first.model_copy(update={"loads": tuple(one.model_copy(update={"artifact": None}) for one in first.loads)})
    silent = with_digest(plan.model_copy(update={"workers": (bare, *plan.workers[1:])}))
    assert {"artifact"} & {one.code for one in verified(silent, inputs).violations}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", ONE_STEP)
def test_what_runs_is_of_the_file_of_the_profile_unless_the_state_says_another(question: str) -> None:
    files = with_artifacts(files_of(question))
    state = left_by(solved(files))
    other = copy.deepcopy(state)
    for worker in state["workers"]:
        for load in worker["loads"]:
            del load["artifact"]
    assert solved(files, state).actions == ()
    for worker in other["workers"]:
        for load in worker["loads"]:
            load["artifact"] = f"sha256:{'cd' * 32}"
    assert {one.do for one in solved(files, other).actions} == {"start", "load", "stop"}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("question", ["pool", "llm", "fleet"])
def test_a_wish_that_names_no_currency_is_in_that_of_the_offers(question: str) -> None:
    files = files_of(question)
    if question == "pool":
        files.slo["limits"] = {}
        files.slo["objective"] = ["min cost"]
        files.app["rate_qps"] = 100.0
    dollars = solved(files)
    for offer in files.profile["offers"].values():
        offer["currency"] = "EUR"
    plan, inputs = solved(files), load_inputs(files.profile, files.slo)
    assert plan.workers == dollars.workers
    assert inputs.slo.limits.currency == "EUR"
    assert plan.bill is None or plan.bill.currency == "EUR"
    files.slo["limits"] = {**files.slo.get("limits", {}), "currency": "USD"}
    with pytest.raises(hp.InputError, match=r"limits\.currency.*EUR"):
        solved(files)


def test_files_in_two_currencies_are_refused() -> None:
    files = files_of("llm")
    euros = {"format": "hetplan/profile/1.0", "currency": "EUR", "machines": {"a10": {"price_per_hour": 1}}}
    with pytest.raises(hp.InputError, match="currency"):
        load_inputs([files.profile, euros], files.slo)
