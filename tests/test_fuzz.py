"""Damaged files through every command: no traceback, no hang, no wrong exit code.

Each run draws cases of its own (the seed is the day's, and is in what a failure says); HETPLAN_FUZZ=100000 draws so
many, HETPLAN_FUZZ_SEED names a seed. `python benchmarks/fuzz.py --again SEED:NUMBER` runs one case once more.
"""

from __future__ import annotations

import os
import time

import pytest

from benchmarks.fuzz import fuzz

CASES = int(os.environ.get("HETPLAN_FUZZ", "400"))
SEED = int(os.environ.get("HETPLAN_FUZZ_SEED", time.time() // 86400))


@pytest.mark.longest
def test_no_damage_is_a_fault() -> None:
    found = fuzz(CASES, SEED)
    print(f"seed {SEED}, {found.cases} cases: {dict(found.codes)}")
    assert found.cases == CASES
    assert not found.findings, f"seed {SEED}: {found.findings}"
    assert sum(count for code, count in found.codes.items() if not code.endswith(" 2")) >= 0.1 * CASES
