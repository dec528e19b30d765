"""Which jobs a free server takes as one batch, how long that takes, and who is given up before it.

A server takes from its own lanes, or from a central queue: which waiting job goes to which idle station is then decided
once per instant.
"""

from __future__ import annotations

import math

from hetplan.compiled import part
from hetplan.dispatch.matching_kernels import IDLE, Seen, pair_quickly
from hetplan.dispatch.rule_kernels import behind, slack_index
from hetplan.simulator.draw_kernels import FAILURES, SERVICE, draw_exponential, draw_normal, draw_uniform
from hetplan.simulator.job_kernels import MEMORY_MS, append_job, flag_route, give_up, mark, remove_job, watch
from hetplan.simulator.route_kernels import can_catch_up, cell_of, is_open, predicted_ms
from hetplan.simulator.world_kernels import (
    CENTRAL,
    COMPLETE,
    EXPONENTIAL,
    FIXED,
    OPPORTUNISTIC,
    PULL_MATCHING,
    SERVE_LATE,
    TIMER,
    Numbers,
    World,
    push_event,
)

__all__ = [
    "REAL_ROWS",
    "WHOLE_ROWS",
    "begin_batch",
    "drop_hopeless",
    "is_hopeless",
    "load_of",
    "look_up",
    "mean_ms",
    "pull_route",
    "start_station",
    "unbind",
]


@part
def mean_ms(world: World, load: int, query: int, size: int) -> float:
    """The mean time of a batch of this size whose members are all of this query's class."""
    return float(world.numbers[cell_of(world, load, world.queries[query]["kind"], size)])


@part
def load_of(world: World, job: int, load: int) -> int:
    """The load of a job of a batch: the batch's, but where several lanes make batches together that of its own lane."""
    lane = world.parts[world.jobs[job]["lane"]]["lane"]
    return int(lane["load"] if world.parts[lane["station"]]["station"]["joined"] == 1 else load)


@part
def unbind(world: World, job: int) -> None:
    """The lanes of this job of a batch, and of those after it, have one job less."""
    while job >= 0:
        world.parts[world.jobs[job]["lane"]]["lane"]["bound"] -= 1
        job = world.jobs[job]["after"]


@part
def _again_ms(world: World, load: int, job: int) -> float:
    """What a job takes longer as it fails and tries again, drawn for each of its rounds."""
    record, query = world.parts[load]["load"], world.jobs[job]["query"]
    more = 0.0
    if record["rounds0"] >= 0:
        rounds = int(world.numbers[record["rounds0"] + world.queries[query]["kind"] - record["kind0"]])
        for tried in range(rounds):
            luck = draw_uniform(world.clock[0]["seed"], query, world.jobs[job]["serial"], FAILURES + 16 * tried)
            more += min(math.floor(math.log(luck) / math.log(record["fails"])), record["retries"]) * record["again"]
    return float(more)


@part
def _service_ms(world: World, load: int, job: int, size: int) -> float:
    query = world.jobs[job]["query"]
    cell = cell_of(world, load, world.queries[query]["kind"], size)
    member = world.jobs[job]["after"]
    while member >= 0:
        kind = world.queries[world.jobs[member]["query"]]["kind"]
        other = cell_of(world, load_of(world, member, load), kind, size)
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
    z = draw_normal(seed, query, serial, SERVICE)
    if sigma < 0.0:
        # A distribution in pieces: up to this z, mu, sigma, three by three from the place mu (`serving.distribution`).
        place, last = int(mu), int(mu) - 3 * int(sigma) - 3
        while place < last and world.numbers[place] < z:
            place += 3
        return math.exp(world.numbers[place + 1] + world.numbers[place + 2] * z)
    return float(min(math.exp(mu + sigma * z), world.numbers[cell + 3]))


@part
def begin_batch(world: World, lane: int, load: int, size: int) -> None:
    """Take `size` jobs from the head of a lane into service on its station; of all its lanes, where it joins them."""
    clock = world.clock[0]
    number = world.parts[lane]["lane"]["station"]
    station = world.parts[number]["station"]
    worker = world.parts[station["worker"]]["worker"]
    first, last = -1, -1
    for _ in range(size):
        taken = lane if first < 0 or station["joined"] == 0 else _oldest_lane(world, number)
        job = world.parts[taken]["lane"]["head"]
        remove_job(world, taken, job)
        if first < 0:
            first = job
        else:
            world.jobs[last]["after"] = job
        last = job
    took = (_service_ms(world, load, first, size) + _again_ms(world, load, first)) * worker["slow"]
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
    grid = world.numbers[record["slack0"] : record["slack0"] + record["slacks"]]
    place = record["choice0"] + 2 * ((length - 1) * record["slacks"] + slack_index(slack, grid))
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
    late, is_last = world.parts[node["app"]]["app"]["late"], node["edges"] == 0
    if late == SERVE_LATE:
        return False
    missed = behind(
        late, is_last, world.clock[0]["now"], mean_ms(world, load, query, size), record["entered"],
        world.queries[query]["deadline"], node["budget"],
    )  # fmt: skip
    return bool(missed > 1e-9 and (late != OPPORTUNISTIC or is_last or not can_catch_up(world, job, missed)))


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
            held = _waiting(world, number) if station["joined"] == 1 else queue["length"]
            if record["max_wait"] > 0.0 and held < record["max_batch"] and now < ripe:
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
def _waiting(world: World, number: int) -> int:
    """How many jobs wait in the lanes of a station."""
    station, count = world.parts[number]["station"], 0
    for lane in range(station["lane0"], station["lane0"] + station["lanes"]):
        count += world.parts[lane]["lane"]["length"]
    return int(count)


@part
def _oldest_lane(world: World, number: int) -> int:
    """The lane of a station whose first job has waited longest."""
    station = world.parts[number]["station"]
    best, best_entered = -1, 0.0
    for lane in range(station["lane0"], station["lane0"] + station["lanes"]):
        if world.parts[lane]["lane"]["length"] > 0:
            entered = world.jobs[world.parts[lane]["lane"]["head"]]["entered"]
            if best < 0 or entered < best_entered:
                best, best_entered = lane, entered
    return int(best)


@part
def _begin_joined(world: World, number: int) -> None:
    """Begin one batch of those who wait in any lane of a station, whoever waited longest first."""
    station = world.parts[number]["station"]
    most = world.parts[world.parts[station["lane0"]]["lane"]["load"]]["load"]["max_batch"]
    size = min(_waiting(world, number), most)
    for lane in range(station["lane0"], station["lane0"] + station["lanes"]):
        drop_hopeless(world, lane, world.parts[lane]["lane"]["load"], size)
    size = min(_waiting(world, number), most)
    if size > 0:
        lane = _oldest_lane(world, number)
        begin_batch(world, lane, world.parts[lane]["lane"]["load"], size)


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
        if station["joined"] == 1:
            _begin_joined(world, number)
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
    """Give up the hopeless among the first jobs of a lane, until `size` others are before it."""
    job = world.parts[lane]["lane"]["head"]
    looked = 0
    while job >= 0 and looked < size:
        after = world.jobs[job]["after"]
        if is_hopeless(world, load, job, size):
            give_up(world, lane, job)
        else:
            looked += 1
        job = after


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
def _has_idle(world: World, route: int) -> bool:
    """Whether any station of a route could begin something now."""
    record = world.parts[route]["route"]
    for target in range(record["target0"], record["target0"] + record["targets"]):
        if _first_idle(world, target) >= 0:
            return True
    return False


@part
def _is_lost(world: World, route: int, job: int) -> bool:
    """Whether a job is hopeless on every target of a route."""
    record = world.parts[route]["route"]
    for target in range(record["target0"], record["target0"] + record["targets"]):
        if not is_hopeless(world, world.parts[target]["target"]["load"], job, 1):
            return False
    return True


@part
def _first_in_time(world: World, route: int, load: int) -> int:
    """The oldest job of a route that a load answers in time, or -1; what is before it and lost is given up."""
    lane = world.parts[route]["route"]["lane"]
    job = world.parts[lane]["lane"]["head"]
    while job >= 0:
        after = world.jobs[job]["after"]
        if not is_hopeless(world, load, job, 1):
            return int(job)
        if _is_lost(world, route, job):
            give_up(world, lane, job)
        job = after
    return -1


@part
def _pull_in_order(world: World, route: int) -> None:
    """First come, first served: the oldest job to the first idle station, in the order of the route's targets.

    A job that is late there, and not on all targets, waits for a faster one.
    """
    record = world.parts[route]["route"]
    queue = world.parts[record["lane"]]["lane"]
    for target in range(record["target0"], record["target0"] + record["targets"]):
        while queue["length"] > 0:
            lane = _first_idle(world, target)
            if lane < 0:
                break
            load = world.parts[lane]["lane"]["load"]
            job = _first_in_time(world, route, load)
            if job < 0:
                break
            size, taken = min(queue["length"], world.parts[load]["load"]["max_batch"]), 1
            while size > 1 and is_hopeless(world, load, job, size):
                size -= 1
            _assign(world, route, target, lane, job)
            job = queue["head"]
            while job >= 0 and taken < size:
                after = world.jobs[job]["after"]
                if not is_hopeless(world, load, job, size):
                    _assign(world, route, target, lane, job)
                    taken += 1
                job = after
            begin_batch(world, lane, load, taken)


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
    """Match the oldest waiting jobs with all stations, anew while that gives up some: others may take their mates."""
    while _match_waiting(world, route):
        pass


@part
def _match_waiting(world: World, route: int) -> bool:
    """Start the jobs whose mate is idle, the others stay; whether some were given up, late there by the app's rule.

    Where no station is idle none can start: nothing is matched.
    """
    given_up = False
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
    if not _has_idle(world, route):
        return given_up
    instances = _list_instances(world, route, reals, wholes)
    if instances == 0:
        return given_up
    queries = _list_waiting(world, route, 2 * instances, reals, wholes, predicted)
    if queries == 0:
        return given_up
    kinds = record["targets"]
    mates = wholes[MATES]
    seen = Seen(
        world.clock[0]["now"], wholes[WAITING], queries, reals[ARRIVED], wholes[WAITING], predicted,
        wholes[FIRST, : kinds + 1], wholes[KIND, :instances], reals[ENDS, :instances],
    )  # fmt: skip
    costs = (reals[WEIGHT, :kinds], reals[LATE_COST, :kinds], record["limit"], record["merge"] == 1)
    pair_quickly(seen, costs, mates, (cost, reals, wholes))
    for place in range(queries):
        instance = mates[place]
        if instance < 0 or reals[ENDS, instance] != IDLE:
            continue
        lane = wholes[LANE_OF, instance]
        target, job = record["target0"] + wholes[KIND, instance], wholes[JOB_OF, place]
        if is_hopeless(world, world.parts[target]["target"]["load"], job, 1):
            give_up(world, record["lane"], job)
            given_up = True
            continue
        _assign(world, route, target, lane, job)
        begin_batch(world, lane, world.parts[lane]["lane"]["load"], 1)
    return given_up


@part
def pull_route(world: World, route: int) -> None:
    """Empty a route's central queue as far as its rule finds idle stations for it."""
    if world.parts[route]["route"]["rule"] != CENTRAL:
        return
    if world.parts[route]["route"]["pull"] == PULL_MATCHING:
        _pull_matching(world, route)
    else:
        _pull_in_order(world, route)
