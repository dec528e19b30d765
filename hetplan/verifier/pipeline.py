"""The promise of a pipeline plan, recomputed: what one must write into a plan so that it passes here.

``workers``
    One group per configuration (step, variant, hardware, batch) in use, with one load: ``app``, ``node``, ``variant``,
    ``instances`` (what a machine has room for), ``serve.max_batch``, and all else of ``serve`` as the default. With
    option ``machines: shared``, and where all runs need so many of its equal places (`places_on`), a machine may hold
    several loads (``queue`` is then ``per-load``). A variant has one batch size per hardware, unless option
    ``multibatch`` is set.
``routing[app]``
    Per path so far (``prefix``: the loads visited) and next step (``node``) the shares of loads. Every path with a
    positive share takes no longer than (limit - network) / ``slo_divisor``, by table statistic ``quantile``.
``dispatch[app]``
    ``path-shares/1`` or ``most-accurate-first/1``. ``budget_ms`` of a step is at least the longest execution there,
    and at most ``budget_factor`` times it (1.5 ``slo_divisor`` where no option says so). ``backup`` lists loads with
    capacity left: no more than machines x capacity - load (headroom is there for them), with the table's time.
``promises``
    ``rate_qps``, ``quality`` (mean over the last steps, per query at the entrance), ``service_ms`` (longest path) per
    app; ``servers``, ``cost_per_hour``, ``changes`` of the plan.

The generic check follows the routing of trees: capacity, shares, latency, quality. Here is what goes beyond, and
the whole of pipelines that join branches (`pipeline_joins`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Edge, Pipeline
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import MostAccurateFirstDispatch, PathSharesDispatch
from hetplan.profiles.workers import Serve, Worker
from hetplan.verifier.actions import moved_instances
from hetplan.verifier.application_checks import check_demand
from hetplan.verifier.check import follow
from hetplan.verifier.demand import classes_of, strictest_limit_ms
from hetplan.verifier.flow import why_not_followed
from hetplan.verifier.plan_index import Facts, Seat, gather, option, slo_divisor
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import instances_on
from hetplan.verifier.service import service_of
from hetplan.verifier.slices import parts_of_one

__all__ = ["check", "check_joins", "places_on"]


PATIENCE = 1.5
"""Requests are late at a step after so much of what its path has room for, where no option says otherwise."""


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What a pipeline plan promises beyond the generic check; to be called on a plan whose references are sound."""
    facts = gather(plan, inputs)
    found = [*_check_workers(facts), *_check_moves(facts)]
    for app in plan.routing:
        dispatch = plan.dispatch.get(app)
        if not isinstance(dispatch, PathSharesDispatch | MostAccurateFirstDispatch):
            text = f"queries of the pipeline {app} are to follow its shares, and no dispatch says so"
            found.append(Violation("dispatch", f"dispatch.{app}", text))
            continue
        if why_not_followed(facts, app):
            found += [*check_demand(facts, app), *check_joins(facts, app)]
            continue
        reached = _Reached.by(facts, app)
        found += [*reached.slow, *_check_route_paths(facts, app)]
        found += _check_budgets(facts, app, dispatch.budget_ms, reached)
        found += _check_backups(facts, app, dispatch, reached)
    return found


def _is_server(facts: Facts, seat: Seat) -> bool:
    """Whether a load serves batch by batch, in no more instances than its machine is known to have room for."""
    room = instances_on(facts, seat.run) if seat.run is not None and seat.load.share is None else 1
    return seat.load.instances <= room and seat.load.serve == Serve(max_batch=seat.load.serve.max_batch)


def places_on(facts: Facts, hardware: str) -> int:
    """How many instances of the smallest run a server holds; one where steps do not share it.

    They share it where parts say exactly what fits (`parts_of_one`).
    """
    profile = facts.inputs.profile
    offers = [one for one in profile.offers.values() if one.hardware == hardware]
    shared = facts.plan.method.options.get("share_machines") is True
    if not shared or any(one.per is not None for one in offers):
        return 1
    tasks = {node.task for one in _pipelines_of_apps(facts) for node in one.nodes.values()}
    runs = [
        run for variant in profile.variants.values() if variant.task in tasks
        for run in variant.runs if run.hardware == hardware and run.latency is not None
    ]  # fmt: skip
    if any(run.price_per_hour is not None for run in runs):
        return 1
    rooms = [instances_on(facts, run) for run in runs]
    return parts_of_one(profile.hardware[hardware].provides, [run.needs for run in runs], rooms)


def _pipelines_of_apps(facts: Facts) -> list[Pipeline]:
    """The pipeline of each application, in turn."""
    names = [app.pipeline for app in facts.inputs.slo.apps.values()]
    return [facts.inputs.profile.pipelines[name] for name in names if name in facts.inputs.profile.pipelines]


def _may_share(facts: Facts, worker: Worker) -> bool:
    """Whether a server may hold several loads: each has a queue of its own, and what fits is what places say."""
    return bool(worker.loads) and worker.queue == "per-load" and places_on(facts, worker.hardware) > 1


def _check_workers(facts: Facts) -> Iterator[Violation]:
    """What a server holds, and that a variant runs with one batch size per hardware."""
    batches: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for worker in facts.plan.workers:
        alone = len(worker.loads) == 1 or _may_share(facts, worker)
        if not alone or not all(_is_server(facts, facts.seats[load.id]) for load in worker.loads):
            text = (
                "a server of a pipeline hosts one variant, or several where places say what fits, each instance of "
                "which runs what waits, one batch at a time"
            )
            yield Violation("pipeline-worker", f"workers.{worker.id}", text)
        for load in worker.loads:
            batches[load.app, load.node, load.variant, worker.hardware].add(load.serve.max_batch)
    for (app, node, variant, hardware), sizes in batches.items():
        if len(sizes) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            text = f"{variant} at {node} of {app} runs on {hardware} with batches {listed}; one is allowed"
            yield Violation("one-batch", "workers", text)


def _check_moves(facts: Facts) -> Iterator[Violation]:
    """Servers that are new where they are."""
    for number, promise in enumerate(facts.plan.promises):
        if promise.quantity == "changes":
            running = facts.inputs.state.workers if facts.inputs.state is not None else ()
            moves = moved_instances(facts.plan.workers, running)
            if moves != promise.value:
                text = f"promises {promise.value:g} moved servers, counted are {moves}"
                yield Violation("changes", f"promises[{number}]", text)


def _check_route_paths(facts: Facts, app: str) -> Iterator[Violation]:
    """A route without a path is for all that come to its step: beside one with a path nobody knows whose it is."""
    routes = facts.plan.routing[app]
    by_path = {route.node for route in routes if route.prefix}
    for number, route in enumerate(routes):
        if not route.prefix and route.node in by_path:
            yield Violation("route-path", f"routing.{app}[{number}]", "names no path, and others of its step do")


@dataclass(frozen=True)
class _Reached:
    """What the routing of an application brings to each of its loads, and how long each takes."""

    ms: Mapping[str, float]
    load_qps: Mapping[str, float]
    slow: tuple[Violation, ...]
    """No path may be longer than the strictest limit, whatever share of the queries takes it."""

    @classmethod
    def by(cls, facts: Facts, app: str) -> _Reached:
        """Follow the shares from the entrance, at the promised rate."""
        wish, rate = facts.inputs.slo.apps[app], facts.promised_rate(app) or 0.0
        mine = {name: seat for name, seat in facts.seats.items() if seat.load.app == app}
        services = {name: service_of(facts, seat, classes_of(wish)) for name, seat in mine.items()}
        load_qps, slow = dict[str, float](), list[Violation]()
        limit_ms = strictest_limit_ms(wish)
        divisor = slo_divisor(facts.plan)
        for period in facts.plan.periods:
            flow = follow(facts, app, period.id)
            load_qps |= {
                name: rate * busy / services[name].seconds[0] for name, busy in flow.work.items() if name in services
            }
            for path, ms in flow.slow[limit_ms].items():
                room = (limit_ms - wish.network_ms_once - len(path) * wish.network_ms_per_hop) / divisor
                steps = (facts.seats[load].load for load in path)
                way = ", ".join(f"{load.node}={load.variant}" for load in steps)
                text = f"the path {way} takes {ms:.6g} ms, {room:.6g} ms are left for execution"
                slow.append(Violation("slow-path", f"routing.{app}", text))
        return cls({name: one.latency_ms[0] for name, one in services.items()}, load_qps, tuple(slow))


def _capacity(facts: Facts, seat: Seat, app: str) -> float:
    """Queries per second that the servers of a load carry, headroom and all: late requests are what it is for."""
    seconds = service_of(facts, seat, classes_of(facts.inputs.slo.apps[app])).seconds[0]
    return seat.worker.count * seat.load.instances / seconds


def _check_budgets(facts: Facts, app: str, budgets: Mapping[str, float], reached: _Reached) -> Iterator[Violation]:
    longest, slowest = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, ms in reached.ms.items():
        node = facts.seats[name].load.node or ""
        slowest[node] = max(slowest[node], ms)
        if name in reached.load_qps:
            longest[node] = max(longest[node], ms)
    factor = option(facts.plan, "budget_factor", PATIENCE * slo_divisor(facts.plan))
    for node, ms in sorted(slowest.items()):
        if budgets.get(node, 0.0) > factor * ms * (1.0 + VALUE):
            text = f"{budgets[node]:g} ms at step {node}, more than {factor:g} times the {ms:.6g} ms of an execution"
            yield Violation("budget", f"dispatch.{app}.budget_ms", text)
    for node, ms in sorted(longest.items()):
        if budgets.get(node, 0.0) < ms * (1.0 - VALUE):
            text = f"{budgets.get(node, 0.0):g} ms at step {node}, where execution alone takes {ms:.6g} ms"
            yield Violation("budget", f"dispatch.{app}.budget_ms", text)


def _check_backups(
    facts: Facts, app: str, dispatch: PathSharesDispatch | MostAccurateFirstDispatch, reached: _Reached
) -> Iterator[Violation]:
    """What is said to be left over is left over, and as fast and as good as said."""
    for number, entry in enumerate(dispatch.backup):
        at = f"dispatch.{app}.backup[{number}]"
        seat = facts.seats.get(entry.to)
        if seat is None or seat.load.app != app or seat.load.node != entry.node:
            yield Violation("backup", at, f"{entry.to} serves no queries of {app} at {entry.node}")
            continue
        capacity = _capacity(facts, seat, app)
        left = capacity - reached.load_qps.get(entry.to, 0.0)
        if entry.left_qps > left + FEASIBILITY * capacity:
            yield Violation("backup", at, f"{entry.left_qps:.6g} qps said to be left of {entry.to}, {left:.6g} are")
        if abs(entry.latency_ms - reached.ms[entry.to]) > VALUE * entry.latency_ms:
            text = f"{entry.to} is said to take {entry.latency_ms:.6g} ms, it takes {reached.ms[entry.to]:.6g}"
            yield Violation("backup", at, text)
        quality = facts.inputs.profile.variants[seat.load.variant or ""].quality
        if quality is not None and abs(entry.quality - quality.value) > VALUE:
            text = f"{entry.to} is said to have quality {entry.quality:.6g}, it has {quality.value:.6g}"
            yield Violation("backup", at, text)


# Pipelines that join branches: shares per step, start times, additive accuracy


def _order(pipeline: Pipeline) -> list[str]:
    left, order = dict.fromkeys(pipeline.nodes), list[str]()
    while left:
        ready = [node for node in left if not any(e.to == node and e.from_ in left for e in pipeline.edges)]
        order += ready
        for node in ready:
            del left[node]
    return order


def _factor(edge: Edge) -> float:
    fanout = edge.fanout
    return fanout if isinstance(fanout, float | int) else next(iter(fanout.values()), 1.0)


def check_joins(facts: Facts, app: str) -> Iterator[Violation]:
    """Shares, capacity, latency and quality of an application whose pipeline joins branches."""
    wish, rate = facts.inputs.slo.apps[app], facts.promised_rate(app) or 0.0
    assert wish.pipeline is not None
    pipeline = facts.inputs.profile.pipelines[wish.pipeline]
    routes = {route.node: route.to for route in facts.plan.routing[app]}
    gain: dict[str, float] = {}
    ended: dict[str, tuple[float, int]] = {}
    quality = 0.0
    share_kept = 1.0 - option(facts.plan, "headroom", 0.0)
    for node in _order(pipeline):
        before = [edge for edge in pipeline.edges if edge.to == node]
        gain[node] = gain[before[0].from_] * _factor(before[0]) if before else 1.0
        to = routes.get(node, {})
        if abs(sum(to.values()) - 1.0) > FEASIBILITY:
            text = f"shares at step {node} sum to {sum(to.values()):.9g}, not to 1"
            yield Violation("share-sum", f"routing.{app}", text)
        longest = 0.0
        for name, share in to.items():
            seat = facts.seats[name]
            service = service_of(facts, seat, classes_of(wish))
            busy, there = (
                rate * gain[node] * share * service.seconds[0] / seat.load.instances,
                share_kept * seat.worker.count,
            )
            if not busy <= there * (1.0 + FEASIBILITY):
                text = f"{name} keeps {busy:.6g} machines busy at the promised rate, {there:g} are there for it"
                yield Violation("capacity", f"workers.{seat.worker.id}", text)
            longest = max(longest, service.latency_ms[0])
            known = facts.inputs.profile.variants[seat.load.variant or ""].quality
            value = known.value if known is not None else math.nan
            quality += share * value * pipeline.quality.weights.get(node, 1.0)
        starts = [ended[edge.from_] for edge in before] or [(0.0, 0)]
        ended[node] = (max(ms for ms, _ in starts) + longest, max(hops for _, hops in starts) + 1)
    limit = strictest_limit_ms(wish)
    for node, (ms, hops) in ended.items():
        room = (limit - wish.network_ms_once - hops * wish.network_ms_per_hop) / slo_divisor(facts.plan)
        if ms > room * (1.0 + 1e-9):
            text = f"step {node} ends after {ms:.6g} ms of execution, {room:.6g} ms are left"
            yield Violation("slow-path", f"routing.{app}", text)
    for number, promise in enumerate(facts.plan.promises):
        if promise.app == app and promise.quantity == "quality" and promise.value > quality + VALUE:
            text = f"promises quality {promise.value:.9g}, recomputed it is {quality:.9g}"
            yield Violation("promise", f"promises[{number}]", text)
    if wish.quality is not None and wish.quality.min is not None and not quality >= wish.quality.min - VALUE:
        text = f"quality {quality:.6g} is below {wish.quality.min:g}"
        yield Violation("quality", f"routing.{app}", text)
