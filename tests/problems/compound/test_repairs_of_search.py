"""Where no plan of a search keeps a wish, what is said to help is a repair that the reader takes back, and it helps."""

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.repairs import edited

COMPOUND = Path(__file__).parents[3] / "examples/compound"
FILES: dict[str, Any] = {"profile": COMPOUND / "profile.json", "measured": COMPOUND / "measured.json"}


def wish(latency_ms: float, quality: float, *, by: str) -> dict[str, Any]:
    slo: dict[str, Any] = json.loads((COMPOUND / "rate-slo.json").read_text())
    slo["objective"] = [{by: "cost" if by == "min" else "goodput"}]
    (app,) = slo["apps"].values()
    app["latency"][0]["max_ms"] = latency_ms
    app["quality"]["min"] = quality
    return slo


def solved(slo: dict[str, Any]) -> hp.Outcome:
    return hp.solve(slo=slo, question="compound", **FILES)


@pytest.mark.parametrize("by", ["min", "max"])
@pytest.mark.parametrize(
    ("latency_ms", "quality", "field"),
    [(40.0, 0.72, "latency"), (100.0, 0.72, "latency"), (300.0, 0.99, "quality")],
)
def test_what_is_said_to_help_helps(latency_ms: float, quality: float, field: str, by: str) -> None:
    slo = wish(latency_ms, quality, by=by)
    outcome = solved(slo)
    assert outcome.exit_code == 3
    repair = outcome.repairs[0]
    assert field in repair.field
    assert repair.edits, repair
    assert solved(edited({"slo": slo}, repair.edits)["slo"]).exit_code == 0
