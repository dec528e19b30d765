"""Whether a stated saturation rate is one that a run's table of times allows. Loaded where a run states one."""

from __future__ import annotations

import math
from itertools import islice, product

from hetplan.errors import InputError
from hetplan.profiles.columns import Statistic
from hetplan.profiles.dangling import Dangling
from hetplan.profiles.places import Steps
from hetplan.profiles.profile import Run
from hetplan.profiles.tables import Table

__all__ = ["check_saturation"]

AT_ONCE, ONE_BY_ONE = 4, 16
"""An instance works at so many batches at once, or as many as it has cores: streams of a card, copies that overlap.

At more where a batch is one query: servers form batches by themselves, and published tables (INFaaS' has 12 times as
many) say how long one query takes, and what is served of many.
"""
NOISE = 1.05
"""Rate and times are measured apart: by so much they may differ."""
MOST_POINTS = 10_000


def check_saturation(known: Dangling, run: Run, at: Steps) -> None:
    """A fault where a run is said to serve more than so many batches at once in the time of its table."""
    table = known.profile.tables.get(run.latency or "")
    stated = run.saturation_qps
    if table is None or stated is None:
        return
    hardware = known.profile.hardware.get(run.hardware)
    provided = hardware.provides.get("cpu_cores", 0.0) if hardware is not None else 0.0
    at_once = max(AT_ONCE if run.at.get("batch", 1.0) > 1 else ONE_BY_ONE, run.needs.get("cpu_cores", provided))
    most = at_once * _one_after_another(table, run)
    if stated > NOISE * most:
        why = f"{most:.6g} at most: {at_once:g} batches at once, each as long as its times say at this point"
        known.fault((*at, "saturation_qps"), stated, why, "Correct it, or the times; left out, batch / mean is taken.")


def _one_after_another(table: Table, run: Run) -> float:
    """The queries a second of one batch after another, at the point of the run; of axes it leaves open, the fastest."""
    axes = [(run.at[axis],) if axis in run.at else tuple(places) for axis, places in table.axes.items()]
    points = [dict(zip(table.axes, point, strict=True)) for point in islice(product(*axes), MOST_POINTS)]
    best = 0.0
    for statistic in ("mean",) if "mean" in table.statistics else table.statistics:
        took = table.on_grid(points, getattr(table, statistic)) or _between(table, points, statistic)
        for point, took_ms in zip(points, took, strict=True) if statistic != "std" else ():
            if not took_ms:
                return math.inf  # what was not measured is said where it is read
            best = max(best, 1000.0 * point.get("batch", run.at.get("batch", 1.0)) / took_ms)
    return best or math.inf


def _between(table: Table, points: list[dict[str, float]], statistic: Statistic) -> list[float | None]:
    try:
        return [float(value) for value in table.read(points, statistic).values]
    except InputError:
        return [None] * len(points)
