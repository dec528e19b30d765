"""The simulated world, and its heap of future events.

The simulated world as arrays of records, and the codes in them.

::

    app ── nodes ── edges           a query of an app enters at its first node and follows the edges
    route ── targets ── lanes       where a job goes: targets with shares, each a row of alike lanes
    lane ── station ── worker       a lane is a queue; a station has servers and lanes; a worker has stations
                                    (the lanes of a `joined` station make batches together)
    load                            how long a batch takes: one service law per (class of query, batch size)
    job                             one query at one node; a batch is a chain of jobs in service

Times are milliseconds. An index of -1 means "none". A route's own lane holds jobs that wait for a decision
(a central queue), or for any of its stations to open. The parts of a divided route follow it, row by row, and it is
the ``whole`` of each; jobs are with a part, in turn.

The heap of future events, ordered by time, then kind, then the order in which they were set.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hetplan.compiled import part

__all__ = [
    "CLOCK",
    "ENTITIES",
    "EVENT",
    "JOB",
    "KIND_SHIFT",
    "PART",
    "QUERY",
    "Rows",
    "World",
    "pop_event",
    "push_event",
]

Rows: TypeAlias = Any
"""An array of records (type checkers cannot know what a field of one holds)."""

Numbers: TypeAlias = Any
"""An array of plain numbers, of which compiled code takes single ones."""

# Kinds of event, in the order in which those of one instant are handled.
COMPLETE, DELIVER, ARRIVE, TIMER = 0, 1, 2, 3
# What became of a query.
WAITING, SERVED, DROPPED, LOST = 0, 1, 2, 3
# How a route chooses a lane.
BY_SHARE, ROUND_ROBIN, SHORTEST, EARLIEST, CENTRAL = 0, 1, 2, 3, 4
# How a target chooses among its lanes.
INNER_RANDOM, INNER_ROUND, INNER_SHORTEST = 0, 1, 2
# How a central queue is emptied.
PULL_ORDER, PULL_MATCHING = 0, 1
# When a job is given up.
SERVE_LATE, DROP_LATE, DROP_LAST_TASK, DROP_PER_TASK, OPPORTUNISTIC = 0, 1, 2, 3, 4
# How long a service takes around its mean.
FIXED, LOGNORMAL, EXPONENTIAL = 0, 1, 2
# How qualities along a path combine.
PRODUCT, ADDITIVE = 0, 1
# Why `advance` came back.
REACHED, NEED_JOBS, NEED_EVENTS, PAUSED = 0, 1, 2, 3

_I, _L, _F = np.int32, np.int64, np.float64

QUERY = np.dtype(
    [("app", _I), ("kind", _I), ("open", _I), ("serial", _I), ("status", _I), ("joins", _L), ("arrival", _F),
     ("deadline", _F), ("finish", _F), ("quality", _F)]
)  # fmt: skip
JOB = np.dtype(
    [("query", _I), ("node", _I), ("route", _I), ("target", _I), ("lane", _I), ("before", _I), ("after", _I),
     ("serial", _I), ("entered", _F), ("quality", _F), ("weight", _F)]
)  # fmt: skip
LANE = np.dtype(
    [("station", _I), ("load", _I), ("policy", _I), ("head", _I), ("tail", _I), ("length", _I), ("bound", _I),
     ("room", _I), ("offline", _I), ("row", _I), ("timer", _F)]
)  # fmt: skip
STATION = np.dtype(
    [("worker", _I), ("servers", _I), ("busy", _I), ("lane0", _I), ("lanes", _I), ("row", _I), ("route", _I),
     ("target", _I), ("place", _I), ("is_open", _I), ("joined", _I), ("dirty", _I), ("served", _L), ("batches", _L),
     ("free_at", _F), ("due", _F), ("busy_ms", _F)]
)  # fmt: skip
WORKER = np.dtype(
    [("busy", _I), ("up", _I), ("watched", _I), ("servers", _I), ("online", _I), ("slow", _F), ("gate", _F),
     ("use", _F), ("seen", _F)]
)  # fmt: skip
BATCH = np.dtype([("station", _I), ("load", _I), ("lane", _I), ("job", _I), ("size", _I), ("alive", _I), ("start", _F)])
LOAD = np.dtype(
    [("cell0", _I), ("kind0", _I), ("max_batch", _I), ("fan0", _I), ("out0", _I), ("slow0", _I), ("slows", _I),
     ("tier", _I), ("seen0", _I), ("rounds0", _I), ("retries", _I), ("max_wait", _F), ("quality", _F),
     ("bytes", _F), ("fails", _F), ("again", _F)]
)  # fmt: skip
APP = np.dtype(
    [("node0", _I), ("nodes", _I), ("entries", _I), ("kind0", _I), ("kinds", _I), ("link0", _I), ("tier", _I),
     ("combine", _I), ("sinks", _I), ("joins", _I), ("late", _I), ("next", _I), ("last", _I), ("tiers", _I),
     ("hop", _F), ("slo", _F), ("think", _F), ("bytes", _F)]
)  # fmt: skip
NODE = np.dtype(
    [("app", _I), ("edge0", _I), ("edges", _I), ("parents", _I), ("route0", _I), ("outcomes", _I), ("worth0", _I),
     ("ancestors", _L), ("budget", _F)]
)  # fmt: skip
EDGE = np.dtype([("to", _I), ("bytes", _F)])
ROUTE = np.dtype(
    [("rule", _I), ("pull", _I), ("target0", _I), ("targets", _I), ("cursor", _I), ("lane", _I), ("heir", _I),
     ("dirty", _I), ("backup0", _I), ("backups", _I), ("merge", _I), ("parts", _I), ("whole", _I), ("limit", _F),
     ("longest", _F)]
)  # fmt: skip
TARGET = np.dtype(
    [("lane0", _I), ("lanes", _I), ("stride", _I), ("inner", _I), ("cursor", _I), ("then0", _I), ("load", _I),
     ("way", _I), ("quality0", _I), ("upto", _F), ("weight", _F), ("late_cost", _F), ("share", _F)]
)  # fmt: skip
POLICY = np.dtype(
    [("slack0", _I), ("slacks", _I), ("queue_max", _I), ("choice0", _I), ("load0", _I), ("otherwise", _I),
     ("otherwise_batch", _I)]
)  # fmt: skip
BACKUP = np.dtype([("target", _I), ("exec_ms", _F), ("quality", _F), ("left", _F), ("each_s", _F), ("reset", _F)])
CLOCK = np.dtype(
    [("seed", _L), ("order", _L), ("events", _L), ("next", _L), ("open_loop", _L), ("in_system", _L), ("heap", _L),
     ("marks", _L), ("reals", _L), ("wholes", _L), ("side", _L), ("types", _L), ("free_job", _I), ("free_jobs", _I),
     ("free_batch", _I), ("dirty_stations", _I), ("dirty_routes", _I), ("batches", _I), ("most_spawn", _I),
     ("noise", _I), ("buckets", _I), ("now", _F), ("width", _F), ("mispredict", _F)]
)  # fmt: skip

DIRTY = np.dtype([("station", _I), ("route", _I)])
EVENT = np.dtype([("time", _F), ("key", _L), ("what", _I)])
# Per query and stage of an application with joins: jobs under way, jobs done, tokens that wait, sum of qualities.
JOIN_OPEN, JOIN_DONE, JOIN_TOKENS, JOIN_QUALITY = 0, 1, 2, 3

ENTITIES: dict[str, np.dtype[Any]] = {
    "lane": LANE, "station": STATION, "worker": WORKER, "batch": BATCH, "load": LOAD, "app": APP, "node": NODE,
    "edge": EDGE, "route": ROUTE, "target": TARGET, "policy": POLICY, "backup": BACKUP, "dirty": DIRTY,
}  # fmt: skip
"""The tables side by side in `parts`: row 3 holds lane 3, station 3, worker 3 and so on."""

PART = np.dtype(list(ENTITIES.items()))


class World(NamedTuple):
    """Everything a run reads and writes. Arrays grow between calls of the engine, never inside one.

    They are few because each is handed from function to function: with an array per table it took ten times as long.
    `numbers` holds, one after the other, service laws (mean, mu, sigma, most, predicted) and the pieces of their
    distributions, services seen (how many, ms in all) where somebody learns from them, fan-outs, shares of outcomes,
    measured qualities, slowdowns, links, slacks, counts integrated over time (`marks`: per row and bucket, within the
    bucket and steps at its start), the books of joins and the matching's tables; `indices` the choices of policies, the
    routes of stages and more of the matching. Each is found by the place that a record names.
    """

    clock: Rows
    queries: Rows
    jobs: Rows
    parts: Rows
    numbers: Numbers
    indices: Numbers
    heap: Rows


KIND_SHIFT = 56
"""A heap key is kind << 56 | order: at one instant completions come before deliveries, those before arrivals."""


@part
def _set(world: World, place: int, when: float, key: int, what: int) -> None:
    event = world.heap[place]
    event["time"] = when
    event["key"] = key
    event["what"] = what


@part
def push_event(world: World, when: float, kind: int, what: int) -> None:
    """Set an event. The caller made sure that there is room."""
    clock = world.clock[0]
    key = (kind << KIND_SHIFT) | clock["order"]
    clock["order"] += 1
    place = clock["heap"]
    clock["heap"] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        event = world.heap[above]
        if event["time"] < when or (event["time"] == when and event["key"] < key):
            break
        _set(world, place, event["time"], event["key"], event["what"])
        place = above
    _set(world, place, when, key, what)


@part
def pop_event(world: World) -> None:
    """Remove the first event (the caller has read it from place 0)."""
    clock = world.clock[0]
    size = clock["heap"] - 1
    clock["heap"] = size
    last = world.heap[size]
    when, key, what = last["time"], last["key"], last["what"]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        event = world.heap[below]
        if below + 1 < size:
            other = world.heap[below + 1]
            if other["time"] < event["time"] or (other["time"] == event["time"] and other["key"] < event["key"]):
                below += 1
                event = other
        if when < event["time"] or (when == event["time"] and key < event["key"]):
            break
        _set(world, place, event["time"], event["key"], event["what"])
        place = below
    _set(world, place, when, key, what)
