"""Why there is no pool, and the smallest change that would give one, in the words of the user's files.

Before any solver: the variant's quality is too low, classes are late on every type (more than the targets leave), the
minima or the cheapest cover cost more than the budget. After one: the pool that was given or found breaks a limit,
serves nobody, or carries too little. Where the program itself has no point, its rows say why (`planner.elastic`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.elastic import explain
from hetplan.planner.machine_limits import keeps
from hetplan.problems.pool.program import Counts, Pool, cover_program, read_counts
from hetplan.problems.pool.request import Vector
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO, money_text

__all__ = ["infeasible_without_solver", "less_rate", "limits_broken", "nothing_served", "rate_not_reached"]

SHOWN = 5
"""How many classes are named one by one."""
MOST_TOLERANCE = 0.5
"""Option allow_late stays below it: a target that most queries miss is none."""


def infeasible_without_solver(pool: Pool) -> Infeasibility | None:
    """Why no pool can be, where no solver is needed to see it; None where there may be one."""
    return _quality_missed(pool) or _late_everywhere(pool) or _minima_over_budget(pool) or _cover_over_budget(pool)


def _quality_missed(pool: Pool) -> Infeasibility | None:
    """The one variant against the quality that is asked for."""
    app, quality = pool.wish.app, pool.types[0].quality
    if not app.has_quality_limit:
        return None
    at = f"slo.apps.{app.id}.quality"
    if quality is None:
        return Infeasibility(why=(f"{pool.wish.variant} states no quality, and {at} asks for one",))
    for side, bound in (("min", app.floor), ("max", app.ceiling)):
        if bound is not None and (quality < bound if side == "min" else quality > bound):
            repair = change(f"{at}.{side}", bound, quality, more=", or run another variant")
            return Infeasibility(why=(f"{pool.wish.variant} has quality {quality:g}",), repairs=(repair,))
    return None


def _late_everywhere(pool: Pool) -> Infeasibility | None:
    """Classes that no type to be had serves within a target, where these are more than the target leaves."""
    least = np.where(pool.served, pool.M, np.inf)[:, pool.rentable].min(axis=1, initial=np.inf)
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
            repairs.append(_looser_target(pool, k, least))
            repairs += [_more_tolerance(pool, share)] if k == len(pool.limits) - 1 and share < MOST_TOLERANCE else []
        repairs += _more_types(pool, late, pool.rentable)
    return Infeasibility(why=tuple(why), repairs=tuple(repairs)) if why else None


def _minima_over_budget(pool: Pool) -> Infeasibility | None:
    """The least instances of all types alone cost more than the budget."""
    machines, budget = pool.request.machines, pool.request.budget
    cost = sum(kind.cost(kind.least) for kind in machines)
    if budget is None or cost <= budget:
        return None
    named = ", ".join(f"{kind.least} {kind.id}" for kind in machines if kind.least)
    why = f"the least instances alone ({named}) need {_price(pool, cost)}, the budget is {money_text(budget)}"
    lower = []
    for kind in machines:
        left = budget - (cost - kind.cost(kind.least))
        if left >= 0 and (fewer := kind.affordable(left)) < kind.least:
            lower.append(change(f"slo.limits.instances.{kind.id}[0]", kind.least, fewer, "instances"))
    return Infeasibility(why=(why,), repairs=(_more_budget(pool, cost, budget), *lower))


def _cover_over_budget(pool: Pool) -> Infeasibility | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    budget, cover = pool.request.budget, pool.cover
    if budget is None or cover is None or pool.formulation == "pool-lp" or pool.cost(cover) <= budget:
        return None
    return _cover_costs(pool, cover, budget)


def _cover_costs(pool: Pool, cover: Counts, budget: int) -> Infeasibility:
    """The cheapest pool that carries any rate is over the budget."""
    cost = pool.cost(cover)
    needs = f"needs {_price(pool, cost)}, the budget is {money_text(budget)}"
    why = f"the cheapest pool that serves every class in time ({_counts_text(pool, cover)}) {needs}"
    return Infeasibility(why=(why,), repairs=(_more_budget(pool, cost, budget),))


# -- of a pool that was given, or found ------------------------------------------------------------------------------


def limits_broken(pool: Pool, counts: Counts) -> Infeasibility | None:
    """Why counts that were given break the budget or the limits (None where they do not)."""
    why, repairs = [], []
    cost = pool.cost(counts)
    if pool.request.budget is not None and cost > pool.request.budget:
        why.append(f"the given pool needs {_price(pool, cost)}, the budget is {money_text(pool.request.budget)}")
        repairs.append(_more_budget(pool, cost, pool.request.budget))
    for limit in pool.machine_limits:
        if keeps([limit], counts.astype(float)):
            continue
        given = float(limit.total @ counts)
        end, bound = ("least", limit.lower) if given < limit.lower else ("most", limit.upper)
        why.append(f"{given:g} {limit.label} given, at {end} {bound:g} allowed")
        if limit.elastic is not None:
            field = limit.elastic.field.format(label=limit.label)
            repairs.append(change(field, bound, given, limit.elastic.unit))
    return Infeasibility(why=tuple(why), repairs=tuple(repairs)) if why else None


def nothing_served(pool: Pool, ask: Ask, counts: Counts) -> Infeasibility:
    """The rate found is 0: the given pool misses a class, or no pool within the budget has a type for each.

    Only a cheapest cover that costs more than the budget proves the latter; otherwise there may be a pool after all.
    """
    if pool.formulation == "pool-lp":
        return _given_serves_nothing(pool, counts)
    budget = pool.request.budget
    why = f"formulation {pool.formulation} found no pool that serves every class in time"
    if pool.cover is not None or budget is None:
        advice = "" if pool.formulation == "pool-milp" else "; pool-milp finds one where there is any"
        return Infeasibility(why=(why + advice,), proved=False)
    form = cover_program(pool)
    answer = ask(form, gap=0.0, about="cheapest pool that serves every class at all")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    if answer.bound is None or answer.bound * NANO <= budget or answer.point is None:
        return Infeasibility(why=(f"{why}: {answer.stop}",), proved=False)
    return replace(_cover_costs(pool, read_counts(pool, answer.point), budget), answer=answer)


def _given_serves_nothing(pool: Pool, counts: Counts) -> Infeasibility:
    there = pool.of_type(counts) > 0
    missed = pool.unserved_classes(there)
    if missed.size:
        named = ", ".join(pool.class_label(int(s)) for s in missed[:SHOWN])
        return Infeasibility(why=(f"the given pool serves {len(missed)} classes of queries in time nowhere ({named})",))
    fastest = np.where(pool.usable[:, there], pool.M[:, there], np.inf).min(axis=1)
    late = [
        f"{pool.p[fastest > limit].sum():.4g} of the queries later than {limit:g} ms, {share:.4g} are allowed"
        for limit, share in pool.limits
        if float(pool.p[fastest > limit].sum()) > share
    ]
    return Infeasibility(why=(f"the given pool serves at best {'; '.join(late)}",), proved=bool(late))


def rate_not_reached(pool: Pool, counts: Counts, lam: float, *, proved: bool) -> Infeasibility:
    """A pool that is given, or found with a hair missing, does not reach the rate."""
    reached = lam * pool.options.derate
    why = f"the pool {_counts_text(pool, counts)} carries {reached:.9g} qps, {pool.wish.rate_qps:g} are asked for"
    return Infeasibility(why=(why,), repairs=(less_rate(pool, reached),), proved=proved)


# -- repairs ---------------------------------------------------------------------------------------------------------


def less_rate(pool: Pool, reached: float) -> Repair:
    """Ask for no more than can be reached."""
    at = f"slo.apps.{pool.wish.app.id}.rate_qps"
    return change(at, pool.wish.rate_qps or 0.0, reached, "qps")


def _more_budget(pool: Pool, cost: int, budget: int) -> Repair:
    """Raise the budget to this cost."""
    at = "slo.limits.cost_per_hour"
    text = f"raise {at} from {money_text(budget)} to {money_text(cost)}"
    return Repair(at, "raise", (cost - budget) / NANO, money_text(cost), pool.request.currency, text)


def _looser_target(pool: Pool, k: int, least: Vector) -> Repair:
    """The least limit that leaves late no more than the allowed share; with none allowed, max over s of min over t."""
    order = np.argsort(-least)
    reached = np.cumsum(pool.p[order]) > pool.limits[k][1] * (1 + 1e-9)
    target = pool.wish.app.targets[k]
    to = float(least[order[int(np.argmax(reached))]]) + target.hop_ms
    at = f"slo.apps.{pool.wish.app.id}.latency.{target.key}"
    return change(at, target.max_ms, to, "ms")


def _more_tolerance(pool: Pool, share: float) -> Repair:
    """Let the share of queries that is late everywhere be late."""
    at = "options.allow_late"
    text = f"raise {at} to {share:.4g}, the share of those queries"
    target = pool.wish.app.targets[-1]
    if share > target.left:
        at_most = f"the percentile of slo.apps.{pool.wish.app.id}.latency.{target.key}"
        text += f", and lower {at_most} to {100 * (1 - share):.6g} at most"
    return Repair(at, "raise", share - pool.eps, share, "share", text)


def _more_types(pool: Pool, late: NDArray[np.bool_], rentable: Sequence[int]) -> list[Repair]:
    """Types of which the limits, or what there is to be had, allow none; first those that serve all these classes.

    Whether one helps alone, or with a longer limit beside it, is found by trying.
    """
    repairs = []
    for t in sorted(set(range(len(pool.types))) - set(rentable), key=lambda t: not pool.timely[late, t].all()):
        kind = pool.types[t]
        more = f": {kind.hardware} serves them in time" if pool.timely[late, t].all() else ""
        machine = pool.request.machines[t]
        if machine.most == 0:
            at = f"slo.limits.instances.{kind.hardware}[1]"
            repairs.append(change(at, 0, 1, "instances", more=more))
        empty = [offer.id for offer in machine.offers if offer.stock == 0]
        repairs += [change(f"profile.offers.{offer}.stock", 0, 1, "instances", more=more) for offer in empty]
    return repairs


# -- words -----------------------------------------------------------------------------------------------------------


def _price(pool: Pool, nanos: int) -> str:
    """``$0.5260``, or ``EUR 0.5260``."""
    currency = pool.request.currency
    return f"{'$' if currency == 'USD' else currency + ' '}{nanos / NANO:.4f}"


def _counts_text(pool: Pool, counts: Counts) -> str:
    """``3 t4, 2 cpu16``."""
    return ", ".join(f"{count} {offer.name}" for count, offer in zip(counts, pool.offers, strict=True) if count)
