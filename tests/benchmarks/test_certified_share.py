"""Random plans of every question are honest: verify refuses none, and proves nearly all of their bounds again."""

from __future__ import annotations

import pytest

from benchmarks.certified_share import QUESTIONS, shared


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_honest_plan_is_refused(question: str) -> None:
    found = shared(QUESTIONS[question], seconds=2.0, seed=300, most=10)
    assert found.plans >= 1
    assert found.refused == []
    assert found.again >= 0.9 * found.bounds
