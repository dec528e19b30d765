"""What would help text that no fleet serves in time: found in few plays, and it does."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetplan as hp
from hetplan.problems.llm.why import FACTORS, _first
from tests.cases import texts

QUICK = {"requests": 1500, "seeds": 5}


@given(st.integers(0, len(FACTORS)))
def test_the_first_factor_that_does_is_found_and_none_is_tried_where_the_last_does_not(place: int) -> None:
    asked = list[float]()

    def does(factor: float) -> bool:
        asked.append(factor)
        return factor in FACTORS[place:]

    assert _first(FACTORS, does) == (FACTORS[place] if place < len(FACTORS) else None)
    assert asked[0] == FACTORS[-1]
    assert len(asked) == (1 if place == len(FACTORS) else min(place + 2, len(FACTORS)))


@pytest.mark.slow
@pytest.mark.parametrize("ttft_ms", [66.5, 68.0])
def test_a_limit_that_only_helps_with_another_one_is_raised_with_it(ttft_ms: float) -> None:
    """An empty machine's first token takes 66.4 ms: no queue does. So to raise the time per token alone is in vain."""
    profile, slo = texts.profile(), texts.slo(ttft_ms=ttft_ms, tpot_ms=7.0)
    outcome = hp.solve(profile, slo, options=QUICK)
    assert outcome.exit_code == 3
    (repair,) = outcome.repairs
    mended = copy.deepcopy(slo)
    for edit in repair.edits:
        mended["apps"]["chat"]["latency"][int(edit.path[3])]["max_ms"] = edit.value
    assert {int(edit.path[3]) for edit in repair.edits} == {0, 1}
    assert hp.solve(profile, mended, options=QUICK).exit_code == 0
