r"""Programs of named rows and columns, and what multipliers prove of them, in the verifier's own writing.

For least c'x over rows low <= Ax <= high and columns in a box, any multipliers y bound every point, with d = c - A'y::

    c'x  =  y'Ax + d'x  >=  sum over rows of y (low where y > 0, else high)  +  sum over columns of the least d x

Sums are moved outward by more than their rounding. Every column has two finite ends here, which the writer of the
program finds; so nothing else is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["EPS", "NoProof", "NotRebuilt", "Rows"]

EPS = 2.0**-52


class NoProof(Exception):
    """Why a plan's multipliers prove nothing here, in words."""


class NotRebuilt(NoProof):
    """Why a claim's mathematics is not written down anew, so that nobody here can say what its proof shows."""


@dataclass
class _Column:
    cost: float
    low: float
    high: float


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
    >>> round(two.bound({"room": 1.5}), 6)
    6.0
    """

    def __init__(self, sense: str) -> None:
        self.flip = 1.0 if sense == "min" else -1.0
        self._columns: list[_Column] = []
        self._place: dict[str, int] = {}
        self._rows: dict[str, _Row] = {}

    def column(self, name: str, *, cost: float = 0.0, low: float, high: float) -> None:
        """Add a column with its two ends."""
        self._place[name] = len(self._columns)
        self._columns.append(_Column(self.flip * cost, low, high))

    def row(self, name: str, terms: Mapping[str, float], *, low: float = -math.inf, high: float = math.inf) -> None:
        """Add a row: what these columns, so many times each, may come to."""
        self._rows[name] = _Row(low, high, {self._place[column]: amount for column, amount in terms.items()})

    def bound(self, duals: Mapping[str, float]) -> float:
        """The bound that multipliers of rows show, in the program's own sense; NoProof says why there is none."""
        import numpy as np

        unknown = [name for name in duals if name not in self._rows]
        if unknown:
            raise NoProof(f"it prices {unknown[0]}, which the question does not have as it is rebuilt here")
        low, high = (np.array([getattr(self._rows[name], end) for name in duals]) for end in ("low", "high"))
        matrix, cost = np.zeros((len(duals), len(self._columns))), np.array([one.cost for one in self._columns])
        for line, name in zip(matrix, duals, strict=True):
            line[list(self._rows[name].terms)] = list(self._rows[name].terms.values())
        # A side that a row does not have cannot be priced.
        given = self.flip * np.array([float(price) for price in duals.values()])
        y = np.where((given > 0) & np.isfinite(low) | (given < 0) & np.isfinite(high), given, 0.0)
        of_rows = y * np.where(y > 0, np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0))
        d = cost - y @ matrix
        off = EPS * (len(duals) + 3) * (np.abs(cost) + np.abs(y) @ np.abs(matrix))
        box = [np.array([getattr(one, end) for one in self._columns]) for end in ("low", "high")]
        ends = np.stack([(d + sign * off) * end for sign in (-1.0, 1.0) for end in box])
        parts = np.concatenate([of_rows, ends.min(axis=0)])
        found = float(parts.sum() - EPS * (parts.size + 4) * 2.0 * np.abs(parts).sum())
        if not math.isfinite(found):
            raise NoProof("its multipliers bound nothing")
        return self.flip * found

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
