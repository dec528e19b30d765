"""The points of tables that runs name."""

from __future__ import annotations

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.inputs import Steps
from hetplan.profiles.json_path import closest
from hetplan.profiles.profile import Run

__all__ = ["check_point"]


def check_point(found: Dangling, run: Run, at: Steps) -> None:
    """The table point of a run lies on axes that its table has."""
    table = found.profile.tables.get(run.latency or run.rate or "")
    if table is None:
        return
    for axis, value in run.at.items():
        if axis not in table.axes:
            listed = ", ".join(table.axes) or "none"
            remedy = f"{closest(axis, table.axes)}Its axes are: {listed}."
            found.fault((*at, "at", axis), value, f"table {run.latency or run.rate} has no axis {axis!r}", remedy)
        elif table.outside == "refuse" and not table.axes[axis][0] <= value <= table.axes[axis][-1]:
            why = f"a point of table {run.latency or run.rate}: {table.axes[axis][0]:g} to {table.axes[axis][-1]:g}"
            found.fault((*at, "at", axis), value, why, 'Measure it, or set "outside" of the table.')
