"""Hundreds of malformed inputs on the command line: exit 2, every fault reported with its remedy, no traceback."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[1] / "cases"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CASES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def whole(kind: str) -> dict[str, Any]:
    return json.loads((CASES / "profiles" / f"every_key_{kind}.json").read_text())


EVERY = 4
"""Each case is tried on the loader (tests/profiles); one in four goes the whole way through the command line."""

ALL = {
    name: (profile, slo)
    for number, (name, profile, slo) in enumerate(load("malformed").malformed_cases(whole("profile"), whole("slo")))
    if number % EVERY == 0
}


def test_there_are_at_least_two_hundred() -> None:
    assert len(ALL) >= 200


@pytest.mark.quick_sample(100)
@pytest.mark.parametrize("name", ALL)
def test_a_malformed_file_is_reported_with_its_remedy(name: str, tmp_path: Path, run: Callable[..., Any]) -> None:
    for file, content in zip(("profile.json", "slo.json"), ALL[name], strict=True):
        (tmp_path / file).write_bytes(content)
    shutil.copy(CASES / "profiles" / "azure.csv", tmp_path)
    plan = tmp_path / "plan.json"
    ran = run("solve", tmp_path / "profile.json", tmp_path / "slo.json", "-o", plan)
    assert ran.code == 2
    assert not plan.exists()
    assert not ran.out
    assert "Traceback" not in ran.err
    lines = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert lines
    assert all(".json" in line and line.rstrip().endswith((".", ")", "?")) for line in lines)
