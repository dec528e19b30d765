"""Default plans keep their word on random instances: a dozen of each question here, 200 by `benchmarks/kept.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import kept

KEPT_AT_LEAST = 0.95


@pytest.mark.slow
@pytest.mark.parametrize("question", sorted(kept.QUESTIONS))
def test_default_plans_keep_their_word(question: str) -> None:
    # The first pool alone takes as long as ten others.
    judged = [
        kept.judge(question, kept.QUESTIONS[question].make(seed), search=False, beside=False) for seed in range(1, 13)
    ]
    plans = [one for one in judged if one.kept is not None]
    assert len(plans) >= 6
    assert sum(one.kept for one in plans) >= KEPT_AT_LEAST * len(plans), [one for one in plans if not one.kept]


@pytest.mark.parametrize(
    "question", [pytest.param(one, marks=[pytest.mark.slow] * (one == "policy")) for one in sorted(kept.QUESTIONS)]
)
def test_instances_are_drawn_alike_and_are_sound(question: str) -> None:
    first, again = (kept.QUESTIONS[question].make(3) for _ in range(2))
    assert first == again
    assert first != kept.QUESTIONS[question].make(4)
    outcome = kept._solved(question, first, size="planned")
    assert outcome.exit_code in (0, 3)


@pytest.mark.slow
def test_a_plan_that_is_late_is_not_called_kept() -> None:
    instance = next(
        made
        for made in map(kept.QUESTIONS["pool"].make, range(20))
        if (plan := kept._solved("pool", made, size="planned", derate=1.0).plan) is not None
    )
    plan = kept._solved("pool", instance, size="planned", derate=1.0).require()
    assert not kept.is_kept(instance, plan)
