r"""Mixed-integer linear programs, and their continuous special case.

::

    min or max   cost @ x + offset
    subject to   row_lower <= matrix @ x <= row_upper
                 lower     <=          x <= upper
                 x[j] integer where whole[j]

Rows and columns come in named blocks, so that a price, a binding row or an exported file reads in the user's words.
`Builder` is how formulations write one: vectorised, a block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.certify_milp import certify_milp
from hetplan.planner.forms.program import Block, Elastic, Labels, Program, Vector

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer, Certificate

__all__ = ["Block", "Builder", "Elastic", "Milp", "Vector"]


@dataclass(frozen=True)
class Milp(Program):
    """A mixed-integer linear program; see the module for its mathematics."""

    def certify(self, answer: Answer[Vector]) -> Certificate:
        """Feasibility, integrality, value; bounds from duals with safe rounding; infeasibility from rays."""
        return certify_milp(self, answer)


@dataclass
class Builder:
    """Writes a Milp a block at a time.

    >>> m = Builder("max")
    >>> x = m.columns("x", ["a", "b"], upper=3, cost=[1, 2])
    >>> row = m.rows("room", ["r"], upper=4)
    >>> m.add(row, x, [1, 1])
    >>> m.build().size()
    {'rows': 1, 'columns': 2, 'nonzeros': 2, 'whole': 0}
    """

    sense: Literal["min", "max"]
    name: str = ""
    offset: float = 0.0
    _columns: list[Block] = field(default_factory=list)
    _rows: list[Block] = field(default_factory=list)
    _column_data: list[tuple[Vector, Vector, Vector, NDArray[np.bool_]]] = field(default_factory=list)
    _row_data: list[tuple[Vector, Vector]] = field(default_factory=list)
    _terms: list[tuple[NDArray[np.int64], NDArray[np.int64], Vector]] = field(default_factory=list)
    _costs: list[tuple[NDArray[np.int64], Vector]] = field(default_factory=list)

    def columns(
        self,
        name: str,
        labels: Labels,
        *,
        size: int | None = None,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        cost: ArrayLike = 0.0,
        whole: bool = False,
        unit: str = "",
        elastic: Elastic | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of columns; returns their indices."""
        block = self._block(self._columns, name, labels, size, unit, "", elastic)
        shape = (block.size,)
        self._column_data.append(
            (_full(lower, shape), _full(upper, shape), _full(cost, shape), np.full(shape, whole, dtype=bool))
        )
        return np.arange(block.start, block.stop)

    def rows(
        self,
        name: str,
        labels: Labels,
        *,
        size: int | None = None,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
        unit: str = "",
        equation: str = "",
        elastic: Elastic | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of rows; returns their indices."""
        block = self._block(self._rows, name, labels, size, unit, equation, elastic)
        self._row_data.append((_full(lower, (block.size,)), _full(upper, (block.size,))))
        return np.arange(block.start, block.stop)

    def add(self, rows: ArrayLike, columns: ArrayLike, coefficients: ArrayLike) -> None:
        """Add coefficients at (rows, columns), broadcast against one another; repeated places sum."""
        shape = np.broadcast(rows, columns, coefficients).shape
        at = np.full(shape, rows, np.int64).ravel(), np.full(shape, columns, np.int64).ravel()
        self._terms.append((*at, np.full(shape, coefficients, np.float64).ravel()))

    def pay(self, columns: ArrayLike, costs: ArrayLike) -> None:
        """Add costs to columns that are there."""
        shape = np.broadcast(columns, costs).shape
        self._costs.append((np.full(shape, columns, np.int64).ravel(), np.full(shape, costs, np.float64).ravel()))

    def build(self) -> Milp:
        """The finished form."""
        from scipy.sparse import coo_array

        n_columns = self._columns[-1].stop if self._columns else 0
        n_rows = self._rows[-1].stop if self._rows else 0
        rows = np.concatenate([t[0] for t in self._terms]) if self._terms else np.zeros(0, np.int64)
        columns = np.concatenate([t[1] for t in self._terms]) if self._terms else np.zeros(0, np.int64)
        values = np.concatenate([t[2] for t in self._terms]) if self._terms else np.zeros(0)
        matrix = coo_array((values, (rows, columns)), shape=(n_rows, n_columns)).tocsc()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        cost = _stack(self._column_data, 2)
        for at, more in self._costs:
            np.add.at(cost, at, more)
        return Milp(
            sense=self.sense,
            name=self.name,
            cost=cost,
            offset=self.offset,
            matrix=matrix,
            row_lower=_stack(self._row_data, 0),
            row_upper=_stack(self._row_data, 1),
            lower=_stack(self._column_data, 0),
            upper=_stack(self._column_data, 1),
            whole=_stack(self._column_data, 3).astype(bool),
            columns=tuple(self._columns),
            rows=tuple(self._rows),
        )

    @staticmethod
    def _block(
        blocks: list[Block],
        name: str,
        labels: Labels,
        size: int | None,
        unit: str,
        equation: str,
        elastic: Elastic | None,
    ) -> Block:
        if size is None:
            if callable(labels):
                raise TypeError(f"block {name}: labels given as a function need a size")
            size = len(labels)
        start = blocks[-1].stop if blocks else 0
        block = Block(name, start, size, labels, unit, equation, elastic)
        blocks.append(block)
        return block


def _full(value: ArrayLike, shape: tuple[int]) -> Vector:
    return np.full(shape, value, np.float64)


def _stack(parts: Sequence[tuple[NDArray[Any], ...]], k: int) -> NDArray[Any]:
    return np.concatenate([part[k] for part in parts]) if parts else np.zeros(0)
