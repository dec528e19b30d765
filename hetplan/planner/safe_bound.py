r"""Bounds of linear programs that hold in spite of rounding (after Neumaier and Shcherbina, 2004).

For min c'x over row_lower <= Ax <= row_upper, lower <= x <= upper, and *any* multipliers y, with d = c - A'y::

    c'x = y'Ax + d'x  >=  sum_i min(y_i row_lower_i, y_i row_upper_i) + sum_j min(d_j lower_j, d_j upper_j)

Every product and sum below is widened by its largest possible rounding error, so what is returned is a bound of the
program whose data are exactly the stored floats. Columns without a finite bound would turn the least rounding of d_j
into minus infinity. Three things keep that from happening: bounds that rows imply; the cut c'x <= value of a known
point (who is beyond it is worse than the point, so the smaller of bound and value still holds for all); and, for what
is left, d_j in exact rational arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.forms.program import Program, Vector

__all__ = [
    "DIGITS",
    "BoundTree",
    "attach_node",
    "bound_of_tree",
    "cut_at",
    "dual_bound",
    "implied_bounds",
    "lagrangian",
    "written_tree",
]


EPS = float(np.finfo(float).eps)
MOST_EXACT = 20_000
"""Columns given to rational arithmetic at most; it takes microseconds for each."""
ROUNDS = 6
"""Passes of bound propagation; each carries a bound one row further, and formulations are a few rows deep."""


def dual_bound(form: Program, row_duals: Vector, *, value: float | None = None) -> float:
    """A safe bound of the form's continuous relaxation from multipliers in the form's own sense (-inf/inf if none).

    `value` is that of a feasible point, where one is known.

    >>> from hetplan.planner.forms.milp import Builder
    >>> m = Builder("max"); x = m.columns("x", ["a"], cost=3.0)
    >>> m.add(m.rows("r", ["r"], upper=2.0), x, 1.0)
    >>> 6.0 <= dual_bound(m.build(), np.array([3.0])) < 6.0 + 1e-9
    True
    """
    flip = 1.0 if form.sense == "min" else -1.0
    cut = cut_at(form, value)
    lower, upper = implied_bounds(form, cut=cut)
    bound = float(lagrangian(form, flip * form.cost, flip * np.asarray(row_duals, dtype=float), lower, upper))
    bound = min(bound, cut)
    if form.offset:
        bound = np.nextafter(bound + flip * form.offset, -np.inf)
    return float(flip * bound)


def cut_at(form: Program, value: float | None) -> float:
    """As a minimum and without its offset, a hair above the value of a known point (inf where none is known)."""
    if value is None:
        return np.inf
    cut = (1.0 if form.sense == "min" else -1.0) * (value - form.offset)
    return cut + 1e-9 * (abs(cut) + 1.0)


def lagrangian(form: Program, cost: Vector, y: Vector, lower: Vector, upper: Vector) -> Vector:
    """The safe bound of min cost @ x for each row of multipliers y, over the box that is its row of lower and upper.

    -inf where multipliers prove nothing. The last axis counts rows of the form (y) or its columns (lower, upper).
    """
    # Multipliers that price a side the row does not have are worth nothing: drop them (any y is allowed).
    y = np.where(np.isinf(form.row_lower) & (y > 0) | np.isinf(form.row_upper) & (y < 0), 0.0, y)
    rows = np.where(y > 0, form.row_lower, form.row_upper)
    row_terms = np.where(y != 0, y * np.where(y != 0, rows, 0.0), 0.0)

    matrix = form.matrix
    priced = (matrix.T @ y.T).T
    counts = np.diff(matrix.indptr) + 2
    error = EPS * counts * (np.abs(cost) + (abs(matrix).T @ np.abs(y).T).T) * 2.0
    d = cost - priced
    _exact_where_unbounded(form, cost, y, d, error, lower, upper)
    column_terms = np.minimum(_least(d - error, lower, upper), _least(d + error, lower, upper))

    terms = np.concatenate([row_terms, column_terms], axis=-1)
    total = terms.sum(axis=-1)
    slip = EPS * (terms.shape[-1] + 2) * np.abs(terms).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(total), np.nextafter(total - slip, -np.inf), -np.inf)


def _exact_where_unbounded(
    form: Program, cost: Vector, y: Vector, d: Vector, error: Vector, lower: Vector, upper: Vector
) -> None:
    """Where the sign of d matters for ever and exact arithmetic shows it harmless, write the exact d and its error."""
    matrix = form.matrix
    doubtful = np.argwhere((np.abs(d) <= error) & (np.isinf(lower) | np.isinf(upper)))
    if len(doubtful) > MOST_EXACT:
        return
    lower, upper = np.broadcast_to(lower, d.shape), np.broadcast_to(upper, d.shape)
    for at in map(tuple, doubtful.tolist()):
        j = at[-1]
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        exact = Fraction(float(cost[j])) - sum(
            (
                Fraction(float(a)) * Fraction(float(y[(*at[:-1], i)]))
                for a, i in zip(matrix.data[part], matrix.indices[part], strict=True)
            ),
            Fraction(0),
        )
        if (exact >= 0 or np.isfinite(upper[at])) and (exact <= 0 or np.isfinite(lower[at])):
            d[at], error[at] = float(exact), abs(float(exact)) * EPS


def _least(d: Vector, lower: Vector, upper: Vector) -> Vector:
    """min over x in [lower, upper] of d x, elementwise; 0 x infinity is 0 since d is then exactly 0."""
    at = np.where(d > 0, lower, upper)
    with np.errstate(invalid="ignore"):
        return np.where(d == 0.0, 0.0, d * at)


def implied_bounds(form: Program, *, cut: float = np.inf) -> tuple[Vector, Vector]:
    """The form's column bounds, with what rows (and cost <= cut, as a minimum) imply in place of infinities.

    Each is widened by more than the rounding behind it: of its own division, and of the sum of its row, where large
    terms may cancel.
    """
    lower, upper = form.lower.copy(), form.upper.copy()
    if np.isfinite(lower).all() and np.isfinite(upper).all():
        return lower, upper
    rows = _Rows.of(form, cut)
    for _ in range(ROUNDS):
        new_lower, new_upper = rows.propagate(lower, upper)
        moved = (np.isinf(lower) & np.isfinite(new_lower)) | (np.isinf(upper) & np.isfinite(new_upper))
        lower = np.where(np.isinf(lower), new_lower, lower)
        upper = np.where(np.isinf(upper), new_upper, upper)
        if not moved.any():
            break
    return lower, upper


@dataclass(frozen=True)
class _Rows:
    """The rows as triplets, with the cut as one more row."""

    row: NDArray[np.integer]
    column: NDArray[np.integer]
    a: Vector
    least: Vector
    most: Vector

    @classmethod
    def of(cls, form: Program, cut: float) -> _Rows:
        by_row = form.matrix.tocsr()
        n = by_row.shape[0]
        row = np.repeat(np.arange(n), np.diff(by_row.indptr))
        column, a, least, most = by_row.indices, by_row.data, form.row_lower, form.row_upper
        if np.isfinite(cut):
            costly = np.flatnonzero(form.cost)
            cost = form.cost[costly] * (1.0 if form.sense == "min" else -1.0)
            row = np.concatenate([row, np.full(costly.size, n)])
            column, a = np.concatenate([column, costly]), np.concatenate([a, cost])
            least, most = np.append(least, -np.inf), np.append(most, cut)
        return cls(row, column, a, least, most)

    def propagate(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """What each row implies for each of its columns, the others standing at their bounds."""
        row, column, a = self.row, self.column, self.a
        with np.errstate(invalid="ignore"):
            low_terms = np.where(a > 0, a * lower[column], a * upper[column])
            high_terms = np.where(a > 0, a * upper[column], a * lower[column])
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            up = self.most[row] - _rest(row, low_terms, self.most.size)
            down = self.least[row] - _rest(row, high_terms, self.most.size)
            up += self._rounding(low_terms, self.most)[row]
            down -= self._rounding(high_terms, self.least)[row]
            high = np.where(a > 0, up / a, down / a)
            low = np.where(a > 0, down / a, up / a)
        high = np.where(np.isnan(high), np.inf, high)
        low = np.where(np.isnan(low), -np.inf, low)
        high += 4 * EPS * np.where(np.isfinite(high), np.abs(high), 0.0)
        low -= 4 * EPS * np.where(np.isfinite(low), np.abs(low), 0.0)
        new_upper, new_lower = np.full(upper.size, np.inf), np.full(lower.size, -np.inf)
        np.minimum.at(new_upper, column, high)
        np.maximum.at(new_lower, column, low)
        return new_lower, new_upper

    def _rounding(self, terms: Vector, side: Vector) -> Vector:
        """Per row, more than the sum of its finite terms and the difference to its side can be off by rounding."""
        size = np.where(np.isinf(terms), 0.0, np.abs(terms))
        total = np.bincount(self.row, size, side.size) + np.where(np.isinf(side), 0.0, np.abs(side))
        terms_per_row = np.bincount(self.row, minlength=side.size)
        return np.asarray(2 * EPS * (terms_per_row + 3) * total, dtype=np.float64)


def _rest(row: NDArray[np.integer], terms: Vector, n_rows: int) -> Vector:
    """For each entry, the sum of its row's other terms, with infinities counted rather than subtracted."""
    infinite = np.isinf(terms)
    finite = np.where(infinite, 0.0, terms)
    sums = np.bincount(row, finite, n_rows)
    infinities = np.bincount(row, infinite, n_rows)
    others = infinities[row] - infinite
    sign = np.where(np.bincount(row, np.where(infinite, np.sign(terms), 0.0), n_rows) >= 0, np.inf, -np.inf)
    rest: Vector = np.where(others > 0, sign[row], sums[row] - finite)
    return rest


DIGITS = 10
"""Digits with which multipliers are written. Any multipliers prove something, so that a rounded proof is a proof."""
AT_ONCE = 256
"""Leaves that are bounded together: enough for arrays to pay, few enough for memory."""


@dataclass(frozen=True)
class BoundTree:
    """A bound of a mixed-integer program, proved leaf by leaf; split 0 is the root (without splits, leaf 0 is).

    A split takes a whole column j and a number k: every point has x_j <= k or x_j >= k + 1. A leaf is the box that is
    left after the splits above it. Whatever multipliers come with it, they bound the program over that box
    (`lagrangian`), or show that it holds no point. So the worst bound of the leaves bounds the program. Who checks
    needs no search and no engine: only the tree and the form.

    Row i of `splits` is (column, k, low side, high side): a side n >= 0 is split n, which comes later than i, and a
    side n < 0 is leaf -n - 1. Row i of `leaves` has a multiplier for each row of the form, in the form's own sense.
    """

    splits: NDArray[np.int64]
    leaves: Vector


def attach_node(splits: list[list[int]], place: tuple[int, int] | None, number: int) -> None:
    """Write down what is at a place, a split and a side of it, while a tree grows (the root has none)."""
    if place is not None:
        splits[place[0]][2 + place[1]] = number


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
