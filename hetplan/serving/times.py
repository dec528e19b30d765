"""The service law of a load, made from the profile: its run, that run's table, and the settings it is read at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.tables import Table
from hetplan.serving.law import Law
from hetplan.serving.table_points import answering_statistic

__all__ = ["law_data", "law_of_table"]


def law_of_table(table: Table, *, at: Mapping[str, float] | None = None, extend: bool = False) -> Law:
    """A table as a law, read at these settings; with `extend`, beyond its grid too (`Cells`, outside "extend"), and
    across batches that were not measured."""
    return Law(law_data(table, at=at, extend=extend))


def law_data(table: Table, *, at: Mapping[str, float] | None = None, extend: bool = False) -> dict[str, Any]:
    """A law as JSON data: what a worker's process is handed.

    >>> law_data(Table(quantity="latency_ms", axes={"batch": (1, 8)}, mean=(6.1, 30.2)))
    {'quantity': 'latency_ms', 'outside': 'refuse', 'axes': {'batch': [1.0, 8.0]}, 'mean': [6.1, 30.2]}
    """
    held: dict[str, Any] = {
        name: _plain(getattr(table, name)) for name in STATISTICS if getattr(table, name) is not None
    }
    axes = {name: list(points) for name, points in table.axes.items()}
    if extend and list(axes) == ["batch"]:
        # Policies fill batches that were not measured (null), and say so: here they are read between the others.
        first = held[answering_statistic(held, "mean")]
        there = [number for number, cell in enumerate(first) if cell is not None]
        axes["batch"] = [axes["batch"][number] for number in there]
        held = {name: [grid[number] for number in there] for name, grid in held.items()}
    outside = "extend" if extend and table.outside != "clamp" else table.outside
    return {"quantity": table.quantity, "outside": outside, "axes": axes, **({"at": dict(at)} if at else {}), **held}


def _plain(grid: Any) -> Any:
    return [_plain(cell) for cell in grid] if isinstance(grid, tuple | list) else grid
