"""The ways to choose a pool that are asked by name, each imported only then; and the least cost at the most rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hetplan.planner.answer import Answer
from hetplan.problems.pool.form import fluid, read_counts
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.rated import GAP, SAME_RATE, Chosen, Rated, backed, rate_at

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = ["then_cheapest", "way_of"]


if TYPE_CHECKING:
    from hetplan.planner.contract import Ask
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.problems.pool.letters import Pool
    from hetplan.problems.pool.rated import Chosen

    Way = Callable[[Pool, Ask], Chosen | Infeasible | Draft]


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
        from hetplan.problems.pool.baselines.eq15 import homogeneous

        return homogeneous
    from hetplan.problems.pool.search import by_search

    return by_search


def then_cheapest(pool: Pool, ask: Ask, best: Rated, answer: Answer[Any]) -> Chosen:
    """Of all pools of the most rate, one of the least cost."""
    target = best.lam * (1 - SAME_RATE / 10)
    again = ask(fluid(pool, target), gap=GAP, about="least cost at that rate")
    if again.point is not None:
        cheaper = read_counts(pool, again.point)
        if pool.cost(cheaper) < pool.cost(best.counts):
            best = rate_at(pool, ask, cheaper, known=again.point)
    return Chosen(best, (backed(pool, "rate_qps", answer, best), backed(pool, "cost_per_hour", again, best)))
