"""A limit, or a cancel, ends the work with the best plan so far: nothing is simulated then, and the plan says so."""

from __future__ import annotations

import pytest
from build import Files, example, tiny
from face import EXIT, solve, stopped, verify

LONG = [pytest.param(problem, marks=pytest.mark.slow) for problem in ("pipeline", "policy", "llm", "fleet")]
PROBLEMS = ["pool", "variants", "compound-rate", *LONG]
"""Problems of which plans are sized by simulation."""
FIRST = {"fleet": 4}
"""Units of work until there is a first plan, where it is more than one."""
SAVING = 8
"""So many small programs may begin after the end, to make a plan of what is known."""


def wish_of(problem: str) -> Files:
    return example(problem) if problem == "compound-rate" else tiny(problem)


@pytest.mark.quick_sample(5)
@pytest.mark.parametrize("after", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("by", ["limit", "cancel"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_best_plan_so_far_comes_back(problem: str, by: str, after: int) -> None:
    after = max(after, FIRST.get(problem, 1))
    wish = wish_of(problem)
    found = stopped(wish, after=after, by=by)
    answer = found.answer
    assert answer.plan is not None, (answer.reason, answer.conflict)
    assert answer.code in (EXIT["ok"], EXIT["limit" if by == "limit" else "interrupted"])
    assert not found.simulations_after
    assert found.programs_after <= SAVING
    assert answer.status != "not-simulated" or answer.code != EXIT["ok"]
    assert (answer.status == "not-simulated") == ("W-unconfirmed" in answer.warned())
    if problem != "fleet":  # whose promises are of rates: its parts were simulated
        assert (answer.status == "not-simulated") == (not any(one.is_simulated for one in answer.promises))
    found = verify(answer.plan, wish)
    assert found.is_ok
    assert answer.status != "not-simulated" or found.said.startswith("not simulated")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_limit_that_is_not_reached_changes_nothing(problem: str) -> None:
    answer = stopped(wish_of(problem), after=10_000).answer
    assert answer.code == EXIT["ok"]
    assert answer.status != "not-simulated"


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["pool", "variants"])
def test_the_bound_of_a_plan_that_was_cut_short_rules_out_no_plan(problem: str) -> None:
    wish = example(problem)
    best = solve(wish).claim
    assert best is not None
    for after in (1, 3, 5):
        answer = stopped(wish, after=after).answer
        assert answer.plan is not None
        assert verify(answer.plan, wish).is_ok
        sign = 1.0 if best.sense == "min" else -1.0
        assert answer.bound is None or sign * answer.bound <= sign * best.value * (1.0 + sign * 1e-6), answer.claims


@pytest.mark.slow
@pytest.mark.parametrize("by", ["limit", "cancel"])
def test_a_set_of_policies_that_was_cut_short_holds_at_every_rate(by: str) -> None:
    """Of a range of rates: the first policies are those of its ends."""
    wish = example("policy")
    for after in (2, 3, 4, 5):
        answer = stopped(wish, after=after, by=by).answer
        assert answer.plan is not None, (after, answer.reason)
        assert answer.code == EXIT["limit" if by == "limit" else "interrupted"], (after, answer.findings)
        assert verify(answer.plan, wish).is_ok
