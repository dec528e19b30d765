"""Ctrl-C writes the best plan found, and says that it was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import example
from face import EXIT, interrupted, verify


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["pipeline", "llm"])
def test_ctrl_c_writes_the_best_plan_so_far(problem: str, tmp_path: Path) -> None:
    wish = example(problem)
    ran, plan = interrupted(wish, tmp_path)
    assert ran.code == EXIT["interrupted"], ran.err
    assert plan is not None
    assert "best plan so far" in ran.out
    assert verify(plan, wish).is_ok
