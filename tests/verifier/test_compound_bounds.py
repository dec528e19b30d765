"""The bound of packed candidates is proved again by the prices that a plan carries, and by no others."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetplan as hp
from hetplan.verifier.claims_again import Word
from hetplan.verifier.compound import proved
from hetplan.verifier.facts import gather

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "compound"
PROFILE, SLO = (json.loads((EXAMPLES / f"candidates-{part}.json").read_text()) for part in ("profile", "slo"))


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return hp.solve(PROFILE, SLO).require().model_dump(mode="json", by_alias=True)


def test_the_bound_of_the_shipped_candidates_is_proved_again(honest: dict[str, Any]) -> None:
    report = hp.verify(honest, PROFILE, SLO)
    assert report.ok
    assert [one.word for one in report.claims] == [Word.PROVED]


@pytest.mark.parametrize(
    "prices", [{}, {"edge": -1.0}, {"edge": "many"}, {"edge": 1e6, "cloud": 1e6}, {"elsewhere": 1.0}, None]
)
def test_other_prices_show_less_and_a_certified_bound_is_a_fault(honest: dict[str, Any], prices: Any) -> None:
    document = copy.deepcopy(honest)
    document["solves"][0]["proof"] = {"prices": prices}
    claim = document["claims"][0]
    if prices == {}:  # nothing is paid for: all may be served, and that is all there is
        claim["bound"] = document["solves"][0]["certified_bound"] = document["solves"][0]["bound"] = (
            claim["value"] * 0.9
        )
    report = hp.verify(hp.read_plan(document, trust_digest=True), PROFILE, SLO)
    assert [one.word for one in report.claims] == [Word.OPEN]
    assert "proof" in {one.code for one in report.violations}


@settings(max_examples=50, deadline=None)
@given(edge=st.floats(0.0, 20.0), cloud=st.floats(0.0, 20.0), room=st.floats(0.1, 2.0))
def test_whatever_the_prices_no_choice_is_worth_more(
    honest: dict[str, Any], edge: float, cloud: float, room: float
) -> None:
    slo = copy.deepcopy(SLO)
    slo["limits"]["capacity"] = {"edge": room, "cloud": room / 2}
    plan = hp.read_plan(honest, trust_digest=True)
    facts = gather(plan, hp.load_inputs(PROFILE, slo))
    solve = plan.solves[0].model_copy(update={"proof": {"prices": {"edge": edge, "cloud": cloud}}})
    bound = proved(facts, plan.claims[0], solve)
    apps = list(slo["apps"].values())
    best = 0.0
    for chosen in itertools.product(*([None, *app["candidates"]] for app in apps)):
        taken = {name: sum(one["demand"].get(name, 0.0) for one in chosen if one) for name in ("edge", "cloud")}
        if taken["edge"] <= room and taken["cloud"] <= room / 2:
            best = max(best, sum(app["weight"] for app, one in zip(apps, chosen, strict=True) if one))
    assert bound >= best
