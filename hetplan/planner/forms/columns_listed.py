"""Columns of a form one by one: what each costs and takes, and its counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetplan.planner.forms.columns import Columns

__all__ = ["Listed"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Listed:
    """Some columns: the block of each, and their counts as triplets (which column, which item, how many of it)."""

    form: Columns
    block: Integers
    entry: Integers
    item: Integers
    count: Vector
    cost: Vector
    """Of each, loading included."""
    use: Vector
    """Of each, per row of the form."""

    @classmethod
    def of(cls, form: Columns, block: Integers, entry: Integers, item: Integers, count: Vector) -> Self:
        """What these columns cost and take."""
        size = block.size
        plain = np.bincount(entry, form.cost[item] * count, size)
        groups, place = np.unique(entry * form.free.size + form.group[item], return_inverse=True)
        in_group, g = np.bincount(place, count, groups.size), groups % max(form.free.size, 1)
        loaded = form.surcharge[g] * np.maximum(in_group - form.free[g], 0.0)
        cost = np.asarray(plain + np.bincount(groups // max(form.free.size, 1), loaded, size), dtype=np.float64)
        use = np.array([np.bincount(entry, row[item] * count, size) for row in form.use], dtype=np.float64)
        return cls(form, block, entry, item, count, cost, use.reshape(form.capacity.size, size))

    def counts(self, taken: Integers) -> Vector:
        """The counts of the taken columns together, by item of the form."""
        mine = np.isin(self.entry, taken)
        return np.asarray(np.bincount(self.item[mine], self.count[mine], self.form.cost.size), dtype=np.float64)
