"""The ways to choose a pool, each a conversation with engines, and how its end becomes a plan.

The default asks the exact fluid program, reads whole counts, and asks again for the rate of exactly these counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Repair, Reported
from hetplan.planner.elastic import explain
from hetplan.planner.request import PLENTY
from hetplan.problems.faults import Faults
from hetplan.problems.pool.chosen import draft_chosen, draft_idle
from hetplan.problems.pool.infeasible import (
    SHOWN,
    cover_costs,
    let_in,
    looser_target,
    minima_over_budget,
    more_tolerance,
    too_poor,
    unaffordable,
)
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.options import FluidAtOptions, SearchOptions
from hetplan.problems.pool.program import fluid, minima, read_counts
from hetplan.problems.pool.rates import GAP, SAME_RATE, Chosen, Rated, backed, carried, holds, point_of, rate_at, start
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    Way = Callable[[Pool, Ask], Chosen | Infeasibility | Draft]

__all__ = [
    "GROUPS",
    "fluid_lp",
    "given_counts",
    "groups_of",
    "idle",
    "impossible",
    "merged",
    "merged_best",
    "planned",
    "then_cheapest",
    "way_of",
    "worth_merging",
]


SLIPS = (0.0, 2e-6, 2e-5)
"""By how much budget and rate are tightened, in turn, until whole counts keep them exactly; the first is the rule."""


def planned(pool: Pool, ask: Ask) -> Draft | Infeasibility:
    """Answer by the chosen formulation; also where there is no pool, what reading the files found is reported."""
    found = _planned(pool, ask)
    return replace(found, warnings=(*pool.notices, *found.warnings)) if isinstance(found, Infeasibility) else found


def _planned(pool: Pool, ask: Ask) -> Draft | Infeasibility:
    if pool.wish.rate_qps == 0.0 and pool.formulation != "fluid-lp":
        return draft_chosen(pool, ask, idle(pool, ask))
    if pool.options.size == "simulated" or pool.options.dispatch == "threshold":
        from hetplan.problems.pool.size import check_can_simulate

        check_can_simulate(pool)
    reason = impossible(pool)
    if reason is not None:
        return reason
    searches = isinstance(pool.options, SearchOptions)
    if pool.wish.app.targets and (searches or pool.options.size != "planned"):
        from hetplan.problems.pool import sizing
        from hetplan.problems.pool.size import against_bursts

        if searches or pool.formulation == "fluid-milp":
            sizing.keep_first(pool, ask)

        if pool.options.size == "estimated":
            return sizing.estimated(pool, ask, lambda tried: draft_chosen(tried, ask, way_of(pool)(tried, ask)))
        if pool.options.size == "auto" and pool.fluid_target is not None and pool.formulation == "fluid-milp":
            sized = sizing.cheapest_kept(pool, ask)
            if sized is not None:
                return sized if isinstance(sized, Infeasibility) else against_bursts(pool, ask, sized)
    return draft_chosen(pool, ask, way_of(pool)(pool, ask))


def way_of(pool: Pool) -> Way:
    """How the pool's formulation chooses: as another package says, or one of hetplan's, imported when it is named."""
    if pool.tools.formulation is not None and pool.tools.formulation.decide is not None:
        return pool.tools.formulation.decide
    if pool.formulation == "fluid-lp":
        return fluid_lp
    if pool.formulation == "eq15":
        from hetplan.problems.pool.eq15 import choose_by_estimate

        return choose_by_estimate
    if pool.formulation == "kairos-plus":
        from hetplan.problems.pool.search import search_pools

        return search_pools
    return fluid_milp


def fluid_milp(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """The exact fluid program over whole counts; for a rate to be kept in simulation, a search upward from it."""
    if pool.options.size == "simulated" and pool.fluid_target is not None:
        from hetplan.problems.pool.size import smallest

        sized = smallest(pool, ask, draft_chosen)
        if sized is not None:
            return sized
        found = fluid_best(pool, ask)  # it says why there is none
        return found if isinstance(found, Infeasibility) else Infeasibility(why=("no bound was found",), proved=False)
    if worth_merging(pool):
        by_groups = merged_best(pool, ask, fluid_best)
        if by_groups is not None:
            return by_groups
    found = fluid_best(pool, ask)
    if isinstance(found, Infeasibility):
        return found
    rated, answer = found
    if pool.fluid_target is not None:
        return Chosen(rated, (backed(pool, "cost_per_hour", answer, rated),))
    if pool.wish.then_cheapest and rated.lam > 0:
        return then_cheapest(pool, ask, rated, answer)
    return Chosen(rated, (backed(pool, "rate_qps", answer, rated),))


def fluid_best(pool: Pool, ask: Ask) -> tuple[Rated, Answer[Any]] | Infeasibility:
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
            return explain(form, ask)
        if answer.point is None:
            return Infeasibility(why=(f"no pool was found: {answer.stop}",), proved=False)
        rated = rate_at(pool, ask, read_counts(pool, answer.point), known=answer.point)
        if not holds(pool, rated) and not tightened and first is not None:
            rated = rate_at(pool, ask, first.counts)
        if holds(pool, rated) or not tightened:
            return rated, answer


MOST_CLASSES = 4000
"""Above so many classes alike ones are merged while counts are chosen: the exact program would take minutes."""


def worth_merging(pool: Pool) -> bool:
    """Whether there are many classes, and none may be late by design (else it matters which)."""
    return pool.p.size > MOST_CLASSES and all(share <= 0 for _, share in pool.limits) and not pool.wish.then_cheapest


MOST_TOLERANCE = 0.5
"""Option violation_tolerance stays below it: a target that most queries miss is none."""


def impossible(pool: Pool) -> Infeasibility | None:
    """What no solver is needed for: too low a quality, classes late everywhere, a budget for no pool at all."""
    if not pool.wish.app.has_quality_limit and not pool.least.any():
        return _late_everywhere(pool) or _cover_over_budget(pool)
    return too_poor(pool) or _late_everywhere(pool) or minima_over_budget(pool) or _cover_over_budget(pool)


def _late_everywhere(pool: Pool) -> Infeasibility | None:
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
    return Infeasibility(why=tuple(why), repairs=tuple(repairs)) if why else None


def _cover_over_budget(pool: Pool) -> Infeasibility | None:
    """Not even the cheapest pool that carries any rate is within the budget (where counts are not given)."""
    if pool.request.budget is None or pool.cover is None or pool.formulation == "fluid-lp":
        return None
    return cover_costs(pool, pool.cover, pool.request.budget) if pool.cost(pool.cover) > pool.request.budget else None


# -- the least cost at the most rate ---------------------------------------------------------------------------------


def then_cheapest(pool: Pool, ask: Ask, best: Rated, answer: Answer[Any]) -> Chosen:
    """Of all pools of the most rate, one of the least cost."""
    target = best.lam * (1 - SAME_RATE / 10)
    again = ask(fluid(pool, target), gap=GAP, about="least cost at that rate")
    if again.point is not None:
        cheaper = read_counts(pool, again.point)
        if pool.cost(cheaper) < pool.cost(best.counts):
            best = rate_at(pool, ask, cheaper, known=again.point)
    return Chosen(best, (backed(pool, "rate_qps", answer, best), backed(pool, "cost_per_hour", again, best)))


# -- groups of alike classes -----------------------------------------------------------------------------------------
#
# Pools for tens of thousands of classes of queries: alike classes are one while counts are chosen.
#
# Classes are alike when the same types serve them in time and their service times differ by little on each. A group g
# of them has the share ``p_g``, the sum of theirs, and on type t one of two service times::
#
#     the mean of the classes, by their shares   every x_gt can be kept class by class: a restriction; its counts do
#     the least of the classes                   whatever the classes can do the groups can: a relaxation, so a bound
#
# So the exact program is between the two, and the gap that is claimed holds for it. The rate of the chosen counts is
# computed with every class by itself.

GROUPS = 1000
"""About how many groups of alike classes there are."""


def groups_of(pool: Pool, groups: int) -> Counts:
    """The group of each class: alike in where it is served in time, and near in how long it takes there."""
    usable = pool.usable
    logs = np.where(usable, np.log(np.where(usable, pool.L, 1.0)), 0.0)
    size = logs.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    width = max(float(np.ptp(size)) / groups, 1e-12)
    near = np.floor((size - size.min()) / width)
    _, group = np.unique(np.column_stack([usable, near]), axis=0, return_inverse=True)
    return np.asarray(group.ravel(), dtype=np.int64)


def merged(pool: Pool, group: Counts, *, fastest: bool) -> Pool:
    """The pool with groups for classes; `fastest` takes of each group the least service time, else the mean."""
    count = int(group.max()) + 1
    share = np.asarray(np.bincount(group, weights=pool.p, minlength=count), dtype=np.float64)
    first = np.unique(group, return_index=True)[1]
    served = pool.usable[first]
    times = np.full((count, len(pool.types)), np.inf)
    if fastest:
        np.minimum.at(times, group, pool.L)
    else:
        held = np.where(pool.usable, pool.L, 0.0) * pool.p[:, None]
        times = np.column_stack([np.bincount(group, weights=column, minlength=count) for column in held.T])
        times /= share[:, None]
    compared = np.where(served, 0.0, np.inf)
    wish = replace(pool.wish, p=share, points=tuple(pool.wish.points[s] for s in first))
    mean = np.where(served, times, np.inf)
    spread = replace(pool.times, mean_ms=mean, compared_ms=compared, std_ms=None, max_ms=None)
    return replace(pool, wish=wish, times=replace(spread, extrapolated=np.zeros(mean.shape, dtype=bool)))


def merged_best(
    pool: Pool, ask: Ask, fluid_best: Callable[[Pool, Ask], tuple[Rated, Answer[Any]] | Infeasibility]
) -> Chosen | Infeasibility | None:
    """The fluid program (asked by `fluid_best`) by groups of classes; None where only the exact one can say."""
    group = groups_of(pool, GROUPS)
    mean, least = merged(pool, group, fastest=False), merged(pool, group, fastest=True)
    form = fluid(least, pool.fluid_target)
    bound = ask(form, gap=GAP, about=f"bound by {mean.p.size} groups of classes")
    if bound.status is Status.INFEASIBLE:
        return explain(form, ask)
    found = fluid_best(mean, ask)
    if isinstance(found, Infeasibility):
        return None
    counts = found[0].counts
    kept = carried(pool, counts, found[0].share[group], found[1])
    rated = max(rate_at(pool, ask, counts), kept, key=lambda one: one.lam)
    if not holds(pool, rated):
        return None
    text = (
        f"{pool.p.size} classes of queries were {mean.p.size} groups while counts were chosen; the gap covers the "
        "difference"
    )
    warning = Notice(code="W-merged", at="claims", text=text)
    note = "against the bound of groups that count as their fastest class"
    claim = backed(pool, "rate_qps" if pool.fluid_target is None else "cost_per_hour", bound, rated)
    claim = replace(claim, scope="relaxation", note=note)
    return Chosen(rated, (claim,), warnings=(warning,))


# -- given counts ----------------------------------------------------------------------------------------------------
#
# A pool with given counts: formulation `fluid-lp` computes its rate and chooses no machines.


def fluid_lp(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """The fluid program at given counts."""
    counts = given_counts(pool)
    reason = unaffordable(pool, counts)
    return reason if reason is not None else Chosen(rate_at(pool, ask, counts))


def given_counts(pool: Pool) -> Counts:
    """The counts that `fluid-lp` is asked about, from its option or from limits that leave no choice."""
    faults = Faults.of(pool.inputs)
    stated = cast(FluidAtOptions, pool.options).counts
    counts = np.zeros(len(pool.offers), dtype=np.int64)
    offers = {offer.id: o for o, offer in enumerate(pool.offers) if offer.id is not None}
    per_type = {kind.hardware: t for t, kind in enumerate(pool.types)}
    if stated is None:
        stated = {}
        for kind in pool.request.machines:
            if kind.most != kind.least:
                faults.in_slo(
                    f"$.limits.instances.{kind.id}",
                    "fluid-lp rates a given pool, and this leaves a choice",
                    "Give option counts, or the same least and most for every hardware.",
                    value=[kind.least, None if kind.most >= PLENTY else kind.most],
                )
            counts += pool.by_offer(np.array([kind.least if one is kind else 0 for one in pool.request.machines]))
    for name, count in stated.items():
        if not 0 <= count < PLENTY or (name not in offers and name not in per_type):
            faults.in_options(
                f"counts.{name}",
                f"counts are of offers or hardware of this pool, none of them negative, nor {PLENTY:,} or more",
                f"Choose from {', '.join([*per_type, *offers])}.",
                value=count,
            )
        elif name in offers:
            counts[offers[name]] += count
        else:
            _fill(pool, counts, per_type[name], count, faults)
    faults.settle()
    return counts


def _fill(pool: Pool, counts: Counts, t: int, count: int, faults: Faults) -> None:
    """Instances of a type from its offers, cheapest first."""
    only = np.zeros(len(pool.types), dtype=np.int64)
    only[t] = count
    taken = pool.by_offer(only)
    counts += taken
    if left := count - int(taken.sum()):
        faults.in_options(
            f"counts.{pool.types[t].hardware}",
            "more than its offers have in stock",
            f"At most {count - left}.",
            value=count,
        )


# -- a rate of nothing -----------------------------------------------------------------------------------------------
#
# A pool for a rate of 0: only the least instances that `limits` demand.


def idle(pool: Pool, ask: Ask) -> Chosen | Infeasibility | Draft:
    """A demand of nothing: the minima alone, serving where they can serve every class in time, else waiting.

    A loop that plans every few seconds meets minutes in which nobody asks; that is no error, and costs as little as it
    may.
    """
    form = minima(pool)
    answer = ask(form, gap=0.0, about="the least instances")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    counts = pool.by_offer(pool.least) if answer.point is None else read_counts(pool, answer.point)
    note = "nothing is asked for: the least instances alone"
    cost = Reported("cost_per_hour", "min", "problem", answer, value=pool.cost(counts) / NANO, note=note)
    if not pool.missed(pool.least > 0).size and pool.options.size != "simulated":
        rated = rate_at(pool, ask, counts)
        if rated.lam > 0:
            return Chosen(rated, (cost,))
    return draft_idle(pool, counts, [cost])
