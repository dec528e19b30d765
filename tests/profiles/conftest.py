"""The examples that have every key, with the trace that they name."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[1] / "cases"
_PROFILE = json.loads((CASES / "profiles" / "every_key_profile.json").read_text())
_SLO = json.loads((CASES / "profiles" / "every_key_slo.json").read_text())


@pytest.fixture
def profile() -> dict[str, Any]:
    """A fresh copy of the profile with every key."""
    return copy.deepcopy(_PROFILE)


@pytest.fixture
def slo() -> dict[str, Any]:
    """A fresh copy of the SLO with every key, without its trace."""
    held = copy.deepcopy(_SLO)
    del held["apps"]["chat"]["rate_qps"]
    return held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with profile.json, slo.json and azure.csv."""
    shutil.copy(CASES / "profiles" / "every_key_profile.json", tmp_path / "profile.json")
    shutil.copy(CASES / "profiles" / "every_key_slo.json", tmp_path / "slo.json")
    shutil.copy(CASES / "profiles" / "azure.csv", tmp_path / "azure.csv")
    return tmp_path
