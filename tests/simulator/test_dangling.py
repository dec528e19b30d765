"""A plan that was edited names something that is not there: one fault for each such name, before anything is played."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"
Edit = Callable[[dict[str, Any]], None]


def made(question: str, profile: str, slo: str, state: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    files: dict[str, Any] = {
        "profile": EXAMPLES / profile,
        "slo": EXAMPLES / slo,
        "state": EXAMPLES / state if state else None,
    }
    if question == "compound":
        files["measured"] = EXAMPLES / "compound/measured.json"
    options = {} if question == "compound" else {"sizing": "fluid"}
    plan = hp.solve(*files.values(), options=options, formulation=question).require()
    return json.loads(plan.model_dump_json(exclude_none=True, by_alias=True)), files


VARIANTS = ("variants", "variants/profile.json", "variants/slo.json", "variants/state.json")
COMPOUND = ("compound", "compound/profile.json", "compound/rate-slo.json")
PIPELINE = ("pipeline", "pipeline/social-profile.json", "pipeline/social-slo.json")
TEXT = ("llm", "llm/profile.json", "llm/slo.json")


@pytest.fixture(scope="module")
def plans() -> dict[tuple[str, ...], tuple[dict[str, Any], dict[str, Any]]]:
    return {of: made(*of) for of in (VARIANTS, COMPOUND, PIPELINE, TEXT)}


def first(routes: dict[str, Any]) -> Any:
    return next(iter(routes.values()))


def ghost(plan: dict[str, Any]) -> None:
    plan["routing"]["ghost"] = plan["routing"].pop(next(iter(plan["routing"])))


def without_worker(plan: dict[str, Any]) -> None:
    routed = {load for routes in plan["routing"].values() for route in routes for load in route["to"]}
    gone = next(worker for worker in plan["workers"] if routed & {load["id"] for load in worker["loads"]})
    plan["workers"].remove(gone)


def without_load(plan: dict[str, Any]) -> None:
    routed = {load for routes in plan["routing"].values() for route in routes for load in route["to"]}
    worker = next(worker for worker in plan["workers"] if routed & {load["id"] for load in worker["loads"]})
    worker["loads"] = [load for load in worker["loads"] if load["id"] not in routed]


def astray(plan: dict[str, Any]) -> None:
    first(plan["routing"])[0]["to"] = {"zz.q": 1.0}


def unknown_actor(plan: dict[str, Any]) -> None:
    next(one for one in plan["actions"] if "worker" in one)["worker"] = "nope"


def unknown_step(plan: dict[str, Any]) -> None:
    plan["workers"][0]["loads"][0]["node"] = "nope"


def unknown_rule(plan: dict[str, Any]) -> None:
    plan["dispatch"]["ghost"] = first(plan["dispatch"])


def unknown_backup(plan: dict[str, Any]) -> None:
    next(rule for rule in plan["dispatch"].values() if rule.get("backup"))["backup"][0]["to"] = "nope"


def unknown_path(plan: dict[str, Any]) -> None:
    first(plan["routing"])[-1]["prefix"] = ["nope"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "edit", "at", "value"),
    [
        (VARIANTS, ghost, "$.routing", "ghost"),
        (VARIANTS, astray, "$.routing.", "zz.q"),
        (VARIANTS, without_worker, "$.routing.", ""),
        (VARIANTS, without_load, "$.routing.", ""),
        (VARIANTS, unknown_actor, "$.actions[", "nope"),
        (VARIANTS, unknown_rule, "$.dispatch", "ghost"),
        (COMPOUND, ghost, "$.routing", "ghost"),
        (COMPOUND, unknown_step, "$.workers[0].loads[0].node", "nope"),
        (COMPOUND, without_worker, "$.routing.", ""),
        (PIPELINE, unknown_step, "$.workers[0].loads[0].node", "nope"),
        (PIPELINE, unknown_backup, "$.dispatch.", "nope"),
        (TEXT, ghost, "$.routing", "ghost"),
        (TEXT, astray, "$.routing.", "zz.q"),
        (PIPELINE, unknown_path, "$.routing.", "nope"),
    ],
)
def test_a_name_of_nothing_is_a_fault(plans: Any, of: Any, edit: Edit, at: str, value: str) -> None:
    document, files = plans[of]
    edited = copy.deepcopy(document)
    edit(edited)
    with pytest.raises(InputError) as refused:
        hp.simulate(hp.Plan.model_validate(edited), *files.values(), seeds=1, duration_s=1.0)
    found = [fault for fault in refused.value.faults if fault.path.startswith(at)]
    assert found, refused.value.faults
    assert all(fault.file == "plan" and fault.remedy and value in str(fault.value) for fault in found)


@pytest.mark.parametrize("of", [VARIANTS, COMPOUND, PIPELINE, TEXT])
def test_a_plan_as_it_was_made_is_played(plans: Any, of: Any) -> None:
    document, files = plans[of]
    report = hp.simulate(hp.Plan.model_validate(document), *files.values(), seeds=1, duration_s=1.0)
    assert 0.9 < report.duration_s <= 1.0
