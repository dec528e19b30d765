"""The example goes the whole way: measured, planned, applied, loaded, taken down."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "end-to-end" / "run.py"


@pytest.mark.longest
@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime: extra serve")
def test_the_whole_loop(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), "--quick", "--keep", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    rows = ran.stdout.splitlines()
    for plan in ("pool", "pipeline", "policy", "variants", "variants, re-planned", "two tiers"):
        mine = [row for row in rows if row.startswith(f"{plan} ") and "response_ms p50" in row]
        assert mine, plan  # a compound plan promises its measured median beside the wish's limit
        assert not any("never" in row for row in mine), plan
    assert not list((tmp_path / "running").glob("**/*.pid"))


@pytest.mark.longest
def test_the_whole_loop_of_text(tmp_path: Path) -> None:
    example = EXAMPLE.parents[1] / "llm-end-to-end" / "run.py"
    ran = subprocess.run(
        [sys.executable, str(example), "--quick", "--keep", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    for row in ("talker-small ", "talker-large ", "assistant  ttft_ms p95", "assistant  tpot_ms p95"):
        assert row in ran.stdout, row
    assert "never" not in ran.stdout
    assert " x 200" in ran.stdout


@pytest.mark.longest
def test_a_question_answerer_from_search_to_drift(tmp_path: Path) -> None:
    example = EXAMPLE.parents[1] / "rag" / "run.py"
    ran = subprocess.run(
        [sys.executable, str(example), "--quick", "--keep", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    rows = ran.stdout.splitlines()
    assert any(row.startswith("response_ms p95") for row in rows)
    first, second = (number for number, row in enumerate(rows) if row.startswith("$ hetplan autoscale"))
    assert "nothing has drifted" in rows[first + 1]
    assert "accuracy of ask has drifted" in "".join(rows[second:])
    assert not list((tmp_path / "running").glob("**/*.pid"))
