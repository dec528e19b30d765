"""The verdict table, every row of it, and the statuses a plan may call itself."""

from __future__ import annotations

import itertools

import pytest

from hetplan.planner.status import Exit, Finding, Found, PlanStatus, plan_status, verdict

BOOLEANS = (False, True)
GAPS = ((None, None), (1e-4, None), (1e-4, 1e-5), (1e-4, 1e-3), (None, 1e-3))


def expected(finding: Finding) -> Exit:
    """The table as prose has it (docs/reference/messages.md), written a second time and in another order."""
    failed_check = False
    if finding.found is Found.PLAN:
        failed_check |= finding.violations > 0 or finding.promise_broken
        failed_check |= finding.unchecked and not finding.unchecked_allowed
    asked, reached = finding.gap_asked, finding.gap_reached
    short = asked is not None and (reached is None or reached > asked)
    short |= finding.proof_required and not finding.proved
    if finding.found is Found.PLAN:
        ladder = [
            (failed_check, Exit.CHECK_FAILED),
            (finding.interrupted, Exit.INTERRUPTED),
            (finding.target_missed, Exit.INFEASIBLE),
            (short, Exit.GAP_NOT_REACHED),
            (finding.limited, Exit.LIMIT),
            (True, Exit.OK),
        ]
    else:
        without = {Found.INFEASIBLE: Exit.INFEASIBLE, Found.NOT_FOUND: Exit.INFEASIBLE, Found.NOTHING: Exit.LIMIT}
        ladder = [
            (finding.interrupted, Exit.INTERRUPTED),
            (failed_check, Exit.CHECK_FAILED),
            (True, without[finding.found]),
        ]
    return next(code for holds, code in ladder if holds)


def test_every_combination() -> None:
    seen = set()
    flags = itertools.product(BOOLEANS, repeat=8)
    for found, (asked, reached), flag in itertools.product(Found, GAPS, list(flags)):
        interrupted, missed, required, proved, unchecked, allowed, broken, limited = flag
        for violations in (0, 2):
            finding = Finding(
                found,
                interrupted=interrupted,
                limited=limited,
                target_missed=missed,
                gap_asked=asked,
                gap_reached=reached,
                proof_required=required,
                proved=proved,
                violations=violations,
                unchecked=unchecked,
                unchecked_allowed=allowed,
                promise_broken=broken,
            )
            got = verdict(finding)
            assert got.exit == expected(finding), finding
            assert got.reason
            seen.add(got.exit)
    assert seen == {
        Exit.OK,
        Exit.INFEASIBLE,
        Exit.GAP_NOT_REACHED,
        Exit.LIMIT,
        Exit.CHECK_FAILED,
        Exit.INTERRUPTED,
    }


@pytest.mark.parametrize(
    ("gap", "scope", "searched", "status"),
    [
        (0.0, "problem", False, PlanStatus.OPTIMAL),
        (0.0, "relaxation", False, PlanStatus.OPTIMAL),
        (0.0, "model", False, PlanStatus.OPTIMAL),
        (5e-5, "problem", False, PlanStatus.WITHIN_GAP),
        (5e-4, "problem", False, PlanStatus.FEASIBLE),
        (0.0, "restriction", False, PlanStatus.FEASIBLE),
        (None, "problem", False, PlanStatus.HEURISTIC),
        (0.0, "none", False, PlanStatus.HEURISTIC),
        (0.0, "problem", True, PlanStatus.BEST_OF_MEASURED),
    ],
)
def test_plan_status(gap, scope, searched, status) -> None:
    assert plan_status(gap=gap, scope=scope, allowed=1e-4, searched=searched) is status
