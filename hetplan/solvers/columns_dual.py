"""Prices of the shared rows: the best of a concave function known by its cuts, within a box around the best so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.columns import Columns

__all__ = ["Cuts"]

Vector = NDArray[np.float64]

ROUNDS_OF_PROOF = 40


class Cuts:
    """Every choice of columns x bounds L from above by a line: cost(x) + mu (use x - capacity).

    Rows are scaled by their capacities; a box, widened when its best lies on its border, keeps the steps sane.
    """

    def __init__(self, form: Columns, *, costs: bool = True) -> None:
        self.form, self.costs = form, costs
        self.scale = np.where(form.capacity > 0, np.abs(form.capacity), 1.0)
        self.slopes: list[Vector] = []
        self.heights: list[float] = []
        self.middle = np.zeros(form.capacity.size)
        self.reach = 0.0

    def add(self, x: Vector) -> None:
        """One more line."""
        form = self.form
        self.slopes.append((form.use @ x - form.capacity) / self.scale)
        self.heights.append(form.value(x) if self.costs else 0.0)
        if not self.reach:
            self.reach = 0.25 * max(self.heights[0], 1e-9)

    def center(self, prices: Vector) -> None:
        """Look for better prices around these."""
        self.middle = prices * self.scale

    def best(self) -> tuple[Vector, float]:
        """The best prices that the cuts allow within the box, and the bound they would give."""
        while True:
            point, most = self._solve(np.maximum(self.middle - self.reach, 0.0), self.middle + self.reach)
            on_border = (point >= self.middle + self.reach * (1 - 1e-9)).any() or (
                (point <= self.middle - self.reach * (1 - 1e-9)) & (point > 0)
            ).any()
            if not on_border or self.reach > 1e6 * max(self.heights[0], 1e-9):
                return point / self.scale, most
            self.reach *= 2.0
            if len(self.heights) < 2:
                return point / self.scale, most

    def _solve(self, lower: Vector, upper: Vector) -> tuple[Vector, float]:
        import highspy

        size = self.middle.size
        highs: Any = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        rows = len(self.slopes)
        matrix = np.hstack([-np.array(self.slopes), np.ones((rows, 1))])
        start = np.arange(rows + 1, dtype=np.int32) * (size + 1)
        columns = np.tile(np.arange(size + 1, dtype=np.int32), rows)
        ceiling = max(self.heights) + float(np.abs(np.array(self.slopes)).max(initial=1.0)) * float(upper.sum()) * 4 + 1
        highs.passModel(
            size + 1, rows, matrix.size, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMaximize), 0.0,
            np.append(np.zeros(size), 1.0), np.append(lower, -highspy.kHighsInf), np.append(upper, ceiling),
            np.full(rows, -highspy.kHighsInf), np.array(self.heights), start, columns, matrix.ravel(),
            np.zeros(size + 1, dtype=np.int32),
        )  # fmt: skip
        highs.run()
        point = np.asarray(highs.getSolution().col_value, dtype=float)
        return np.clip(point[:-1], 0.0, None), float(point[-1])

    def proof_of_nothing(self) -> Vector | None:
        """Prices at which even the least use of all blocks is worth more than all capacity, where there are such."""
        size = self.form.capacity.size
        prices = np.full(size, 1.0) / self.scale
        for _ in range(ROUNDS_OF_PROOF):
            priced = self.form.price(prices, costs=False)
            if priced.bound > 0:
                return prices
            self.add(priced.x)
            point, most = self._solve(np.zeros(size), np.ones(size))
            if most <= 1e-9:
                return None
            prices = point / self.scale
        return None
