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
    queries: Rows, starts: Integers, app: Small, status: Small, arrival: Floats, deadline: Floats, finish: Floats,
    quality: Floats,
) -> int:  # fmt: skip
    """Write fields of the queries into a column each, application by application, in order; how many queries there are.

    `starts` are zeros, one more than there are applications, and become where each begins.
    """
    for place in range(queries.shape[0]):
        starts[queries[place]["app"] + 1] += 1
    for row in range(1, starts.shape[0]):
        starts[row] += starts[row - 1]
    following = starts.copy()
    for place in range(queries.shape[0]):
        record = queries[place]
        to = following[record["app"]]
        following[record["app"]] += 1
        app[to] = record["app"]
        status[to] = record["status"]
        arrival[to] = record["arrival"]
        deadline[to] = record["deadline"]
        finish[to] = record["finish"]
        quality[to] = record["quality"]
    return int(queries.shape[0])
