"""`hetplan show`: a plan file as readable tables."""

from __future__ import annotations

from hetplan.cli.arguments import PlanFile
from hetplan.cli.output import Output
from hetplan.cli.plan_page import show_plan
from hetplan.cli.plan_source import plan_from

__all__ = ["show"]


def show(plan: PlanFile) -> None:
    """Show a plan file as tables.

    What runs, what is promised, how good it is and what limits it. PLAN may be - for stdin.
    """
    with Output("show") as out:
        show_plan(plan_from(plan, warn=out.warn), out.people)
