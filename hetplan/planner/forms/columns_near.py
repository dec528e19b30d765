r"""All columns that a better choice may take, and the tree by which a bound over them is proved.

At prices mu with bound L(mu), a choice with a column that costs `slack` more than the cheapest of its block costs at
least L(mu) + slack. So whatever costs less takes only *near* columns; there are few of them, and every one is found.
A tree splits their choices by how many there are of an item (at least k, or fewer). At a leaf each block keeps some of
its near columns, and any prices of the rows bound it::

    L_leaf(mu) = sum_b min { cost + mu use of the columns that b keeps } - mu capacity

What is at or above a limit need not be told apart: at every split the columns go that by its prices no choice below
the limit takes. The least of the leaves, of the limit and of L + slack bounds the form. The proof that an answer
carries is the first prices, the slack, the limit, the splits and the prices of splits and leaves; the columns are found
again by whoever checks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.columns_knapsack import covers_within
from hetplan.planner.forms.columns_listed import Listed

if TYPE_CHECKING:
    from hetplan.planner.forms.columns import Columns

__all__ = ["Near", "bound_of_tree", "near_columns"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Kept = NDArray[np.bool_]

MOST_COLUMNS = 20_000
MOST_STEPS, MOST_OF_ONE = 1_000_000, 60_000
"""In finding them, of all blocks and of one: where there is so much to choose, a tree over it would not end."""
ROUNDING = 1e-10
"""Relative to the sum of absolute terms, as in the bound of the prices alone."""
HAIR = 1e-9
"""Columns a hair beyond the slack are near as well: rounding shall not leave one out."""


@dataclass(frozen=True, eq=False)
class Near(Listed):
    """Near columns, in the order of their blocks."""

    ceiling: float = np.inf
    """What any choice costs at least that takes another column."""

    @cached_property
    def starts(self) -> Integers:
        """Where the columns of each block begin; blocks that need nothing have none."""
        return np.unique(self.block, return_index=True)[1].astype(np.int64)

    @cached_property
    def all(self) -> Kept:
        """Every column kept."""
        return np.ones(self.block.size, dtype=np.bool_)

    def counts_of(self, item: int) -> Vector:
        """How many of an item each column has."""
        found = np.zeros(self.block.size)
        mine = self.item == item
        found[self.entry[mine]] = self.count[mine]
        return found

    def within(self, kept: Kept, prices: Vector, limit: float) -> Kept:
        """Of the kept columns those that, by these prices, a choice that costs less than `limit` may take."""
        if not kept.size:
            return kept
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        least = np.minimum.reduceat(worth, self.starts)
        if not np.isfinite(least).all():
            return kept
        over = worth - np.repeat(least, np.diff(np.append(self.starts, worth.size)))
        return np.asarray(kept & (self.bound(kept, prices) + over < limit))

    def parted(self, item: int, least: int) -> tuple[Kept, Kept]:
        """Columns with at least so many of an item, and with fewer; those of other blocks are in both."""
        enough = self.counts_of(item) >= least
        other = self.block != self.form.block[item]
        return enough | other, ~enough | other

    def bound(self, kept: Kept, prices: Vector) -> float:
        """L of the kept columns; infinite where some block keeps none."""
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        total = float(np.minimum.reduceat(worth, self.starts).sum()) if worth.size else 0.0
        spent = float(prices @ self.form.capacity)
        return total - spent - ROUNDING * (abs(total) + abs(spent)) if np.isfinite(total) else np.inf


def near_columns(form: Columns, prices: Vector, slack: float) -> Near | None:
    """All near columns at prices of 0 or more; None where there are too many, or no row is shared."""
    if not form.capacity.size:
        return None
    plain = (form.cost + prices @ form.use).tolist()
    cheapest = form.price(prices)
    if not np.isfinite(cheapest.bound):
        return None
    worth = form.by_block(cheapest.x, np.array(plain)).tolist()
    blocks, entries, items, counts, left = list[int](), list[int](), list[int](), list[int](), MOST_STEPS
    for b, need in enumerate(form.need.tolist()):
        if need <= 0:
            continue
        limit = worth[b] + slack * (1.0 + HAIR) + HAIR * worth[b]
        found = _of_block(form, b, plain, limit, min(left, MOST_OF_ONE))
        if found is None or len(blocks) + len(found[0]) > MOST_COLUMNS:
            return None
        left -= found[1]
        for column in found[0]:
            entries += [len(blocks)] * len(column)
            items += [j for j, _ in column]
            counts += [k for _, k in column]
            blocks.append(b)
    triplets = (np.array(entries, np.int64), np.array(items, np.int64), np.array(counts, dtype=float))
    return replace(Near.of(form, np.array(blocks, np.int64), *triplets), ceiling=cheapest.bound + slack)


def _of_block(
    form: Columns, b: int, plain: list[float], limit: float, most_steps: int
) -> tuple[list[tuple[tuple[int, int], ...]], int] | None:
    """The near columns of one block, each once, and the steps that it took to find them.

    Of what is free each member of a group may have all: found too much.
    """
    group, gain, free_of = form.lists
    segments, owner = list[tuple[float, float, float]](), list[int]()
    for j in range(int(form.starts[b]), int(form.starts[b + 1])):
        most = float(form.upper[j])
        free = min(free_of[group[j]], most)
        if free > 0:
            segments.append((gain[j], plain[j], free))
            owner.append(j)
        if most > free:
            segments.append((gain[j], plain[j] + float(form.surcharge[group[j]]), most - free))
            owner.append(j)
    covers = covers_within(segments, float(form.need[b]), limit, most_steps)
    if covers is None:
        return None
    found: dict[tuple[tuple[int, int], ...], None] = {}
    for cover in covers[0]:
        column: dict[int, int] = {}
        for place, count in cover:
            column[owner[place]] = column.get(owner[place], 0) + count
        found[tuple(sorted(column.items()))] = None
    return sorted(found), covers[1]


def bound_of_tree(form: Columns, proof: Mapping[str, Any]) -> float:
    """What the tree of a proof proves, its columns found anew; minus infinity where it proves nothing."""
    tree = _Tree.read(form, proof)
    near = near_columns(form, tree.prices, tree.slack) if tree is not None else None
    if tree is None or near is None:
        return -np.inf
    low = min(near.ceiling, tree.limit)
    left: list[tuple[int, Kept]] = [(0 if len(tree.splits) else -1, near.all)]
    while left:
        number, kept = left.pop()
        if number < 0:
            low = min(low, near.bound(kept, tree.leaves[-number - 1]))
            continue
        item, least, more, fewer = tree.splits[number].tolist()
        if not tree.leads_on(number, item, more, fewer):
            return -np.inf
        kept = near.within(kept, tree.prices_of_splits[number], tree.limit)
        sides = near.parted(item, least)
        left += [(more, kept & sides[0]), (fewer, kept & sides[1])]
    return low


@dataclass(frozen=True)
class _Tree:
    """A proof: where it begins, what it need not look beyond, its splits (item, at least, more, fewer) and leaves.

    `more` and `fewer` lead to a split, or (below 0) to a leaf: -1 is the first.
    """

    prices: Vector
    slack: float
    limit: float
    splits: Integers
    prices_of_splits: Vector
    leaves: Vector
    items: int

    @classmethod
    def read(cls, form: Columns, proof: Mapping[str, Any]) -> _Tree | None:
        """The parts, where they are what they should be."""
        rows = form.capacity.size
        try:
            prices, of_splits, leaves = (
                np.asarray(proof[key], dtype=np.float64).reshape(-1, rows)
                for key in ("prices", "prices_of_splits", "leaves")
            )
            splits = np.asarray(proof["splits"], dtype=np.int64).reshape(-1, 4)
            slack, limit = float(proof["slack"]), float(proof["limit"])
        except (KeyError, TypeError, ValueError):
            return None
        sound = len(prices) == 1 and len(splits) == len(of_splits) and len(leaves) > 0
        # A limit that is no number would drop every column, and seem to prove all.
        sound = sound and slack >= 0 and math.isfinite(limit)
        for part in (prices, of_splits, leaves):
            sound = sound and bool((np.isfinite(part) & (part >= 0)).all())
        return cls(prices[0], slack, limit, splits, of_splits, leaves, form.cost.size) if sound else None

    def leads_on(self, number: int, item: int, more: int, fewer: int) -> bool:
        """Whether a split is of an item that there is, and leads on, never back."""
        ends = [number < child < len(self.splits) or -len(self.leaves) <= child < 0 for child in (more, fewer)]
        return 0 <= item < self.items and all(ends)
