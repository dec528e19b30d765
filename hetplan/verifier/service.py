"""How long a load takes for each class of query, read from the measured tables.

A query's own axes (those of the mix) give its point in a table; of the others the first of these that names one says:
the load (its batch limit as ``batch``, its knobs), the ``at`` of its run, the knobs of its variant. A batch below the
smallest that was measured takes as long as that. Where ``batch`` is not an axis of the mix, a load of batch limit b
serves b queries in the table's time at b. Question ``variants`` goes by the measured saturation instead, where a run
has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.operating_points import Verdict
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import Table
from hetplan.verifier.demand import Classes
from hetplan.verifier.plan_index import Facts, Seat, own_table, statistics_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Service", "nearest_statistic", "read_table", "service_of", "table_along_batches"]


def read_table(
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


@dataclass(frozen=True)
class Service:
    """Of one load, per class: seconds of one instance per query, the latency that targets judge, what was extrapolated.

    NaN where nothing was measured; the latency of a table of rates is 0: its measurements already met a target.
    """

    seconds: list[float]
    latency_ms: list[float]
    extrapolated: list[bool]
    table: str


def _columns(facts: Facts, seat: Seat, classes: Classes, table: Table) -> dict[str, NDArray[np.float64] | float]:
    import numpy as np

    variant = facts.inputs.profile.variants[seat.load.variant] if seat.load.variant is not None else None
    settings = {
        **(variant.knobs if variant is not None else {}),
        **(seat.run.at if seat.run is not None else {}),
        **seat.load.knobs,
        "batch": seat.load.serve.max_batch,
    }
    columns: dict[str, NDArray[np.float64] | float] = {
        name: float(value) for name, value in settings.items() if isinstance(value, int | float)
    }
    bins = np.array(classes.bins, dtype=np.float64)
    for number, axis in enumerate(classes.axes):
        columns[axis] = bins[:, number]
    if "batch" in table.axes:
        columns["batch"] = np.maximum(columns["batch"], table.axes["batch"][0])
    return columns


def _positive(values: NDArray[np.float64]) -> list[float]:
    return [value if value > 0.0 else math.nan for value in values.tolist()]


def service_of(facts: Facts, seat: Seat, classes: Classes, worst: Verdict = Verdict.UNCHECKED) -> Service:
    """Read what the profile measured of a load. A load whose times are not in tables is unmeasured.

    A table of runs is read under the limits of the classes, by runs that are judged no worse than `worst`.
    """
    size, run = len(classes.bins), seat.run
    if run is None or run.engine is not None:
        return Service([math.nan] * size, [math.nan] * size, [False] * size, "")
    capacity_stat, target_stat = statistics_of(facts.plan)
    seconds, latency_ms, extrapolated = [math.nan] * size, [0.0] * size, [False] * size
    table = own_table(facts.inputs.profile, run).under(classes.limits, worst)
    if "batch" in run.at:
        table = table_along_batches(facts.inputs.profile, seat.load.variant or "", run)
    columns = _columns(facts, seat, classes, table)
    if facts.says_another:
        capacity_stat, target_stat = nearest_statistic(table, capacity_stat), nearest_statistic(table, target_stat)
    if run.latency is not None:
        values, outside = read_table(table, capacity_stat, columns, size)
        together = seat.load.serve.max_batch if "batch" in table.axes and "batch" not in classes.axes else 1
        seconds = _positive(values / 1000.0 / together)
        judged = values if target_stat == capacity_stat else read_table(table, target_stat, columns, size)[0]
        latency_ms = _positive(judged)
        extrapolated = outside.tolist()
    else:
        values, outside = read_table(table, "mean", columns, size)
        seconds = [1.0 / value for value in _positive(values)]
        extrapolated = outside.tolist()
    if run.saturation_qps is not None and facts.plan.question == "variants":
        seconds = [1.0 / run.saturation_qps] * size
    return Service(seconds, latency_ms, extrapolated, run.latency or run.rate or "")


# What is read in place of one table or statistic

_RISING = ("mean", "p50", "p90", "p95", "p99", "max")


def nearest_statistic(table: Table, statistic: str) -> str:
    """The statistic taken in place of one that was not measured: the next higher of those there, else the highest."""
    there = [name for name in _RISING if getattr(table, name) is not None]
    if statistic in there or statistic not in _RISING or not there:
        return statistic
    above = [name for name in _RISING[_RISING.index(statistic) :] if name in there]
    return above[0] if above else there[-1]


def table_along_batches(profile: Profile, variant: str, run: Run) -> Table:
    """The table that times a run, joined with those of runs that differ by batch alone, where each holds one batch."""
    parts = {float(run.at["batch"]): own_table(profile, run)} if "batch" in run.at else {}
    for other in profile.variants[variant].runs if parts else ():
        if other.hardware == run.hardware and _other_axes(other.at) == _other_axes(run.at) and "batch" in other.at:
            parts[float(other.at["batch"])] = own_table(profile, other)
    first = own_table(profile, run)
    parts = {batch: table for batch, table in parts.items() if table.axes.get("batch") == (batch,)}
    parts = {batch: table for batch, table in parts.items() if _form(table) == _form(first)}
    if len(parts) < 2 or run.at["batch"] not in parts:
        return first
    return _stack(first, dict(sorted(parts.items())))


def _other_axes(at: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted((axis, value) for axis, value in at.items() if axis != "batch")


def _form(table: Table) -> tuple[object, ...]:
    return table.quantity, table.outside, [(axis, at) for axis, at in table.axes.items() if axis != "batch"]


def _stack(first: Table, parts: Mapping[float, Table]) -> Table:
    import numpy as np

    place = list(first.axes).index("batch")
    data: dict[str, object] = {"quantity": first.quantity, "outside": first.outside}
    data["axes"] = {axis: list(parts) if axis == "batch" else at for axis, at in first.axes.items()}
    for name in STATISTICS:
        grids = [getattr(table, name) for table in parts.values()]
        if all(grid is not None for grid in grids):
            joined = np.concatenate([np.array(grid, dtype=object) for grid in grids], axis=place)
            data[name] = joined.tolist()
    return Table.model_validate(data)
