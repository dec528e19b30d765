"""Latencies for every batch from a measured table, by the rules that policies are made with, computed anew.

Batches 1..N: measured, else on the least-squares line of what was measured (never below half of the least measured);
then made to grow with the batch, upwards ("safe") or downwards ("optimistic"). Batch N + 1: on the line of 1..N, never
below N.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.profiles.profile import Run
from hetplan.profiles.tables import Table

__all__ = ["batch_latencies_ms"]


def batch_latencies_ms(table: Table, run: Run, *, statistic: str, queue_max: int, monotone: str) -> list[float]:
    """Milliseconds for batches of 1..N + 1; empty where the table does not say."""
    grid: Any = getattr(table, _answering(table, statistic), None)
    for axis, points in table.axes.items():
        if axis != "batch" and run.at.get(axis) not in points:
            return []
    measured = _cells(grid, list(table.axes), table, run.at)
    if not measured or (len(measured) < 2 and queue_max > 1):
        return []
    known = {size: value for size, value in measured.items() if size <= queue_max}
    values = [known.get(size, 0.0) for size in range(1, queue_max + 1)]
    if len(known) < queue_max:
        slope, level = _line(list(measured.items()))
        floor = 0.5 * min(measured.values())
        values = [known.get(size, max(slope * size + level, floor)) for size in range(1, queue_max + 1)]
    if monotone == "safe":
        for i in range(1, queue_max):
            values[i] = max(values[i], values[i - 1])
    else:
        for i in range(queue_max - 2, -1, -1):
            values[i] = min(values[i], values[i + 1])
    if queue_max == 1:
        return [*values, max(values[0], measured[2]) if 2 in measured else 2 * values[0]]
    slope, level = _line([(i + 1, value) for i, value in enumerate(values)])
    return [*values, max(values[-1], slope * (queue_max + 1) + level)]


def _answering(table: Table, wanted: str) -> str:
    """The statistic that is planned with: the wanted one where it was measured, else the next higher, else lower."""
    order = ["mean", "p50", "p90", "p95", "p99", "max"]
    if wanted not in order:
        return wanted
    place = order.index(wanted)
    return next((name for name in order[place:] + order[:place][::-1] if getattr(table, name) is not None), wanted)


def _cells(grid: Any, axes: list[str], table: Table, at: Mapping[str, float]) -> dict[int, float]:
    if not axes:
        return {1: float(grid)} if grid is not None else {}
    if grid is None:
        return {}
    if axes[0] != "batch":
        return _cells(grid[table.axes[axes[0]].index(at[axes[0]])], axes[1:], table, at)
    found: dict[int, float] = {}
    for size, row in zip(table.axes["batch"], grid, strict=True):
        inner = _cells(row, axes[1:], table, at) if axes[1:] else ({1: float(row)} if row is not None else {})
        if inner:
            found[int(size)] = next(iter(inner.values()))
    return found


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Slope and level of the least-squares line."""
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
    return slope, middle_y - slope * middle_x
