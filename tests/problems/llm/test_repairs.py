"""What would help text that no fleet serves in time: found in few plays, and it does."""

from __future__ import annotations

import copy

import pytest

import hetplan as hp
from tests.cases import texts

QUICK = {"queries": 1500}


@pytest.mark.slow
def test_a_first_token_sooner_than_any_machine_makes_it_gets_the_time_that_a_fleet_keeps() -> None:
    """Raised from what an empty machine takes, by simulation, and back to near the least."""
    profile, slo = texts.profile(), texts.slo(ttft_ms=5.0)
    outcome = hp.solve(profile, slo, options=QUICK)
    assert outcome.exit_code == 3
    (repair,) = outcome.repairs
    assert repair.field.endswith(".ttft_p95_ms")
    assert "(fails at" in repair.text
    (edit,) = repair.edits
    slo["apps"]["chat"]["latency"][edit.path[3]] = edit.value
    assert hp.solve(profile, slo, options=QUICK).exit_code == 0


@pytest.mark.longest
@pytest.mark.parametrize("ttft_ms", [66.5, 68.0])
def test_a_limit_that_only_helps_with_another_one_is_raised_with_it(ttft_ms: float) -> None:
    """An empty machine's first token takes 66.4 ms: no queue does. So to raise the time per token alone is in vain."""
    profile, slo = texts.profile(), texts.slo(ttft_ms=ttft_ms, tpot_ms=7.0)
    outcome = hp.solve(profile, slo, options=QUICK)
    assert outcome.exit_code == 3
    (repair,) = outcome.repairs
    mended = copy.deepcopy(slo)
    for edit in repair.edits:
        mended["apps"]["chat"]["latency"][edit.path[3]] = edit.value
    assert {edit.path[3] for edit in repair.edits} == set(mended["apps"]["chat"]["latency"])
    assert hp.solve(profile, mended, options=QUICK).exit_code == 0
