"""The least cost at the most rate, where a wish asks for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetplan.planner.answer import Answer
from hetplan.problems.pool.form import fluid, read_counts
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.rated import GAP, SAME_RATE, Chosen, Rated, backed, rate_at

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = ["then_cheapest"]


def then_cheapest(pool: Pool, ask: Ask, best: Rated, answer: Answer[Any]) -> Chosen:
    """Of all pools of the most rate, one of the least cost."""
    target = best.lam * (1 - SAME_RATE / 10)
    again = ask(fluid(pool, target), gap=GAP, about="least cost at that rate")
    if again.point is not None:
        cheaper = read_counts(pool, again.point)
        if pool.cost(cheaper) < pool.cost(best.counts):
            best = rate_at(pool, ask, cheaper, known=again.point)
    return Chosen(best, (backed(pool, "rate_qps", answer, best), backed(pool, "cost_per_hour", again, best)))
