"""Every vector that a plan carries is one that `verify` reads: nonsense in any of them is noticed."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.plan_file import plan_bytes, with_digest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = [("pool", "planned"), ("pool", "estimated"), ("variants", "planned"), ("llm", "planned")]
Json = dict[str, Any]


@cache
def made(question: str, size: str) -> tuple[Json, hp.Report]:
    files = EXAMPLES / question / "profile.json", EXAMPLES / question / "slo.json"
    plan = hp.solve(*files, options={"size": size}).require()
    return json.loads(plan_bytes(plan)), hp.verify(plan, *files)


def scaled(of: Any, scale: float) -> Any:
    """A proof with every multiplier another: prices by row, or those of the leaves of a tree, which are texts."""
    if isinstance(of, dict):
        inside = ("leaves",) if "leaves" in of else tuple(of)
        return {key: scaled(one, scale) if key in inside else one for key, one in of.items()}
    if isinstance(of, list):
        return [scaled(one, scale) for one in of]
    if isinstance(of, str):
        return " ".join(repr(scale * float(word)) for word in of.split())
    return scale * of


def spoilt(document: Json, number: int, scale: float) -> hp.Plan:
    """The plan with the multipliers of one solve's proof changed."""
    changed = copy.deepcopy(document)
    changed["solves"][number]["proof"] = scaled(changed["solves"][number]["proof"], scale)
    assert changed != document
    return with_digest(hp.Plan.model_validate(changed))


@pytest.mark.parametrize("scale", [-1.0, 100.0])
@pytest.mark.parametrize(("question", "size"), CASES)
def test_nonsense_in_any_proof_that_a_plan_carries_is_noticed(question: str, size: str, scale: float) -> None:
    document, sound = made(question, size)
    assert sound.ok
    files = EXAMPLES / question / "profile.json", EXAMPLES / question / "slo.json"
    carried = [n for n, solve in enumerate(document["solves"]) if solve.get("proof")]
    assert carried
    for number in carried:
        report = hp.verify(spoilt(document, number, scale), *files)
        assert report.violations or report.proofs != sound.proofs, document["solves"][number]["about"]


def test_a_pool_that_is_played_carries_no_prices_that_no_claim_rests_on() -> None:
    document, _ = made("pool", "estimated")
    claimed = {claim["solve"] for claim in document["claims"]}
    logged = {solve["id"] for solve in document["solves"]}
    assert logged - claimed
    assert {solve["id"] for solve in document["solves"] if solve.get("proof")} <= claimed
