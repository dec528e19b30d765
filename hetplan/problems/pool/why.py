"""Why there is no pool, and the smallest change that would give one, in the words of the user's files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.planner.elastic import explain
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pool.form import cover, fluid, least_raise, most_of, read_counts, read_rate
from hetplan.problems.pool.letters import Counts, Pool, Vector
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO, money_text

__all__ = ["impossible", "less_rate", "nothing_served", "too_slow", "unaffordable", "unreachable"]

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
    """Types that serve all those classes in time, of which the limits allow none."""
    repairs = []
    for t, kind in enumerate(pool.types):
        if t not in to_be_had and bool(pool.timely[late, t].all()) and kind.most == 0:
            at = f"slo.limits.instances.{kind.hardware}[1]"
            repairs.append(change(at, 0, 1, "instances", more=f": {kind.hardware} serves them in time"))
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
    stated = [f"slo.limits.instances.{kind.hardware}[0]" for kind in pool.types if kind.least]
    lower = [Repair(at, "lower", None, None, "instances", f"or lower {at}") for at in stated]
    return Infeasible(why=(why,), repairs=(_more_budget(pool, cost, pool.wish.budget), *lower))


def _cover_over_budget(pool: Pool) -> Infeasible | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    if pool.wish.budget is None or pool.cover is None or pool.formulation == "fluid-lp":
        return None
    return _cover_costs(pool, pool.cover, pool.wish.budget) if pool.cost(pool.cover) > pool.wish.budget else None


def _cover_costs(pool: Pool, cover: Counts, budget: int) -> Infeasible:
    cost = pool.cost(cover)
    needs = f"needs {money(pool, cost)}, budget {money_text(budget)}"
    why = f"the cheapest pool that serves every class in time ({_counted(pool, cover)}) {needs}"
    return Infeasible(why=(why,), repairs=(_more_budget(pool, cost, budget),))


def _more_budget(pool: Pool, cost: int, budget: int) -> Repair:
    at = "slo.limits.cost_per_hour"
    text = f"raise {at} from {money_text(budget)} to {money_text(cost)}"
    return Repair(at, "raise", (cost - budget) / NANO, money_text(cost), pool.inputs.slo.limits.currency, text)


def unaffordable(pool: Pool, counts: Counts) -> Infeasible | None:
    """Why counts that were given break the budget or the limits (None where they do not)."""
    why, repairs = [], []
    cost = pool.cost(counts)
    if pool.wish.budget is not None and cost > pool.wish.budget:
        why.append(f"the given pool needs {money(pool, cost)}, budget {money_text(pool.wish.budget)}")
        repairs.append(_more_budget(pool, cost, pool.wish.budget))
    for t, count in enumerate(pool.of_type(counts)):
        kind = pool.types[t]
        at = f"slo.limits.instances.{kind.hardware}"
        if count < kind.least:
            why.append(f"{count} {kind.hardware} given, at least {kind.least} demanded")
            repairs.append(change(f"{at}[0]", kind.least, int(count), "instances"))
        elif kind.most is not None and count > kind.most:
            why.append(f"{count} {kind.hardware} given, at most {kind.most} allowed")
            repairs.append(change(f"{at}[1]", kind.most, int(count), "instances"))
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def nothing_served(pool: Pool, ask: Ask, counts: Counts) -> Infeasible:
    """The rate found is 0: the given pool misses a class, or no pool within the budget has a type for each.

    Only a cheapest cover that costs more than the budget proves the latter; otherwise there may be a pool after all.
    """
    if pool.formulation == "fluid-lp":
        return _given_serves_nothing(pool, counts)
    budget = pool.wish.budget
    why = f"formulation {pool.formulation} found no pool that serves every class in time"
    if pool.cover is not None or budget is None:
        advice = "" if pool.formulation == "fluid-milp" else "; fluid-milp finds one where there is any"
        return Infeasible(why=(why + advice,), proved=False)
    form = cover(pool)
    answer = ask(form, gap=0.0, about="cheapest pool that serves every class at all")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    if answer.bound is None or answer.bound * NANO <= budget or answer.point is None:
        return Infeasible(why=(f"{why}: {answer.stop}",), proved=False)
    return replace(_cover_costs(pool, read_counts(pool, answer.point), budget), answer=answer)


def _given_serves_nothing(pool: Pool, counts: Counts) -> Infeasible:
    there = pool.of_type(counts) > 0
    missed = np.flatnonzero(~pool.usable[:, there].any(axis=1))
    if missed.size:
        named = ", ".join(pool.class_label(int(s)) for s in missed[:SHOWN])
        return Infeasible(why=(f"the given pool serves {len(missed)} classes of queries in time nowhere ({named})",))
    fastest = np.where(pool.usable[:, there], pool.M[:, there], np.inf).min(axis=1)
    late = [
        f"{pool.p[fastest > limit].sum():.4g} of the queries later than {limit:g} ms, {share:.4g} are allowed"
        for limit, share in pool.limits
        if float(pool.p[fastest > limit].sum()) > share
    ]
    return Infeasible(why=(f"the given pool serves at best {'; '.join(late)}",), proved=bool(late))


def _counted(pool: Pool, counts: Counts) -> str:
    return ", ".join(f"{count} {name}" for count, name in zip(counts, pool.column_names, strict=True) if count)


def unreachable(pool: Pool, ask: Ask, form: Milp, answer: Answer[Any]) -> Infeasible:
    """No pool reaches the rate under the limits: the best rate within them, and the cheapest limits to raise."""
    target = pool.fluid_target
    if target is None:
        return explain(form, ask)
    best = ask(fluid(pool, None, most=most_of(pool, target=target)), gap=1e-6, about="best rate within the limits")
    raised_form = least_raise(pool, target)
    raised = ask(raised_form, gap=1e-6, about="cheapest limits to raise")
    if best.point is None or raised.point is None:
        return explain(form, ask)
    reached = read_rate(best.point, scale=pool.unit_rate) * pool.options.derate
    why = f"the limits on instances allow {reached:.6g} qps at best, {pool.wish.rate_qps:g} are asked for"
    repairs = (*_raises(pool, raised_form, raised.point), less_rate(pool, reached))
    return Infeasible(why=(why,), repairs=repairs, answer=answer)


def less_rate(pool: Pool, reached: float) -> Repair:
    """Ask for no more than can be reached."""
    at = f"slo.apps.{pool.wish.app_id}.demand.rate_qps"
    return change(at, pool.wish.rate_qps or 0.0, reached, "qps")


def _raises(pool: Pool, form: Milp, point: np.ndarray[Any, Any]) -> list[Repair]:
    """The raised limits of a point of `least_raise`."""
    found = []
    for block in form.columns:
        if not block.name.startswith("extra_"):
            continue
        for i in range(block.size):
            extra = round(float(point[block.start + i]))
            if extra == 0:
                continue
            name = block.label(i)
            if block.name == "extra_most":
                at = f"slo.limits.instances.{name}[1]"
                stated = next(kind.most for kind in pool.types if kind.hardware == name)
            else:
                at = f"profile.offers.{name}.stock"
                stated = next(column.stock for column in pool.columns if column.offer == name)
            found.append((at, stated or 0, extra))
    together = " (together with the others)" if len(found) > 1 else ""
    return [change(at, stated, stated + extra, "instances", more=together) for at, stated, extra in found]


def too_slow(pool: Pool, counts: Counts, lam: float, *, proved: bool) -> Infeasible:
    """A pool that is given, or found with a hair missing, does not reach the rate."""
    reached = lam * pool.options.derate
    why = f"the pool {_counted(pool, counts)} carries {reached:.9g} qps, {pool.wish.rate_qps:g} are asked for"
    return Infeasible(why=(why,), repairs=(less_rate(pool, reached),), proved=proved)
