"""How long a load takes for each class of query, read from the measured tables.

A query's own axes (those of the mix) give its point in a table; of the others the first of these that names one says:
the load (its batch limit as ``batch``, its knobs), the ``at`` of its run, the knobs of its variant. A batch below the
smallest that was measured takes as long as that. Where ``batch`` is not an axis of the mix, a load of batch limit b
serves b queries in the table's time at b. Question ``variants`` goes by the measured saturation instead, where a run
has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetplan.profiles.tables import Table
from hetplan.verifier.demand import Classes
from hetplan.verifier.facts import Facts, Seat, statistics_of
from hetplan.verifier.readings import own_table, read

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Service", "service_of"]


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


def service_of(facts: Facts, seat: Seat, classes: Classes) -> Service:
    """Read what the profile measured of a load. A load whose times are not in tables is unmeasured."""
    size, run = len(classes.bins), seat.run
    if run is None or run.engine is not None:
        return Service([math.nan] * size, [math.nan] * size, [False] * size, "")
    capacity_stat, target_stat = statistics_of(facts.plan)
    seconds, latency_ms, extrapolated = [math.nan] * size, [0.0] * size, [False] * size
    table = own_table(facts.inputs.profile, run)
    if "batch" in run.at:
        from hetplan.verifier.readings_beside import along_batches

        table = along_batches(facts.inputs.profile, seat.load.variant or "", run)
    columns = _columns(facts, seat, classes, table)
    if facts.says_another:
        from hetplan.verifier.readings_beside import nearest

        capacity_stat, target_stat = nearest(table, capacity_stat), nearest(table, target_stat)
    if run.latency is not None:
        values, outside = read(table, capacity_stat, columns, size)
        together = seat.load.serve.max_batch if "batch" in table.axes and "batch" not in classes.axes else 1
        seconds = _positive(values / 1000.0 / together)
        judged = values if target_stat == capacity_stat else read(table, target_stat, columns, size)[0]
        latency_ms = _positive(judged)
        extrapolated = outside.tolist()
    else:
        values, outside = read(table, "mean", columns, size)
        seconds = [1.0 / value for value in _positive(values)]
        extrapolated = outside.tolist()
    if run.saturation_qps is not None and facts.plan.question == "variants":
        seconds = [1.0 / run.saturation_qps] * size
    return Service(seconds, latency_ms, extrapolated, run.latency or run.rate or "")
