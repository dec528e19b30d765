"""Wishes that need no solver to be impossible: too low a quality, classes late everywhere, a budget too small."""

from __future__ import annotations

import math

import numpy as np

from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.repairs import cover_costs, let_in, looser_target, money, more_budget, more_tolerance
from hetplan.problems.repairs import change
from hetplan.profiles.fields import money_text

__all__ = ["SHOWN", "impossible"]

SHOWN = 5
"""How many classes are named one by one."""

MOST_TOLERANCE = 0.5
"""Option violation_tolerance stays below it: a target that most queries miss is none."""


def impossible(pool: Pool) -> Infeasible | None:
    """What no solver is needed for: too low a quality, classes late everywhere, a budget for no pool at all."""
    return _too_poor(pool) or _late_everywhere(pool) or _minima_over_budget(pool) or _cover_over_budget(pool)


def _too_poor(pool: Pool) -> Infeasible | None:
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


def _late_everywhere(pool: Pool) -> Infeasible | None:
    """Classes that no type to be had serves within a target, where these are more than the target leaves."""
    to_be_had = pool.rentable
    least = np.where(pool.served, pool.M, np.inf)[:, to_be_had].min(axis=1, initial=np.inf)
    why, repairs = [], list[Repair]()
    for k, (limit, allowed) in enumerate(pool.limits):
        late = np.isinf(least) | (least > limit)
        share = float(pool.p[late].sum())
        if share <= allowed * (1 + 1e-9) and not np.isinf(least).any():
            continue
        named = [f"{pool.class_label(int(s))} (share {pool.p[s]:.4g})" for s in np.flatnonzero(late)]
        listed = ", ".join(named[:SHOWN]) + (f" and {len(named) - SHOWN} more bins" if len(named) > SHOWN else "")
        why.append(f"late on every type that may be rented: {listed}; together a share of {share:.4g} of the queries")
        if np.isfinite(least).all():
            repairs.append(looser_target(pool, k, least))
            repairs += [more_tolerance(pool, share)] if k == len(pool.limits) - 1 and share < MOST_TOLERANCE else []
        repairs += let_in(pool, late, to_be_had)
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def _minima_over_budget(pool: Pool) -> Infeasible | None:
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


def _cover_over_budget(pool: Pool) -> Infeasible | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    if pool.wish.budget is None or pool.cover is None or pool.formulation == "fluid-lp":
        return None
    return cover_costs(pool, pool.cover, pool.wish.budget) if pool.cost(pool.cover) > pool.wish.budget else None
