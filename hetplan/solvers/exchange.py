r"""Whole numbers by exchange: from a rounded point, one unit less here and one more there, while that is better.

With the whole columns fixed at x a program is linear in the others, and its value v(x) is known with prices. Prices
bound the value at every other x as well::

    v(x') <= v(x) + d (x' - x),    d = cost - prices . rows      (at least, where the least is sought)

so each linear program that was solved says of all exchanges at once how good they can be at best. Only those that
all programs so far leave a chance are solved, the most promising first. Where none is left, a few exchanges are made
anyhow, and it begins again from there. Rows that not every x keeps are made soft, at a price beyond all others, so
that a first point is found in the same way.

It finds points and proves nothing: an engine for first plans where branching takes too long. It stops early where a
point is as near to the program in parts as the gap asks for. The search is counted in linear programs (`limits.work`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.planner.answer import Answer, Limits, Stop, relative_gap
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.highs_model import SMALLEST, Found, Word
from hetplan.solvers.linear import linear
from hetplan.solvers.milp_engine import DEFAULT_GAP, MilpEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.contract import OnEvent

__all__ = ["Exchange"]

WORK = 1_000_000
"""Columns of all linear programs together at most, where no limit says otherwise: some seconds."""
KICKS = 12
"""Fresh beginnings in a row that may bring nothing."""
TRIED = 40
"""Exchanges that are tried from one point at most."""
LISTED = 1_000
"""Exchanges of which all prices are asked, the best by the last prices."""
CUTS = 100
"""Programs whose prices are kept, the last ones."""
PENALTY = 100.0
"""What a soft row costs, in multiples of the largest cost, per unit of its largest whole column."""
BETTER = 1e-9


class Exchange(MilpEngine):
    """Local search over whole columns, with prices that say what is not worth trying; see the module."""

    name: ClassVar[str] = "exchange"
    package: ClassVar[str] = "highspy"
    module: ClassVar[str] = "highspy"
    heuristic: ClassVar[bool] = True
    by_name_only: ClassVar[bool] = True
    instead: ClassVar[str] = "highs"

    def _refuses(self, form: Milp) -> str:
        if form.pure_lp or form.whole.all():
            return "exchange takes programs of which some columns are whole and some are not"
        if not np.isfinite(form.lower[form.whole]).all():
            return "exchange takes whole columns that have a least value"
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        del on_event
        return _Search(form, limits).run(start)

    def prove(self, form: Milp, answer: Answer[Vector], limits: Limits) -> Answer[Vector]:
        """Nothing is proved: it is asked where a proof would take too long."""
        del form, limits
        return answer


@dataclass(frozen=True)
class _Point:
    """Whole columns, the value there (the least is sought), and the slopes by which it bounds all others."""

    x: Vector
    value: float
    slope: Vector


class _Search:
    def __init__(self, form: Milp, limits: Limits) -> None:
        self.form, self.limits, self.began = form, limits, time.monotonic()
        self.sign = 1.0 if form.sense == "min" else -1.0
        self.places = np.flatnonzero(form.whole)
        self.lower, self.upper = form.lower[self.places], form.upper[self.places]
        matrix = form.matrix.tocsc()
        whole, parts = matrix[:, self.places], matrix[:, np.flatnonzero(~form.whole)]
        alone = (np.diff(parts.tocsr().indptr) == 0) & ~np.isfinite(form.row_lower)
        self.hard = whole.tocsr()[np.flatnonzero(alone)].toarray()
        self.most = form.row_upper[alone]
        self.rows = np.flatnonzero(~alone)
        self.soft = whole.tocsr()[self.rows].tocsr()
        self.cost = self.sign * form.cost[self.places]
        self.model = _Parts(form, parts.tocsr()[self.rows], self.soft, self.rows, self.sign)
        self.helper = self._helpers()
        self.slopes = np.zeros((0, self.places.size))
        self.bases = np.zeros(0)
        self.solved = 0
        self.bound = -np.inf
        """What no point goes below, where the program in parts was solved."""
        self.chance = np.random.default_rng(limits.seed)

    def _helpers(self) -> NDArray[np.int64]:
        """Per column another one that has to be 1 for it to be more than 0 (-1: none), as in x <= S z."""
        found = np.full(self.places.size, -1)
        for row, most in zip(self.hard, self.most, strict=True):
            opens = np.flatnonzero(row < 0)
            if most <= 0 and opens.size == 1:
                found[row > 0] = opens[0]
        return found

    def run(self, start: Vector | None) -> Found:
        first = self._first(start)
        if isinstance(first, Found):
            return first
        best = self._descend(self._solve(first))
        idle = 0
        while idle < KICKS and self._stop() is None and not self._is_near(best):
            tried = self._descend(self._kicked(best))
            idle = 0 if tried.value < best.value - BETTER else idle + 1
            best = tried if tried.value <= best.value + BETTER else best
        return self._found(best)

    def _first(self, start: Vector | None) -> Vector | Found:
        """Whole columns to begin from: those of the start, or the program in parts, rounded."""
        if start is None:
            in_parts = replace(self.form, whole=np.zeros_like(self.form.whole))
            found = linear(in_parts, Limits(seconds=self.limits.seconds, cancel=self.limits.cancel))
            if found.word is Word.INFEASIBLE:
                return found
            if found.point is None:
                return self.lower.copy()
            start = found.point
            self.bound = self.sign * self.form.value(start) if found.word is Word.OPTIMAL else self.bound
        x = np.clip(np.floor(start[self.places] + 1e-6), self.lower, self.upper)
        if not self._fits(x):
            return self.lower.copy()
        left = start[self.places] - x
        for j in np.argsort(-left, kind="stable")[: int((left > 1e-6).sum())]:
            x[j] += 1.0
            if x[j] > self.upper[j] or not self._fits(x):
                x[j] -= 1.0
        return x

    def _fits(self, x: Vector) -> bool:
        return bool((self.hard @ x <= self.most + 1e-9).all())

    def _is_near(self, point: _Point) -> bool:
        """Whether a point is as near to the bound as the gap asks for."""
        gap = DEFAULT_GAP if self.limits.gap is None else self.limits.gap
        return bool(np.isfinite(self.bound)) and relative_gap(point.value, self.bound) <= gap

    def _stop(self) -> Stop | None:
        limits = self.limits
        if limits.cancel is not None and limits.cancel.is_set():
            return Stop.CANCELLED
        if limits.seconds is not None and time.monotonic() - self.began > limits.seconds:
            return Stop.TIME
        most = WORK // self.form.cost.size if limits.work is None else limits.work
        return Stop.WORK if self.solved >= most else None

    def _solve(self, x: Vector) -> _Point:
        """The linear program at x; its prices are kept."""
        self.solved += 1
        value, prices = self.model.at(self.soft @ x)
        point = _Point(x, value + float(self.cost @ x), self.cost - self.soft.T @ prices)
        self.slopes = np.vstack([self.slopes[-CUTS:], point.slope])
        self.bases = np.append(self.bases[-CUTS:], point.value - point.slope @ x)
        return point

    def _descend(self, point: _Point) -> _Point:
        """Exchange while that is better."""
        while True:
            better = self._better(point)
            if better is None:
                return point
            point = better

    def _better(self, point: _Point) -> _Point | None:
        moves = self._moves(point)
        least = self._least(point, moves)
        for _ in range(min(TRIED, least.size)):
            at = int(least.argmin())
            if least[at] >= point.value - BETTER or self._stop() is not None or self._is_near(point):
                return None
            tried = self._solve(point.x + moves[at])
            if tried.value < point.value - BETTER:
                return tried
            least = np.maximum(least, self.bases[-1] + tried.slope @ point.x + moves @ tried.slope)
            least[at] = np.inf
        return None

    def _least(self, point: _Point, moves: Vector) -> Vector:
        """What each move can reach at best, by all prices."""
        if not moves.size:
            return np.zeros(0)
        least: Vector = ((self.bases + self.slopes @ point.x)[:, None] + self.slopes @ moves.T).max(axis=0)
        return least

    def _moves(self, point: _Point) -> Vector:
        """One more, one less, or both, as far as the rows of whole columns allow; the most promising ones."""
        ups, downs = self._ups(point.x), self._downs(point.x)
        gain_up, gain_down = ups @ point.slope, downs @ point.slope
        none_up, none_down = np.append(gain_up, 0.0), np.append(gain_down, 0.0)
        both = none_down[:, None] + none_up[None, :]
        order = np.argsort(both, axis=None, kind="stable")[: 4 * LISTED]
        order = order[both.ravel()[order] < -BETTER]
        i, j = np.unravel_index(order, both.shape)
        zero = np.zeros((1, self.places.size))
        moves = np.vstack([downs, zero])[i] + np.vstack([ups, zero])[j]
        x = point.x + moves
        fits = (x >= self.lower).all(axis=1) & (x <= self.upper).all(axis=1)
        fits &= (x @ self.hard.T <= self.most + 1e-9).all(axis=1)
        found: Vector = moves[fits][:LISTED]
        return found

    def _ups(self, x: Vector) -> Vector:
        """One more of each column, with what opens it."""
        steps = np.eye(self.places.size)
        opened = np.flatnonzero(self.helper >= 0)
        steps[opened, self.helper[opened]] = 1.0 - x[self.helper[opened]]
        return steps

    def _downs(self, x: Vector) -> Vector:
        """One less of each column that is above its least, with what opened it where it was the last."""
        mine = np.flatnonzero(x > self.lower)
        steps = -np.eye(self.places.size)[mine]
        for row, j in enumerate(mine):
            if self.helper[j] >= 0 and x[j] == 1.0:
                steps[row, self.helper[j]] = -x[self.helper[j]]
        return steps

    def _kicked(self, point: _Point) -> _Point:
        """A few exchanges that lose little."""
        x = point.x
        for _ in range(2):
            moves = self._any_moves(_Point(x, point.value, point.slope))
            if not moves.size:
                break
            x = x + moves[int(self.chance.integers(moves.shape[0]))]
        return self._solve(x)

    def _any_moves(self, point: _Point) -> Vector:
        """Exchanges among the better half of a sample, by all prices."""
        ups, downs = self._ups(point.x), self._downs(point.x)
        if not downs.size:
            return downs
        i = self.chance.integers(downs.shape[0], size=200)
        j = self.chance.integers(ups.shape[0], size=200)
        moves: Vector = downs[i] + ups[j]
        x = point.x + moves
        fits = (x >= self.lower).all(axis=1) & (x <= self.upper).all(axis=1) & (moves != 0).any(axis=1)
        fits &= (x @ self.hard.T <= self.most + 1e-9).all(axis=1)
        moves = np.asarray(moves[fits], dtype=float)
        best: Vector = moves[np.argsort(self._least(point, moves), kind="stable")[:12]]
        return best

    def _found(self, best: _Point) -> Found:
        stop, work = self._stop() or Stop.FINISHED, {"iterations": float(self.solved)}
        self.model.at(self.soft @ best.x)
        parts, missing = self.model.point()
        if missing > 1e-7:
            return Found(Word.NOTHING, stop, work=work, detail="no whole point was found")
        point = np.zeros(self.form.cost.size)
        point[self.places], point[~self.form.whole] = best.x, parts
        return Found(Word.FEASIBLE, stop, point=point, work=work)


class _Parts:
    """The linear program of the columns that are not whole, its rows soft."""

    def __init__(self, form: Milp, parts: Any, whole: Any, rows: NDArray[np.int64], sign: float) -> None:
        import highspy
        from scipy.sparse import csc_array, hstack

        self.low, self.high = form.row_lower[rows], form.row_upper[rows]
        scale = np.maximum(abs(whole).max(axis=1).toarray().ravel(), 1e-9) if rows.size else np.zeros(0)
        price = PENALTY * max(1.0, float(np.abs(form.cost).max(initial=0.0))) / scale
        soft = np.flatnonzero(np.diff(whole.indptr) > 0)
        over, under = soft[np.isfinite(self.high[soft])], soft[np.isfinite(self.low[soft])]
        signs = np.concatenate([-np.ones(over.size), np.ones(under.size)])
        missing = csc_array((signs, (np.concatenate([over, under]), np.arange(signs.size))), (rows.size, signs.size))
        matrix = hstack([parts, missing]).tocsc()
        self.size, self.changing = parts.shape[1], soft.astype(np.int32)
        free = ~form.whole
        cost = np.concatenate([sign * form.cost[free], price[over], price[under]])
        lower = np.concatenate([form.lower[free], np.zeros(signs.size)])
        upper = np.concatenate([form.upper[free], np.full(signs.size, np.inf)])
        self.highs: Any = highspy.Highs()
        for option, value in (("output_flag", False), ("small_matrix_value", SMALLEST), ("threads", 1)):
            self.highs.setOptionValue(option, value)
        self.highs.passModel(
            cost.size, rows.size, int(matrix.nnz), int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize), float(sign * form.offset), cost, lower, upper, self.low, self.high,
            matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data,
            np.zeros(cost.size, np.int32),
        )  # fmt: skip

    def at(self, taken: Vector) -> tuple[float, Vector]:
        """The value where whole columns take so much of each row, and the prices of the rows."""
        rows = self.changing
        self.highs.changeRowsBounds(rows.size, rows, self.low[rows] - taken[rows], self.high[rows] - taken[rows])
        self.highs.run()
        if not self.highs.getSolution().dual_valid:
            return float("inf"), np.zeros(taken.size)
        return float(self.highs.getInfo().objective_function_value), np.asarray(self.highs.getSolution().row_dual)

    def point(self) -> tuple[Vector, float]:
        """The columns of the last program, and how much its rows are missed by."""
        values = np.asarray(self.highs.getSolution().col_value)
        return values[: self.size], float(values[self.size :].sum())
