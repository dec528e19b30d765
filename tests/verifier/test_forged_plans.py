"""Plans that were edited after they were made: figures that are not so are noticed, and words are free."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from benchmarks.forged_plans import EXAMPLES, forgeries, inputs_of, is_counted, noticed, plan_of
from hetplan.api.solve import verified
from hetplan.profiles.read_plan import read_plan

Document = dict[str, Any]
PACKAGE = Path(hp.__file__).parent
QUICK = {
    "pool": 4,
    "pool-llm": 4,
    "variants": 6,
    "variants-state": 8,
    "compound": 8,
    "compound-candidates": 2,
    "llm": 4,
}
"""One forgery in so many is tried here; `benchmarks/forged_plans.py` tries all, of all examples."""


def codes(document: Document, example: str) -> set[str]:
    plan = read_plan(document, trust_digest=True)
    return {one.code for one in verified(plan, inputs_of(example)).violations}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("example", sorted(QUICK))
def test_an_honest_plan_is_not_called_forged(example: str) -> None:
    assert codes(plan_of(example), example) == set()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("example", sorted(QUICK))
def test_of_forged_figures_98_in_100_are_noticed(example: str) -> None:
    honest, inputs = read_plan(plan_of(example), trust_digest=True), inputs_of(example)
    passed, tried = [], 0
    for forged in forgeries(plan_of(example), chance=random.Random(1), every=QUICK[example]):
        if is_counted(forged):
            found = noticed(forged, honest, inputs)
            tried += found is not None
            passed += [f"{forged.place} {forged.change}"] if found == "" else []
    assert tried >= 8
    assert len(passed) <= 0.02 * tried, passed


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("example", ["pool", "variants-state", "compound", "llm", "pipeline-social"])
def test_no_plan_is_refused_for_its_words(example: str) -> None:
    """Neither warnings, notes, reasons nor labels are read, nor what the log calls a solve."""
    document = copy.deepcopy(plan_of(example))
    document["warnings"] = [
        {**one, "text": f"{one['text']} 12 of 7"} for one in document.get("warnings", ()) if one["code"] != "W-swap"
    ]
    document["warnings"].append({"code": "W-ok", "at": "nowhere", "text": "audited"})
    for claim in document.get("claims", ()):
        claim["note"] = "by somebody"
    for solve in document.get("solves", ()):
        solve.update(solver="another", about="rate of the chosen pool")
    for one in document.get("unserved", ()):
        one["why"] = "nobody asked"
    assert codes(document, example) == set()


@pytest.mark.slow
def test_an_action_with_another_word_is_noticed() -> None:
    """But for the words of bringing something up, which differ in what they replace and not in what they do."""
    honest = plan_of("variants-state")
    words, same = ("start", "stop", "load", "unload", "move"), ("keep", "route")
    for number, action in enumerate(honest["actions"]):
        up = action["do"] in ("load", "replicate", "upgrade", "downgrade")
        for word in words if action["do"] not in same else ():
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


def first(plan: Document, quantity: str) -> Document:
    """The first promise of a quantity."""
    return next(one for one in plan["promises"] if one["quantity"] == quantity)


def by_word_alone(plan: Document) -> None:
    """What simulation showed is called measured, which nobody plays."""
    for one in plan["promises"]:
        if one["model"].startswith("simulation"):
            one.update(model="measured", basis="a run of ours")


def loads_of(plan: Document) -> list[Document]:
    return [load for worker in plan["workers"] for load in worker["loads"]]


FORGED: list[tuple[str, str, Callable[[Document], Any], str]] = [
    ("pipeline-social", "budgets too short", lambda p: shorter(p), "budget"),
    ("pipeline-social", "no rule", lambda p: p.update(dispatch={}), "dispatch"),
    ("pipeline-social", "better answers", lambda p: first(p, "quality").update(value=0.9999), "promise"),
    ("pool", "valid for any rate", lambda p: p["valid"]["rate_qps"].update(ranking=[0, 1e9]), "valid"),
    ("pool", "at most a rate", lambda p: first(p, "fluid_rate_qps").update(relation="<="), "promise-relation"),
    ("pool", "measured, and never played", by_word_alone, "promise-model"),
    (
        "pool",
        "a limit that nobody asked for",
        lambda p: first(p, "response_ms").update(percentile=50.0),
        "promise-wish",
    ),
    ("pool", "a share that nobody asked for", lambda p: first(p, "violations").update(value=0.2), "promise-wish"),
    ("variants", "no dispatch", lambda p: p.update(dispatch={}), "dispatch"),
    (
        "variants",
        "larger batches",
        lambda p: loads_of(p)[0].setdefault("serve", {}).update(max_batch=64),
        "variants-serve",
    ),
    ("variants", "more than is wanted", lambda p: first(p, "rate_qps").update(value=1e9), "promise-wish"),
    ("variants", "fewer loaded", lambda p: p["actions"][-1].update(count=10**6), "action"),
    ("compound", "shares that nobody enforces", lambda p: unenforced(p), "operator"),
    (
        "llm",
        "a higher rate",
        lambda p: first(p, "rate_qps").update(value=first(p, "rate_qps")["value"] * 1.05),
        "promise-wish",
    ),
    ("llm", "valid for any rate", lambda p: p["valid"]["rate_qps"].update(assistant=[0, 1e9]), "valid"),
]


def shorter(plan: Document) -> None:
    for rule in plan["dispatch"].values():
        rule["budget_ms"] = {step: ms / 100.0 for step, ms in rule["budget_ms"].items()}


def unenforced(plan: Document) -> None:
    for load in loads_of(plan):
        if "gpu" in load.get("share", {}):
            load["share"]["enforce"] = "none"


@pytest.mark.slow
@pytest.mark.parametrize(("example", "words", "forge", "code"), FORGED, ids=[f"{e}: {w}" for e, w, *_ in FORGED])
def test_a_forged_plan_is_caught_and_named(
    example: str, words: str, forge: Callable[[Document], Any], code: str
) -> None:
    document = copy.deepcopy(plan_of(example))
    forge(document)
    assert code in codes(document, example)


def test_the_examples_are_those_that_are_shipped() -> None:
    examples = PACKAGE.parent / "examples"
    shipped = {str(path.relative_to(examples)) for path in examples.glob("*/*profile.json")}
    measured_by_their_run = {"rag/profile.json"}
    assert shipped - measured_by_their_run == {profile for profile, *_ in EXAMPLES.values()}
