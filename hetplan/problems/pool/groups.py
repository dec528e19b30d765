"""Pools for tens of thousands of classes of queries: alike classes are one while counts are chosen.

Classes are alike when the same types serve them in time and their service times differ by little on each. A group g of
them has the share ``p_g``, the sum of theirs, and on type t one of two service times::

    the mean of the classes, by their shares   every x_gt can be kept class by class: a restriction, whose counts do
    the least of the classes                   whatever the classes can do the groups can: a relaxation, hence a bound

So the exact program is between the two, and the gap that is claimed holds for it. The rate of the chosen counts is
computed with every class by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetplan.problems.pool.letters import Counts, Pool

__all__ = ["GROUPS", "groups_of", "merged"]

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
