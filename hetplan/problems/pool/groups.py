"""Pools for tens of thousands of classes of queries: alike classes are one while counts are chosen.

Classes are alike when the same types serve them in time and their service times differ by little on each. A group g of
them has the share ``p_g``, the sum of theirs, and on type t one of two service times::

    the mean of the classes, by their shares   every x_gt can be kept class by class: a restriction, whose counts do
    the least of the classes                   whatever the classes can do the groups can: a relaxation, hence a bound

So the exact program is between the two, and the gap that is claimed holds for it. The rate of the chosen counts is
computed with every class by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible
from hetplan.planner.elastic import explain
from hetplan.problems.pool.form import fluid
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.rated import GAP, Chosen, Rated, backed, carried, holds, rate_at
from hetplan.profiles.plan import Notice

__all__ = ["GROUPS", "groups_of", "merged", "merged_best"]

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
    pool: Pool, ask: Ask, fluid_best: Callable[[Pool, Ask], tuple[Rated, Answer[Any]] | Infeasible]
) -> Chosen | Infeasible | None:
    """The fluid program (asked by `fluid_best`) by groups of classes; None where only the exact one can say."""
    group = groups_of(pool, GROUPS)
    mean, least = merged(pool, group, fastest=False), merged(pool, group, fastest=True)
    form = fluid(least, pool.fluid_target)
    bound = ask(form, gap=GAP, about=f"bound by {mean.p.size} groups of classes")
    if bound.status is Status.INFEASIBLE:
        return explain(form, ask)
    found = fluid_best(mean, ask)
    if isinstance(found, Infeasible):
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
