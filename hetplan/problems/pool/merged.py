r"""Pools for tens of thousands of classes of queries: alike classes are one while counts are chosen.

Classes are alike when the same types serve them in time and their service times differ by little on each. A group g of
them has the share ``p_g``, the sum of theirs, and on type t one of two service times::

    the mean of the classes, by their shares   every x_gt can be kept class by class: a restriction, whose counts do
    the least of the classes                   whatever the classes can do the groups can: a relaxation, hence a bound

So the exact program is between the two, and the gap that is claimed holds for it. The rate of the chosen counts is
computed with every class by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.problems.pool.question import Pool

__all__ = ["GROUPS", "groups_of", "merged", "merged_best", "worth_merging"]

GROUPS = 1000
"""About how many groups of alike classes there are."""


def worth_merging(pool: Pool, most: int) -> bool:
    """Whether there are more classes than that, and none may be late by design (then how many of which is asked)."""
    return pool.p.size > most and all(share <= 0 for _, share in pool.limits) and not pool.wish.then_cheapest


def groups_of(pool: Pool, groups: int) -> NDArray[np.int64]:
    """The group of each class: alike in where it is served in time, and near in how long it takes there."""
    usable = pool.usable
    logs = np.where(usable, np.log(np.where(usable, pool.L, 1.0)), 0.0)
    size = logs.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    width = max(float(np.ptp(size)) / groups, 1e-12)
    near = np.floor((size - size.min()) / width)
    _, group = np.unique(np.column_stack([usable, near]), axis=0, return_inverse=True)
    return np.asarray(group.ravel(), dtype=np.int64)


def merged(pool: Pool, group: NDArray[np.int64], *, fastest: bool) -> Pool:
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


def merged_best(pool: Pool, ask: Ask) -> Draft | Infeasible | None:
    """The fluid program by groups of classes; None where only the exact one can tell."""
    from hetplan.problems.pool import infeasible as pool_infeasible
    from hetplan.problems.pool.fluid import fluid
    from hetplan.problems.pool.question import GAP

    group = groups_of(pool, GROUPS)
    mean, least = merged(pool, group, fastest=False), merged(pool, group, fastest=True)
    form = fluid(least, pool.fluid_target)
    bound = ask(form, gap=GAP, about=f"bound by {mean.p.size} groups of classes")
    if bound.status is Status.INFEASIBLE:
        return pool_infeasible.unreachable(mean, ask, form, bound)
    found = mean.fluid_best(ask)
    if isinstance(found, Infeasible):
        return None
    counts = found[0].counts
    kept = pool.carried(counts, found[0].share[group], found[1])
    rated = max(pool.rate_at(ask, counts), kept, key=lambda one: one.lam)
    if not pool.holds(rated):
        return None
    text = f"{pool.p.size} classes of queries were {mean.p.size} groups while counts were chosen; the gap allows for it"
    told = [Notice(code="W-merged", at="claims", text=text)]
    return pool.drafted(ask, rated, [_claim(pool, bound, rated.lam, pool.cost(counts) / NANO)], warnings=told)


def _claim(pool: Pool, bound: Answer[Any], lam: float, cost: float) -> Reported:
    note = "against the bound of groups that count as their fastest class"
    if pool.fluid_target is not None:
        return Reported("cost_per_hour", "min", "relaxation", bound, value=cost, note=note)
    derate = pool.options.derate
    return Reported("rate_qps", "max", "relaxation", bound, value=derate * lam, scale=derate, note=note)
