"""From what was found and asked for to one status and one exit code: a single pure function, tested as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from hetplan.planner.tolerances import LARGEST_GAP, NO_GAP, OPTIMAL_GAP

__all__ = ["Exit", "Finding", "Found", "PlanStatus", "Verdict", "plan_status", "verdict"]


class Exit(IntEnum):
    """The process exit codes, the same for every command (`docs/cli.md`)."""

    OK = 0
    FAULT = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    GAP_NOT_REACHED = 4
    NO_PLAN = 5
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


class Found(StrEnum):
    """What the conversation with the problem came to."""

    PLAN = "plan"
    INFEASIBLE = "infeasible"
    NOT_FOUND = "not-found"
    """The space was searched to its end, or a stated target was missed: no plan, though none is proved impossible."""
    NOTHING = "nothing"
    """A limit or an interruption came before the first plan."""


@dataclass(frozen=True)
class Finding:
    """Everything the verdict depends on."""

    found: Found
    interrupted: bool = False
    target_missed: bool = False
    gap_asked: float | None = None
    gap_reached: float | None = None
    proof_required: bool = False
    proved: bool = False
    violations: int = 0
    unchecked: bool = False
    unchecked_allowed: bool = False
    recheck_disagrees: bool = False
    recheck_absent: bool = False
    """A second engine was named and checked nothing."""
    promise_broken: bool = False


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
    if finding.interrupted:
        return Verdict(Exit.INTERRUPTED, "interrupted before a plan was found")
    if finding.recheck_disagrees:
        return Verdict(Exit.CHECK_FAILED, "a second engine disagrees that no plan can exist")
    if finding.recheck_absent and finding.found is not Found.NOTHING:
        return Verdict(Exit.CHECK_FAILED, "the second engine that was named took no part")
    if finding.found is Found.INFEASIBLE:
        return Verdict(Exit.INFEASIBLE, "no plan can keep the whole wish")
    if finding.found is Found.NOT_FOUND:
        return Verdict(Exit.INFEASIBLE, "no plan that meets the targets was found")
    return Verdict(Exit.NO_PLAN, "a limit ended the work before a plan was found")


def _with_plan(finding: Finding) -> Verdict:
    if finding.violations:
        return Verdict(Exit.CHECK_FAILED, f"the plan fails its verification ({finding.violations} violations)")
    if finding.recheck_disagrees:
        return Verdict(Exit.CHECK_FAILED, "a second engine disagrees")
    if finding.recheck_absent:
        return Verdict(Exit.CHECK_FAILED, "the second engine that was named took no part")
    if finding.promise_broken:
        return Verdict(Exit.CHECK_FAILED, "simulation or measurement breaks a promise")
    if finding.unchecked and not finding.unchecked_allowed:
        return Verdict(Exit.CHECK_FAILED, "the question has no check of its own; --allow-unchecked accepts the plan")
    if finding.interrupted:
        return Verdict(Exit.INTERRUPTED, "interrupted; this is the best plan so far")
    if finding.target_missed:
        return Verdict(Exit.INFEASIBLE, "a stated target cannot be met")
    if finding.proof_required and not finding.proved:
        return Verdict(Exit.GAP_NOT_REACHED, "the plan is verified, its bound is not proved")
    if finding.gap_asked is not None and not _within(finding.gap_reached, finding.gap_asked):
        reached = "no gap" if finding.gap_reached is None else f"gap {finding.gap_reached:.2g}"
        return Verdict(
            Exit.GAP_NOT_REACHED, f"the plan is verified, with {reached} where {finding.gap_asked:g} was asked"
        )
    return Verdict(Exit.OK, "verified")


def _within(reached: float | None, asked: float) -> bool:
    return reached is not None and reached <= asked + NO_GAP


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
