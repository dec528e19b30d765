"""A requirement means the same in every problem: what the answer shows keeps it, and no plan that breaks it verifies.

Each requirement is set a little tighter than a plan that was made without it. Then the planner must keep it, show that
nothing can, or refuse the field by name; and the verifier must refuse the plan that was made without it, whoever says
that it was made for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from build import FIELDS, PROBLEMS, Files, random_files
from face import EXIT, Answer, Refused, made_for, solve, verify


@dataclass(frozen=True)
class Requirement:
    """How a requirement is set that the plan at hand breaks (None: it cannot be broken by it), and how it is kept."""

    name: str
    tighten: Callable[[Files, Answer], Files | None]
    is_kept: Callable[[Answer, Answer], bool]
    """Of the plan made without the requirement and the plan made with it."""


@cache
def free(problem: str, seed: int) -> tuple[Files, Answer]:
    """A wish and its plan by rates alone."""
    wish = random_files(problem, seed)
    return wish, solve(wish, "fluid")


def busiest(answer: Answer) -> str:
    """The machine type of which the plan has most at once."""
    return max({one.machine for one in answer.machines}, key=lambda name: (at_once(answer, name), name))


def at_once(answer: Answer, machine: str | None = None) -> int:
    """The most machines at once in any period; nothing failed."""
    return max((answer.count(machine, period) for period in {one.period for one in answer.machines}), default=0)


def cheaper(wish: Files, answer: Answer) -> Files | None:
    return None if answer.cost is None else wish.limited(cost=0.97 * answer.cost)


def fewer(wish: Files, answer: Answer) -> Files:
    name = busiest(answer)
    return wish.limited(counts={name: (0, at_once(answer, name) - 1)})


def more(wish: Files, answer: Answer) -> Files | None:
    if any(one.period for one in answer.machines):
        return None  # of a fleet a machine that is rented and idle is in no group
    name = busiest(answer)
    return wish.limited(counts={name: (at_once(answer, name) + 1, 40)})


def scarcer(wish: Files, answer: Answer) -> Files | None:
    name = busiest(answer)
    if answer.cost is None or any(one.period for one in answer.machines):
        return None  # nothing has an offer; or each of two offers of a fleet has a stock
    return wish.stocked({name: at_once(answer, name) - 1})


def weaker(wish: Files, answer: Answer) -> Files:
    return wish.provides({"watts": 100}).limited(provided={"watts": 100 * at_once(answer) - 1})


def busier(wish: Files, answer: Answer) -> Files | None:
    promised = answer.promised("rate")
    return None if promised is None else wish.scaled_rates(1.05 * promised / wish.first_rate)


def better(wish: Files, answer: Answer) -> Files | None:
    quality = answer.promised("quality")
    return None if quality is None or quality >= 0.99 else wish.of_quality(quality + 0.01)


def has_fewer(free: Answer, plan: Answer) -> bool:
    name = busiest(free)
    return at_once(plan, name) < at_once(free, name)


def has_more(free: Answer, plan: Answer) -> bool:
    name = busiest(free)
    return at_once(plan, name) > at_once(free, name)


REQUIREMENTS = (
    Requirement("cost", cheaper, lambda free, plan: plan.cost <= 0.97 * free.cost + 1e-9),
    Requirement("most machines", fewer, has_fewer),
    Requirement(
        "fewest machines", more, lambda free, plan: at_once(plan, busiest(free)) > at_once(free, busiest(free))
    ),
    Requirement("stock", scarcer, has_fewer),
    Requirement("power", weaker, lambda free, plan: at_once(plan) < at_once(free)),
    Requirement("rate", busier, lambda free, plan: plan.promised("rate") >= 1.0499 * free.promised("rate")),
    Requirement("quality", better, lambda free, plan: plan.promised("quality") > free.promised("quality")),
)
QUICK = [problem for problem in PROBLEMS if problem != "policy"]
"""A policy takes seconds, even at fluid rates: a Markov decision process for each worker type and rate."""
CASES = [
    pytest.param(
        one,
        problem,
        seed,
        id=f"{one.name.replace(' ', '-')}-{problem}-{seed}",
        marks=() if seed == 0 and problem in QUICK else pytest.mark.slow,
    )
    for one in REQUIREMENTS
    for problem in PROBLEMS
    for seed in ((0, 1, 2) if problem in QUICK else (0,))
]


@pytest.mark.quick_sample(8)
@pytest.mark.parametrize(("requirement", "problem", "seed"), CASES)
def test_a_requirement_is_kept_or_shown_to_be_impossible(requirement: Requirement, problem: str, seed: int) -> None:
    wish, plan = free(problem, seed)
    tight = requirement.tighten(wish, plan)
    if tight is None:
        pytest.skip("the plan cannot break it")
    try:
        found = solve(tight, "fluid")
    except Refused as refusal:
        if FIELDS[requirement.name] not in str(refusal):
            raise
        return
    if found.is_plan:
        assert found.code in (EXIT["ok"], EXIT["gap"]), (found.reason, found.findings)
        assert requirement.is_kept(plan, found)
    else:
        assert found.code == EXIT["infeasible"]
        assert found.conflict


@pytest.mark.parametrize(("requirement", "problem", "seed"), CASES)
def test_no_plan_that_breaks_a_requirement_verifies(requirement: Requirement, problem: str, seed: int) -> None:
    wish, plan = free(problem, seed)
    tight = requirement.tighten(wish, plan)
    if tight is None:
        pytest.skip("the plan cannot break it")
    assert not verify(made_for(plan.plan, tight), tight).is_ok
