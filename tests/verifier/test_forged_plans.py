"""Plans that were edited after they were made: what runs or claims otherwise is noticed, by `verify` alone."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from benchmarks.forged_plans import EXAMPLES, forgeries, inputs_of, noticed, plan_of
from hetplan.judging import verify
from hetplan.profiles.plan_meaning import meaning_of
from hetplan.verifier.warned import WARNINGS

Document = dict[str, Any]
PACKAGE = Path(hp.__file__).parent
QUICK = {"pool": 8, "pool-llm": 6, "variants": 12, "variants-state": 12, "compound": 30, "compound-candidates": 4}
"""One forgery in so many is tried here; `benchmarks/forged_plans.py` tries all, of all examples."""


def codes(document: Document, example: str) -> set[str]:
    plan, inputs = hp.read_plan(document, trust_digest=True), inputs_of(example)
    return {one.code for one in verify_read(plan, inputs)}


def verify_read(plan: hp.Plan, inputs: hp.Inputs) -> Any:
    from hetplan import registry
    from hetplan.verifier.check import verify_plan

    return verify_plan(plan, inputs, registry.check_of(plan.question)).violations


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("example", sorted(QUICK))
def test_an_honest_plan_is_not_called_forged(example: str) -> None:
    assert codes(plan_of(example), example) == set()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("example", sorted(QUICK))
def test_of_small_forgeries_99_in_100_are_noticed(example: str) -> None:
    honest, inputs = hp.read_plan(plan_of(example), trust_digest=True), inputs_of(example)
    passed, tried = [], 0
    for forged in forgeries(plan_of(example), chance=random.Random(1), every=QUICK[example]):
        if meaning_of(forged.leaf) != "remark":
            found = noticed(forged, honest, inputs)
            tried += found is not None
            passed += [f"{forged.place} {forged.change}"] if found == "" else []
    assert tried >= 20
    assert len(passed) <= 0.02 * tried, passed


@pytest.mark.slow
def test_an_action_with_another_word_is_noticed() -> None:
    """But for the words of bringing something up, which differ in what they replace and not in what they do."""
    honest = plan_of("variants-state")
    words = ("start", "stop", "load", "unload", "keep", "move", "route")
    for number, action in enumerate(honest["actions"]):
        up = action["do"] in ("load", "replicate", "upgrade", "downgrade")
        for word in words:
            if word != action["do"] and not (up and word == "load"):
                forged = copy.deepcopy(honest)
                forged["actions"][number]["do"] = word
                assert codes(forged, "variants-state"), f"{number}: {word} for {action['do']}"


@pytest.mark.parametrize("example", ["variants", "variants-state"])
def test_a_promise_of_tokens_where_no_text_is_made_is_noticed(example: str) -> None:
    honest = plan_of(example)
    for number, promise in enumerate(honest["promises"]):
        if promise["quantity"] == "response_ms":
            forged = copy.deepcopy(honest)
            forged["promises"][number]["quantity"] = "tpot_ms"
            assert "promise-quantity" in codes(forged, example)


def a_tenth_more(plan: Document) -> None:
    for rule in plan["dispatch"].values():
        rule["budget_ms"] = {step: ms * 100.0 for step, ms in rule["budget_ms"].items()}


def no_backups(plan: Document) -> None:
    for rule in plan["dispatch"].values():
        rule["backup"] = []


def catch_all_first(plan: Document) -> None:
    ((app, routes),) = plan["routing"].items()
    plan["routing"][app] = [{"when": {}, "to": {plan["workers"][0]["loads"][0]["id"]: 1.0}}, *routes]


def other_queue(plan: Document) -> None:
    for worker in plan["workers"]:
        worker["queue"] = "per-load" if worker["queue"] == "shared" else "shared"


FORGED: list[tuple[str, str, Callable[[Document], Any], str]] = [
    ("pipeline-social", "budgets 100 times as long", a_tenth_more, "budget"),
    ("pipeline-social", "no backups", no_backups, "backup"),
    ("pipeline-social", "another balancing", lambda p: p["dispatch"]["posts"].update(balancing=None), "dispatch"),
    ("pipeline-social", "no actions", lambda p: p.update(actions=[]), "actions-missing"),
    ("pipeline-social", "another queue", other_queue, "queue"),
    ("pool", "another queue", other_queue, "queue"),
    ("pool", "a catch-all put first", catch_all_first, "route-class"),
    ("pool", "no actions", lambda p: p.update(actions=[]), "actions-missing"),
    ("pool", "an invented warning", lambda p: p.update(warnings=[{"code": "W-ok", "text": "audited"}]), "warning"),
    ("pool", "valid for any rate", lambda p: p["valid"]["rate_qps"].update(ranking=[0, 1e9]), "valid"),
    ("pool", "valid for nothing said", lambda p: p.update(valid={}), "valid"),
    ("pool", "a model of nobody", lambda p: p["promises"][0].update(model="no-queueing"), "promise-exact"),
    ("pool", "another penalty", lambda p: p["dispatch"]["ranking"].update(penalty="lexicographic"), "dispatch"),
    ("pool", "a bound of another scope", lambda p: p["claims"][0].update(scope="relaxation"), "claim"),
    ("pool", "a certified bound called claimed", lambda p: p["claims"][0].update(vouched="claimed"), "claim"),
    ("variants", "no dispatch", lambda p: p.update(dispatch={}), "dispatch"),
    ("variants", "another queue", other_queue, "queue"),
    ("variants-state", "an action less after", lambda p: p["actions"][-1].update(after=[]), "action-exact"),
    ("compound", "no claims", lambda p: p.update(claims=[]), "claim"),
    ("compound", "two machines for one", lambda p: p["dispatch"]["dock"]["machines"].update(cloud=[0, 1]), "machines"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("example", "words", "forge", "code"), FORGED, ids=[f"{e}: {w}" for e, w, *_ in FORGED])
def test_a_forged_plan_is_caught_and_named(
    example: str, words: str, forge: Callable[[Document], Any], code: str
) -> None:
    document = copy.deepcopy(plan_of(example))
    forge(document)
    assert code in codes(document, example)


@pytest.mark.slow
def test_a_warning_of_the_files_that_is_left_out_or_reworded_is_noticed() -> None:
    profile = plan_profile()
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"cost_per_hour": "2"},
        "apps": {
            "rank": {
                "runs": {"variants": ["m"]},
                "latency": [{"percentile": 99, "max_ms": 50}],
                "demand": {"rate_qps": "max", "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}},
            }
        },
    }
    document = hp.solve(profile, slo).require().model_dump(mode="json", by_alias=True)
    inputs = hp.load_inputs(profile, slo)
    warned = inputs.warnings
    if not warned:
        pytest.skip("reading these files warns of nothing")
    for change in (lambda p: p.update(warnings=[]), lambda p: p["warnings"][0].update(text="all is well")):
        forged = copy.deepcopy(document)
        change(forged)
        found = verify(hp.read_plan(forged, trust_digest=True), profile, slo).violations
        assert "warning" in {one.code for one in found}


def plan_profile() -> Document:
    """A profile in whose table something is odd."""
    return {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu": {"kind": "gpu"}},
        "offers": {"gpu-od": {"hardware": "gpu", "price_per_hour": "1"}},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [0.005, 0.02]}},
    }


def test_every_code_of_a_warning_in_the_package_is_known() -> None:
    sources = [
        path.read_text() for part in ("planner", "problems", "profiles") for path in (PACKAGE / part).rglob("*.py")
    ]
    written = {code for text in sources for code in re.findall(r'code="(W-[a-z-]+)"', text)}
    assert len(written) > 30
    assert written <= WARNINGS


def test_the_examples_are_those_that_are_shipped() -> None:
    examples = PACKAGE.parent / "examples"
    shipped = {str(path.relative_to(examples)) for path in examples.glob("*/*profile.json")}
    measured_by_their_run = {"rag/profile.json"}
    assert shipped - measured_by_their_run == {profile for profile, *_ in EXAMPLES.values()}
