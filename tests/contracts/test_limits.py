"""A limit, or a cancel, ends the work with the best plan so far: nothing is simulated then, and the plan says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from build import Files, example, many_applications, tiny
from face import EXIT, simulated_violation, solve, spoken, stopped, verify

Json = dict[str, Any]
BUDGET = 3.0
"""What the tiny pools of the most rate may cost."""
SAVING = 9
"""So many small programs may begin after the end, to make a plan of what is known (of a pipeline seven, and two for
its bound)."""


def most_rate() -> Files:
    return tiny("pool").limited(cost=BUDGET).rated("max")


SEARCHES: Mapping[str, tuple[Callable[[], Files], Json]] = {
    "pool": (lambda: tiny("pool"), {}),
    "pool, long simulation": (lambda: tiny("pool"), {"sizing": "long simulation"}),
    "pool, most rate": (most_rate, {}),
    "pool, most rate, long simulation": (most_rate, {"sizing": "long simulation"}),
    "pool, kairos-plus": (most_rate, {"formulation": "kairos-plus"}),
    "variants": (lambda: tiny("variants"), {}),
    "variants, long simulation": (lambda: tiny("variants"), {"sizing": "long simulation"}),
    "variants, one program": (lambda: tiny("variants"), {"formulation": "milp"}),
    "compound-rate": (lambda: example("compound-rate"), {}),
    "policy, long simulation": (lambda: tiny("policy"), {"sizing": "long simulation"}),
}
LONG: Mapping[str, tuple[Callable[[], Files], Json]] = {
    "pipeline": (lambda: tiny("pipeline"), {}),
    "pipeline, long simulation": (lambda: tiny("pipeline"), {"sizing": "long simulation"}),
    "policy": (lambda: tiny("policy"), {}),
    "policy, fewest workers": (lambda: example("policy-fewest"), {"formulation": "fewest-workers"}),
    "llm": (lambda: tiny("llm"), {}),
    "llm, long simulation": (lambda: tiny("llm"), {"sizing": "long simulation"}),
    "fleet": (lambda: tiny("fleet"), {}),
    "fleet, long simulation": (lambda: tiny("fleet"), {"sizing": "long simulation"}),
    "compound": (lambda: example("compound"), {}),
}
EVERY = [*SEARCHES, *(pytest.param(name, marks=pytest.mark.longest) for name in LONG)]
"""All that is searched, by its problem and how."""
OF_PARTS = ("fleet", "policy", "compound")
"""What promises without a play: rates of parts that were simulated, figures of a policy, what was measured."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 8])
@pytest.mark.parametrize("by", ["limit", "cancel"])
@pytest.mark.parametrize("name", EVERY)
def test_the_best_plan_so_far_comes_back(name: str, by: str, after: int) -> None:
    made, how = {**SEARCHES, **LONG}[name]
    wish = made()
    found = stopped(wish, after=after, by=by, **how)
    answer = found.answer
    assert answer.plan is not None, (answer.reason, answer.conflict)
    assert answer.code in (EXIT["ok"], EXIT["limit" if by == "limit" else "interrupted"])
    assert not found.simulations_after
    assert found.programs_after <= SAVING
    assert answer.status != "not-simulated" or answer.code != EXIT["ok"]
    assert answer.status != "not-simulated" or "W-unconfirmed" in answer.warned()
    if not name.startswith(OF_PARTS):
        assert (answer.status == "not-simulated") == (not any(one.is_simulated for one in answer.promises))
    judged = verify(answer.plan, wish)
    assert judged.is_ok, judged.said
    assert answer.status != "not-simulated" or judged.said.startswith("not simulated")


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["pipeline", pytest.param("pool", marks=pytest.mark.longest), "variants"])
def test_more_work_never_makes_the_best_plan_worse(problem: str) -> None:
    """A simulated plan is better than one that is not, then one that meets its SLO, then that of the better objective.

    Whether it meets the SLO, an independent simulation says. Of plans that were not simulated the planner does not know
    which do, so a dearer one with more room may take the place of a cheaper one.
    """
    wish = example(problem)
    best: tuple[tuple[bool, bool], float] | None = None
    for after in (1, 2, 4, 6, 9, 12, 16, 20, 30, 60):
        answer = stopped(wish, after=after).answer
        assert answer.plan is not None
        claim = answer.claim
        assert claim is not None
        meets = not simulated_violation(answer.plan, wish, 1.0)
        is_known, value = answer.status != "not-simulated", claim.value if claim.sense == "max" else -claim.value
        this = ((is_known, meets), value if is_known else 0.0)
        assert best is None or this[0] > best[0] or (this[0] == best[0] and this[1] >= best[1] - 1e-9), (
            after,
            best,
            this,
        )
        best = max(best or this, this)


@pytest.mark.slow
def test_a_fleet_of_ten_applications_has_a_plan_from_the_first_units_on() -> None:
    wish = many_applications(10)
    for after in (1, 10, 60):
        answer = stopped(wish, after=after).answer
        assert answer.plan is not None, (after, answer.reason)
        assert verify(answer.plan, wish).is_ok


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("name", EVERY)
def test_a_limit_that_is_not_reached_changes_nothing(name: str) -> None:
    made, how = {**SEARCHES, **LONG}[name]
    answer = stopped(made(), after=10_000, **how).answer
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


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline", "llm"])
def test_a_plan_that_was_not_simulated_is_simulated_before_it_is_applied(problem: str) -> None:
    """The quick simulation of `watch` tells a plan that meets the SLO from one that has far too few machines."""
    wish = tiny(problem)
    answer = solve(wish)
    assert answer.plan is not None
    assert not simulated_violation(answer.plan, wish, 1.0)
    assert simulated_violation(answer.plan, wish, 3.0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline", "fleet"])
def test_long_work_says_where_it_is_until_its_end(problem: str) -> None:
    """A line every half minute or so, to the end, and with the best plan so far."""
    lines, took_s = spoken(tiny(problem))
    at = [when for when, _ in lines]
    assert at[-1] >= took_s - 40.0
    assert all(later - before <= 40.0 for before, later in pairwise([0.0, *at]))
    assert any("best so far" in text for _, text in lines)


@pytest.mark.longest
@pytest.mark.parametrize("rate", [300.0, 450.0])
def test_a_refused_policy_is_no_more_work_than_eight_plans(rate: float) -> None:
    """What helps is sought with few programs; what is found is tried by the whole question."""
    wish = tiny("policy").rarely_late(0.05).of_quality(0.765)
    kept, refused = wish.rated(75.0), wish.rated(rate)
    assert solve(kept).is_plan
    said = solve(refused)
    assert not said.is_plan
    assert said.changes
    (_, one), (_, all_of_it) = spoken(kept), spoken(refused)
    assert all_of_it <= 8 * one
