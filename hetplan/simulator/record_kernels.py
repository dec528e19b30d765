"""The records of a run's queries, written and read in one pass: a pass per field takes several times as long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel
from hetplan.simulator.world_kernels import Rows

__all__ = ["fill", "split"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Small = NDArray[np.int32]


@kernel
def fill(queries: Rows, order: Integers, app: Small, kind: Small, arrival: Floats, deadline: Floats) -> int:
    """Write the queries in this order, none of them begun; how many there are."""
    for place in range(order.shape[0]):
        query, record = order[place], queries[place]
        record["app"] = app[query]
        record["kind"] = kind[query]
        record["open"] = 0
        record["serial"] = 0
        record["status"] = 0
        record["joins"] = 0
        record["arrival"] = arrival[query]
        record["deadline"] = deadline[query]
        record["finish"] = np.nan
        record["quality"] = 0.0
    return int(order.shape[0])


@kernel
def split(
    queries: Rows, app: Small, status: Small, arrival: Floats, deadline: Floats, finish: Floats, quality: Floats
) -> int:
    """Write fields of the queries into a column each; how many queries there are."""
    for place in range(queries.shape[0]):
        record = queries[place]
        app[place] = record["app"]
        status[place] = record["status"]
        arrival[place] = record["arrival"]
        deadline[place] = record["deadline"]
        finish[place] = record["finish"]
        quality[place] = record["quality"]
    return int(queries.shape[0])
