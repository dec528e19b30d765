"""Bounds of pipelines with servers in parts are proved again from prices; whatever these are, no plan is better."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from cases.pipelines import random_pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hetplan as hp
from hetplan.profiles.plan_file import plan_dict
from hetplan.verifier.claims_again import Word
from hetplan.verifier.facts import gather
from hetplan.verifier.pipeline_bounds import proved
from hetplan.verifier.rows import NoProof
from tests.problems.pipeline.test_several_on_a_server import documents

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
PROFILE, SLO = (json.loads((EXAMPLES / f"social-{part}.json").read_text()) for part in ("profile", "slo"))


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return hp.solve(PROFILE, SLO).require().model_dump(mode="json", by_alias=True)


def solve_of(document: dict[str, Any], claim: int) -> dict[str, Any]:
    wanted = document["claims"][claim]["solve"]
    return next(one for one in document["solves"] if one["id"] == wanted)


@pytest.mark.slow
def test_every_bound_of_the_shipped_pipeline_is_proved_again(honest: dict[str, Any]) -> None:
    report = hp.verify(honest, PROFILE, SLO)
    assert report.ok
    assert [one.word for one in report.claims] == [Word.PROVED, Word.PROVED]


@pytest.mark.parametrize("claim", [0, 1])
def test_a_tighter_bound_than_its_prices_show_is_a_fault(honest: dict[str, Any], claim: int) -> None:
    document = copy.deepcopy(honest)
    stated, solve = document["claims"][claim], solve_of(document, claim)
    stated["bound"] = (stated["bound"] + stated["value"]) / 2.0
    stated["gap"] = abs(stated["bound"] - stated["value"]) / max(stated["bound"], stated["value"])
    solve["bound"] = solve["certified_bound"] = stated["bound"]
    report = hp.verify(hp.read_plan(document, trust_digest=True), PROFILE, SLO)
    assert report.claims[claim].word is Word.OPEN
    assert ("proof", f"claims[{claim}]") in {(one.code, one.at) for one in report.violations}


@pytest.mark.parametrize(
    "proof", [None, {"row_duals": {}}, {"row_duals": {"servers t4[all]": "dear"}}, {"row_duals": 3}]
)
def test_without_prices_nothing_is_proved(honest: dict[str, Any], proof: Any) -> None:
    document = copy.deepcopy(honest)
    solve_of(document, 0)["proof"] = proof
    report = hp.verify(hp.read_plan(document, trust_digest=True), PROFILE, SLO)
    assert report.claims[0].word is Word.OPEN
    assert "proof" in {one.code for one in report.violations}


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    t4=st.floats(0.0, 0.05),
    l4=st.floats(0.0, 0.05),
    mu=st.floats(0.0, 500.0),
    budget=st.floats(0.0, 1.0),
    claim=st.integers(0, 1),
)
def test_whatever_the_prices_the_plan_is_within_the_bound(
    honest: dict[str, Any], t4: float, l4: float, mu: float, budget: float, claim: int
) -> None:
    plan = hp.read_plan(honest, trust_digest=True)
    facts = gather(plan, hp.load_inputs(PROFILE, SLO))
    prices = {"servers t4[all]": t4, "servers l4[all]": l4, "quality so far[all]": mu}
    solve = plan.solves[-1].model_copy(update={"proof": {"row_duals": prices}})
    bound, value = proved(facts, plan.claims[claim], solve), plan.claims[claim].value
    assert bound >= value if plan.claims[claim].sense == "max" else bound <= value
    with pytest.raises(NoProof, match="budget"):
        proved(
            facts,
            plan.claims[0],
            solve.model_copy(update={"proof": {"row_duals": {**prices, "budget[all]": 1.0 + budget}}}),
        )


@pytest.mark.parametrize("per", [None, "gpu"])
@pytest.mark.parametrize("needed", [0.5, 1.0])
def test_slices_of_machines_cost_what_is_paid_for_them(per: str | None, needed: float) -> None:
    profile, slo = documents(per=per, needs={"gpu": needed})
    slo["objective"] = [{"min": "cost"}]
    slo["apps"]["a"]["quality"] = {"min": 0.8}
    plan = hp.solve(profile, slo, question="pipeline", options={"size": "planned"}).require()
    solve = plan.solves[-1].model_copy(update={"proof": {"row_duals": {"quality so far[all]": 10.0}}})
    bound = proved(gather(plan, hp.load_inputs(profile, slo)), plan.claims[0], solve)
    assert 0.3 * plan.claims[0].value <= bound <= plan.claims[0].value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "how"),
    [(8, {}), (5, {}), (172, {"routing": "node"}), (0, {"multibatch": True})],
    ids=["two claims", "two kinds of servers", "by steps", "several batch sizes"],
)
def test_bounds_that_only_whole_servers_show_are_searched_for(seed: int, how: dict[str, Any]) -> None:
    profile, slo = random_pipeline(seed, gpus=1 + seed % 4, tasks=2 + seed % 3)
    outcome = hp.solve(profile, slo, options={"size": "planned", **how})
    document = plan_dict(outcome.require())
    assert any("tree" in (solve.get("proof") or {}) for solve in document["solves"])
    report = hp.verify(outcome.require(), profile, slo)
    assert report.ok, report.violations
    assert {one.word for one in report.claims} == {Word.PROVED}
    for claim in document["claims"]:
        if claim["about"] == "servers":
            claim["value"] = claim["bound"] = claim["value"] + 1.0
    report = hp.verify(hp.read_plan(document, trust_digest=True), profile, slo)
    assert not report.ok
    assert [one.word for one in report.claims if "servers" in one.about] == [Word.OPEN]
