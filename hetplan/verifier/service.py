"""How long a load takes for each class of query, read from the measured tables.

A query's own axes (those of the mix) give its point in a table; the others come from the load: its batch limit as
``batch``, then its knobs, the variant's knobs, and the settings at which the run was measured. Where ``batch`` is not
an axis of the mix, a load of batch limit b serves b queries in the table's time at b. Question ``variants`` goes by the
measured saturation instead, where a run has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetplan.profiles.tables import Table
from hetplan.verifier.demand import Classes
from hetplan.verifier.facts import Facts, Seat
from hetplan.verifier.options import statistics_of
from hetplan.verifier.readings import read

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


def _columns(facts: Facts, seat: Seat, classes: Classes) -> dict[str, NDArray[np.float64] | float]:
    import numpy as np

    variant = facts.inputs.profile.variants[seat.load.variant] if seat.load.variant is not None else None
    settings = {
        **(seat.run.at if seat.run is not None else {}),
        **(variant.knobs if variant is not None else {}),
        **seat.load.knobs,
        "batch": seat.load.serve.max_batch,
    }
    columns: dict[str, NDArray[np.float64] | float] = {
        name: float(value) for name, value in settings.items() if isinstance(value, int | float)
    }
    bins = np.array(classes.bins, dtype=np.float64)
    for number, axis in enumerate(classes.axes):
        columns[axis] = bins[:, number]
    return columns


def _positive(values: NDArray[np.float64]) -> list[float]:
    return [value if value > 0.0 else math.nan for value in values.tolist()]


def _table(facts: Facts, name: str | None) -> Table | None:
    return facts.inputs.profile.tables[name] if name is not None else None


def service_of(facts: Facts, seat: Seat, classes: Classes) -> Service:
    """Read what the profile measured of a load. A load whose times are not in tables is unmeasured."""
    size, run = len(classes.bins), seat.run
    if run is None:
        return Service([math.nan] * size, [math.nan] * size, [False] * size, "")
    capacity_stat, target_stat = statistics_of(facts.plan)
    columns = _columns(facts, seat, classes)
    seconds, latency_ms, extrapolated = [math.nan] * size, [0.0] * size, [False] * size
    latency, rate = _table(facts, run.latency), _table(facts, run.rate)
    if latency is not None:
        values, outside = read(latency, capacity_stat, columns, size)
        together = seat.load.serve.max_batch if "batch" in latency.axes and "batch" not in classes.axes else 1
        seconds = _positive(values / 1000.0 / together)
        judged = values if target_stat == capacity_stat else read(latency, target_stat, columns, size)[0]
        latency_ms = _positive(judged)
        extrapolated = outside.tolist()
    elif rate is not None:
        values, outside = read(rate, "mean", columns, size)
        seconds = [1.0 / value for value in _positive(values)]
        extrapolated = outside.tolist()
    if run.saturation_qps is not None and facts.plan.question == "variants":
        seconds = [1.0 / run.saturation_qps] * size
    return Service(seconds, latency_ms, extrapolated, run.latency or run.rate or "")
