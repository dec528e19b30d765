"""Twelve rounds of the chaos that `benchmarks/chaos.py` runs two hundred of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.chaos import Chaos, Round, small_disk, table


def test_the_table_has_a_line_per_fault() -> None:
    rounds = [Round("kill worker", 0.5, {"served": 9, "lost": 1}), Round("kill worker", 1.5, {"served": 5})]
    assert table(rounds).splitlines()[2] == "| kill worker | 2 | 1.0 | 1.5 | 14 | 1 | 0 |"


@pytest.mark.slow
def test_twelve_faults_leave_nothing_undone() -> None:
    with small_disk() as (folder, faults):
        assert len(list(Chaos(folder, seed=12).run(12, faults))) == 12


@pytest.mark.slow
def test_an_interruption_ends_all_that_was_started(tmp_path: Path) -> None:
    mark = {"HETPLAN_TEST_MARK": str(tmp_path)}
    script = str(Path(__file__).resolve().parents[2] / "benchmarks" / "chaos.py")
    process = subprocess.Popen(
        [sys.executable, script], env={**os.environ, **mark}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == 130, complaints
    assert said.startswith("| fault")
    assert [number for number in os.listdir("/proc") if number.isdigit() and _is_marked(number, str(tmp_path))] == []


def _is_marked(process: str, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False
