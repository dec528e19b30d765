"""A bound of all plans is above no plan that anybody finds for the same files, however it was made."""

from __future__ import annotations

import pytest
from build import Files, policy_fleet, random_files
from face import solve, verify

WAYS = ({"grid": "fld{5}", "batching": "max"}, {"grid": "fld{20}", "batching": "max"}, {"grid": "fld{20}"})
"""How finely policies are made: coarse ones may need a machine more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "wish",
    [policy_fleet([140.0]), policy_fleet([70.0, 140.0]), policy_fleet([140.0], beside=True), policy_fleet([200.0])],
    ids=["one hour", "two hours", "beside a pool", "more queries"],
)
def test_no_fleet_with_a_policy_costs_less_than_a_bound_of_all(wish: Files) -> None:
    answers = [solve(wish, "fluid", options={"savings": False, "parts": {"images": dict(way)}}) for way in WAYS]
    costs = [one.cost for one in answers if one.plan and verify(one.plan, wish).is_ok]
    assert costs
    bounds = [one.claim.bound for one in answers if one.claim and one.claim.is_of_all and one.claim.bound is not None]
    assert max(bounds, default=0.0) <= min(costs) * (1 + 1e-9)
    assert all(one.status != "optimal" for one in answers if one.cost > min(costs) * (1 + 1e-9))


@pytest.mark.parametrize("seed", [1, 4])
def test_a_rate_that_a_formula_says_and_nobody_played_bounds_nothing(seed: int) -> None:
    """Of a pool too large to be simulated; of smaller ones simulation may keep more than the formula says."""
    wish = random_files("pool", seed)
    large = wish.stocked(dict.fromkeys(wish.machine_types, 3000)).rated("max").limited(cost=2000.0).aiming("max rate")
    answer = solve(large)
    assert "W-unconfirmed" in answer.warned()
    assert answer.status not in ("optimal", "within-gap")
    assert not any(one.is_certified for one in answer.claims if one.objective == "rate_qps")


@pytest.mark.quick_sample(1)
@pytest.mark.parametrize("seed", [1, 5, 7])
def test_a_pool_that_a_formula_sizes_is_held_against_every_plan(seed: int) -> None:
    """Simulation keeps the rate for less than the formula says to be least."""
    wish = random_files("pool", seed)
    by_formula, played, fluid = (solve(wish, sizing) for sizing in ("formula", "simulation", "fluid"))
    for one in (by_formula, played, fluid):
        assert one.plan is not None
        assert verify(one.plan, wish).is_ok
    assert by_formula.bound is not None
    assert by_formula.claim.is_certified
    assert set(verify(by_formula.plan, wish).bounds) == {"proved again"}
    assert by_formula.bound <= min(played.cost, by_formula.cost) * (1 + 1e-9)
    assert by_formula.status != "optimal" or by_formula.cost <= played.cost * (1 + 1e-9)


@pytest.mark.parametrize("cost", [2.0, 4.0])
def test_the_highest_rate_that_a_formula_says_is_held_against_every_plan(cost: float) -> None:
    wish = random_files("pool", 1).rated("max").limited(cost=cost).aiming("max rate")
    by_formula, fluid = solve(wish, "formula"), solve(wish, "fluid", options={"derate": 1.0})
    assert by_formula.bound is not None
    assert by_formula.bound >= fluid.value * (1 - 1e-9)
    assert by_formula.status != "optimal"
    assert set(verify(by_formula.plan, wish).bounds) == {"proved again"}
