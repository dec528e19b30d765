"""Money is shown where something has a price, and nowhere else: no cost is made up."""

from __future__ import annotations

import pytest
from build import PROBLEMS, example, random_files
from face import simulate, solve


@pytest.mark.parametrize("problem", [name for name in PROBLEMS if name not in ("fleet", "policy")])
def test_what_simulation_says_of_money_is_what_the_plan_says(problem: str) -> None:
    wish = random_files(problem, 4)
    plan = solve(wish, "fluid")
    shown = simulate(plan.plan, wish, seeds=1)
    assert plan.cost == (None if problem == "pipeline" else pytest.approx(shown.cost))
    assert (shown.cost is None) == (problem == "pipeline")


@pytest.mark.slow
def test_the_shipped_pipeline_without_prices_costs_nothing_that_is_shown() -> None:
    wish = example("pipeline")
    assert simulate(solve(wish, "fluid").plan, wish, seeds=1, duration_s=2.0).cost is None
