"""Bounds of pools are proved again from what a plan carries, in the verifier's own writing; forged ones are not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from cases.random_pools import random_pool

import hetplan as hp
from hetplan.verifier.claims_again import Word
from hetplan.verifier.report import Report

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pool"
SHIPPED = {"rate": ("profile.json", "slo.json"), "cost": ("llm-profile.json", "llm-slo.json")}


@pytest.fixture(scope="module", params=sorted(SHIPPED))
def shipped(request: pytest.FixtureRequest) -> tuple[Any, Any, dict[str, Any]]:
    profile, slo = (json.loads((EXAMPLES / name).read_text()) for name in SHIPPED[request.param])
    return profile, slo, hp.solve(profile, slo).require().model_dump(mode="json", by_alias=True)


def verified(document: dict[str, Any], profile: Any, slo: Any) -> Report:
    return hp.verify(hp.read_plan(document, trust_digest=True), profile, slo)


def words(report: Report) -> list[Word]:
    return [one.word for one in report.claims]


@pytest.mark.quick_cases(1)
def test_every_bound_of_a_shipped_pool_is_proved_again(shipped: tuple[Any, Any, dict[str, Any]]) -> None:
    profile, slo, document = shipped
    report = verified(document, profile, slo)
    assert report.ok
    assert words(report) == [Word.PROVED] * len(document["claims"])


def no_proof(plan: dict[str, Any]) -> None:
    plan["solves"][0].pop("proof")


def nonsense(plan: dict[str, Any]) -> None:
    leaves = plan["solves"][0]["proof"]["tree"]["leaves"]
    leaves[:] = [" ".join("7" for _ in line.split()) for line in leaves]


def not_numbers(plan: dict[str, Any]) -> None:
    leaves = plan["solves"][0]["proof"]["tree"]["leaves"]
    leaves[:] = [" ".join("nan" for _ in line.split()) for line in leaves]


def a_leaf_less(plan: dict[str, Any]) -> None:
    plan["solves"][0]["proof"] = {"tree": {**plan["solves"][0]["proof"]["tree"], "splits": ["0 0 -1 -1"]}}


def tighter(plan: dict[str, Any]) -> None:
    claim, solve = plan["claims"][0], plan["solves"][0]
    by = 0.9 if claim["sense"] == "max" else 1.1
    claim.update(value=claim["value"] * by, bound=claim["bound"] * by)
    solve.update(value=solve["value"] * by, bound=solve["bound"] * by, certified_bound=solve["bound"] * by)


@pytest.mark.parametrize("forge", [no_proof, nonsense, not_numbers, a_leaf_less, tighter])
def test_what_its_proof_does_not_show_is_the_writers_word_and_a_fault(
    shipped: tuple[Any, Any, dict[str, Any]], forge: Any
) -> None:
    profile, slo, honest = shipped
    document = copy.deepcopy(honest)
    forge(document)
    report = verified(document, profile, slo)
    assert words(report)[0] is Word.OPEN
    assert ("proof", "claims[0]") in {(one.code, one.at) for one in report.violations}


@pytest.mark.quick_cases(1)
def test_a_claim_of_an_engine_alone_is_no_fault_and_its_writers_word(shipped: tuple[Any, Any, dict[str, Any]]) -> None:
    profile, slo, honest = shipped
    document = copy.deepcopy(honest)
    no_proof(document)
    document["claims"][0]["vouched"] = document["solves"][0]["vouched"] = "claimed"
    document["solves"][0].pop("certified_bound")
    report = verified(document, profile, slo)
    assert report.ok
    assert words(report)[0] is Word.OPEN


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    ("seed", "rate", "size"),
    [*((seed, rate, "planned") for seed in range(8) for rate in (False, True)), (0, True, "auto"), (5, False, "auto")],
)
def test_random_pools_are_proved_again_as_far_as_they_say(seed: int, rate: bool, size: str) -> None:
    """Limits per hardware among them, and shares of late queries (a target at percentile 90 beside the highest)."""
    profile, slo = random_pool(seed, types=3 + seed % 3, classes=6, machines=8 + 9 * seed, rate=rate)
    if seed % 2:
        strict = slo["apps"]["app"]["latency"][0]["max_ms"]
        slo["apps"]["app"]["latency"].insert(0, {"of": "response", "percentile": 70, "max_ms": strict * 0.6})
    outcome = hp.solve(profile, slo, options={"derate": 0.9, "size": size})
    if outcome.plan is None:
        pytest.skip(outcome.reason)
    report = hp.verify(outcome.plan, profile, slo)
    assert report.ok
    certified = [claim.vouched == "certified" for claim in outcome.plan.claims]
    assert [word is Word.PROVED for word in words(report)] == certified
    assert any(certified)
