"""The gate's instances are read as files are today, and fluid plans are no worse than those of 0d1c952c."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.reference.planned import FIRST, KINDS, RECORDED, planned, worse

FEW = 3
"""All of a kind are solved by `benchmarks/reference/planned.py`."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_planned_objectives_are_no_worse_than_recorded(kind: str) -> None:
    recorded = json.loads(RECORDED.read_text())[kind]
    seeds = [seed for seed in range(FIRST, FIRST + KINDS[kind][0]) if "value" in recorded[str(seed)]][:FEW]
    assert seeds
    assert {seed: worse(planned(KINDS[kind][1](seed)), recorded[str(seed)]) for seed in seeds} == dict.fromkeys(
        seeds, ""
    )
