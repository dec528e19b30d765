"""Central queues: which waiting job goes to which idle station, decided once per instant."""

from __future__ import annotations

from hetplan.compiled import part
from hetplan.dispatch.matching_kernels import IDLE, pair_off
from hetplan.simulator.lane_kernels import append_job, remove_job
from hetplan.simulator.outcome_kernels import give_up
from hetplan.simulator.route_kernels import is_open, predicted_ms
from hetplan.simulator.service_kernels import begin_batch, drop_hopeless, is_hopeless
from hetplan.simulator.world_kernels import CENTRAL, PULL_MATCHING, SERVE_LATE, Numbers, World

__all__ = ["REAL_ROWS", "WHOLE_ROWS", "pull_route"]

# Rows of `reals` and `wholes`; the first eight of each are the matching's own.
ARRIVED, ENDS, WEIGHT, LATE_COST = 8, 9, 10, 11
WAITING, FIRST, KIND, MATES, LANE_OF, JOB_OF = 8, 9, 10, 11, 12, 13
REAL_ROWS, WHOLE_ROWS = 12, 14


@part
def _assign(world: World, route: int, target: int, lane: int, job: int) -> None:
    """Move one job from the route's central queue into a station's lane, to be begun at once."""
    remove_job(world, world.parts[route]["route"]["lane"], job)
    world.jobs[job]["target"] = target
    world.parts[lane]["lane"]["bound"] += 1
    append_job(world, lane, job)


@part
def _first_idle(world: World, target: int) -> int:
    """The first open lane of a target with a free server, or -1. The cursor skips those known to be busy."""
    record = world.parts[target]["target"]
    for place in range(record["cursor"], record["lanes"]):
        lane = record["lane0"] + place * record["stride"]
        station = world.parts[world.parts[lane]["lane"]["station"]]["station"]
        if station["busy"] < station["servers"] and is_open(world, lane):
            record["cursor"] = place
            return int(lane)
    record["cursor"] = record["lanes"]
    return -1


@part
def _pull_in_order(world: World, route: int) -> None:
    """First come, first served: the oldest job to the first idle station, in the order of the route's targets."""
    record = world.parts[route]["route"]
    queue = world.parts[record["lane"]]["lane"]
    for target in range(record["target0"], record["target0"] + record["targets"]):
        while queue["length"] > 0:
            lane = _first_idle(world, target)
            if lane < 0:
                break
            load = world.parts[lane]["lane"]["load"]
            size = min(queue["length"], world.parts[load]["load"]["max_batch"])
            drop_hopeless(world, record["lane"], load, size)
            size = min(queue["length"], size)
            if size == 0:
                break
            for _ in range(size):
                _assign(world, route, target, lane, queue["head"])
            begin_batch(world, lane, load, size)


@part
def _list_instances(world: World, route: int, reals: Numbers, wholes: Numbers) -> int:
    """Write the open stations of a route, type by type, into the matching's tables; how many there are."""
    record = world.parts[route]["route"]
    count = 0
    for place in range(record["targets"]):
        number = record["target0"] + place
        target = world.parts[number]["target"]
        wholes[FIRST, place] = count
        reals[WEIGHT, place] = target["weight"]
        reals[LATE_COST, place] = target["late_cost"]
        for step in range(target["lanes"]):
            lane = target["lane0"] + step * target["stride"]
            if not is_open(world, lane):
                continue
            station = world.parts[world.parts[lane]["lane"]["station"]]["station"]
            wholes[KIND, count] = place
            wholes[LANE_OF, count] = lane
            reals[ENDS, count] = IDLE if station["busy"] < station["servers"] else station["due"]
            count += 1
    wholes[FIRST, record["targets"]] = count
    return count


@part
def _list_waiting(world: World, route: int, most: int, reals: Numbers, wholes: Numbers, predicted: Numbers) -> int:
    """Write the oldest waiting jobs of a route, and what each is expected to take on each type."""
    record = world.parts[route]["route"]
    job = world.parts[record["lane"]]["lane"]["head"]
    count = 0
    while job >= 0 and count < most:
        query = world.jobs[job]["query"]
        wholes[WAITING, count] = count
        wholes[JOB_OF, count] = job
        reals[ARRIVED, count] = world.queries[query]["arrival"]
        for place in range(record["targets"]):
            load = world.parts[record["target0"] + place]["target"]["load"]
            predicted[count, place] = predicted_ms(world, load, query, 1)
        job = world.jobs[job]["after"]
        count += 1
    return count


@part
def _drop_hopeless_everywhere(world: World, route: int) -> None:
    """Give up the jobs that no type could answer in time any more."""
    record = world.parts[route]["route"]
    job = world.parts[record["lane"]]["lane"]["head"]
    while job >= 0:
        after = world.jobs[job]["after"]
        hopeless = record["targets"] > 0
        for place in range(record["targets"]):
            load = world.parts[record["target0"] + place]["target"]["load"]
            hopeless = hopeless and is_hopeless(world, load, job, 1)
        if hopeless:
            give_up(world, record["lane"], job)
        job = after


@part
def _pull_matching(world: World, route: int) -> None:
    """Match the oldest waiting jobs with all stations; those whose mate is idle start, the others stay."""
    record, clock = world.parts[route]["route"], world.clock[0]
    side, types = clock["side"], clock["types"]
    at, size = clock["reals"], REAL_ROWS * side
    reals = world.numbers[at : at + size].reshape((REAL_ROWS, side))
    cost = world.numbers[at + size : at + size + side * side].reshape((side, side))
    at += size + side * side
    predicted = world.numbers[at : at + side * types].reshape((side, types))
    wholes = world.indices[clock["wholes"] : clock["wholes"] + WHOLE_ROWS * side].reshape((WHOLE_ROWS, side))
    if world.parts[world.parts[record["lane"]]["lane"]["row"]]["app"]["late"] != SERVE_LATE:
        _drop_hopeless_everywhere(world, route)
    instances = _list_instances(world, route, reals, wholes)
    if instances == 0:
        return
    queries = _list_waiting(world, route, 2 * instances, reals, wholes, predicted)
    if queries == 0:
        return
    kinds = record["targets"]
    mates = wholes[MATES]
    pair_off(
        world.clock[0]["now"],
        wholes[WAITING],
        queries,
        reals[ARRIVED],
        wholes[WAITING],
        predicted,
        wholes[FIRST, : kinds + 1],
        wholes[KIND, :instances],
        reals[ENDS, :instances],
        (reals[WEIGHT, :kinds], reals[LATE_COST, :kinds], record["limit"], record["merge"] == 1),
        mates,
        (cost, reals, wholes),
    )
    for place in range(queries):
        instance = mates[place]
        if instance < 0 or reals[ENDS, instance] != IDLE:
            continue
        lane = wholes[LANE_OF, instance]
        target = record["target0"] + wholes[KIND, instance]
        _assign(world, route, target, lane, wholes[JOB_OF, place])
        begin_batch(world, lane, world.parts[lane]["lane"]["load"], 1)


@part
def pull_route(world: World, route: int) -> None:
    """Empty a route's central queue as far as its rule finds idle stations for it."""
    if world.parts[route]["route"]["rule"] != CENTRAL:
        return
    if world.parts[route]["route"]["pull"] == PULL_MATCHING:
        _pull_matching(world, route)
    else:
        _pull_in_order(world, route)
