r"""A bound of a mixed-integer program, proved leaf by leaf: a tree of splits, and multipliers for each leaf.

A split takes a whole column j and a number k. No point has k < x_j < k + 1, so every point is on one of two sides::

    x_j <= k        or        x_j >= k + 1

A leaf is the box that is left after the splits above it. Whatever multipliers come with it, they bound the program over
that box (`safe_bound.lagrangian`), or show that the box holds no point at all. Every point is in some leaf, so the
worst bound of the leaves bounds the program. Who checks needs no search and no engine: only the tree and the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.safe_bound import cut_at, implied_bounds, lagrangian

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program, Vector

__all__ = ["DIGITS", "BoundTree", "bound_of_tree", "written_tree"]

DIGITS = 10
"""Digits with which multipliers are written. Any multipliers prove something, so that a rounded proof is a proof."""
AT_ONCE = 256
"""Leaves that are bounded together: enough for arrays to pay, few enough for memory."""


@dataclass(frozen=True)
class BoundTree:
    """Splits and leaves; split 0 is the root (without splits, leaf 0 is).

    Row i of `splits` is (column, k, low side, high side): a side n >= 0 is split n, which comes later than i, and a
    side n < 0 is leaf -n - 1. Row i of `leaves` has a multiplier for each row of the form, in the form's own sense.
    """

    splits: NDArray[np.int64]
    leaves: Vector


def bound_of_tree(form: Program, tree: BoundTree, *, value: float | None = None) -> float | None:
    """The bound that the tree proves in the form's own sense; infinite where it proves that there is no point.

    None where it is no tree of this form. `value` is that of a known point: who is beyond it is worse than the point,
    so the bound never is.

    >>> from hetplan.planner.forms.milp import Builder
    >>> m = Builder("max"); x = m.columns("x", ["a"], cost=2.0, upper=9.0, whole=True)
    >>> m.add(m.rows("r", ["r"], upper=5.0), x, 2.0)
    >>> tree = BoundTree(np.array([[0, 2, -1, -2]]), np.array([[0.0], [1.0]]))
    >>> round(bound_of_tree(m.build(), tree), 6)
    4.0
    """
    cut = cut_at(form, value)
    boxes = _boxes(form, tree, *implied_bounds(form, cut=cut))
    if boxes is None:
        return None
    flip = 1.0 if form.sense == "min" else -1.0
    least = cut
    for begin in range(0, len(tree.leaves), AT_ONCE):
        lower, upper = (side[begin : begin + AT_ONCE] for side in boxes)
        y = flip * tree.leaves[begin : begin + AT_ONCE]
        least = min(least, _least_of(form, flip * form.cost, y, lower, upper, cut))
    if form.offset:
        least = float(np.nextafter(least + flip * form.offset, -np.inf))
    return float(flip * least)


def written_tree(form: Program, tree: BoundTree) -> dict[str, object]:
    """The tree as a plan holds it: names of rows and columns, and one line of text for each split and each leaf.

    A split reads "column k low high", its column a number of `columns`; a leaf has a number for each of `rows`, those
    that any leaf prices. Sides are numbered as in `BoundTree`.
    """
    columns = np.unique(tree.splits[:, 0])
    place = {int(column): number for number, column in enumerate(columns)}
    rows = np.flatnonzero((tree.leaves != 0.0).any(axis=0))
    return {
        "columns": [form.column_name(int(j)) for j in columns],
        "rows": [form.row_name(int(i)) for i in rows],
        "splits": [f"{place[column]} {at} {low} {high}" for column, at, low, high in tree.splits.tolist()],
        "leaves": [" ".join(f"{y:.{DIGITS}g}" for y in leaf) for leaf in tree.leaves[:, rows].tolist()],
    }


def _least_of(form: Program, cost: Vector, y: Vector, lower: Vector, upper: Vector, cut: float) -> float:
    """The least bound of some leaves; those that are shown to be empty bound nothing."""
    bound = lagrangian(form, cost, y, lower, upper)
    bound[(lower > upper).any(axis=1)] = np.inf
    weak = np.flatnonzero(bound < cut)
    if weak.size:
        # Multipliers (or their negatives) by which a cost of 0 is above 0: there is nothing in the box.
        zero = np.zeros_like(cost)
        signs = (lagrangian(form, zero, sign * y[weak], lower[weak], upper[weak]) for sign in (1.0, -1.0))
        bound[weak[np.logical_or(*(found > 0.0 for found in signs))]] = np.inf
    return float(bound.min(initial=np.inf))


def _boxes(form: Program, tree: BoundTree, lower: Vector, upper: Vector) -> tuple[Vector, Vector] | None:
    """The box of each leaf, found by walking down from the root; None where the tree is not one."""
    splits, leaves = np.asarray(tree.splits), np.asarray(tree.leaves)
    count, size = len(splits), len(leaves)
    if not size or leaves.shape != (size, form.row_lower.size) or not np.isfinite(leaves).all():
        return None
    if not count:
        return (lower[None, :], upper[None, :]) if size == 1 else None
    if splits.shape != (count, 4) or splits.dtype.kind != "i":
        return None
    low, high = np.tile(lower, (size, 1)), np.tile(upper, (size, 1))
    reached = np.zeros(size, dtype=bool)
    entered = np.zeros(count, dtype=bool)
    boxes: dict[int, tuple[Vector, Vector]] = {0: (lower, upper)}
    for number, (column, at, *sides) in enumerate(splits.tolist()):
        if number not in boxes or not 0 <= column < form.whole.size or not form.whole[column]:
            return None
        box = boxes.pop(number)
        for side, child in enumerate(sides):
            below, above = box[0].copy(), box[1].copy()
            if side:
                below[column] = max(below[column], at + 1)
            else:
                above[column] = min(above[column], at)
            if number < child < count and not entered[child]:
                entered[child] = True
                boxes[child] = (below, above)
            elif -size <= child < 0 and not reached[-child - 1]:
                reached[-child - 1] = True
                low[-child - 1], high[-child - 1] = below, above
            else:
                return None
    return (low, high) if reached.all() else None
