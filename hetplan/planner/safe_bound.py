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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.forms.program import Program, Vector

__all__ = ["cut_at", "dual_bound", "implied_bounds", "lagrangian"]

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
