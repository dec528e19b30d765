"""From one stage to the next: arrivals, fan-out, transfer, joins, and requests rerouted because they are late."""

from __future__ import annotations

import math

from hetplan.compiled import part
from hetplan.dispatch.rule_kernels import makes_up
from hetplan.simulator.draw_kernels import BACKUP, FANOUT, OUTCOME, draw_uniform
from hetplan.simulator.job_kernels import close_job, lose_job, new_job
from hetplan.simulator.route_kernels import (
    choose_lane,
    current_route,
    enter_lane,
    full_batch_ms,
    has_open,
    is_open,
    lane_in_target,
    part_in_turn,
    takes_over,
    wait_at_route,
)
from hetplan.simulator.world_kernels import (
    ADDITIVE,
    CENTRAL,
    DELIVER,
    JOIN_DONE,
    JOIN_OPEN,
    JOIN_QUALITY,
    JOIN_TOKENS,
    LOST,
    OPPORTUNISTIC,
    PRODUCT,
    World,
    push_event,
)

__all__ = ["arrive", "deliver", "finish_job", "place_job"]


@part
def deliver(world: World, job: int) -> None:
    """A job reaches the lane that it was sent to (or looks for another one, when that has closed meanwhile)."""
    record = world.jobs[job]
    record["entered"] = world.clock[0]["now"]
    lane = record["lane"]
    if lane >= 0 and not is_open(world, lane):
        world.parts[lane]["lane"]["bound"] -= 1
        place_job(world, job)
        return
    if lane < 0:
        wait_at_route(world, _standing_in(world, record["route"]), job)
    elif not enter_lane(world, lane, job):
        lose_job(world, job, LOST)


@part
def _standing_in(world: World, route: int) -> int:
    """The route to which a job comes that was sent to this one: another if plans changed or a part shut meanwhile."""
    record = world.parts[route]["route"]
    stays = record["heir"] < 0 and (record["whole"] < 0 or has_open(world, route))
    return route if stays else part_in_turn(world, route)


@part
def place_job(world: World, job: int) -> None:
    """Put a job into a lane of its route at once, without transfer."""
    record = world.jobs[job]
    route = part_in_turn(world, record["route"])
    lane, target = choose_lane(world, route, record["query"], record["serial"])
    record["route"] = route
    if lane < 0:
        wait_at_route(world, route, job)
        return
    record["target"] = target
    world.parts[lane]["lane"]["bound"] += 1
    if not enter_lane(world, lane, job):
        lose_job(world, job, LOST)


@part
def _transfer_ms(world: World, app: int, tier_from: int, tier_to: int, size: float) -> float:
    record = world.parts[app]["app"]
    if record["tiers"] == 0 or tier_from == tier_to:
        return float(record["hop"])
    place = record["link0"] + 2 * (tier_from * record["tiers"] + tier_to)
    return float(record["hop"] + world.numbers[place] + world.numbers[place + 1] * size)


@part
def _dispatch(world: World, job: int, lane: int, target: int, tier: int, size: float) -> None:
    """Set a job on its way to the lane (or to its route's central queue, lane -1)."""
    record = world.jobs[job]
    app = world.queries[record["query"]]["app"]
    record["lane"] = lane
    delay = world.parts[app]["app"]["hop"]
    if target >= 0:
        record["target"] = target
        delay = _transfer_ms(world, app, tier, world.parts[world.parts[target]["target"]["load"]]["load"]["tier"], size)
    if lane >= 0:
        world.parts[lane]["lane"]["bound"] += 1
    if delay > 0.0:
        push_event(world, world.clock[0]["now"] + delay, DELIVER, job)
    else:
        deliver(world, job)


@part
def _send(world: World, job: int, route: int, tier: int, size: float) -> None:
    record = world.jobs[job]
    route = part_in_turn(world, route)
    record["route"] = route
    lane, target = choose_lane(world, route, record["query"], record["serial"])
    if world.parts[route]["route"]["rule"] == CENTRAL:
        target = world.parts[route]["route"]["target0"]
    _dispatch(world, job, lane, target, tier, size)


@part
def arrive(world: World, query: int) -> None:
    """A query comes in at the front end."""
    clock = world.clock[0]
    asked = world.queries[query]
    app = world.parts[asked["app"]]["app"]
    asked["arrival"] = clock["now"]
    asked["deadline"] = clock["now"] + app["slo"]
    clock["in_system"] += 1
    # The query holds itself open until all its entries are made: one that ends at once must not end the query.
    asked["open"] += app["entries"] - 1
    for entry in range(app["entries"]):
        node = app["node0"] + entry
        job = new_job(world, query, node)
        asked["open"] -= 1 if entry > 0 else 0
        record = world.jobs[job]
        record["quality"] = 1.0 if app["combine"] == PRODUCT else 0.0
        record["weight"] = 1.0
        if app["joins"] == 1:
            world.numbers[asked["joins"] + 4 * entry + JOIN_OPEN] += 1.0
        route = world.indices[world.parts[node]["node"]["route0"] + asked["kind"] - app["kind0"]]
        _send(world, job, route, app["tier"], app["bytes"])


@part
def _backup_for(world: World, route: int, late_ms: float, query: int, serial: int) -> int:
    """A backup for a late request: fast enough to catch up, with capacity left this second, of best quality."""
    clock = world.clock[0]
    record = world.parts[route]["route"]
    best, ties = -1, 0
    for place in range(record["backup0"], record["backup0"] + record["backups"]):
        backup = world.parts[place]["backup"]
        if not takes_over(world, place, record["longest"], late_ms, 1.0):
            continue
        if best < 0 or backup["quality"] > world.parts[best]["backup"]["quality"]:
            best, ties = place, 1
        elif backup["quality"] == world.parts[best]["backup"]["quality"]:
            ties += 1
            if draw_uniform(clock["seed"], query, serial, BACKUP + 16 * ties) * ties < 1.0:
                best = place
    return best


@part
def _send_late(world: World, job: int, route: int, behind_ms: float, tier: int, size: float) -> None:
    """Send on a job that is behind its budget: where it was going if that makes up for it, else to a backup.

    The budget of a stage is made for its longest execution: a target faster than that makes up the difference. When
    the last spare capacity went to another since service began, the job keeps to its way: its work is done already, and
    it may still be in time.
    """
    record = world.jobs[job]
    query, serial = record["query"], record["serial"]
    record["route"] = route
    longest, kind = world.parts[route]["route"]["longest"], world.queries[query]["kind"]
    lane, target = choose_lane(world, route, query, serial)
    if lane < 0 or not makes_up(longest, full_batch_ms(world, target, kind), behind_ms):
        backup = _backup_for(world, route, behind_ms, query, serial)
        faster = lane_in_target(world, world.parts[backup]["backup"]["target"], 0.0) if backup >= 0 else -1
        if faster >= 0:
            world.parts[backup]["backup"]["left"] -= 1.0
            lane, target = faster, world.parts[backup]["backup"]["target"]
    _dispatch(world, job, lane, target, tier, size)


@part
def _spawn(world: World, parent: int, edge: int, place: int, count: int, load: int, then: int) -> None:
    """`count` jobs of the edge's far node, each with its share of the parent's weight, by the routes at `then`.

    Where an edge is not always followed, the jobs that do follow it count for those that do not. So the mean
    quality over queries is the mean over sinks, however rarely one of them is reached.
    """
    reached = min(1.0, world.numbers[world.parts[load]["load"]["fan0"] + place])
    source = world.jobs[parent]
    query, node = source["query"], world.parts[edge]["edge"]["to"]
    app = world.parts[world.queries[query]["app"]]["app"]
    route = current_route(world, world.indices[then])
    behind_ms = world.clock[0]["now"] - source["entered"] - world.parts[source["node"]]["node"]["budget"]
    tier, size = world.parts[load]["load"]["tier"], world.parts[edge]["edge"]["bytes"]
    if size < 0.0:
        size = world.parts[load]["load"]["bytes"]
    for _ in range(count):
        job = new_job(world, query, node)
        record = world.jobs[job]
        record["quality"] = source["quality"]
        record["weight"] = source["weight"] / (count * reached)
        if app["joins"] == 1:
            world.numbers[world.queries[query]["joins"] + 4 * (node - app["node0"]) + JOIN_OPEN] += 1.0
        if app["late"] == OPPORTUNISTIC and behind_ms > 0.0:
            _send_late(world, job, route, behind_ms, tier, size)
        else:
            _send(world, job, route, tier, size)


@part
def _fan_out(world: World, job: int, edge_place: int, load: int) -> int:
    """How many jobs follow along one edge: the mean rounded down or up at random, so that the mean is kept."""
    mean = world.numbers[world.parts[load]["load"]["fan0"] + edge_place]
    whole = int(mean)
    rest = mean - whole
    if rest > 0.0:
        record = world.jobs[job]
        draw = draw_uniform(world.clock[0]["seed"], record["query"], record["serial"], FANOUT + 16 * (edge_place + 1))
        if draw < rest:
            whole += 1
    return whole


@part
def _outcome_of(world: World, job: int, load: int) -> int:
    """What a job's answer comes to, drawn by the shares of its load; 0 where its stage has no outcomes."""
    record = world.jobs[job]
    count = world.parts[record["node"]]["node"]["outcomes"]
    chosen = 0
    if count > 1:
        draw = draw_uniform(world.clock[0]["seed"], record["query"], record["serial"], OUTCOME)
        upto = world.parts[load]["load"]["out0"]
        while chosen < count - 1 and draw >= world.numbers[upto + chosen]:
            chosen += 1
    return chosen


@part
def _follow_edges(world: World, job: int, load: int, outcome: int) -> bool:
    """Send on what follows a job; False where it ends here, because no edge leads on or none after this outcome."""
    record = world.jobs[job]
    asked, node = world.queries[record["query"]], world.parts[record["node"]]["node"]
    app = world.parts[asked["app"]]["app"]
    follows = False
    for place in range(node["edges"]):
        then = world.parts[record["target"]]["target"]["then0"] + asked["kind"] - app["kind0"]
        then += (outcome * node["edges"] + place) * app["kinds"]
        if node["outcomes"] > 0 and world.indices[then] < 0:
            continue
        follows = True
        edge = node["edge0"] + place
        count = _fan_out(world, job, place, load)
        if world.parts[world.parts[edge]["edge"]["to"]]["node"]["parents"] > 1:
            world.numbers[asked["joins"] + 4 * (world.parts[edge]["edge"]["to"] - app["node0"]) + JOIN_TOKENS] += count
        elif count > 0:
            _spawn(world, job, edge, place, count, load, then)
    return follows


@part
def finish_job(world: World, job: int, load: int) -> None:
    """A job's service is done: its quality counts, and the jobs that follow it are sent on."""
    record = world.jobs[job]
    query, number = record["query"], record["node"]
    asked, node = world.queries[query], world.parts[number]["node"]
    app = world.parts[asked["app"]]["app"]
    quality = world.parts[load]["load"]["quality"]
    if app["joins"] == 1:
        place = asked["joins"] + 4 * (number - app["node0"])
        world.numbers[place + JOIN_OPEN] -= 1.0
        world.numbers[place + JOIN_DONE] += 1.0
        world.numbers[place + JOIN_QUALITY] += quality
    if app["combine"] == ADDITIVE:
        record["quality"] += quality
    else:
        record["quality"] *= quality
    outcome = _outcome_of(world, job, load)
    if node["outcomes"] > 0:
        record["weight"] *= world.numbers[node["worth0"] + outcome]
    if not _follow_edges(world, job, load, outcome):
        measured = world.numbers[world.parts[record["target"]]["target"]["quality0"] + outcome]
        asked["quality"] += record["weight"] * (record["quality"] if math.isnan(measured) else measured)
    if app["joins"] == 1:
        _release_joins(world, job, load)
    close_job(world, job)


@part
def _is_complete(world: World, joins: int, app: int, local: int) -> bool:
    """Whether nothing that leads to this node is under way or still to come."""
    record = world.parts[app]["app"]
    mask = world.parts[record["node0"] + local]["node"]["ancestors"]
    for other in range(record["nodes"]):
        if (mask >> other) & 1 and (
            world.numbers[joins + 4 * other + JOIN_OPEN] > 0.0 or world.numbers[joins + 4 * other + JOIN_TOKENS] > 0.0
        ):
            return False
    return True


@part
def _release_joins(world: World, job: int, load: int) -> None:
    """Start the joins whose ancestors are all done: as many jobs as their edges bring on average, rounded up."""
    query = world.jobs[job]["query"]
    asked = world.queries[query]
    app = world.parts[asked["app"]]["app"]
    for local in range(app["nodes"]):
        place, node = asked["joins"] + 4 * local, app["node0"] + local
        parents = world.parts[node]["node"]["parents"]
        if (
            parents <= 1
            or world.numbers[place + JOIN_TOKENS] <= 0.0
            or not _is_complete(world, asked["joins"], asked["app"], local)
        ):
            continue
        count = math.ceil(world.numbers[place + JOIN_TOKENS] / parents)
        world.numbers[place + JOIN_TOKENS] = 0.0
        route = world.indices[world.parts[node]["node"]["route0"] + asked["kind"] - app["kind0"]]
        for _ in range(count):
            child = new_job(world, query, node)
            record = world.jobs[child]
            record["quality"] = 1.0 if app["combine"] == PRODUCT else 0.0
            record["weight"] = 1.0 / count
            world.numbers[place + JOIN_OPEN] += 1.0
            _send(world, child, route, world.parts[load]["load"]["tier"], world.parts[load]["load"]["bytes"])
