"""The ways to choose a pool that are asked by name; each is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.problems.pool.letters import Pool
    from hetplan.problems.pool.rated import Chosen

    Way = Callable[[Pool, Ask], Chosen | Infeasible | Draft]

__all__ = ["way_of"]


def way_of(formulation: str) -> Way:
    """The way of a formulation other than the default."""
    if formulation == "fluid-lp":
        from hetplan.problems.pool.given import fluid_lp

        return fluid_lp
    if formulation == "enumerate-lp":
        from hetplan.problems.pool.listed import by_enumeration

        return by_enumeration
    if formulation in ("eq15", "eq15-rerank"):
        from hetplan.problems.pool.baselines.eq15 import by_eq15, by_rerank

        return by_eq15 if formulation == "eq15" else by_rerank
    if formulation == "homogeneous":
        from hetplan.problems.pool.baselines.homogeneous import homogeneous

        return homogeneous
    from hetplan.problems.pool.search import by_search

    return by_search
