"""Shipped examples planned once, as documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hetplan as hp

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def pool() -> hp.Plan:
    files = EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json"
    return hp.solve(*files, options={"sizing": "fluid"}).require()


@pytest.fixture(scope="session")
def document(pool: hp.Plan) -> dict[str, Any]:
    made: dict[str, Any] = pool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made
