"""Random compound queries at a rate: default plans keep their word on fresh seeds, where the formula alone does not."""

from __future__ import annotations

import pytest

import hetplan as hp
from benchmarks import kept_compound

KEPT_AT_LEAST = 0.95


def test_a_case_is_the_same_each_time_and_cases_differ() -> None:
    assert kept_compound.case(3) == kept_compound.case(3)
    assert kept_compound.case(3) != kept_compound.case(4)


def test_cases_have_what_people_ask_for() -> None:
    cases = [kept_compound.case(number) for number in range(1, 41)]
    drawn = " ".join(one.drawn for one in cases)
    for part in ("line", "branches", "exit", "an API", "batches at", "shared models", "p50", "p90", "p95", "p99"):
        assert part in drawn, part
    arrivals = {str(app["arrivals"]) for one in cases for app in one.slo["apps"].values()}
    assert len(arrivals) == 4


@pytest.mark.parametrize(
    "cases", [pytest.param(range(1, 6), marks=pytest.mark.slow), pytest.param(range(1, 21), marks=pytest.mark.longest)]
)
def test_default_plans_keep_their_word(cases: range) -> None:
    plans = [one for one in (kept_compound.judged(number, search=False) for number in cases) if one.kept is not None]
    assert len(plans) >= len(cases) // 2
    assert sum(bool(one.kept) for one in plans) >= KEPT_AT_LEAST * len(plans), [one for one in plans if not one.kept]
    assert all(one.verified for one in plans), [one for one in plans if not one.verified]


@pytest.mark.slow
def test_a_machine_that_an_operator_leaves_empty_is_warned_of() -> None:
    one = kept_compound.case(72003)
    plan = hp.solve(*one.files, one.measured).require()
    assert "W-idle-machine" in {notice.code for notice in plan.warnings}
    report = hp.verify(plan, *one.files, one.measured)
    assert report.ok, report.violations


@pytest.mark.slow
def test_by_the_formula_alone_some_are_late() -> None:
    """What would not be seen if nothing were played."""
    found = [kept_compound.judged(number, search=False) for number in (16, 30)]
    assert not any(one.formula_kept for one in found), found
