"""Service: which jobs a free server takes as one batch, how long that takes, and who is given up before it."""

from __future__ import annotations

import math

from hetplan.compiled import part
from hetplan.simulator.draw_kernels import SERVICE, draw_exponential, draw_normal
from hetplan.simulator.heap_kernels import push_event
from hetplan.simulator.lane_kernels import MEMORY_MS, flag_route, mark, remove_job, watch
from hetplan.simulator.outcome_kernels import give_up
from hetplan.simulator.route_kernels import can_catch_up, cell_of, predicted_ms
from hetplan.simulator.world_kernels import (
    COMPLETE,
    DROP_LAST_TASK,
    DROP_LATE,
    DROP_PER_TASK,
    EXPONENTIAL,
    FIXED,
    OPPORTUNISTIC,
    TIMER,
    World,
)

__all__ = ["begin_batch", "drop_hopeless", "is_hopeless", "look_up", "mean_ms", "start_station"]


@part
def mean_ms(world: World, load: int, query: int, size: int) -> float:
    """The mean time of a batch of this size whose members are all of this query's class."""
    return float(world.numbers[cell_of(world, load, world.queries[query]["kind"], size)])


@part
def _service_ms(world: World, load: int, job: int, size: int) -> float:
    query = world.jobs[job]["query"]
    cell = cell_of(world, load, world.queries[query]["kind"], size)
    member = world.jobs[job]["after"]
    while member >= 0:
        other = cell_of(world, load, world.queries[world.jobs[member]["query"]]["kind"], size)
        if world.numbers[other] > world.numbers[cell]:
            # A batch of unlike queries takes as long as its slowest class.
            cell = other
        member = world.jobs[member]["after"]
    mean, mu, sigma = world.numbers[cell], world.numbers[cell + 1], world.numbers[cell + 2]
    noise = world.clock[0]["noise"]
    if noise == FIXED or (noise != EXPONENTIAL and sigma == 0.0):
        return float(mean)
    seed, serial = world.clock[0]["seed"], world.jobs[job]["serial"]
    if noise == EXPONENTIAL:
        return float(mean * draw_exponential(seed, query, serial, SERVICE))
    drawn = math.exp(mu + sigma * draw_normal(seed, query, serial, SERVICE))
    return float(min(drawn, world.numbers[cell + 3]))


@part
def begin_batch(world: World, lane: int, load: int, size: int) -> None:
    """Take `size` jobs from the head of a lane into service on its station."""
    clock = world.clock[0]
    number = world.parts[lane]["lane"]["station"]
    station = world.parts[number]["station"]
    worker = world.parts[station["worker"]]["worker"]
    first, last = -1, -1
    for _ in range(size):
        job = world.parts[lane]["lane"]["head"]
        remove_job(world, lane, job)
        if first < 0:
            first = job
        else:
            world.jobs[last]["after"] = job
        last = job
    took = _service_ms(world, load, first, size) * worker["slow"]
    slows = world.parts[load]["load"]["slows"]
    if slows > 0:
        took *= world.numbers[world.parts[load]["load"]["slow0"] + min(worker["busy"], slows - 1)]
    index = clock["free_batch"]
    batch = world.parts[index]["batch"]
    clock["free_batch"] = batch["job"]
    batch["station"] = number
    batch["load"] = load
    batch["lane"] = lane
    batch["job"] = first
    batch["size"] = size
    batch["alive"] = 1
    batch["start"] = clock["now"]
    station["busy"] += 1
    worker["busy"] += 1
    if world.parts[lane]["lane"]["offline"] == 0:
        watch(world, station["worker"], 1)
    mark(world, station["row"], clock["now"], 1)
    station["due"] = clock["now"] + predicted_ms(world, load, world.jobs[first]["query"], size)
    push_event(world, clock["now"] + took, COMPLETE, index)


@part
def look_up(world: World, policy: int, length: int, slack: float) -> tuple[int, int]:
    """The (load, batch) of a policy table for a queue length and the slack of its oldest query, floored to the grid."""
    record = world.parts[policy]["policy"]
    if length > record["queue_max"]:
        batch = record["otherwise_batch"]
        return int(record["load0"] + record["otherwise"]), int(length if batch <= 0 else min(length, batch))
    low, high = record["slack0"], record["slack0"] + record["slacks"]
    first = low
    while high - low > 1:
        middle = (low + high) >> 1
        if world.numbers[middle] <= slack:
            low = middle
        else:
            high = middle
    place = record["choice0"] + 2 * ((length - 1) * record["slacks"] + low - first)
    return int(record["load0"] + world.indices[place]), int(min(length, world.indices[place + 1]))


@part
def _serve_by_policy(world: World, lane: int) -> None:
    """Serve as the table says; a batch of 0 gives up the oldest."""
    queue = world.parts[lane]["lane"]
    now = world.clock[0]["now"]
    while queue["length"] > 0:
        slack = world.queries[world.jobs[queue["head"]]["query"]]["deadline"] - now
        load, size = look_up(world, queue["policy"], queue["length"], slack)
        if size > 0:
            begin_batch(world, lane, load, min(size, world.parts[load]["load"]["max_batch"]))
            return
        give_up(world, lane, queue["head"])


@part
def is_hopeless(world: World, load: int, job: int, size: int) -> bool:
    """Whether a job is given up rather than begun now, by its application's rule about late ones."""
    record = world.jobs[job]
    query = record["query"]
    node = world.parts[record["node"]]["node"]
    late = world.parts[node["app"]]["app"]["late"]
    now = world.clock[0]["now"]
    if late == DROP_LATE or (late in (DROP_LAST_TASK, OPPORTUNISTIC) and node["edges"] == 0):
        return bool(now + mean_ms(world, load, query, size) > world.queries[query]["deadline"] + 1e-9)
    if late in (DROP_PER_TASK, OPPORTUNISTIC):
        behind = now - record["entered"] + mean_ms(world, load, query, size) - node["budget"]
        return bool(behind > 1e-9 and (late == DROP_PER_TASK or not can_catch_up(world, job, behind)))
    return False


@part
def _ready_lane(world: World, number: int) -> int:
    """The lane whose oldest job has waited longest among those that may start now; online before offline."""
    station = world.parts[number]["station"]
    now = world.clock[0]["now"]
    best, best_entered = -1, 0.0
    for lane in range(station["lane0"], station["lane0"] + station["lanes"]):
        queue = world.parts[lane]["lane"]
        if queue["length"] == 0:
            continue
        entered = world.jobs[queue["head"]]["entered"]
        if queue["offline"] == 1 and not _offline_may_run(world, number, lane):
            continue
        if queue["policy"] < 0:
            record = world.parts[queue["load"]]["load"]
            ripe = entered + record["max_wait"]
            if record["max_wait"] > 0.0 and queue["length"] < record["max_batch"] and now < ripe:
                continue
        if best >= 0 and queue["offline"] > world.parts[best]["lane"]["offline"]:
            continue
        if best < 0 or queue["offline"] < world.parts[best]["lane"]["offline"] or entered < best_entered:
            best, best_entered = lane, entered
    return int(best)


@part
def _offline_may_run(world: World, number: int, lane: int) -> bool:
    """Whether the worker was idle enough of late; if not, a timer is set for when it will have been."""
    index = world.parts[number]["station"]["worker"]
    watch(world, index, 0)
    worker = world.parts[index]["worker"]
    if worker["use"] <= worker["gate"]:
        return True
    now, queue = world.clock[0]["now"], world.parts[lane]["lane"]
    if queue["timer"] <= now and worker["gate"] > 0.0:
        queue["timer"] = now + MEMORY_MS * math.log(worker["use"] / worker["gate"]) + 1e-6
        push_event(world, queue["timer"], TIMER, lane)
    return False


@part
def start_station(world: World, number: int) -> None:
    """Fill the free servers of a station from its lanes; then let its central queue know what is still free."""
    station = world.parts[number]["station"]
    if station["is_open"] == 0 or world.parts[station["worker"]]["worker"]["up"] == 0:
        return
    while station["busy"] < station["servers"]:
        lane = _ready_lane(world, number)
        if lane < 0:
            break
        queue = world.parts[lane]["lane"]
        if queue["policy"] >= 0:
            _serve_by_policy(world, lane)
            continue
        load = queue["load"]
        size = min(queue["length"], world.parts[load]["load"]["max_batch"])
        drop_hopeless(world, lane, load, size)
        size = min(queue["length"], world.parts[load]["load"]["max_batch"])
        if size > 0:
            begin_batch(world, lane, load, size)
    if station["busy"] < station["servers"] and station["route"] >= 0:
        route = world.parts[station["route"]]["route"]
        if world.parts[route["lane"]]["lane"]["length"] > 0:
            flag_route(world, station["route"])


@part
def drop_hopeless(world: World, lane: int, load: int, size: int) -> None:
    """Give up the hopeless among the first jobs of a lane, until `size` others stand before it."""
    job = world.parts[lane]["lane"]["head"]
    looked = 0
    while job >= 0 and looked < size:
        after = world.jobs[job]["after"]
        if is_hopeless(world, load, job, size):
            give_up(world, lane, job)
        else:
            looked += 1
        job = after
