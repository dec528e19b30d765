"""What plays a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.report import SimulationReport

__all__ = ["simulator_of"]


def simulator_of(plan: Plan) -> Callable[..., SimulationReport]:
    """What plays a plan: `simulate`, or token by token where its machines make text."""
    if plan.question == "llm":
        from hetplan.simulator.token_course import simulate_text

        return simulate_text
    from hetplan.simulator.simulate import simulate

    return simulate
