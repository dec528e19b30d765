"""Limits with more digits than a plan is written with: the plan is as honest as any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from benchmarks import kept, kept_pipelines
from tests.build import shipped

EXAMPLE = Path(__file__).parents[2] / "examples" / "compound"


def _files(question: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if question == "compound":
        profile, slo = (shipped(EXAMPLE / name) for name in ("profile.json", "rate-slo.json"))
        return profile, slo
    if question == "pipeline":
        return kept_pipelines.pipeline(53)
    made = kept.QUESTIONS[question].make({"pool": 6, "variants": 4}[question])
    return made.profile, made.slo


@pytest.mark.slow
@pytest.mark.parametrize("question", ["pool", "variants", "pipeline", "compound"])
def test_a_limit_of_many_digits_is_the_one_that_is_promised(question: str) -> None:
    profile, slo = _files(question)
    for app in slo["apps"].values():
        for key, ms in app["latency"].items():
            app["latency"][key] = 1000.0 / 3.0 if question == "compound" else ms + 1.0 / 3.0
    measured = EXAMPLE / "measured.json" if question == "compound" else None
    outcome = hp.solve(profile, slo, measured, formulation=question)
    assert outcome.exit_code == 0, outcome.violations
    plan = outcome.require()
    promises = [one for one in plan.promises if one.quantity == "response_ms" and one.model == "simulation/1"]
    assert promises
    longer = promises[0].model_copy(update={"value": promises[0].value * 1.01})
    forged = plan.model_copy(update={"promises": tuple(longer if one is promises[0] else one for one in plan.promises)})
    assert not hp.verify(forged, profile, slo, measured, prove=False).ok
