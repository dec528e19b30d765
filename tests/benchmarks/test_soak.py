"""The soak of `benchmarks/soak.py` for a minute, and half a minute of streams, with as few open files as is usual."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--seconds", "60"], id="answers", marks=pytest.mark.longest),
        pytest.param(["--seconds", "30", "--streams"], id="streams", marks=pytest.mark.longest),
    ],
)
def test_good_clients_lose_nothing_beside_bad_ones(words: list[str]) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *words, "--files", "1024"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout)["good"] > 30
