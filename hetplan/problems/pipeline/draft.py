"""From servers and shares to the sections of a plan: workers, routes, backups, promises, the way from what runs now.

Routes are shares per path so far and next step. Others are shares per step that forget the path, and the paper's
most-accurate-first. Neither knows which paths are in time: a plan takes them only where a check shows that they keep
what it promises; otherwise it keeps its path shares and says what would have been lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetplan.dispatch.pipelines import FRONTEND, Filled, Host, most_accurate_first
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.request import PLENTY
from hetplan.planner.transition import Names, transition
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.request import count_placed
from hetplan.problems.pipeline.scaling import Solution, best_of, quality_of
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Level,
    Tree,
    forest_of,
    prefixes,
    restore_stated,
    with_gains_of,
    without_dominated,
)
from hetplan.problems.waiting import MOST_BUSY, waiting_ms
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Action, Dispatch, Notice, Promise, Route, Unserved, Valid
from hetplan.profiles.plan_dispatch_rules import BackupEntry, MostAccurateFirstDispatch, PathSharesDispatch
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.serving.loads import worker_price

__all__ = [
    "NO_SHARE",
    "Loss",
    "Need",
    "divide_by_room",
    "draft",
    "fill_servers",
    "loads_of",
    "loss_of_filling",
    "nothing_to_do",
    "route_by_step",
    "route_most_accurate_first",
    "spread_over_offers",
]

SHOWN = 5
"""How many busy steps are named one by one."""

PATIENCE = 1.5
"""By how much a step's budget goes beyond the room that its path keeps for it: budgets of just that drop in vain."""

NO_SHARE = 1e-9
"""Shares below this are rounding, not routing."""

Share = dict[str, float]

Seat = tuple[tuple[str, int, int], str | None]
"""An application's task and configuration, and an offer."""
_Seats = Mapping[tuple[int, int], Sequence[tuple[str, float]]]
"""The loads of each task and configuration of an application, with their part of its servers."""


def nothing_to_do(problem: Pipelines) -> Draft:
    """Nothing is asked for: no servers."""
    idle = tuple(Unserved(app=tree.app, rate_qps=0.0, why="nothing is asked for") for tree in problem.wish.trees)
    trees = [without_dominated(tree) for tree in problem.wish.trees]
    value = best_of(forest_of(trees))
    best = Reported("quality", "max", "problem", value=value, bound=value, vouched="claimed")
    return Draft(
        workers=(),
        actions=_actions(problem, ()),
        unserved=idle,
        promises=(Promise(quantity="servers", value=0.0, relation="=", model="no-queueing"),),
        reported=(best, Reported("servers", "min", "problem", value=0.0, bound=0.0, vouched="claimed")),
        warnings=problem.wish.notices,
    )


def draft(problem: Pipelines, found: Solution) -> Draft:
    """The plan of a choice."""
    found, routing_of, notices = _choose_routing(problem, _fill_shared_servers(problem, found))
    workers, seats = _worker_groups(problem, found)
    routing: dict[str, tuple[Route, ...]] = {}
    dispatch: dict[str, Dispatch] = {}
    promises: list[Promise] = []
    busy: dict[str, dict[str, float]] = {}
    wished = {tree.app: tree for tree in problem.wish.trees}
    for number, (tree, levels) in enumerate(found.forest):
        shares, own, counts = found.shares[number], seats[number], found.counts[number]
        stated = restore_stated(tree, wished[tree.app])
        rate = min((found.served or {}).get(tree.app, stated.demand), stated.demand)
        loads = loads_of(stated, with_gains_of(stated, levels), shares, rate)
        routing[tree.app] = tuple(_routes(tree, levels, shares, own, routing_of))
        late, longest = problem.request.apps[tree.app].late, _longest_steps(tree, levels, shares)
        factor = getattr(problem.options, "budget_factor", None) or PATIENCE * problem.options.slo_divisor
        budgets = {step: factor * ms for step, ms in longest.items()}
        backup = _backups(tree, loads, own, counts, problem.options.headroom)
        room = {step: problem.options.slo_divisor * ms for step, ms in longest.items()}
        busy[tree.app] = _too_busy(tree, counts, loads, room)
        if routing_of == "most-accurate-first":
            dispatch[tree.app] = MostAccurateFirstDispatch(
                late=late, balancing="round_robin", budget_ms=budgets, backup=backup
            )
        else:
            keyed: Literal["path", "node"] = "node" if routing_of == "node" else "path"
            dispatch[tree.app] = PathSharesDispatch(
                late=late, keyed=keyed, balancing="round_robin", budget_ms=budgets, backup=backup
            )
        promises += _promises(problem, found, number, rate)
    promises += _totals(problem, workers)
    return Draft(
        workers=tuple(workers),
        routing=routing,
        dispatch=dispatch,
        actions=_actions(problem, workers),
        promises=tuple(promises),
        reported=tuple(_count_servers(problem, one, workers) for one in found.reported),
        levels_proved=found.levels_proved,
        unserved=_unserved(problem, found),
        valid=Valid(rate_qps={p.app: (0.0, p.value) for p in promises if p.app and p.quantity == "rate_qps"}),
        warnings=(*problem.wish.notices, *notices, *_notices_of(busy)),
    )


def _actions(problem: Pipelines, workers: Sequence[Worker]) -> tuple[Action, ...]:
    """The way from what runs now, within stock and limits."""
    limits, offers = problem.request.instances, problem.inputs.profile.offers
    return transition(problem.request.running, workers, offers=offers, limits=limits)


def _worker_groups(problem: Pipelines, found: Solution) -> tuple[list[Worker], list[_Seats]]:
    """Worker groups that are wanted: one per configuration and offer in use; of servers that are shared, alike ones."""
    fleet, names = problem.wish.fleet, Names(problem.request.running, alike=_place)
    kinds = fleet.request.machines
    left = {(g, offer.id): fleet.places[g] * offer.stock for g, kind in enumerate(kinds) for offer in kind.offers}
    by_offer = _spread_loads(problem, found, left) if problem.options.offers == "evenly" else Counter[Seat]()
    wanted: list[Worker] = []
    groups: list[dict[tuple[int, int], list[tuple[str, float]]]] = []
    on_shared: dict[tuple[int, str | None], dict[tuple[int, int, int], int]] = {}
    for number, ((tree, _), counts) in enumerate(zip(found.forest, found.counts, strict=True)):
        own: dict[tuple[int, int], list[tuple[str, float]]] = {}
        for t, (task, count) in enumerate(zip(tree.tasks, tree.by_task(counts), strict=True)):
            for c in range(task.size):
                need, g = int(count[c]), int(task.hardware[c])
                own[t, c] = []
                for offer in kinds[g].offers:
                    taken = min(need, left[g, offer.id] // int(task.places[c]))
                    if by_offer:
                        taken = by_offer[(tree.app, t, c), offer.id]
                    if taken <= 0:
                        continue
                    left[g, offer.id] -= taken * int(task.places[c])
                    need -= taken
                    if fleet.places[g] > 1:
                        on_shared.setdefault((g, offer.id), {})[number, t, c] = taken
                        continue
                    load = _load(problem, tree, t, c)
                    group = Worker(id="any", hardware=fleet.hardware[g], offer=offer.id, count=taken, loads=(load,))
                    wanted.append(names.with_ids(group))
                    own[t, c].append((wanted[-1].loads[0].id, float(taken)))
        groups.append(own)
    for worker, seats in _shared_groups(problem, found, on_shared):
        wanted.append(names.with_ids(worker))
        for load, (number, t, c), many in zip(wanted[-1].loads, seats, seats.values(), strict=True):
            groups[number][t, c].append((load.id, float(many * worker.count)))
    return wanted, [{seat: _as_parts(loads) for seat, loads in own.items()} for own in groups]


def _as_parts(loads: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    total = sum(part for _, part in loads)
    return [(name, part / total) for name, part in loads]


def _shared_groups(
    problem: Pipelines, found: Solution, on_shared: Mapping[tuple[int, str | None], Mapping[tuple[int, int, int], int]]
) -> Iterator[tuple[Worker, Mapping[tuple[int, int, int], int]]]:
    """Servers that steps share, and how many instances of each step's configuration are on one of them."""
    if not on_shared:
        return
    from hetplan.problems.slot_packing import pack_servers

    fleet, stock = problem.wish.fleet, {offer.id: offer.stock for offer in problem.wish.fleet.request.offers}
    tasks = [tree.tasks for tree, _ in found.forest]
    each = {(n, t, c): int(tasks[n][t].places[c]) for seats in on_shared.values() for n, t, c in seats}
    taken = {at: sum(each[seat] * many for seat, many in seats.items()) for at, seats in on_shared.items()}
    full = {at: -(-many // fleet.places[at[0]]) for at, many in taken.items()}
    short = [int(least) - sum(n for (on, _), n in full.items() if on == g) for g, least in enumerate(fleet.least)]
    for (g, offer), seats in on_shared.items():
        more = int(min(max(short[g], 0), stock[offer] - full[g, offer]))
        least, short[g] = full[g, offer] + more, short[g] - more
        for holds, count in pack_servers(seats, fleet.places[g], least=least, each=each):
            loads = []
            for (number, t, c), many in holds.items():
                load = _load(problem, found.forest[number][0], t, c)
                loads.append(load.model_copy(update={"instances": many * load.instances}))
            own = {"hardware": fleet.hardware[g], "offer": offer, "count": count, "loads": tuple(loads)}
            yield Worker(id="any", queue="per-load" if len(loads) > 1 else "shared", **own), holds


def _fill_shared_servers(problem: Pipelines, found: Solution) -> Solution:
    """With what is free on shared servers, which are paid anyway: it goes where servers are busiest, while it fits."""
    fleet = problem.wish.fleet
    if not fleet.is_shared or fleet.request.changes is not None:
        return found
    counts = [own.copy() for own in found.counts]
    hardware = [np.concatenate([task.hardware for task in tree.tasks]) for tree, _ in found.forest]
    taken = [np.concatenate([task.places for task in tree.tasks]) for tree, _ in found.forest]
    use = [
        np.concatenate(
            [load / task.qps for task, load in zip(tree.tasks, loads_of(tree, levels, n, tree.demand), strict=True)]
        )
        for (tree, levels), n in zip(found.forest, found.shares, strict=True)
    ]
    for g, places in enumerate(fleet.places):
        total = int(sum((own * w)[on == g].sum() for own, on, w in zip(counts, hardware, taken, strict=True)))
        paid = max(-(-total // places), int(fleet.least[g])) if places > 1 else 0
        free = places * paid - total if total else 0
        while free > 0:
            busy = [np.where((on == g) & (own > 0) & (w <= free), u / np.maximum(own, 1), -1.0)
                    for own, on, w, u in zip(counts, hardware, taken, use, strict=True)]  # fmt: skip
            which = max(range(len(busy)), key=lambda n: float(busy[n].max()))
            at = int(np.argmax(busy[which]))
            counts[which][at] += 1
            free -= int(taken[which][at])
    return replace(found, counts=counts)


def _spread_loads(problem: Pipelines, found: Solution, room: Mapping[tuple[int, str | None], int]) -> Counter[Seat]:
    """How many servers of each configuration are of each offer, where these are shared out evenly."""
    if any(count >= PLENTY for count in room.values()):
        return Counter()  # an offer without a stock has no part of all
    had = Counter[tuple[object, str | None]]()
    for worker in problem.request.running:
        had[_place(worker.model_copy(update={"offer": None})), worker.offer] += worker.count
    needs = list[Need]()
    for (tree, _), counts in zip(found.forest, found.counts, strict=True):
        seats = [(t, c) for t, task in enumerate(tree.tasks) for c in range(task.size)]
        for (t, c), count in zip(seats, counts, strict=True):
            g = int(tree.tasks[t].hardware[c])
            load = _load(problem, tree, t, c)
            alike = Worker(id="any", hardware=problem.wish.fleet.hardware[g], loads=(load,))
            needs.append(Need((tree.app, t, c), g, _place(alike), int(count)))
    return spread_over_offers(needs, room, had)


def _load(problem: Pipelines, tree: Tree, t: int, c: int) -> Load:
    """What one server of a configuration runs."""
    task = tree.tasks[t]
    choice = task.choice(c)
    serve, share = Serve(max_batch=int(task.batch[c])), problem.wish.fleet.fee_of(choice).share
    return choice.load(app=tree.app, node=task.id, instances=int(task.k[c]), share=share, serve=serve)


def _place(worker: Worker) -> tuple[object, ...]:
    """What makes a running group the same: a group that only changes its batch size goes on under its name."""
    loads = tuple((load.app, load.node, load.variant, load.artifact, load.instances) for load in worker.loads)
    return worker.hardware, worker.offer, loads


def _choose_routing(problem: Pipelines, found: Solution) -> tuple[Solution, str, list[Notice]]:
    """The choice under the wished routing, where that keeps it; else under path shares, with what would be lost."""
    wanted = problem.options.routing
    if found.longest_ms is not None:
        return found, "node", []
    if wanted == "path-shares":
        return found, wanted, []
    if wanted == "node":
        alike, why = route_by_step(found)
        if alike is not None:
            return alike, wanted, []
        text = f"routing uses path-shares: with shares per stage, {why}"
        return found, "path-shares", [Notice(code="W-routing", at="routing", text=text)]
    filled = route_most_accurate_first(found)
    if isinstance(filled, Solution):
        return filled, wanted, []
    text = f"routing uses path-shares: {filled}"
    return found, "path-shares", [Notice(code="W-routing", at="routing", text=text)]


def _routes(
    tree: Tree, levels: Sequence[Level], shares: Sequence[np.ndarray], own: _Seats, routing: str
) -> list[Route]:
    """Per path so far and next step, the share of every load: n(child) / n(prefix).

    Where all paths share alike there is one route: servers take turns within each, and so queries wait less.
    """
    if routing == "node":
        return _routes_per_step(tree, levels, shares, own)
    routes: list[Route] = []
    paths: list[list[list[tuple[str, ...]]]] = []
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        n = np.where(shares[t] > NO_SHARE, shares[t], 0.0)
        size = levels[task.parent].size if task.parent >= 0 else 1
        total = np.bincount(level.parent, weights=n, minlength=size)
        before = paths[task.parent] if task.parent >= 0 else [[()]]
        ended: list[list[tuple[str, ...]]] = [[] for _ in range(level.size)]
        table: dict[int, Share] = {}
        for p in np.flatnonzero(n):
            above = int(level.parent[p])
            for load, part in own[t, int(level.config[p])]:
                to = table.setdefault(above, {})
                to[load] = to.get(load, 0.0) + float(n[p] / total[above]) * part
                ended[p] += [(*path, load) for path in before[above]]
        ways = [(path, _summing_to_1(to)) for above, to in table.items() for path in before[above]]
        if len(ways) > 1 and all(_shares_alike(to, ways[0][1]) for _, to in ways):
            ways = [((), ways[0][1])]
        routes += [Route(prefix=path, node=task.id, to=to) for path, to in ways]
        paths.append(ended)
    return routes


def _routes_per_step(tree: Tree, levels: Sequence[Level], shares: Sequence[np.ndarray], own: _Seats) -> list[Route]:
    """Per step alone."""
    routes = []
    for t, load in enumerate(loads_of(tree, levels, shares, 1.0)):
        to = {name: float(load[c]) * part for c in np.flatnonzero(load) for name, part in own[t, int(c)]}
        routes.append(Route(node=tree.tasks[t].id, to=_summing_to_1(to)))
    return routes


def _shares_alike(one: Share, other: Share) -> bool:
    return one.keys() == other.keys() and all(abs(share - other[load]) <= NO_SHARE for load, share in one.items())


def _summing_to_1(to: Share) -> Share:
    total = sum(to.values())
    return {load: min(1.0, share / total) for load, share in to.items()}


def loads_of(tree: Tree, levels: Sequence[Level], shares: Sequence[np.ndarray], rate: float) -> list[np.ndarray]:
    """Queries per second that reach each configuration, task by task."""
    return [
        np.bincount(level.config, weights=rate * level.gain * np.where(n > NO_SHARE, n, 0.0), minlength=task.size)
        for task, level, n in zip(tree.tasks, levels, shares, strict=True)
    ]


def _longest_steps(tree: Tree, levels: Sequence[Level], shares: Sequence[np.ndarray]) -> dict[str, float]:
    """The longest execution in use at each step, in ms."""
    return {
        task.id: float(task.ms[level.config[n > NO_SHARE]].max())
        for task, level, n in zip(tree.tasks, levels, shares, strict=True)
        if (n > NO_SHARE).any()
    }


def _backups(
    tree: Tree, loads: Sequence[np.ndarray], own: _Seats, counts: np.ndarray, headroom: float
) -> tuple[BackupEntry, ...]:
    """Per step, what capacity is left over where."""
    found: list[BackupEntry] = []
    for t, (task, load, count) in enumerate(zip(tree.tasks, loads, tree.by_task(counts), strict=True)):
        # A late request may use what headroom keeps free: that is what it is kept for.
        left = task.qps / (1.0 - headroom) * count - load
        for c in range(task.size):
            for name, part in own[t, c]:
                if left[c] > 1e-6 * task.qps[c]:
                    found.append(
                        BackupEntry(
                            to=name, node=task.id, left_qps=float(left[c] * part), latency_ms=float(task.ms[c]),
                            quality=float(task.quality[task.variant[c]]),
                        )
                    )  # fmt: skip
    return tuple(found)


def _promises(problem: Pipelines, found: Solution, number: int, rate: float) -> list[Promise]:
    tree, levels = found.forest[number]
    shares = [np.where(n > NO_SHARE, n, 0.0) for n in found.shares[number]]
    longest = (found.longest_ms or {}).get(tree.app) or max(
        float(levels[s].ms[shares[s] > 0].max()) + problem.network_ms(tree.app, len(tree.path(s))) for s in tree.sinks
    )
    basis = None if problem.options.headroom > 0 else "servers without headroom: no queueing"
    return [
        Promise(app=tree.app, quantity="rate_qps", relation=">=", value=rate, model="fluid"),
        Promise(app=tree.app, quantity="quality", relation=">=", value=quality_of(tree, levels, shares),
                model="no-queueing", basis=f"mode {found.mode}"),
        Promise(app=tree.app, quantity="service_ms", relation="<=", value=longest, model="no-queueing", basis=basis),
    ]  # fmt: skip


def _totals(problem: Pipelines, workers: Sequence[Worker]) -> list[Promise]:
    servers = float(sum(worker.count for worker in workers))
    found = [Promise(quantity="servers", relation="=", value=servers, model="no-queueing")]
    cost = _cost_of(problem, workers)
    if cost is not None:
        found.append(Promise(quantity="cost_per_hour", relation="=", value=cost, model="no-queueing"))
    if problem.request.has_state:
        moves = float((count_placed(workers) - count_placed(problem.request.running)).total())
        found.append(Promise(quantity="changes", relation="=", value=moves, model="no-queueing"))
    return found


def _count_servers(problem: Pipelines, claim: Reported, workers: Sequence[Worker]) -> Reported:
    """A claim about servers, of those there are: where steps share them, fewer than instances."""
    if claim.about != "servers" or claim.value is None or not problem.wish.fleet.is_shared:
        return claim
    return replace(claim, value=float(sum(worker.count for worker in workers)))


def _cost_of(problem: Pipelines, workers: Sequence[Worker]) -> float | None:
    """Currency units per hour, where everything has a price."""
    if not problem.wish.fleet.priced:
        return None
    return sum(worker.count * (worker_price(problem.inputs, worker) or 0) for worker in workers) / NANO


def _unserved(problem: Pipelines, found: Solution) -> tuple[Unserved, ...]:
    idle = [Unserved(app=t.app, rate_qps=0.0, why="nothing is asked for") for t in problem.wish.trees if t.demand <= 0]
    for tree in problem.wish.trees:
        rate = (found.served or {}).get(tree.app, tree.demand)
        if rate < tree.demand:
            idle.append(Unserved(app=tree.app, rate_qps=tree.demand - rate, why="beyond what the servers carry"))
    return tuple(idle)


def _too_busy(
    tree: Tree, counts: np.ndarray, loads: Sequence[np.ndarray], room_ms: Mapping[str, float]
) -> dict[str, float]:
    """Steps that would wait longer than their path leaves room for, each with the use of its servers.

    Counted in batches. Servers of a group take turns, which queues longer than the rule says, and batches that are not
    full are done sooner.
    """
    found: dict[str, float] = {}
    for task, load, c in zip(tree.tasks, loads, tree.by_task(counts), strict=True):
        for y in np.flatnonzero((load > 0) & (c > 0)):
            own, servers = float(task.ms[y]), float(c[y] * task.k[y])
            use = min(float(load[y]) * own / (1000.0 * float(task.batch[y]) * servers), MOST_BUSY)
            if own + waiting_ms(own, use, servers) > room_ms[task.id]:
                found[task.id] = max(found.get(task.id, 0.0), use)
    return found


def _notices_of(busy: Mapping[str, Mapping[str, float]]) -> list[Notice]:
    """One notice for all applications (`busy`: app -> step -> use)."""
    busiest = sorted(((use, app, step) for app, steps in busy.items() for step, use in steps.items()), reverse=True)
    if not busiest:
        return []
    named = ", ".join(f"{app}/{step} ({use:.0%} busy)" for use, app, step in busiest[:SHOWN])
    text = (
        f"queries would wait longer than their SLO allows, at {named} (stages: {len(busiest)}); set sizing to "
        "simulation, which finds the headroom that meets the SLO, or set headroom"
    )
    return [Notice(code="W-queueing", at="promises", text=text)]


@dataclass(frozen=True)
class Need:
    """So many servers of one configuration (`place`) on a hardware, which hold that content."""

    place: tuple[str, int, int]
    hardware: int
    content: object
    count: int


def spread_over_offers(
    needs: Sequence[Need], room: Mapping[tuple[int, str | None], int], had: Mapping[tuple[object, str | None], int]
) -> Counter[tuple[tuple[str, int, int], str | None]]:
    """How many servers of each place are of each offer.

    Those that run (`had`, by content and offer) stay where they are. The others go to the offers of their hardware in
    proportion to what is left of each (`room`), those of whom there are most first.
    """
    left, running = Counter(room), Counter(had)
    taken = Counter[tuple[tuple[str, int, int], str | None]]()
    more = dict[tuple[str, int, int], int]()
    for need in needs:
        more[need.place] = need.count
        for hardware, offer in room:
            if hardware == need.hardware:
                stays = min(more[need.place], running[need.content, offer], left[hardware, offer])
                taken[need.place, offer] += stays
                running[need.content, offer] -= stays
                left[hardware, offer] -= stays
                more[need.place] -= stays
    for need in sorted(needs, key=lambda one: -more[one.place]):
        offers = [offer for hardware, offer in room if hardware == need.hardware]
        counts = divide_by_room(more[need.place], [left[need.hardware, offer] for offer in offers])
        for offer, count in zip(offers, counts, strict=True):
            taken[need.place, offer] += count
            left[need.hardware, offer] -= count
    return taken


def divide_by_room(count: int, room: Sequence[int]) -> list[int]:
    """So many in proportion to the room that each has, and never more than that.

    >>> divide_by_room(3, [4, 2]), divide_by_room(1, [1, 2]), divide_by_room(9, [2, 1])
    ([2, 1], [0, 1], [2, 1])
    """
    total = sum(room)
    count = min(count, total)
    exact = [count * one / max(total, 1) for one in room]
    found = [int(one + 1e-9) for one in exact]
    order = sorted(range(len(room)), key=lambda place: (found[place] - exact[place], place))
    for place in order[: count - sum(found)]:
        found[place] += 1
    return found


Shares = Mapping[tuple[tuple[int, int] | None, int], Mapping[int, float]]

SLIGHT = 1e-6
"""Shares and accuracies nearer than this are the same."""


@dataclass(frozen=True)
class Loss:
    """What a routing loses: share of the queries unserved, share on paths over the limit, accuracy of the rest."""

    unserved: float
    too_slow: float
    quality: float


def route_by_step(found: Solution) -> tuple[Solution | None, str]:
    """The same servers with one share per step and load; or why that would not keep the plan."""
    forest: list[tuple[Tree, list[Level]]] = []
    shares = []
    for number, ((tree, levels), n, counts) in enumerate(zip(found.forest, found.shares, found.counts, strict=True)):
        free = replace(tree, limit_ms=dict.fromkeys(tree.sinks, np.inf))
        wide = prefixes(free)
        spread: list[np.ndarray] = []
        for t, (task, count) in enumerate(zip(tree.tasks, tree.by_task(counts), strict=True)):
            load = np.bincount(levels[t].config, weights=levels[t].gain * n[t], minlength=task.size)
            own = load / load.sum()
            parent = task.parent
            above = spread[parent][wide[t].parent] if parent >= 0 else 1.0
            spread.append(above * own[wide[t].config])
            used = spread[t] > 1e-12
            if (wide[t].ms[used] > tree.room_ms[t] + ON_LIMIT_MS).any():
                return None, f"at {task.id} of {tree.app}, paths over the latency limit would be used"
            rate = (found.served or {}).get(tree.app, tree.demand)
            load = np.bincount(wide[t].config, weights=rate * wide[t].gain * spread[t], minlength=task.size)
            if (load > task.qps * count * (1 + SLIGHT)).any():
                return None, f"servers of {task.id} of {tree.app} would be overloaded"
        if quality_of(free, wide, spread) < found.qualities[number] - SLIGHT:
            return None, f"the accuracy of {tree.app} would fall to {quality_of(free, wide, spread):.6g}"
        forest.append((tree, wide))
        shares.append(spread)
    return replace(found, forest=forest, shares=shares), ""


def route_most_accurate_first(found: Solution) -> Solution | str:
    """The same servers routed most accurate first; or what that would lose."""
    losses, shares, worse = [], [], False
    forest: list[tuple[Tree, list[Level]]] = []
    for (tree, _), counts, had in zip(found.forest, found.counts, found.qualities, strict=True):
        rate = (found.served or {}).get(tree.app, tree.demand)
        lost, to = loss_of_filling(tree, counts, rate)
        losses.append(lost)
        worse = worse or lost.quality < had - SLIGHT
        levels, spread = _spread(tree, to)
        forest.append((tree, levels))
        shares.append(spread)
    if worse or any(lost.unserved > SLIGHT or lost.too_slow > SLIGHT for lost in losses):
        return _describe_loss(losses)
    return replace(found, forest=forest, shares=shares)


def fill_servers(tree: Tree, counts: np.ndarray, rate: float) -> tuple[Filled, dict[str, tuple[int, int]]]:
    """Most accurate first over the single servers of a plan; and which configuration each server is."""
    hosts: list[Host] = []
    place: dict[str, tuple[int, int]] = {}
    for t, (task, count) in enumerate(zip(tree.tasks, tree.by_task(counts), strict=True)):
        for c in range(task.size):
            k = int(task.variant[c])
            factor = {tree.tasks[child].id: float(values[k]) for child, values in task.factor.items()}
            for server in range(int(count[c])):
                name = f"{t:02d}.{c:04d}.{server:04d}"
                hosts.append(Host(name, task.id, float(task.quality[k]), float(task.qps[c]), factor))
                place[name] = (t, c)
    tasks = {task.id: [tree.tasks[c].id for c in tree.children[t]] for t, task in enumerate(tree.tasks)}
    return most_accurate_first(hosts, tasks, rate), place


def loss_of_filling(tree: Tree, counts: np.ndarray, rate: float) -> tuple[Loss, Shares]:
    """What most-accurate-first loses, and its shares per configuration: (source, child task) -> configuration.

    Unserved is the largest share that finds no room at a last task; lateness is of whole paths.
    """
    filled, place = fill_servers(tree, counts, rate)
    number = {task.id: t for t, task in enumerate(tree.tasks)}
    sent: dict[tuple[tuple[int, int] | None, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    weight: dict[tuple[tuple[int, int] | None, int], float] = defaultdict(float)
    for source, tables in filled.tables.items():
        own = place[source] if source != FRONTEND else None
        load = filled.load_qps[source] if source != FRONTEND else rate
        for child, entries in tables.items():
            key = (own, number[child])
            weight[key] += load
            for host, share in entries:
                sent[key][place[host][1]] += load * share
    shares = {key: {c: part / weight[key] for c, part in to.items()} for key, to in sent.items()}
    wide, spread = _spread(tree, shares)
    served = np.array([n.sum() for n in spread])
    quality = np.array([level.quality @ n for level, n in zip(wide, spread, strict=True)])
    late = np.zeros(len(wide))
    for sink in tree.sinks:
        late[sink] = spread[sink][wide[sink].ms > tree.limit_ms[sink] + ON_LIMIT_MS].sum()
    sinks = list(tree.sinks)
    total = float(served[sinks].sum()) or 1.0
    missing = sum(filled.unserved_qps.values())
    unserved = float(1.0 - served[sinks].min()) if missing > SLIGHT else 0.0
    return Loss(max(0.0, unserved), float(late[sinks].max()), float(quality[sinks].sum()) / total), shares


def _spread(tree: Tree, shares: Shares) -> tuple[list[Level], list[np.ndarray]]:
    """Shares that look at the last server alone, laid over all paths."""
    wide = prefixes(replace(tree, limit_ms=dict.fromkeys(tree.sinks, np.inf)))
    spread: list[np.ndarray] = []
    for t, level in enumerate(wide):
        parent = tree.tasks[t].parent
        n = np.array([
            shares.get(((parent, int(wide[parent].config[p])) if parent >= 0 else None, t), {}).get(int(c), 0.0)
            for p, c in zip(level.parent, level.config, strict=True)
        ])  # fmt: skip
        spread.append(n * (spread[parent][level.parent] if parent >= 0 else 1.0))
    return wide, spread


def _describe_loss(lost: Sequence[Loss]) -> str:
    """In words, what is lost by the worst off."""
    worst = max(lost, key=lambda one: (one.unserved, one.too_slow))
    return (
        f"most-accurate-first would leave {100 * worst.unserved:.2g}% unserved and send {100 * worst.too_slow:.2g}% on "
        f"paths over the latency limit, at accuracy {worst.quality:.6g}"
    )
