"""Shipped examples planned once, as documents, and a headless browser where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def pool() -> hp.Plan:
    files = EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json"
    return hp.solve(*files, options={"size": "planned"}).require()


@pytest.fixture(scope="session")
def document(pool: hp.Plan) -> dict[str, Any]:
    made: dict[str, Any] = pool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


@pytest.fixture(scope="session")
def browser() -> Callable[..., str]:
    """What headless Chromium prints for an address; skipped where there is none (Debian's package `chromium`)."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), "")
    if not found:
        pytest.skip("no headless browser here: install chromium to look at pages")

    def run(address: str, *how: str) -> str:
        given = [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *how, address]
        return subprocess.run(given, capture_output=True, text=True, check=True, timeout=120).stdout

    return run
