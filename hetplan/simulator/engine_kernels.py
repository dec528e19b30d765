"""The event loop: time goes on from event to event; all of one instant happens before any decision is taken in it."""

from __future__ import annotations

from hetplan.compiled import bare_kernel, part
from hetplan.simulator.job_kernels import flag_station, lose_job, mark, remove_job, watch
from hetplan.simulator.service_kernels import load_of, pull_route, start_station, unbind
from hetplan.simulator.stage_kernels import arrive, deliver, finish_job, place_job
from hetplan.simulator.world_kernels import (
    COMPLETE,
    DELIVER,
    KIND_SHIFT,
    LOST,
    NEED_EVENTS,
    NEED_JOBS,
    PAUSED,
    REACHED,
    TIMER,
    World,
    pop_event,
)

__all__ = ["ABORT", "ADVANCE", "EVACUATE", "RETRY", "act"]

# What `act` does; added to ABORT: the batches' jobs start over elsewhere.
ADVANCE, EVACUATE, ABORT, RETRY = 0, 1, 2, 1


@part
def settle(world: World) -> None:
    """Take the decisions of this instant: fill free servers, empty central queues, until nothing is left to decide."""
    clock = world.clock[0]
    while clock["dirty_stations"] > 0 or clock["dirty_routes"] > 0:
        place = 0
        while place < clock["dirty_stations"]:
            number = world.parts[place]["dirty"]["station"]
            world.parts[number]["station"]["dirty"] = 0
            start_station(world, number)
            place += 1
        clock["dirty_stations"] = 0
        place = 0
        while place < clock["dirty_routes"]:
            number = world.parts[place]["dirty"]["route"]
            world.parts[number]["route"]["dirty"] = 0
            pull_route(world, number)
            place += 1
        clock["dirty_routes"] = 0


@part
def _complete(world: World, index: int) -> None:
    clock = world.clock[0]
    batch = world.parts[index]["batch"]
    job, load, number, alive = batch["job"], batch["load"], batch["station"], batch["alive"]
    lane, size, took = batch["lane"], batch["size"], clock["now"] - batch["start"]
    batch["job"] = clock["free_batch"]
    batch["alive"] = 0
    clock["free_batch"] = index
    if alive == 0:
        return
    station = world.parts[number]["station"]
    worker = world.parts[station["worker"]]["worker"]
    station["busy"] -= 1
    worker["busy"] -= 1
    station["served"] += size
    station["batches"] += 1
    station["busy_ms"] += took
    if world.parts[lane]["lane"]["offline"] == 0:
        watch(world, station["worker"], -1)
    unbind(world, job)
    # What is expected of a station is put right whenever it ends a batch.
    station["free_at"] += clock["now"] - station["due"]
    if station["target"] >= 0 and station["place"] < world.parts[station["target"]]["target"]["cursor"]:
        world.parts[station["target"]]["target"]["cursor"] = station["place"]
    mark(world, station["row"], clock["now"], -1)
    flag_station(world, number)
    served = world.parts[load]["load"]
    if served["seen0"] >= 0:
        place = served["seen0"] + 2 * (world.queries[world.jobs[job]["query"]]["kind"] - served["kind0"])
        world.numbers[place] += 1.0
        world.numbers[place + 1] += took
    while job >= 0:
        after = world.jobs[job]["after"]
        finish_job(world, job, load_of(world, job, load))
        job = after


@part
def advance(world: World, until: float, most_events: int) -> int:
    """Handle every event before `until`; says whether that was reached, or which array must grow first."""
    clock = world.clock[0]
    handled = 0
    while True:
        upcoming = clock["next"]
        arriving = upcoming < clock["open_loop"]
        when = world.queries[upcoming]["arrival"] if arriving else until
        pending = clock["heap"] > 0
        if pending and (world.heap[0]["time"] <= when or not arriving):
            # Completions and deliveries of an instant come before its arrivals.
            when = world.heap[0]["time"]
            arriving = False
        if clock["dirty_stations"] + clock["dirty_routes"] > 0 and (when > clock["now"] or when >= until):
            settle(world)
            continue
        if when >= until or not (arriving or pending):
            return REACHED
        if clock["free_jobs"] < clock["most_spawn"]:
            return NEED_JOBS
        if clock["heap"] + clock["most_spawn"] + clock["batches"] >= world.heap.shape[0]:
            return NEED_EVENTS
        if handled >= most_events:
            return PAUSED
        handled += 1
        clock["events"] += 1
        clock["now"] = when
        if arriving:
            clock["next"] += 1
            arrive(world, upcoming)
            continue
        kind = world.heap[0]["key"] >> KIND_SHIFT
        what = world.heap[0]["what"]
        pop_event(world)
        if kind == COMPLETE:
            _complete(world, what)
        elif kind == DELIVER:
            deliver(world, what)
        elif kind == TIMER:
            flag_station(world, world.parts[what]["lane"]["station"])
        else:
            arrive(world, what)


@part
def evacuate(world: World, lane: int) -> None:
    """Send every job that waits in a lane to where its route now leads; that may be the end of the same lane."""
    for _ in range(world.parts[lane]["lane"]["length"]):
        job = world.parts[lane]["lane"]["head"]
        remove_job(world, lane, job)
        if world.parts[lane]["lane"]["station"] >= 0:
            world.parts[lane]["lane"]["bound"] -= 1
        place_job(world, job)


@part
def abort_worker(world: World, worker: int, retry: int) -> None:
    """End every batch in service on a worker unanswered; its jobs start over elsewhere, or are lost."""
    clock = world.clock[0]
    for index in range(clock["batches"]):
        batch = world.parts[index]["batch"]
        if batch["alive"] == 0 or world.parts[batch["station"]]["station"]["worker"] != worker:
            continue
        batch["alive"] = 0
        station = world.parts[batch["station"]]["station"]
        station["busy"] -= 1
        station["busy_ms"] += clock["now"] - batch["start"]
        world.parts[worker]["worker"]["busy"] -= 1
        if world.parts[batch["lane"]]["lane"]["offline"] == 0:
            watch(world, worker, -1)
        unbind(world, batch["job"])
        mark(world, station["row"], clock["now"], -1)
        job = batch["job"]
        batch["job"] = -1
        while job >= 0:
            after = world.jobs[job]["after"]
            world.jobs[job]["before"] = -1
            world.jobs[job]["after"] = -1
            if retry == 1:
                place_job(world, job)
            else:
                lose_job(world, job, LOST)
            job = after


@bare_kernel
def act(world: World, what: int, number: int, until: float) -> int:
    """The one compiled way into the world, so that all it needs is compiled once.

    It advances to `until` by at most `number` events, sends on what waits in lane `number`, or aborts worker `number`.
    """
    if what == ADVANCE:
        return advance(world, until, number)
    if what == EVACUATE:
        evacuate(world, number)
    else:
        abort_worker(world, number, what - ABORT)
    return REACHED
