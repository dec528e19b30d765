"""Random plans of every question are honest: verify refuses none, and proves nearly all of their bounds again."""

from __future__ import annotations

import pytest

from benchmarks.certified_share import QUESTIONS, shared


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_honest_plan_is_refused(question: str) -> None:
    # So many plans, not so many seconds: of few plans one bound is more than a tenth.
    found = shared(QUESTIONS[question], seconds=1e9, seed=300, most=2 if question == "fleet" else 6)
    assert found.plans >= 1
    assert found.refused == []
    assert found.again >= 0.9 * found.bounds
