"""An outcome for people and for machines: the plan, or why there is none and what would give one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetplan.cli.page import Page
from hetplan.cli.plan_page import show_notices, show_plan

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome

__all__ = ["outcome_body", "show_outcome"]


def show_outcome(outcome: Outcome, page: Page) -> None:
    """The plan as tables and whether it was verified; without a plan, why and the repairs."""
    if outcome.plan is not None:
        show_plan(outcome.plan, page)
        page.line()
        page.line(outcome.reason)
    else:
        page.line(outcome.reason)
        show_notices(outcome.warnings, page)
    if outcome.violations:
        page.heading("What the verification found")
        for violation in outcome.violations:
            page.line(f"  {violation}")
    if outcome.why:
        page.heading("Why")
        for reason in outcome.why:
            page.line(f"  {reason}")
    if outcome.repairs:
        page.heading("What would make it possible")
        for repair in outcome.repairs:
            page.line(f"  {repair.text}")


def outcome_body(outcome: Outcome) -> dict[str, Any]:
    """The outcome as the last JSON object tells it."""
    return {
        "status": outcome.status,
        "why": list(outcome.why),
        "repairs": [dict(vars(repair)) for repair in outcome.repairs],
        "claims": [claim.model_dump(mode="json") for claim in outcome.claims],
        "warnings": [notice.model_dump(mode="json") for notice in outcome.warnings],
        "violations": list(outcome.violations),
        "plan": outcome.plan.model_dump(mode="json", by_alias=True) if outcome.plan is not None else None,
    }
