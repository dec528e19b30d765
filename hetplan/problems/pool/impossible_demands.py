"""Demands that need no solver to be impossible: a quality that the variant has not, minima beyond the budget."""

from __future__ import annotations

import math

from hetplan.planner.draft import Infeasible
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.repairs import money, more_budget
from hetplan.problems.repairs import change
from hetplan.profiles.fields import money_text

__all__ = ["minima_over_budget", "too_poor"]


def too_poor(pool: Pool) -> Infeasible | None:
    """The one variant against the quality that is asked for."""
    wanted = pool.wish.app.quality
    quality = pool.inputs.profile.variants[pool.wish.variant].quality
    if wanted is None or (wanted.min is None and wanted.max is None):
        return None
    at = f"slo.apps.{pool.wish.app_id}.quality"
    if quality is None:
        return Infeasible(why=(f"{pool.wish.variant} states no quality, and {at} asks for one",))
    for side, bound in (("min", wanted.min), ("max", wanted.max)):
        if bound is not None and (quality.value < bound if side == "min" else quality.value > bound):
            repair = change(f"{at}.{side}", bound, quality.value, more=", or run another variant")
            return Infeasible(why=(f"{pool.wish.variant} has quality {quality.value:g}",), repairs=(repair,))
    return None


def minima_over_budget(pool: Pool) -> Infeasible | None:
    """The least instances of all types alone cost more than the budget."""
    if pool.wish.budget is None:
        return None
    cost = 0
    for t, kind in enumerate(pool.types):
        left = kind.least
        for o in pool.offers_of(t):
            column = pool.columns[o]
            taken = left if column.stock is None else min(left, column.stock)
            cost, left = cost + taken * column.price, left - taken
    if cost <= pool.wish.budget:
        return None
    named = ", ".join(f"{kind.least} {kind.hardware}" for kind in pool.types if kind.least)
    why = f"the least instances alone ({named}) need {money(pool, cost)}, the budget is {money_text(pool.wish.budget)}"
    lower = []
    for t, kind in enumerate(pool.types):
        prices = [pool.columns[o].price for o in pool.offers_of(t)]
        if kind.least and min(prices, default=0) > 0:
            fewer = max(0, kind.least - math.ceil((cost - pool.wish.budget) / min(prices)))
            lower.append(change(f"slo.limits.instances.{kind.hardware}[0]", kind.least, fewer, "instances"))
    return Infeasible(why=(why,), repairs=(more_budget(pool, cost, pool.wish.budget), *lower))
