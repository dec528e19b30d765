"""A large sparse matrix times a vector, four rows side by side.

A sweep over a large matrix waits for memory. One row after another is one stream of numbers, which leaves most of the
memory's width unused; four rows from four parts of the matrix are four. Every row is summed in its own order, so the
result is scipy's to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["WideMatrix", "compile_kernels"]

Floats = NDArray[np.float64]
Places = NDArray[np.uint64]
"""Or of 32 bits; unsigned, which spares the compiled loops a test for places counted from the end."""


class WideMatrix:
    """A matrix in rows, as the compiled loops read it.

    >>> from scipy.sparse import csr_array
    >>> WideMatrix(csr_array(np.array([[0.5, 0.5], [0.0, 1.0]]))).times(np.array([1.0, 3.0])).tolist()
    [2.0, 3.0]
    """

    def __init__(self, matrix: csr_array) -> None:
        self._first = matrix.indptr.astype(np.uint64)
        self._place = matrix.indices.view(f"u{matrix.indices.itemsize}")
        self._data = np.asarray(matrix.data, dtype=np.float64)

    def times(self, values: Floats) -> Floats:
        """The product with a vector."""
        result = np.empty(self._first.size - 1)
        _times(self._first, self._place, self._data, np.ascontiguousarray(values), result)
        return result


@kernel
def _finish_row(first: Places, place: Places, data: Floats, values: Floats, row: int, done: int, total: float) -> float:
    """A row's sum, of which the first `done` terms make `total`."""
    for k in range(first[row] + done, first[row + 1]):
        total += data[k] * values[place[k]]
    return total


@kernel
def _times(first: Places, place: Places, data: Floats, values: Floats, result: Floats) -> None:
    part = result.size // 4
    for one in range(part):
        two, three, four = one + part, one + 2 * part, one + 3 * part
        a, b, c, d = first[one], first[two], first[three], first[four]
        shared = min(min(first[one + 1] - a, first[two + 1] - b), min(first[three + 1] - c, first[four + 1] - d))
        sum_a, sum_b, sum_c, sum_d = 0.0, 0.0, 0.0, 0.0
        for k in range(shared):
            sum_a += data[a + k] * values[place[a + k]]
            sum_b += data[b + k] * values[place[b + k]]
            sum_c += data[c + k] * values[place[c + k]]
            sum_d += data[d + k] * values[place[d + k]]
        result[one] = _finish_row(first, place, data, values, one, shared, float(sum_a))
        result[two] = _finish_row(first, place, data, values, two, shared, float(sum_b))
        result[three] = _finish_row(first, place, data, values, three, shared, float(sum_c))
        result[four] = _finish_row(first, place, data, values, four, shared, float(sum_d))
    nothing = first[0] - first[0]
    for row in range(4 * part, result.size):
        result[row] = _finish_row(first, place, data, values, row, nothing, 0.0)


def compile_kernels() -> None:
    """Multiply a small matrix with places of either width, so that everything is compiled that a large one needs."""
    from scipy.sparse import csr_array

    for width in (np.int32, np.int64):
        small: Any = csr_array(np.eye(5))
        small.indptr, small.indices = small.indptr.astype(width), small.indices.astype(width)
        WideMatrix(small).times(np.ones(5))
