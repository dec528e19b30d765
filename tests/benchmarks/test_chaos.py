"""Twelve rounds of the chaos that `benchmarks/chaos.py` runs two hundred of."""

from __future__ import annotations

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
