"""Plans side by side, and ways to serve one demand: every machine of every hour counts, and steady rates end soon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from build import random_files, tiny
from face import Answer, compared, compared_ways, solve


def at_once(answer: Answer) -> list[int]:
    """Machines in each period, in order."""
    return [answer.count(period=period) for period in sorted({group.period for group in answer.machines})]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("problem", ["pool", "variants", "fleet", "llm"])
def test_a_plan_beside_itself_keeps_all_of_its_machines(problem: str, tmp_path: Path) -> None:
    answer = solve(random_files(problem, 2), "fluid")
    (step,) = compared(tmp_path, answer.plan, answer.plan)
    kept = [int(number) for number in re.findall(r"\d+", step)]
    assert {min(at_once(answer)), max(at_once(answer))} == set(kept)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_more_demand_on_a_fleet_starts_machines_and_keeps_some(factor: float, tmp_path: Path) -> None:
    small, large = (solve(tiny("fleet").scaled_rates(one), "fluid") for one in (1.0, factor))
    *changes, kept = compared(tmp_path, small.plan, large.plan)
    started, stopped = (
        sum(int(step.split()[1]) for step in changes if step.startswith(verb)) for verb in ("start", "stop")
    )
    assert started - stopped == sum(at_once(large)) - sum(at_once(small)) > 0
    assert kept != "keep 0 machines in each period"


@pytest.mark.parametrize(("rate", "hours"), [(500.0, 0.25), (60.0, 100_000 / 60 / 3600), (5.0, 1.0)])
def test_rates_that_never_change_are_compared_for_a_while(rate: float, hours: float, tmp_path: Path) -> None:
    wish = tiny("variants").rated(rate)
    played, _ = compared_ways(solve(wish, "fluid").plan, wish, tmp_path, "plan")
    assert played == pytest.approx(hours)
