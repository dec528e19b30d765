"""How jobs and queries end: answered, given up, lost; and the next query of a client that waits for its answer."""

from __future__ import annotations

from hetplan.compiled import part
from hetplan.simulator.heap_kernels import push_event
from hetplan.simulator.lane_kernels import free_job, remove_job
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
)

__all__ = ["close_job", "give_up", "lose_job"]


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
