"""Prints what is wrong with an outcome: violations that `verify` found, why no plan exists, what would give one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetplan.cli.output import Page

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome

__all__ = ["show_why"]


def show_why(outcome: Outcome, page: Page) -> None:
    """One line for each."""
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
        for number, repair in enumerate(outcome.repairs, start=1):
            page.line(f"  {number}. {repair.text}")
