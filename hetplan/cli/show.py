"""`hetplan show`: a plan file as readable tables, its policies as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetplan.cli.arguments import PlanFile
from hetplan.cli.output import Output
from hetplan.cli.plan_page import show_plan
from hetplan.cli.plan_source import plan_from
from hetplan.cli.policy_page import draw_policies, write_svg

__all__ = ["show"]

Svg = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", help="Draw the plan's policies (queue length x slack) into this SVG file."),
]
Load = Annotated[
    float | None, typer.Option("--load", metavar="QPS", min=0.0, help="Draw the policies that serve this load.")
]


def show(plan: PlanFile, svg: Svg = None, load: Load = None) -> None:
    """Show a plan file as tables.

    What runs, what is promised, how good it is and what limits it; of a policy also which model answers which queue.
    PLAN may be - for stdin.
    """
    with Output("show") as out:
        found = plan_from(plan, warn=out.warn)
        show_plan(found, out.people)
        draw_policies(found, out.people, load_qps=load)
        if svg is not None:
            write_svg(found, svg, load_qps=load)
            out.note(f"\ndrawn into {svg}")
