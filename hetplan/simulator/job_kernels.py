"""Jobs: how they wait, and how they end.

Queues are doubly linked chains through the job records. A job is answered, given up or lost; its query ends with its
last job, and a client that waited for the answer then asks again.
"""

from __future__ import annotations

import math

from hetplan.compiled import part
from hetplan.simulator.world_kernels import (
    ARRIVE,
    DROPPED,
    JOIN_DONE,
    JOIN_OPEN,
    JOIN_QUALITY,
    PRODUCT,
    SERVED,
    WAITING,
    World,
    push_event,
)

__all__ = [
    "MEMORY_MS",
    "append_job",
    "close_job",
    "flag_route",
    "flag_station",
    "free_job",
    "give_up",
    "lose_job",
    "mark",
    "new_job",
    "remove_job",
    "watch",
]

MEMORY_MS = 1000.0
"""Over how long the use of a worker is averaged."""


@part
def mark(world: World, row: int, now: float, change: int) -> None:
    """Book that a count (jobs waiting, servers busy) changed; the timeline integrates it over its buckets."""
    clock = world.clock[0]
    if clock["buckets"] == 0 or row < 0:
        return
    bucket = int(now / clock["width"])
    if bucket >= clock["buckets"]:
        return
    place = clock["marks"] + 2 * (row * (clock["buckets"] + 2) + bucket)
    world.numbers[place] += change * ((bucket + 1) * clock["width"] - now)
    world.numbers[place + 3] += change


@part
def watch(world: World, worker: int, change: int) -> None:
    """Keep the moving share of a worker's servers that online work keeps busy (where offline work asks for it)."""
    record = world.parts[worker]["worker"]
    if record["watched"] == 0:
        return
    now = world.clock[0]["now"]
    kept = math.exp((record["seen"] - now) / MEMORY_MS)
    record["use"] = record["use"] * kept + (1.0 - kept) * record["online"] / record["servers"]
    record["seen"] = now
    record["online"] += change


@part
def flag_station(world: World, station: int) -> None:
    """Remember to look at this station at the end of the instant."""
    if world.parts[station]["station"]["dirty"] == 0:
        world.parts[station]["station"]["dirty"] = 1
        clock = world.clock[0]
        world.parts[clock["dirty_stations"]]["dirty"]["station"] = station
        clock["dirty_stations"] += 1


@part
def flag_route(world: World, route: int) -> None:
    """Remember to look at this route's central queue at the end of the instant."""
    if world.parts[route]["route"]["dirty"] == 0:
        world.parts[route]["route"]["dirty"] = 1
        clock = world.clock[0]
        world.parts[clock["dirty_routes"]]["dirty"]["route"] = route
        clock["dirty_routes"] += 1


@part
def new_job(world: World, query: int, node: int) -> int:
    """Take a job record from the free ones; the caller made sure that there are enough."""
    clock = world.clock[0]
    job = clock["free_job"]
    record = world.jobs[job]
    clock["free_job"] = record["after"]
    clock["free_jobs"] -= 1
    asked = world.queries[query]
    record["query"] = query
    record["node"] = node
    record["serial"] = asked["serial"]
    record["before"] = -1
    record["after"] = -1
    record["lane"] = -1
    record["target"] = -1
    asked["serial"] += 1
    asked["open"] += 1
    return int(job)


@part
def free_job(world: World, job: int) -> None:
    """Give a job record back."""
    clock = world.clock[0]
    world.jobs[job]["after"] = clock["free_job"]
    world.jobs[job]["query"] = -1
    clock["free_job"] = job
    clock["free_jobs"] += 1


@part
def append_job(world: World, lane: int, job: int) -> None:
    """Put a job at the end of a lane."""
    queue = world.parts[lane]["lane"]
    record = world.jobs[job]
    record["lane"] = lane
    record["before"] = queue["tail"]
    record["after"] = -1
    if queue["tail"] < 0:
        queue["head"] = job
    else:
        world.jobs[queue["tail"]]["after"] = job
    queue["tail"] = job
    queue["length"] += 1
    mark(world, queue["row"], world.clock[0]["now"], 1)


@part
def remove_job(world: World, lane: int, job: int) -> None:
    """Take a job out of a lane, wherever it is."""
    queue = world.parts[lane]["lane"]
    record = world.jobs[job]
    before, after = record["before"], record["after"]
    if before < 0:
        queue["head"] = after
    else:
        world.jobs[before]["after"] = after
    if after < 0:
        queue["tail"] = before
    else:
        world.jobs[after]["before"] = before
    record["before"] = -1
    record["after"] = -1
    queue["length"] -= 1
    mark(world, queue["row"], world.clock[0]["now"], -1)


@part
def _joined_quality(world: World, query: int) -> float:
    """The quality over a graph with joins: the nodes' mean qualities, multiplied or added."""
    asked = world.queries[query]
    app = world.parts[asked["app"]]["app"]
    total = 1.0 if app["combine"] == PRODUCT else 0.0
    for local in range(app["nodes"]):
        place = asked["joins"] + 4 * local
        if world.numbers[place + JOIN_DONE] == 0.0:
            continue
        mean = world.numbers[place + JOIN_QUALITY] / world.numbers[place + JOIN_DONE]
        total = total * mean if app["combine"] == PRODUCT else total + mean
    return float(total)


@part
def _finish_query(world: World, query: int) -> None:
    clock = world.clock[0]
    asked = world.queries[query]
    app = world.parts[asked["app"]]["app"]
    asked["finish"] = clock["now"]
    if asked["status"] == WAITING:
        asked["status"] = SERVED
    if app["joins"] == 1:
        asked["quality"] = _joined_quality(world, query)
    else:
        asked["quality"] /= app["sinks"]
    clock["in_system"] -= 1
    if 0 <= app["next"] < app["last"]:
        push_event(world, clock["now"] + app["think"], ARRIVE, app["next"])
        app["next"] += 1


@part
def close_job(world: World, job: int) -> None:
    """The job is over; when it was its query's last one, so is the query."""
    query = world.jobs[job]["query"]
    free_job(world, job)
    asked = world.queries[query]
    asked["open"] -= 1
    if asked["open"] == 0:
        _finish_query(world, query)


@part
def lose_job(world: World, job: int, status: int) -> None:
    """The job ends without an answer, and its query with it (its other jobs go on: they are under way)."""
    asked = world.queries[world.jobs[job]["query"]]
    if asked["status"] == WAITING:
        asked["status"] = status
    if world.parts[asked["app"]]["app"]["joins"] == 1:
        node = world.jobs[job]["node"]
        world.numbers[asked["joins"] + 4 * (node - world.parts[asked["app"]]["app"]["node0"]) + JOIN_OPEN] -= 1.0
    close_job(world, job)


@part
def give_up(world: World, lane: int, job: int) -> None:
    """Drop a job that waits in a lane."""
    remove_job(world, lane, job)
    if world.parts[lane]["lane"]["station"] >= 0:
        world.parts[lane]["lane"]["bound"] -= 1
    lose_job(world, job, DROPPED)
