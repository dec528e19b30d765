"""Every way of spoiling a correct plan is caught and named; what is neutral is let pass."""

import pytest
from cases import spoilt_plans
from cases.documents import read, spoil
from cases.plans import CASES

from hetplan.verifier.check import verify_plan
from hetplan.verifier.pool import check

ALL = [(case, *change) for case, changes in spoilt_plans.CHANGES.items() for change in changes]


def violations(case: str, edits: dict) -> list[str]:
    plan, inputs = read(spoil(CASES[case](), edits))
    # Plans written by hand carry no proofs.
    report = verify_plan(plan, inputs, check if plan.question == "pool" else None)
    assert report.ok == (not report.violations)
    return [f"{found.code} @ {found.at}" for found in report.violations]


@pytest.mark.parametrize("case", CASES)
def test_a_correct_plan_passes(case: str):
    assert violations(case, {}) == []


@pytest.mark.quick_sample(300)
@pytest.mark.parametrize(
    ("case", "words", "edits", "expected"), ALL, ids=[f"{case}: {words}" for case, words, *_ in ALL]
)
def test_a_spoilt_plan_is_caught_and_named(case: str, words: str, edits: dict, expected: str):
    assert sorted(set(violations(case, edits))) == sorted(filter(None, expected.split("; ")))


def test_there_are_many_kinds_of_spoiling():
    codes = {one.partition(" @ ")[0] for _, _, _, expected in ALL for one in expected.split("; ") if one}
    assert len(ALL) >= 200
    assert len(codes) >= 40
