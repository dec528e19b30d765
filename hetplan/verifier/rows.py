r"""Programs of named rows and columns, and what a plan's multipliers prove of them, in the verifier's own writing.

A question's check writes the program down anew, from the inputs (`pool_bounds`, for one). The plan carries, per solve,
multipliers by the names of rows, and for whole-number programs a tree of splits. For least c'x over rows
low <= Ax <= high and columns in a box, any multipliers y bound every point, with d = c - A'y::

    c'x  =  y'Ax + d'x  >=  sum over rows of y (low where y > 0, else high)  +  sum over columns of the least d x

Sums are moved outward by more than their rounding. Every column has two finite ends here, which the writer of the
program finds; so nothing else is needed. A split takes a whole column j and a number k: a point has x_j <= k or
x_j >= k + 1. Every point is in the box of some leaf, and the worst of the leaves bounds all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["BOXES", "NoProof", "NotRebuilt", "Rows"]

EPS = 2.0**-52
MOST_LEAVES = 20_000
AT_ONCE = 256
"""Leaves that are bounded together."""
BOXES = 2000
"""So many boxes are bounded at most where a bound is searched for here."""
MOST_ROUNDED = 40
"""By so many amounts of a row at most it is divided and rounded up."""
_WHOLE, _SAME = 1e-7, 1e-9


class NoProof(Exception):
    """Why a plan's multipliers prove nothing here, in words."""


class NotRebuilt(NoProof):
    """Why a claim's mathematics is not written down anew, so that nobody here can say what its proof shows."""


@dataclass
class _Column:
    cost: float
    low: float
    high: float
    whole: bool


@dataclass
class _Row:
    low: float
    high: float
    terms: dict[int, float] = field(default_factory=dict)


class Rows:
    """A program that is written down name by name.

    >>> two = Rows("max")
    >>> two.column("x", cost=3.0, low=0.0, high=9.0)
    >>> two.row("room", {"x": 2.0}, high=4.0)
    >>> round(two.bound({"row_duals": {"room": 1.5}}), 6)
    6.0
    """

    def __init__(self, sense: str) -> None:
        self.flip = 1.0 if sense == "min" else -1.0
        self._columns: list[_Column] = []
        self._place: dict[str, int] = {}
        self._rows: dict[str, _Row] = {}

    def column(self, name: str, *, cost: float = 0.0, low: float, high: float, whole: bool = False) -> None:
        """Add a column with its two ends."""
        self._place[name] = len(self._columns)
        self._columns.append(_Column(self.flip * cost, low, high, whole))

    def high_of(self, name: str) -> float:
        """The upper end of a column."""
        return self._columns[self._place[name]].high

    def row(self, name: str, terms: Mapping[str, float], *, low: float = -math.inf, high: float = math.inf) -> None:
        """Add a row: what these columns, so many times each, may come to."""
        self._rows[name] = _Row(low, high, {self._place[column]: amount for column, amount in terms.items()})

    def uppers(self) -> Iterator[tuple[str, dict[str, float], float]]:
        """The rows with an upper end: the name of each, its amounts by column, and the end."""
        names = list(self._place)
        for name, row in self._rows.items():
            if row.high < math.inf:
                yield name, {names[j]: amount for j, amount in row.terms.items()}, row.high

    def bound(self, proof: Mapping[str, Any]) -> float:
        """The bound that a plan's proof shows, in the program's own sense; NoProof says why there is none.

        Infinite (in the sense in which nothing is that good) where it shows that there is no point at all.
        """
        names, splits, leaves = _read(proof)
        unknown = [name for name in names if name not in self._rows]
        if unknown:
            raise NoProof(f"it prices {unknown[0]}, which the question does not have as it is rebuilt here")
        boxes = self._boxes(splits, len(leaves))
        worst = math.inf
        for begin in range(0, len(leaves), AT_ONCE):
            worst = min(worst, self._least(names, leaves[begin : begin + AT_ONCE], boxes[begin : begin + AT_ONCE]))
        if worst == -math.inf:
            raise NoProof("its multipliers bound nothing")
        return self.flip * worst

    @property
    def size(self) -> int:
        """Rows times columns."""
        return len(self._rows) * len(self._columns)

    def searched(self, target: float, *, most: int = BOXES) -> float:
        """A bound in the program's own sense by splitting boxes here, until it is as good as the target.

        An engine holds the program from box to box; what it says is a hint, and each box is bounded by its multipliers.
        Whole columns between two whole numbers are split, the worst box first, so often at most. Where only whole
        columns cost something, and whole amounts, so does every point.
        """
        import numpy as np

        self._round_up()
        names, boxes = list(self._rows), _Boxes(self._columns, list(self._rows.values()))
        whole = np.array([column.whole for column in self._columns])
        low, high = (np.array([getattr(one, end) for one in self._columns]) for end in ("low", "high"))
        waiting, wanted = [(-math.inf, 0, low, high)], self.flip * target - _SAME * abs(target)
        done: set[int] = set()
        for number in range(1, most):
            if not waiting or waiting[0][0] >= wanted or waiting[0][1] in done:
                break
            above, _, low, high = heapq.heappop(waiting)
            if boxes.empty(low, high):
                continue
            y, ray, point = boxes.solved(low, high)
            found = self._bounds(names, boxes.matrix, boxes.cost, y[None], low[None], high[None])[0]
            if ray is not None and any(
                self._bounds(names, boxes.matrix, 0.0 * boxes.cost, sign * ray[None], low[None], high[None])[0] > 0.0
                for sign in (1.0, -1.0)
            ):
                continue  # There is nothing in it.
            between = np.where(whole & (low < high), np.abs(point - np.rint(point)), 0.0)
            if between.max(initial=0.0) <= _WHOLE:
                # The engine is between no whole numbers: a box is split on while it is not shown to be good enough.
                between = np.where(whole, high - low, 0.0)
            below = max(above, found)
            if boxes.whole_cost and math.isfinite(below):
                below = math.ceil(below - 1e-6)
            if below >= wanted or between.max(initial=0.0) <= 0.0:
                done.add(2 * number)
                heapq.heappush(waiting, (below, 2 * number, low, high))
                continue
            at = int(np.argmax(between))
            middle = min(max(math.floor(point[at]), low[at]), high[at] - 1.0)
            for side in (0, 1):
                ends = low.copy(), high.copy()
                ends[1 - side][at] = middle + side
                heapq.heappush(waiting, (below, 2 * number + side, *ends))
        return self.flip * min((bound for bound, *_ in waiting), default=math.inf)

    def _round_up(self) -> None:
        """Add what follows for whole numbers from rows that ask for so much: divided by an amount, and rounded up."""
        for name, row in list(self._rows.items()):
            used = [self._columns[j] for j in row.terms]
            plain = all(one.whole and one.low >= 0.0 for one in used) and min(row.terms.values(), default=-1.0) >= 0.0
            if not plain or not 0.0 < row.low < math.inf:
                continue
            for amount in sorted({amount for amount in row.terms.values() if amount > 0.0})[-MOST_ROUNDED:]:
                # A hair less is asked for, and each gives a hair more: rounding of the quotients cuts nothing off.
                terms = {j: float(math.ceil(one / amount * (1.0 - _SAME))) for j, one in row.terms.items()}
                terms = {j: max(whole, float(row.terms[j] > 0.0)) for j, whole in terms.items()}
                low = float(math.ceil(row.low / amount * (1.0 - _SAME)))
                self._rows[f"{name} in parts of {amount:.17g}"] = _Row(low, math.inf, terms)

    def multipliers(self) -> dict[str, float]:
        """Multipliers of the rows that an engine finds for the program without whole numbers; `bound` proves them."""
        import numpy as np
        from scipy.optimize import linprog

        ends, sides = list[float](), list[tuple[str, float]]()
        lines: list[Floats] = []
        for name, row in self._rows.items():
            line = np.zeros(len(self._columns))
            for j, amount in row.terms.items():
                line[j] = amount
            for end, sign in ((row.high, 1.0), (row.low, -1.0)):
                if math.isfinite(end):
                    ends.append(sign * end)
                    lines.append(sign * line)
                    sides.append((name, sign))
        cost = [column.cost for column in self._columns]
        box = [(column.low, column.high) for column in self._columns]
        answer: Any = linprog(cost, A_ub=np.array(lines), b_ub=ends, bounds=box, method="highs")
        if answer.x is None:
            raise NoProof("an engine finds no prices for it")
        found: dict[str, float] = {}
        for (name, sign), price in zip(sides, answer.ineqlin.marginals, strict=True):
            found[name] = found.get(name, 0.0) + self.flip * sign * float(price)
        return found

    def _boxes(self, splits: Sequence[tuple[str, int, int, int]], count: int) -> list[dict[int, tuple[float, float]]]:
        """What the splits leave of the split columns, for each leaf."""
        if not splits:
            if count != 1:
                raise NoProof("it has leaves and no splits")
            return [{}]
        waiting: dict[int, dict[int, tuple[float, float]]] = {0: {}}
        found: dict[int, dict[int, tuple[float, float]]] = {}
        for number, (name, at, *sides) in enumerate(splits):
            place = self._place.get(name)
            if place is None or not self._columns[place].whole:
                raise NoProof(f"it splits {name}, which is not counted in whole numbers")
            if number not in waiting:
                raise NoProof("its splits are no tree")
            box = waiting.pop(number)
            low, high = box.get(place, (self._columns[place].low, self._columns[place].high))
            halves = ((low, min(high, at)), (max(low, at + 1), high))
            for side, half in zip(sides, halves, strict=True):
                inside = {**box, place: half}
                if number < side < len(splits) and side not in waiting:
                    waiting[side] = inside
                elif -count <= side < 0 and -side - 1 not in found:
                    found[-side - 1] = inside
                else:
                    raise NoProof("its splits are no tree")
        if waiting or len(found) < count:
            raise NoProof("its splits are no tree")
        return [found[leaf] for leaf in range(count)]

    def _least(
        self,
        names: Sequence[str],
        leaves: Sequence[Sequence[float]],
        boxes: Sequence[Mapping[int, tuple[float, float]]],
    ) -> float:
        """The least bound of some leaves; one that is shown to be empty bounds nothing."""
        import numpy as np

        matrix = np.zeros((len(names), len(self._columns)))
        for i, name in enumerate(names):
            for j, amount in self._rows[name].terms.items():
                matrix[i, j] = amount
        lows = np.tile([column.low for column in self._columns], (len(leaves), 1))
        highs = np.tile([column.high for column in self._columns], (len(leaves), 1))
        for leaf, box in enumerate(boxes):
            for j, (low, high) in box.items():
                lows[leaf, j], highs[leaf, j] = low, high
        cost = np.array([column.cost for column in self._columns])
        given = self.flip * np.array(leaves, dtype=np.float64).reshape(len(leaves), len(names))
        found = self._bounds(names, matrix, cost, given, lows, highs)
        nothing = np.zeros_like(cost)
        for sign in (1.0, -1.0):
            # Where costs of 0 are above 0, there is nothing.
            found[self._bounds(names, matrix, nothing, sign * given, lows, highs) > 0.0] = np.inf
        found[(lows > highs).any(axis=1)] = np.inf
        return float(found.min())

    def _bounds(
        self, names: Sequence[str], matrix: Floats, cost: Floats, given: Floats, lows: Floats, highs: Floats
    ) -> Floats:
        """The bound of each leaf by its multipliers, over its box."""
        import numpy as np

        low = np.array([self._rows[name].low for name in names])
        high = np.array([self._rows[name].high for name in names])
        # A side that a row does not have cannot be priced.
        y = np.where((given > 0) & np.isfinite(low) | (given < 0) & np.isfinite(high), given, 0.0)
        of_rows = y * np.where(y > 0, np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0))
        d = cost - y @ matrix
        off = EPS * (len(names) + 3) * (np.abs(cost) + np.abs(y) @ np.abs(matrix))
        with np.errstate(invalid="ignore"):
            ends = np.stack([(d + sign * off) * end for sign in (-1.0, 1.0) for end in (lows, highs)])
        of_columns = np.where(np.isnan(ends), -np.inf, ends).min(axis=0)
        parts = np.concatenate([of_rows, of_columns], axis=1)
        total, size = parts.sum(axis=1), np.abs(parts).sum(axis=1)
        with np.errstate(invalid="ignore"):
            moved = total - EPS * (parts.shape[1] + 4) * 2.0 * size
        return np.where(np.isfinite(moved), moved, -np.inf)


class _Boxes:
    """A program as an engine holds it from box to box, for its multipliers."""

    def __init__(self, columns: Sequence[_Column], rows: Sequence[_Row]) -> None:
        import highspy
        import numpy as np
        from scipy.sparse import csr_array

        self.api: Any = highspy
        self.cost = np.array([column.cost for column in columns])
        self.unit = 2.0 ** math.frexp(float(np.abs(self.cost).max(initial=0.0)) or 0.5)[1]
        """In which the engine counts what costs: its tolerances are absolute, and prices may be small."""
        self.matrix = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            self.matrix[i, list(row.terms)] = list(row.terms.values())
        self.row_low, self.row_high = (np.array([getattr(row, end) for row in rows]) for end in ("low", "high"))
        held = csr_array(self.matrix)
        self.columns = np.arange(len(columns), dtype=np.int32)
        self.whole_cost = all(one.cost == round(one.cost) and (one.whole or not one.cost) for one in columns)
        self.engine: Any = highspy.Highs()
        for option, setting in (
            ("output_flag", False), ("threads", 1), ("presolve", "off"),
            ("primal_feasibility_tolerance", 1e-10), ("dual_feasibility_tolerance", 1e-10),
        ):  # fmt: skip
            self.engine.setOptionValue(option, setting)
        self.engine.passModel(
            len(columns), len(rows), held.nnz, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize), 0.0,
            self.cost / self.unit, np.array([one.low for one in columns]), np.array([one.high for one in columns]),
            self.row_low, self.row_high, held.indptr.astype(np.int32),
            held.indices.astype(np.int32), held.data, np.zeros(len(columns), dtype=np.int32),
        )  # fmt: skip

    def empty(self, low: Floats, high: Floats) -> bool:
        """Whether some row, by itself, leaves nothing in the box."""
        import numpy as np

        ends = np.stack([self.matrix * low, self.matrix * high])
        least, most = ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)
        slip = EPS * (self.matrix.shape[1] + 2) * np.abs(ends).max(axis=0).sum(axis=1)
        return bool((least - slip > self.row_high).any() or (most + slip < self.row_low).any())

    def solved(self, low: Floats, high: Floats) -> tuple[Floats, Floats | None, Floats]:
        """Multipliers of the rows; a ray where the engine finds nothing in the box; and a point."""
        import numpy as np

        self.engine.changeColsBounds(self.columns.size, self.columns, low, high)
        self.engine.run()
        nothing, middle = np.zeros(len(self.matrix)), np.floor((low + high) / 2.0)
        status = self.engine.getModelStatus()
        if status == self.api.HighsModelStatus.kInfeasible:
            _, there_is, ray = self.engine.getDualRay()
            return nothing, np.array(ray) if there_is else None, middle
        if status != self.api.HighsModelStatus.kOptimal:
            self.engine.clearSolver()
            return nothing, None, middle
        solution = self.engine.getSolution()
        return self.unit * np.array(solution.row_dual), None, np.array(solution.col_value)


def _read(proof: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, int, int, int]], list[list[float]]]:
    """Names of rows, splits and leaves of a proof as a plan has it; a plan may hold anything."""
    if "left_out" in proof:
        raise NoProof("its proof is too long for a plan")
    try:
        if "tree" in proof:
            return _read_tree(proof["tree"])
        by_name = proof["row_duals"]
        names = [str(name) for name in by_name]
        leaf = [float(by_name[name]) for name in names]
        leaves, splits = [leaf], list[tuple[str, int, int, int]]()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise NoProof("it carries no proof that can be read") from None
    if not all(map(math.isfinite, leaf)):
        raise NoProof("its multipliers are no numbers")
    return names, splits, leaves


def _read_tree(tree: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, int, int, int]], list[list[float]]]:
    columns, names = [str(one) for one in tree["columns"]], [str(one) for one in tree["rows"]]
    leaves = [[float(number) for number in str(line).split()] for line in tree["leaves"]]
    splits = []
    for line in tree["splits"]:
        column, at, low, high = (int(number) for number in str(line).split())
        if not 0 <= column < len(columns) or abs(at) > 2**53:
            raise ValueError(column)
        splits.append((columns[column], at, low, high))
    if not 0 < len(leaves) <= MOST_LEAVES or any(len(leaf) != len(names) for leaf in leaves):
        raise ValueError(len(leaves))
    if not all(math.isfinite(number) for leaf in leaves for number in leaf):
        raise ValueError("a multiplier that is no number")
    return names, splits, leaves
