"""Why no pool was found, and the smallest change that would give one, in the words of the user's files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.planner.elastic import explain
from hetplan.problems.pool.form import cover, read_counts
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.repairs import SHOWN, counted, cover_costs, money, more_budget
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO, money_text

__all__ = ["less_rate", "nothing_served", "too_slow", "unaffordable"]


def unaffordable(pool: Pool, counts: Counts) -> Infeasible | None:
    """Why counts that were given break the budget or the limits (None where they do not)."""
    why, repairs = [], []
    cost = pool.cost(counts)
    if pool.wish.budget is not None and cost > pool.wish.budget:
        why.append(f"the given pool needs {money(pool, cost)}, the budget is {money_text(pool.wish.budget)}")
        repairs.append(more_budget(pool, cost, pool.wish.budget))
    for t, count in enumerate(pool.of_type(counts)):
        kind = pool.request.machines[t]
        at = f"slo.limits.instances.{kind.id}"
        if count < kind.least:
            why.append(f"{count} {kind.id} given, at least {kind.least} demanded")
            repairs.append(change(f"{at}[0]", kind.least, int(count), "instances"))
        elif count > kind.most:
            why.append(f"{count} {kind.id} given, at most {kind.most} allowed")
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
    return replace(cover_costs(pool, read_counts(pool, answer.point), budget), answer=answer)


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


def less_rate(pool: Pool, reached: float) -> Repair:
    """Ask for no more than can be reached."""
    at = f"slo.apps.{pool.wish.app_id}.demand.rate_qps"
    return change(at, pool.wish.rate_qps or 0.0, reached, "qps")


def too_slow(pool: Pool, counts: Counts, lam: float, *, proved: bool) -> Infeasible:
    """A pool that is given, or found with a hair missing, does not reach the rate."""
    reached = lam * pool.options.derate
    why = f"the pool {counted(pool, counts)} carries {reached:.9g} qps, {pool.wish.rate_qps:g} are asked for"
    return Infeasible(why=(why,), repairs=(less_rate(pool, reached),), proved=proved)
