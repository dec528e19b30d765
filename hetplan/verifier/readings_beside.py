"""What is read in place of one table or statistic: tables of one batch each, joined; the statistic that answers."""

from __future__ import annotations

from collections.abc import Mapping

from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import STATISTICS, Table
from hetplan.verifier.facts import own_table

__all__ = ["nearest_statistic", "table_along_batches"]

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
