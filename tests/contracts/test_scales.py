"""Metrics, money, rates and times of any scale: planned and verified, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import random_files, tiny
from face import EXIT, solve, vary, verify


@pytest.mark.slow_cases(10)
@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e-9])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("problem", ["variants", "pipeline", "policy"])
def test_a_plan_verifies_whatever_the_scale_of_its_quality(problem: str, factor: float, seed: int) -> None:
    wish = random_files(problem, seed).scaled_qualities(factor)
    answer = solve(wish, "fluid")
    assert answer.is_plan, answer.reason
    assert verify(answer.plan, wish).findings == answer.findings == ()


@pytest.mark.parametrize("factor", [1e-6, 1e-3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_limit_on_quality_means_the_same_at_any_scale(seed: int, factor: float) -> None:
    """Of variants, where a model is good enough or is not: the same machines and the same bound."""
    wish = random_files("variants", seed)
    plain, small = solve(wish, "fluid"), solve(wish.scaled_qualities(factor), "fluid")
    assert (plain.machines, plain.cost, plain.bound) == (small.machines, small.cost, small.bound)


@pytest.mark.parametrize(
    ("what", "ends"),
    [
        ("cost", "1:1e20"), ("cost", "1,1e300"), ("cost", "1e10:1e11"), ("rate", "1:1e16"), ("time", "1:1e200"),
        ("price", "1:1e300"), ("price", "1:1e14"), ("demand", "1,1e18"),
    ],
)  # fmt: skip
def test_a_range_beyond_what_files_take_is_refused(what: str, ends: str, tmp_path: Path) -> None:
    wish = tiny("pool") if what != "cost" else tiny("pool").rated("max").limited(cost=3.0)
    ran = vary(wish, tmp_path, what, ends)
    assert ran.code == EXIT["bad input"], ran
    assert "--vary" in ran.err
    assert "fault of hetplan" not in ran.err
    assert vary(wish, tmp_path, what, "1:2").code == EXIT["ok"]
