"""The plan's JSON Schema, frozen: a change of the format must be meant, and be in the change log."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from hetplan.profiles.plan_file import FEATURES, OUTCOMES, PERIODS, SHARED
from hetplan.profiles.read_plan import plan_schema
from hetplan.profiles.workers import Serve

GOLDEN = Path(__file__).resolve().parents[1] / "cases" / "schemas" / "plan.json"


def test_the_plan_schema_is_as_frozen() -> None:
    """Update with HETPLAN_UPDATE_SCHEMAS=1, and add a line to CHANGELOG.md and a version to the format."""
    text = json.dumps(plan_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("HETPLAN_UPDATE_SCHEMAS"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


@pytest.mark.parametrize("held", [{"max_batch": 10**9}, {"max_wait_ms": 1e308}, {"concurrency": 10**12}])
def test_a_load_that_would_hold_anything_is_refused(held: dict[str, float]) -> None:
    assert Serve(max_batch=1024, max_wait_ms=1000.0, concurrency=64).max_batch == 1024
    with pytest.raises(ValidationError, match=next(iter(held))):
        Serve.model_validate(held)


def test_every_rule_in_the_schema_is_a_known_feature() -> None:
    rules = {
        definition["properties"]["rule"]["const"]
        for definition in plan_schema()["$defs"].values()
        if "const" in definition.get("properties", {}).get("rule", {})
    }
    assert rules | {OUTCOMES, PERIODS, SHARED} == FEATURES
