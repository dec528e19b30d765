"""What needs no solver to be impossible: too low a quality, classes late everywhere, a budget for no pool at all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pool.letters import Counts, Pool, Vector
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO, money_text

__all__ = ["SHOWN", "counted", "cover_costs", "impossible", "money", "more_budget"]

SHOWN = 5
"""How many classes are named one by one."""

MOST_TOLERANCE = 0.5
"""Option violation_tolerance stays below it: a target that most queries miss is none."""


def money(pool: Pool, nanos: int) -> str:
    """``$0.5260``, or ``EUR 0.5260``."""
    currency = pool.inputs.slo.limits.currency
    return f"{'$' if currency == 'USD' else currency + ' '}{nanos / NANO:.4f}"


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
        why.append(f"late on every type that may be rented: {listed}; in all {share:.4g} of the queries")
        if np.isfinite(least).all():
            repairs.append(_looser_target(pool, k, least))
            repairs += [_more_tolerance(pool, share)] if k == len(pool.limits) - 1 and share < MOST_TOLERANCE else []
        repairs += _let_in(pool, late, to_be_had)
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def _looser_target(pool: Pool, k: int, least: Vector) -> Repair:
    """The least limit that leaves late no more than the allowed share; with none allowed, max over s of min over t."""
    order = np.argsort(-least)
    reached = np.cumsum(pool.p[order]) > pool.limits[k][1] * (1 + 1e-9)
    target = pool.wish.targets[k]
    to = float(least[order[int(np.argmax(reached))]]) + target.hop_ms
    at = f"slo.apps.{pool.wish.app_id}.latency[{target.place}].max_ms"
    return change(at, target.max_ms, to, "ms")


def _more_tolerance(pool: Pool, share: float) -> Repair:
    at = "options.violation_tolerance"
    text = f"raise {at} to {share:.4g}, the share of those queries"
    target = pool.wish.targets[-1]
    if share > target.left:
        place = f"slo.apps.{pool.wish.app_id}.latency[{target.place}].percentile"
        text += f", and lower {place} to {100 * (1 - share):.6g} at most"
    return Repair(at, "raise", share - pool.eps, share, "share", text)


def _let_in(pool: Pool, late: np.ndarray[Any, Any], to_be_had: list[int]) -> list[Repair]:
    """Types of which the limits, or what there is to be had, allow none; first those that serve all these classes.

    Whether one helps alone, or with a longer limit beside it, is found by trying.
    """
    repairs = []
    for t in sorted(set(range(len(pool.types))) - set(to_be_had), key=lambda t: not pool.timely[late, t].all()):
        kind = pool.types[t]
        more = f": {kind.hardware} serves them in time" if pool.timely[late, t].all() else ""
        if kind.most == 0:
            at = f"slo.limits.instances.{kind.hardware}[1]"
            repairs.append(change(at, 0, 1, "instances", more=more))
        empty = [pool.columns[o].offer for o in pool.offers_of(t) if pool.columns[o].stock == 0]
        repairs += [change(f"profile.offers.{offer}.stock", 0, 1, "instances", more=more) for offer in empty]
    return repairs


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
    why = f"the least instances alone ({named}) need {money(pool, cost)}, budget {money_text(pool.wish.budget)}"
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


def cover_costs(pool: Pool, cover: Counts, budget: int) -> Infeasible:
    """The cheapest pool that carries any rate is over the budget."""
    cost = pool.cost(cover)
    needs = f"needs {money(pool, cost)}, budget {money_text(budget)}"
    why = f"the cheapest pool that serves every class in time ({counted(pool, cover)}) {needs}"
    return Infeasible(why=(why,), repairs=(more_budget(pool, cost, budget),))


def more_budget(pool: Pool, cost: int, budget: int) -> Repair:
    """Raise the budget to this cost."""
    at = "slo.limits.cost_per_hour"
    text = f"raise {at} from {money_text(budget)} to {money_text(cost)}"
    return Repair(at, "raise", (cost - budget) / NANO, money_text(cost), pool.inputs.slo.limits.currency, text)


def counted(pool: Pool, counts: Counts) -> str:
    """``3 t4, 2 cpu16``."""
    return ", ".join(f"{count} {name}" for count, name in zip(counts, pool.column_names, strict=True) if count)
