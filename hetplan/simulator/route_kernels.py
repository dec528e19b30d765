"""Which lane a job is sent to: by shares, in turn, to the shortest queue, or where it would be done first."""

from __future__ import annotations

from hetplan.compiled import part
from hetplan.dispatch.rule_kernels import done_ms, has_less_to_do, has_room_for, makes_up, spare_in_second
from hetplan.simulator.draw_kernels import PREDICT, ROUTE, draw_normal, draw_uniform
from hetplan.simulator.job_kernels import append_job, flag_route, flag_station
from hetplan.simulator.world_kernels import (
    BY_SHARE,
    CENTRAL,
    EARLIEST,
    INNER_RANDOM,
    INNER_ROUND,
    ROUND_ROBIN,
    SHORTEST,
    TIMER,
    World,
    push_event,
)

__all__ = [
    "can_catch_up",
    "cell_of",
    "choose_lane",
    "current_route",
    "enter_lane",
    "full_batch_ms",
    "has_open",
    "is_open",
    "lane_in_target",
    "part_in_turn",
    "predicted_ms",
    "takes_over",
    "wait_at_route",
]


@part
def current_route(world: World, route: int) -> int:
    """The route that replaces this one now (plans change; jobs under way keep the number they were given)."""
    while world.parts[route]["route"]["heir"] >= 0:
        route = world.parts[route]["route"]["heir"]
    return route


@part
def is_open(world: World, lane: int) -> bool:
    """Whether the station behind a lane takes jobs."""
    station = world.parts[world.parts[lane]["lane"]["station"]]["station"]
    return bool(station["is_open"] == 1 and world.parts[station["worker"]]["worker"]["up"] == 1)


@part
def has_open(world: World, route: int) -> bool:
    """Whether any station of a route takes jobs."""
    record = world.parts[route]["route"]
    for number in range(record["target0"], record["target0"] + record["targets"]):
        target = world.parts[number]["target"]
        for place in range(target["lanes"]):
            if is_open(world, target["lane0"] + place * target["stride"]):
                return True
    return False


@part
def part_in_turn(world: World, route: int) -> int:
    """The route that a job of this one goes to now: of a divided one the next part that has a station open."""
    route = current_route(world, route)
    if world.parts[route]["route"]["whole"] >= 0:
        route = world.parts[route]["route"]["whole"]
    record = world.parts[route]["route"]
    parts = record["parts"]
    if parts == 0:
        return route
    start = record["cursor"]
    for step in range(parts):
        turn = (start + step) % parts
        if has_open(world, route + 1 + turn):
            record["cursor"] = (turn + 1) % parts
            return int(route + 1 + turn)
    record["cursor"] = (start + 1) % parts
    return int(route + 1 + start)


@part
def cell_of(world: World, load: int, kind: int, size: int) -> int:
    """Where the service law of a batch of this size of this class is: mean, mu, sigma, most, predicted."""
    record = world.parts[load]["load"]
    return int(record["cell0"] + 5 * ((kind - record["kind0"]) * record["max_batch"] + size - 1))


@part
def predicted_ms(world: World, load: int, query: int, size: int) -> float:
    """What the dispatcher believes that a batch of this size, of this query's class, takes."""
    clock = world.clock[0]
    size = min(size, world.parts[load]["load"]["max_batch"])
    mean = world.numbers[cell_of(world, load, world.queries[query]["kind"], size) + 4]
    if clock["mispredict"] > 0.0:
        error = clock["mispredict"] * draw_normal(clock["seed"], query, load, PREDICT)
        return float(mean * max(0.0, 1.0 + error))
    return float(mean)


@part
def full_batch_ms(world: World, target: int, kind: int) -> float:
    """How long a full batch of this class takes at a target, on the mean: what plans count with."""
    load = world.parts[target]["target"]["load"]
    return float(world.numbers[cell_of(world, load, kind, world.parts[load]["load"]["max_batch"])])


@part
def takes_over(world: World, backup: int, longest_ms: float, late_ms: float, jobs: float) -> bool:
    """Whether a backup takes so many queries that come late now."""
    record = world.parts[backup]["backup"]
    record["left"], record["reset"] = spare_in_second(
        record["left"], record["reset"], record["each_s"], world.clock[0]["now"]
    )
    return has_room_for(jobs, record["left"], longest_ms, record["exec_ms"], late_ms)


@part
def _catches_up(world: World, route: int, kind: int, late_ms: float, jobs: float) -> bool:
    """Whether all targets of a route, or a backup with room for so many jobs, are fast enough to make up the time."""
    record = world.parts[route]["route"]
    fast = True
    for target in range(record["target0"], record["target0"] + record["targets"]):
        if world.parts[target]["target"]["share"] > 0.0:
            fast = fast and makes_up(record["longest"], full_batch_ms(world, target, kind), late_ms)
    if fast:
        return True
    for backup in range(record["backup0"], record["backup0"] + record["backups"]):
        if takes_over(world, backup, record["longest"], late_ms, jobs):
            return True
    return False


@part
def can_catch_up(world: World, job: int, behind_ms: float) -> bool:
    """Whether the stages that follow can make up for what a job will be behind its budget.

    A stage where branches meet is not asked: the time of its start is not this job's alone.
    """
    record = world.jobs[job]
    kind = world.queries[record["query"]]["kind"]
    node = world.parts[record["node"]]["node"]
    app = world.parts[node["app"]]["app"]
    fan0 = world.parts[world.parts[record["target"]]["target"]["load"]]["load"]["fan0"]
    for place in range(node["edges"]):
        child = world.parts[node["edge0"] + place]["edge"]["to"]
        if world.parts[child]["node"]["parents"] > 1:
            continue
        then = world.parts[record["target"]]["target"]["then0"] + place * app["kinds"] + kind - app["kind0"]
        jobs = world.numbers[fan0 + place]
        if not _catches_up(world, current_route(world, world.indices[then]), kind, behind_ms, jobs):
            return False
    return True


@part
def _random_open(world: World, target: int, draw: float) -> int:
    """An open lane of a target, each with equal chance, or -1."""
    record = world.parts[target]["target"]
    lanes = record["lanes"]
    place = min(int(draw * lanes), lanes - 1)
    lane = record["lane0"] + place * record["stride"]
    if is_open(world, lane):
        return int(lane)
    # What is left of the draw is uniform again: it chooses among those that are open.
    opened = 0
    for step in range(lanes):
        opened += 1 if is_open(world, record["lane0"] + step * record["stride"]) else 0
    skip = min(int((draw * lanes - place) * opened), opened - 1)
    for step in range(lanes):
        lane = record["lane0"] + step * record["stride"]
        if is_open(world, lane):
            if skip == 0:
                return int(lane)
            skip -= 1
    return -1


@part
def _bound_for(world: World, lane: int) -> int:
    """How many jobs a lane has, under way to it, waiting and in service; those of all lanes of a joined station."""
    number = world.parts[lane]["lane"]["station"]
    station = world.parts[number]["station"]
    if station["joined"] == 0:
        return int(world.parts[lane]["lane"]["bound"])
    count = 0
    for other in range(station["lane0"], station["lane0"] + station["lanes"]):
        count += world.parts[other]["lane"]["bound"]
    return int(count)


@part
def lane_in_target(world: World, target: int, draw: float) -> int:
    """An open lane of a target by the target's inner rule, or -1."""
    record = world.parts[target]["target"]
    lane0, lanes = record["lane0"], record["lanes"]
    if lanes == 1:
        return int(lane0) if is_open(world, lane0) else -1
    if record["inner"] == INNER_RANDOM:
        return _random_open(world, target, draw)
    shortest = record["inner"] != INNER_ROUND
    lane, _, record["cursor"] = _next_of(world, target, target + 1, record["cursor"], shortest)
    return int(lane)


@part
def _by_share(world: World, route: int, query: int, serial: int) -> tuple[int, int]:
    record = world.parts[route]["route"]
    first, count = record["target0"], record["targets"]
    draw = 0.0
    if count > 1 or world.parts[first]["target"]["inner"] == INNER_RANDOM:
        draw = draw_uniform(world.clock[0]["seed"], query, serial, ROUTE)
    chosen = first
    while chosen < first + count - 1 and draw >= world.parts[chosen]["target"]["upto"]:
        chosen += 1
    below = world.parts[chosen - 1]["target"]["upto"] if chosen > first else 0.0
    width = world.parts[chosen]["target"]["upto"] - below
    inside = (draw - below) / width if width > 0.0 else 0.0
    # A group that has grown has a target for each time that it did, one after the other: they are one group.
    begin, end, way = chosen, chosen + 1, world.parts[chosen]["target"]["way"]
    if world.parts[chosen]["target"]["inner"] != INNER_RANDOM:
        while begin > first and world.parts[begin - 1]["target"]["way"] == way:
            begin -= 1
        while end < first + count and world.parts[end]["target"]["way"] == way:
            end += 1
    if end - begin > 1:
        shortest = world.parts[chosen]["target"]["inner"] != INNER_ROUND
        lane, target, following = _next_of(world, begin, end, world.parts[begin]["target"]["cursor"], shortest)
        world.parts[begin]["target"]["cursor"] = following
        if lane >= 0:
            return int(lane), int(target)
    for step in range(count):
        # When a whole group is closed its share goes to the next one that is open.
        target = chosen + step
        if target >= first + count:
            target -= count
        lane = lane_in_target(world, target, inside)
        if lane >= 0:
            return int(lane), int(target)
    return -1, -1


@part
def _next_of(world: World, first: int, end: int, start: int, shortest: bool) -> tuple[int, int, int]:
    """The next open lane of several targets, or the shortest of all; its target; where the next search begins."""
    total = 0
    for target in range(first, end):
        total += world.parts[target]["target"]["lanes"]
    if start >= total:
        start = 0
    target, place = first, start
    while place >= world.parts[target]["target"]["lanes"]:
        place -= world.parts[target]["target"]["lanes"]
        target += 1
    best, best_target, fewest, most = -1, -1, 0, 1
    for step in range(total):
        lane = world.parts[target]["target"]["lane0"] + place * world.parts[target]["target"]["stride"]
        if is_open(world, lane):
            if not shortest:
                following = start + step + 1
                return int(lane), int(target), int(following if following < total else following - total)
            servers = world.parts[world.parts[lane]["lane"]["station"]]["station"]["servers"]
            bound = _bound_for(world, lane)
            if best < 0 or has_less_to_do(bound, servers, fewest, most):
                best, best_target, fewest, most = lane, target, bound, servers
                if bound == 0:
                    break
        place += 1
        if place >= world.parts[target]["target"]["lanes"]:
            place = 0
            target = target + 1 if target + 1 < end else first
    return int(best), int(best_target), int(start + 1)


@part
def _in_turn(world: World, route: int, shortest: bool) -> tuple[int, int]:
    record = world.parts[route]["route"]
    first, cursor = record["target0"], record["cursor"]
    lane, target, record["cursor"] = _next_of(world, first, first + record["targets"], cursor, shortest)
    return int(lane), int(target)


@part
def _earliest(world: World, route: int, query: int) -> tuple[int, int]:
    record = world.parts[route]["route"]
    now = world.clock[0]["now"]
    best, best_target, best_end = -1, -1, 0.0
    for target in range(record["target0"], record["target0"] + record["targets"]):
        took = predicted_ms(world, world.parts[target]["target"]["load"], query, 1)
        for place in range(world.parts[target]["target"]["lanes"]):
            lane = world.parts[target]["target"]["lane0"] + place * world.parts[target]["target"]["stride"]
            if not is_open(world, lane):
                continue
            station = world.parts[world.parts[lane]["lane"]["station"]]["station"]
            end = done_ms(station["free_at"], station["due"], station["busy"] > 0, now, took)
            if best < 0 or end < best_end:
                best, best_target, best_end = lane, target, end
    if best >= 0:
        world.parts[world.parts[best]["lane"]["station"]]["station"]["free_at"] = best_end
    return int(best), int(best_target)


@part
def choose_lane(world: World, route: int, query: int, serial: int) -> tuple[int, int]:
    """The lane and the target that a job is sent to; (-1, -1) when it waits at the route."""
    rule = world.parts[route]["route"]["rule"]
    if rule == CENTRAL or world.parts[route]["route"]["targets"] == 0:
        return -1, -1
    if rule == BY_SHARE:
        return _by_share(world, route, query, serial)
    if rule in (ROUND_ROBIN, SHORTEST):
        return _in_turn(world, route, rule == SHORTEST)
    if rule == EARLIEST:
        return _earliest(world, route, query)
    return -1, -1


@part
def wait_at_route(world: World, route: int, job: int) -> None:
    """Put a job into the route's own lane: a central queue, or the wait for a station to open."""
    record = world.parts[route]["route"]
    world.jobs[job]["route"] = route
    append_job(world, record["lane"], job)
    flag_route(world, route)


@part
def enter_lane(world: World, lane: int, job: int) -> bool:
    """Put a job into a lane; False when the lane has no room for it."""
    queue = world.parts[lane]["lane"]
    station = queue["station"]
    if queue["room"] >= 0 and queue["length"] + world.parts[station]["station"]["busy"] >= queue["room"]:
        queue["bound"] -= 1
        return False
    append_job(world, lane, job)
    flag_station(world, station)
    wait = world.parts[queue["load"]]["load"]["max_wait"] if queue["policy"] < 0 else 0.0
    if wait > 0.0:
        push_event(world, world.jobs[job]["entered"] + wait, TIMER, lane)
    return True
