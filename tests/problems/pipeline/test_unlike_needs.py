"""Steps whose needs of a server are unlike have servers of their own: bounds are then of such plans, and it is said."""

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from tests.build import shipped

EXAMPLES = Path(__file__).parents[3] / "examples/pipeline"
Docs = tuple[dict[str, Any], dict[str, Any]]


def social(provides: float, detect: float, caption: float, rate: float = 40.0) -> Docs:
    profile = shipped(EXAMPLES / "social-profile.json")
    slo = shipped(EXAMPLES / "social-slo.json")
    slo["apps"]["posts"]["rate_qps"] = rate
    for hardware in profile["hardware"].values():
        hardware["provides"] = {"gpu": provides}
    for variant in profile["variants"].values():
        for run in variant["runs"]:
            run["needs"] = {"gpu": {"detect": detect, "caption": caption}[variant["task"]]}
    return profile, slo


def on_l4(files: Docs) -> Docs:
    """The same without the other type, which serves one step as well: machines with room are those of one type."""
    files[1]["limits"]["instances"]["t4"] = [0, 0]
    return files


def planned(files: Docs, **options: Any) -> hp.Plan:
    outcome = hp.solve(*files, options={"sizing": "fluid", **options}, formulation="pipeline")
    plan = outcome.require()
    assert not hp.verify(plan, *files).violations
    return plan


def scopes(plan: hp.Plan) -> dict[str, str]:
    return {claim.about: claim.scope for claim in plan.claims}


def idle(plan: hp.Plan) -> list[str]:
    return [one.text for one in plan.warnings if one.code == "W-idle-machine"]


@pytest.mark.parametrize(
    ("provides", "detect", "caption", "alone"),
    [(1, 0.5, 0.4, False), (1, 0.6, 0.3, True), (1, 0.6, 0.55, False), (8, 4, 3, False), (7, 4, 3, True)],
)
def test_a_bound_of_plans_that_share_nothing_is_not_said_of_all(
    provides: float, detect: float, caption: float, alone: bool
) -> None:
    plan = planned(on_l4(social(provides, detect, caption)))
    assert scopes(plan) == {"quality": "problem", "servers": "restriction" if alone else "problem"}
    assert [one.note is not None for one in plan.claims] == [False, alone]
    assert (plan.status == "optimal") is not alone
    assert any("another machine holds" in text for text in idle(plan)) is alone


def test_whole_servers_that_are_asked_for_bound_such_plans_only() -> None:
    files = social(1, 0.5, 0.5)
    assert scopes(planned(files))["servers"] == "problem"
    plan = planned(files, share_machines=False)
    assert (len(plan.workers), scopes(plan)["servers"]) == (2, "restriction")


@pytest.mark.parametrize("sizing", ["fluid", "formula"])
def test_a_forged_scope_is_refused(sizing: str) -> None:
    files = social(7, 4, 3)
    plan = planned(files, sizing=sizing)
    held = {claim.about for claim in plan.claims if claim.scope == "restriction"}
    assert "servers" in held
    for number, claim in enumerate(plan.claims):
        for scope in {"problem", "relaxation"} if claim.about in held else {"restriction"} - {claim.scope}:
            document = json.loads(plan.model_dump_json(exclude_none=True, by_alias=True))
            document["claims"][number]["scope"] = scope
            found = {one.at for one in hp.verify(hp.Plan.model_validate(document), *files).violations}
            # A bound that holds of all plans too is no fault: then the status is, which says what is known of all.
            assert bool(found & {f"claims[{number}]", "status"} if claim.about in held else found - {"status"}) is (
                claim.about in held
            ), (claim, scope)


def test_what_one_server_would_carry_is_not_proved_impossible() -> None:
    fits, exact = social(1, 0.6, 0.3), social(1, 0.6, 0.55)
    for files, proved in ((fits, False), (exact, True)):
        files[1]["limits"]["instances"] = {name: [0, 1] for name in files[0]["hardware"]}
        files[1]["limits"]["instances"] = dict(list(files[1]["limits"]["instances"].items())[:1])
        outcome = hp.solve(*files, options={"sizing": "fluid"}, formulation="pipeline")
        assert outcome.exit_code != 0
        assert (outcome.finding.found.value == "infeasible") is proved, outcome.status


def test_a_machine_with_room_for_what_another_holds_is_named_and_nothing_less() -> None:
    files = on_l4(social(1, 0.6, 0.3))
    plan = planned(files)
    assert any("another machine holds" in text for text in idle(plan))
