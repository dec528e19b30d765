"""Queues of jobs as doubly linked chains through the job records, and the books kept of them."""

from __future__ import annotations

import math

from hetplan.compiled import part
from hetplan.simulator.world_kernels import World

__all__ = [
    "MEMORY_MS",
    "append_job",
    "flag_route",
    "flag_station",
    "free_job",
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
    """Take a job out of a lane, wherever in it it stands."""
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
