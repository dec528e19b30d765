"""Plans side by side, ways to serve one demand, machines that hold where numbers are off.

Every machine of every hour counts, steady rates end soon, and `whatif --robust` says of numbers that are not off at all
what `solve` says.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from build import Files, example, random_files, tiny
from face import Answer, compared, compared_ways, robust, solve, solved_example


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "seed"), [(problem, seed) for problem in ("pool", "variants", "llm") for seed in range(1, 7)]
)
def test_machines_for_numbers_that_are_not_off_are_those_of_the_plan(problem: str, seed: int) -> None:
    wish = random_files(problem, seed)
    agree(solve(wish), wish)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [24, 25, 30])
def test_it_is_so_of_the_shipped_llm_example(rate: float) -> None:
    """Its program alone asks for less than simulation shows to be needed, or for more, by the rate."""
    wish = example("llm").rated(rate)
    agree(solved_example("llm") if wish == example("llm") else solve(wish), wish)


def agree(answer: Answer, wish: Files) -> None:
    """That the machines which hold without errors cost what the plan costs, and that a plan was found with them."""
    found = robust(wish)
    assert found is not None
    assert found.is_confirmed is not False
    assert answer.cost == pytest.approx(found.cost, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "seed"), [("pool", 1), ("llm", 2)])
def test_more_errors_are_never_cheaper_to_hold_under(problem: str, seed: int) -> None:
    wish = random_files(problem, seed)
    costs = [found.cost if (found := robust(wish, demand=off, latency=off)) else float("inf") for off in (0, 0.1, 0.3)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
