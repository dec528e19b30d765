"""Reading measured tables, by code of the verifier's own: a fault in the planner's reading shows as a difference."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import STATISTICS, Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["own_table", "read"]


def read(
    table: Table, statistic: str, columns: Mapping[str, NDArray[np.float64] | float], size: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The table's statistic at `size` points given by a column per axis; and which points lie outside its grid.

    Multilinear inside. NaN where there is no number: the statistic was not measured, a cell around the point is null,
    an axis has no column, or the point lies outside a table that refuses.
    """
    import numpy as np

    grid = getattr(table, statistic) if statistic in STATISTICS else None
    outside = np.zeros(size, dtype=bool)
    if grid is None or any(axis not in columns for axis in table.axes):
        return np.full(size, np.nan), outside
    cells = np.array(grid, dtype=float)
    if cells.size == 1 and table.outside != "linear":
        # One measurement, at whose point or beyond: the usual table of a variant.
        for axis, points in table.axes.items():
            outside |= columns[axis] != points[0]
        values = np.full(size, cells.item())
        values[outside & (table.outside == "refuse")] = np.nan
        return values, outside
    lower: list[NDArray[np.intp]] = []
    upper_weight: list[NDArray[np.float64]] = []
    for axis, points in table.axes.items():
        ticks, at = np.array(points), np.broadcast_to(columns[axis], size)
        outside |= (at < ticks[0]) | (at > ticks[-1])
        index = np.clip(np.searchsorted(ticks, at, side="right") - 1, 0, max(len(ticks) - 2, 0))
        weight = (at - ticks[index]) / (ticks[index + 1] - ticks[index]) if len(ticks) > 1 else np.zeros(size)
        lower.append(index)
        upper_weight.append(weight if table.outside == "linear" else np.clip(weight, 0.0, 1.0))
    values = np.zeros(size)
    for corner in product((0, 1), repeat=len(lower)):
        weight = np.ones(size)
        for up, share in zip(corner, upper_weight, strict=True):
            weight = weight * (share if up else 1.0 - share)
        cell = cells[tuple(np.minimum(i + up, n - 1) for i, up, n in zip(lower, corner, cells.shape, strict=True))]
        values += np.where(weight == 0.0, 0.0, weight * cell)
    if table.outside == "refuse":
        values[outside] = np.nan
    return (np.maximum(values, 0.0) if statistic == "std" else values), outside


def own_table(profile: Profile, run: Run) -> Table:
    """The table that times a run: of latencies, else of rates."""
    return profile.tables[run.latency if run.latency is not None else run.rate or ""]
