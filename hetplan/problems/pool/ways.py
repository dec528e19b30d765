"""The ways to choose a pool, each a conversation with engines, and how its end becomes a plan.

The default asks the exact fluid program, reads whole counts, and asks again for the rate of exactly these counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.draft import Draft, Infeasible, Repair, Reported, Scope
from hetplan.problems.pool.draft import draft
from hetplan.problems.pool.form import fluid, read_counts
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.rated import GAP, Chosen, Rated, backed, holds, point_of, rate_at, start
from hetplan.problems.pool.repairs import SHOWN, cover_costs, let_in, looser_target, more_tolerance

__all__ = ["chosen_by", "drafted", "impossible", "planned", "worth_merging"]


if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

    Way = Callable[[Pool, Ask], Chosen | Infeasible | Draft]


SEARCHES = ("kairos-plus", "exhaustive", "rand", "gene", "anneal", "bo")
"""Formulations that try out pools, whatever their size."""
SLIPS = (0.0, 2e-6, 2e-5)
"""By how much budget and rate are tightened, in turn, until whole counts keep them exactly; the first is the rule."""


def planned(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """Answer by the chosen formulation; also where there is no pool, what reading the files found is reported."""
    found = _planned(pool, ask)
    return replace(found, warnings=(*pool.notices, *found.warnings)) if isinstance(found, Infeasible) else found


def _planned(pool: Pool, ask: Ask) -> Draft | Infeasible:
    if pool.wish.rate_qps == 0.0 and pool.formulation != "fluid-lp":
        from hetplan.problems.pool.idle import idle

        return drafted(pool, ask, idle(pool, ask))
    if pool.options.size == "simulated" or pool.options.dispatch == "threshold":
        from hetplan.problems.pool.size import check_can_simulate

        check_can_simulate(pool)
    reason = impossible(pool)
    if reason is not None:
        return reason
    if pool.wish.targets and (pool.formulation in SEARCHES or pool.options.size != "planned"):
        from hetplan.problems.pool import kept

        if pool.formulation in ("fluid-milp", *SEARCHES):
            kept.keep_first(pool, ask)

        if pool.options.size == "estimated":
            return kept.estimated(pool, ask, lambda tried: drafted(tried, ask, chosen_by(pool.formulation)(tried, ask)))
        if pool.options.size == "auto" and pool.fluid_target is not None and pool.formulation == "fluid-milp":
            sized = kept.cheapest_kept(pool, ask)
            if sized is not None:
                return sized
    return drafted(pool, ask, chosen_by(pool.formulation)(pool, ask))


def chosen_by(formulation: str) -> Way:
    """The way of a formulation; what is not the default is imported only when it is named."""
    if formulation == "fluid-milp":
        return fluid_milp
    from hetplan.problems.pool.ways_named import way_of

    return way_of(formulation)


def fluid_milp(pool: Pool, ask: Ask) -> Chosen | Infeasible:
    """The exact fluid program over whole counts; for a rate to be kept in simulation, a search upward from it."""
    if pool.options.size == "simulated" and pool.fluid_target is not None:
        from hetplan.problems.pool.size import smallest

        sized = smallest(pool, ask)
        if sized is not None:
            return sized
        found = fluid_best(pool, ask)  # it says why there is none
        return found if isinstance(found, Infeasible) else Infeasible(why=("no bound was found",), proved=False)
    if worth_merging(pool, cast(FluidOptions, pool.options).classes):
        from hetplan.problems.pool.groups import merged_best

        by_groups = merged_best(pool, ask, fluid_best)
        if by_groups is not None:
            return by_groups
    found = fluid_best(pool, ask)
    if isinstance(found, Infeasible):
        return found
    rated, answer = found
    if pool.fluid_target is not None:
        return Chosen(rated, (backed(pool, "cost_per_hour", answer, rated),))
    if pool.wish.then_cheapest and rated.lam > 0:
        from hetplan.problems.pool.ways_named import then_cheapest

        return then_cheapest(pool, ask, rated, answer)
    return Chosen(rated, (backed(pool, "rate_qps", answer, rated),))


def fluid_best(pool: Pool, ask: Ask) -> tuple[Rated, Answer[Any]] | Infeasible:
    """The pool that the program chooses, and the program's answer."""
    target = pool.fluid_target
    first = start(pool, target)
    tightened = list(SLIPS)
    while True:
        slip = tightened.pop(0)
        form = fluid(pool, target, slip=slip)
        scale = target or pool.unit_rate
        at = None
        if first is not None:
            at = point_of(pool, first, lam=target * (1 + slip) if target else first.lam, scale=scale)
        about = "least cost for the rate" if target else "most rate for the budget"
        answer = ask(form, start=at, gap=GAP, about=about)
        if answer.status is Status.INFEASIBLE:
            from hetplan.planner.elastic import explain

            return explain(form, ask)
        if answer.point is None:
            return Infeasible(why=(f"no pool was found: {answer.stop}",), proved=False)
        rated = rate_at(pool, ask, read_counts(pool, answer.point), known=answer.point)
        if not holds(pool, rated) and not tightened and first is not None:
            rated = rate_at(pool, ask, first.counts)
        if holds(pool, rated) or not tightened:
            return rated, answer


def worth_merging(pool: Pool, most: int) -> bool:
    """Whether there are more classes than that, and none may be late by design (else it matters which)."""
    return pool.p.size > most and all(share <= 0 for _, share in pool.limits) and not pool.wish.then_cheapest


def drafted(pool: Pool, ask: Ask, found: Chosen | Infeasible | Draft) -> Draft | Infeasible:
    """The plan of a chosen pool, with what the answers say about it."""
    if not isinstance(found, Chosen):
        return found
    rated, simulated, claims = found.rated, found.simulated, found.backed
    if rated.lam <= 0:
        if pool.wish.rate_qps == 0.0:
            from hetplan.problems.pool.idle import waiting

            return waiting(pool, rated.counts)
        from hetplan.problems.pool.why import nothing_served

        return nothing_served(pool, ask, rated.counts)
    if pool.options.size == "auto" and pool.wish.targets and pool.wish.rate_qps != 0.0 and simulated is None:
        from hetplan.problems.pool.kept import kept

        return kept(pool, ask, found)
    if pool.options.size == "simulated" and simulated is None:
        from hetplan.problems.pool import size

        simulated = size.simulate(pool, pool.of_type(rated.counts), rated.lam, first_seed=ask.limits.seed)
        simulated = replace(simulated, at_most=rated.lam)
        claims = tuple(size.claims(pool, ask, simulated, claims))
    elif simulated is None and pool.wish.budget is None and not holds(pool, rated):
        from hetplan.problems.pool.why import too_slow

        given = pool.formulation == "fluid-lp" and rated.answer.status is Status.OPTIMAL
        return too_slow(pool, rated.counts, rated.lam, proved=given)
    note = "the most that the chosen pool can carry"
    scope: Scope = "restriction" if claims else "problem"
    reported = (*claims, Reported("fluid_rate_qps", "max", scope, rated.answer, value=rated.lam, note=note))
    threshold = simulated.threshold if simulated is not None else None
    if pool.options.dispatch == "threshold" and simulated is not None and threshold is None:
        from hetplan.problems.pool.size import simulate

        n, seed = pool.of_type(rated.counts), ask.limits.seed
        threshold = simulate(pool, n, rated.lam, first_seed=seed, look="sweep").threshold
    return draft(pool, replace(found, simulated=simulated), reported, threshold=threshold)


MOST_TOLERANCE = 0.5
"""Option violation_tolerance stays below it: a target that most queries miss is none."""


def impossible(pool: Pool) -> Infeasible | None:
    """What no solver is needed for: too low a quality, classes late everywhere, a budget for no pool at all."""
    if pool.wish.app.quality is None and not pool.least.any():
        return _late_everywhere(pool) or _cover_over_budget(pool)
    from hetplan.problems.pool.repairs import minima_over_budget, too_poor

    return too_poor(pool) or _late_everywhere(pool) or minima_over_budget(pool) or _cover_over_budget(pool)


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


def _cover_over_budget(pool: Pool) -> Infeasible | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    if pool.wish.budget is None or pool.cover is None or pool.formulation == "fluid-lp":
        return None
    return cover_costs(pool, pool.cover, pool.wish.budget) if pool.cost(pool.cover) > pool.wish.budget else None
