"""Multilinear interpolation over a rectangular grid with any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["interpolate"]


def interpolate(
    axes: Sequence[NDArray[np.float64]],
    cells: NDArray[np.float64],
    points: NDArray[np.float64],
    *,
    outside: Literal["clamp", "linear"],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The value at each row of `points` (one column per axis), and which rows lie outside the grid.

    Exact on the grid. Outside it `clamp` takes the nearest border, `linear` continues the slope of the border cell (an
    axis of one point has no slope: its value is kept). A row that needs a NaN cell comes out as NaN; a NaN corner of
    weight zero is not needed.

    >>> axis = np.array([1.0, 8.0])
    >>> values, beyond = interpolate([axis], np.array([10.0, 80.0]), np.array([[1.0], [4.5], [9.0]]), outside="linear")
    >>> values.round(9).tolist(), beyond.tolist()
    ([10.0, 45.0, 90.0], [False, False, True])
    """
    count = len(points)
    beyond = np.zeros(count, dtype=np.bool_)
    lower_cells: list[NDArray[np.intp]] = []
    upper_weights: list[NDArray[np.float64]] = []
    for number, axis in enumerate(axes):
        wanted = points[:, number]
        beyond |= (wanted < axis[0]) | (wanted > axis[-1])
        if len(axis) == 1:
            lower_cells.append(np.zeros(count, dtype=np.intp))
            upper_weights.append(np.zeros(count))
            continue
        if outside == "clamp":
            wanted = np.clip(wanted, axis[0], axis[-1])
        lower = np.clip(np.searchsorted(axis, wanted, side="right") - 1, 0, len(axis) - 2)
        lower_cells.append(lower)
        upper_weights.append((wanted - axis[lower]) / (axis[lower + 1] - axis[lower]))
    return _blend(cells, lower_cells, upper_weights, count), beyond


def _blend(
    cells: NDArray[np.float64],
    lower_cells: Sequence[NDArray[np.intp]],
    upper_weights: Sequence[NDArray[np.float64]],
    count: int,
) -> NDArray[np.float64]:
    """The weighted sum over the 2^axes corners of each point's cell."""
    flat = cells.reshape(-1)
    strides = np.cumprod((1, *cells.shape[:0:-1]))[::-1] if cells.ndim else np.array([], dtype=np.intp)
    values = np.zeros(count)
    for corner in range(1 << len(lower_cells)):
        weight = np.ones(count)
        position = np.zeros(count, dtype=np.intp)
        for number, (lower, upper_weight) in enumerate(zip(lower_cells, upper_weights, strict=True)):
            is_upper = corner >> number & 1
            weight *= upper_weight if is_upper else 1.0 - upper_weight
            # A corner of weight zero may lie past the last point of a one-point axis: stay on the grid.
            position += np.minimum(lower + is_upper, cells.shape[number] - 1) * strides[number]
        values += np.where(weight == 0.0, 0.0, flat[position] * weight)
    return values
