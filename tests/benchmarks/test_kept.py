"""Default plans keep their word on random instances: six of each question, or twenty, and 200 by `benchmarks/kept.py`.

Of pools, policies and variants that vary more (`-wide`), eight to twelve.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import kept

KEPT_AT_LEAST = 0.95


FEW = 6
MANY = {"pool-wide": 12, "policy-wide": 12, "variants-wide": 8}
"""The first pool alone takes as long as ten others."""
BRIEF = ("pool", "variants", "variants-shared")
"""Questions of which six plans take seconds."""


@pytest.mark.parametrize(
    ("question", "seeds"),
    [
        *(pytest.param(one, range(1, 1 + FEW), marks=pytest.mark.slow) for one in BRIEF),
        *(
            pytest.param(one, range(1, 1 + MANY.get(one, 20)), marks=pytest.mark.longest)
            for one in sorted(kept.QUESTIONS)
        ),
    ],
)
def test_default_plans_keep_their_word(question: str, seeds: range) -> None:
    judged = [kept.judge(question, kept.QUESTIONS[question].make(seed), search=False, beside=False) for seed in seeds]
    plans = [one for one in judged if one.kept is not None]
    assert len(plans) >= len(seeds) // 3  # the others ask for more than there is
    assert sum(one.kept for one in plans) >= KEPT_AT_LEAST * len(plans), [one for one in plans if not one.kept]


@pytest.mark.parametrize(
    "question", [pytest.param(one, marks=[pytest.mark.slow] * (one == "policy")) for one in sorted(kept.QUESTIONS)]
)
def test_instances_are_drawn_alike_and_are_sound(question: str) -> None:
    first, again = (kept.QUESTIONS[question].make(3) for _ in range(2))
    assert first == again
    assert first != kept.QUESTIONS[question].make(4)
    outcome = kept._solved(question, first, sizing="fluid")
    assert outcome.exit_code in (0, 3)


@pytest.mark.slow
def test_a_plan_that_is_late_is_not_called_kept() -> None:
    instance = next(
        made
        for made in map(kept.QUESTIONS["pool"].make, range(20))
        if (plan := kept._solved("pool", made, sizing="fluid", derate=1.0).plan) is not None
    )
    plan = kept._solved("pool", instance, sizing="fluid", derate=1.0).require()
    assert not kept.is_kept(instance, plan)


@pytest.mark.parametrize(
    "seed", [pytest.param(one, marks=pytest.mark.longest if one == 28 else pytest.mark.slow) for one in (26, 28, 42)]
)
def test_pools_that_seem_to_keep_their_word_are_not_handed_out(seed: int) -> None:
    """Runs that leave it open, a second limit that has no upper end, and more work than the machines can do."""
    one = kept.judge("pool-wide", kept.pool_wide(seed), search=False, beside=False)
    assert one.code == 0
    assert one.kept


@pytest.mark.longest
def test_a_pool_so_large_that_it_cannot_be_played_is_not_the_answer_to_a_limit_that_no_pool_keeps() -> None:
    made = kept.pool(3)
    times = made.profile["tables"]
    for table in times.values():
        table["std"] = [0.25 * one for one in table["mean"]]
    outcome = kept._solved("pool", made)
    assert outcome.exit_code == 3
    assert outcome.plan is None


@pytest.mark.slow
def test_few_fast_machines_that_were_late_say_nothing_of_pools_with_more_of_them() -> None:
    """One fast machine is late with whatever is beside it; two with fewer others carry the rate for less."""
    plan = kept._solved("pool", kept.pool(6097)).require()
    assert next(one.value for one in plan.promises if one.quantity == "cost_per_hour") < 2.1
    assert kept.is_kept(kept.pool(6097), plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6009, 6040, 6108])
def test_what_uses_up_nearly_all_that_may_be_late_is_not_handed_out(seed: int) -> None:
    """Each has a pool one machine smaller, of which some runs say that it keeps the wish, and others not."""
    made = kept.pool(seed)
    plan = kept._solved("pool", made).require()
    lost = next(one for one in plan.promises if one.quantity == "violations")
    assert lost.interval is not None
    assert lost.interval[1] < 0.97 * lost.value
    assert kept.is_kept(made, plan)
