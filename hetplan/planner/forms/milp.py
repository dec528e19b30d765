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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.planner.forms.form import Form

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from hetplan.planner.answer import Answer
    from hetplan.planner.certificate import Certificate

__all__ = ["Block", "Builder", "Elastic", "Milp", "Vector"]

Vector = NDArray[np.float64]
Labels = Sequence[str] | Callable[[int], str]


@dataclass(frozen=True)
class Elastic:
    """A block that may give way when all cannot hold: at what price per unit, and how its owner calls giving way.

    `price` weighs one unit of this block against one unit of any other in the smallest joint relaxation.
    `field` is the input that says so (``slo.limits.cost_per_hour``), `verb` what to do with it ("raise", "lower").
    `per_unit` converts a row's unit to the user's; `whole` rounds a repair up to whole units.
    """

    price: float
    field: str
    verb: str = "raise"
    per_unit: float = 1.0
    unit: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Block:
    """A named run of rows or columns."""

    name: str
    start: int
    size: int
    labels: Labels = ()
    unit: str = ""
    equation: str = ""
    elastic: Elastic | None = None

    @property
    def stop(self) -> int:
        """One past the last index."""
        return self.start + self.size

    def label(self, i: int) -> str:
        """What the block's i-th row or column is called; made only when asked for."""
        if callable(self.labels):
            return self.labels(i)
        return self.labels[i] if i < len(self.labels) else str(i)


@dataclass(frozen=True)
class Milp(Form[Vector]):
    """A mixed-integer linear program; see the module for its mathematics."""

    kind: ClassVar[str] = "milp"

    sense: Literal["min", "max"]
    cost: Vector
    matrix: csc_array
    row_lower: Vector
    row_upper: Vector
    lower: Vector
    upper: Vector
    whole: NDArray[np.bool_]
    offset: float = 0.0
    columns: tuple[Block, ...] = ()
    rows: tuple[Block, ...] = ()
    name: str = ""

    @property
    def pure_lp(self) -> bool:
        """No column must be integer."""
        return not bool(self.whole.any())

    def size(self) -> dict[str, int]:
        """Rows, columns, nonzeros, integers."""
        rows, columns = self.matrix.shape
        return {"rows": rows, "columns": columns, "nonzeros": int(self.matrix.nnz), "whole": int(self.whole.sum())}

    def value(self, x: Vector) -> float:
        """The objective at x."""
        return float(self.cost @ x + self.offset)

    def row_name(self, i: int) -> str:
        """Block name and label of row i: ``capacity[g4dn]``."""
        return _name(self.rows, i)

    def column_name(self, j: int) -> str:
        """Block name and label of column j."""
        return _name(self.columns, j)

    def certify(self, answer: Answer[Vector]) -> Certificate:
        """Feasibility, integrality, value; bounds from duals with safe rounding; infeasibility from rays."""
        from hetplan.planner.certify_milp import certify_milp

        return certify_milp(self, answer)


def _name(blocks: tuple[Block, ...], i: int) -> str:
    for block in blocks:
        if block.start <= i < block.stop:
            return f"{block.name}[{block.label(i - block.start)}]" if block.size > 1 or block.labels else block.name
    return str(i)


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
        r, c, v = np.broadcast_arrays(np.asarray(rows), np.asarray(columns), np.asarray(coefficients, dtype=float))
        self._terms.append((r.ravel().astype(np.int64), c.ravel().astype(np.int64), v.ravel().astype(float)))

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
        return Milp(
            sense=self.sense,
            name=self.name,
            cost=_stack(self._column_data, 2),
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
    return np.broadcast_to(np.asarray(value, dtype=float), shape).copy()


def _stack(parts: Sequence[tuple[NDArray[Any], ...]], k: int) -> NDArray[Any]:
    return np.concatenate([part[k] for part in parts]) if parts else np.zeros(0)
