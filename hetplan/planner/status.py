"""From what was found and asked for to one status and one exit code: a single pure function, tested as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from hetplan.planner.tolerances import LARGEST_GAP, NO_GAP, OPTIMAL_GAP

__all__ = ["UNDECIDED", "Exit", "Finding", "Found", "PlanStatus", "Verdict", "plan_status", "verdict"]


class Exit(IntEnum):
    """The process exit codes, the same for every command (`docs/reference/messages.md`)."""

    OK = 0
    FAULT = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    GAP_NOT_REACHED = 4
    LIMIT = 5
    CHECK_FAILED = 6
    APPLY_FAILED = 7
    DIFFERENT = 8
    DISAGREES = 9
    INTERRUPTED = 130


class PlanStatus(StrEnum):
    """What is proved about a plan, said by type."""

    OPTIMAL = "optimal"
    WITHIN_GAP = "within-gap"
    FEASIBLE = "feasible"
    BEST_OF_MEASURED = "best-of-measured"
    HEURISTIC = "heuristic"
    NOT_SIMULATED = "not-simulated"
    """Sized by a formula alone: a limit or an interruption came before simulation confirmed it."""


class Found(StrEnum):
    """What the conversation with the problem came to."""

    PLAN = "plan"
    INFEASIBLE = "infeasible"
    NOT_FOUND = "not-found"
    """The space was searched to its end, or a stated target was missed: no plan, though none is proved impossible."""
    NOTHING = "nothing"
    """A limit or an interruption came before the first plan."""


UNDECIDED = "no error was found; latency limits are unchecked, because no measurement decides them"
"""In place of "verified", which nobody could have found to be false."""


@dataclass(frozen=True)
class Finding:
    """Everything the verdict depends on."""

    found: Found
    interrupted: bool = False
    limited: bool = False
    """A limit that was given ended some of the work."""
    target_missed: bool = False
    gap_asked: float | None = None
    gap_reached: float | None = None
    proof_required: bool = False
    proved: bool = False
    violations: int = 0
    unchecked: bool = False
    unchecked_allowed: bool = False
    promise_broken: bool = False
    undecided: bool = False
    """Some limit on times is neither kept nor broken by what was measured."""


@dataclass(frozen=True)
class Verdict:
    """The exit code and, in a few words, why."""

    exit: Exit
    reason: str


def verdict(finding: Finding) -> Verdict:
    """The one table. Its order is its meaning: a plan that fails a check is not excused by a limit that was hit.

    >>> verdict(Finding(Found.PLAN)).exit
    <Exit.OK: 0>
    >>> verdict(Finding(Found.PLAN, gap_asked=1e-4, gap_reached=2e-3)).exit
    <Exit.GAP_NOT_REACHED: 4>
    """
    if finding.found is Found.PLAN:
        return _with_plan(finding)
    return _first(
        (finding.interrupted, Exit.INTERRUPTED, "interrupted before a plan was found"),
        (finding.found is Found.INFEASIBLE, Exit.INFEASIBLE, "infeasible: no plan meets all requirements"),
        (finding.found is Found.NOT_FOUND, Exit.INFEASIBLE, "no plan that meets all requirements was found"),
        (True, Exit.LIMIT, "a limit ended the solve before a plan was found"),
    )


def _with_plan(finding: Finding) -> Verdict:
    asked, gap = finding.gap_asked, finding.gap_reached
    reached = "no gap" if gap is None else f"gap {gap:.2g}"
    missed = asked is not None and (gap is None or gap > asked + NO_GAP)
    unchecked = finding.unchecked and not finding.unchecked_allowed
    count = finding.violations
    return _first(
        (count > 0, Exit.CHECK_FAILED, f"the plan fails its verification ({count} violations)"),
        (finding.promise_broken, Exit.CHECK_FAILED, "simulation or measurement breaks a promise"),
        (unchecked, Exit.CHECK_FAILED, "no verifier checks plans of this problem"),
        (finding.interrupted, Exit.INTERRUPTED, "interrupted; this is the best plan so far"),
        (finding.target_missed, Exit.INFEASIBLE, "the plan is not shown to meet every requirement"),
        (finding.proof_required and not finding.proved, Exit.GAP_NOT_REACHED,
         "the plan is verified, its bound is not proved"),
        (missed, Exit.GAP_NOT_REACHED, f"the plan is verified, with {reached} where {asked or 0.0:g} was asked"),
        (finding.limited, Exit.LIMIT, "a limit ended the solve; this is the best plan so far"),
        (finding.undecided, Exit.OK, UNDECIDED),
        (True, Exit.OK, "verified"),
    )  # fmt: skip


def _first(*lines: tuple[bool, Exit, str]) -> Verdict:
    return next(Verdict(code, reason) for holds, code, reason in lines if holds)


def plan_status(*, gap: float | None, scope: str, allowed: float, searched: bool = False) -> PlanStatus:
    """What a plan may call itself, from its first claim.

    A bound of a restriction says nothing about the problem; one of a relaxation does, and one of a model holds in it.

    >>> plan_status(gap=0.0, scope="problem", allowed=1e-4)
    <PlanStatus.OPTIMAL: 'optimal'>
    """
    if searched:
        return PlanStatus.BEST_OF_MEASURED
    if gap is None or scope == "none":
        return PlanStatus.HEURISTIC
    if scope == "restriction" or gap > max(min(allowed, LARGEST_GAP), OPTIMAL_GAP):
        return PlanStatus.FEASIBLE
    return PlanStatus.OPTIMAL if gap <= OPTIMAL_GAP else PlanStatus.WITHIN_GAP
