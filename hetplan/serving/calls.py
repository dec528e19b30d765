"""Operators that call an API, as parts of the system that a plan describes: groups without machines.

A query takes what a call of its sample took; calls that fail, drawn by the chance that the profile states, make it take
longer. Where it makes several calls of an operator, each fails by its own luck. An API answers as many calls at once as
come. Where its limits say how fast they may come, calls of queries that have a rate stand in one line for all of them,
each (those made again, too) as long as the limits ask for between two calls; what a call takes begins meanwhile. Calls
of streams pass by: their pace is not their rate. That limits are kept on average is checked by `verify`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.apis import Api, ApiCall
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.plan_dispatch_rules import ChosenPlanDispatch
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.profiles.workers import Worker
from hetplan.serving.fanout import most_calls, visits
from hetplan.serving.operators import called_by, measured_of, quality_at, samples_of, several_fail
from hetplan.serving.system import After, App, Edge, Fails, Group, Load, Service, Stage, System, Way
from hetplan.serving.system import Route as PlayedRoute

__all__ = ["with_calls", "with_limits"]

MOST_AT_ONCE = 10_000
"""Calls of one operator that are simulated side by side, at most."""


def with_calls(
    plan: Plan, inputs: Inputs, period: str, workers: Sequence[Worker], groups: tuple[Group, ...]
) -> tuple[Plan, list[Worker], tuple[Group, ...]]:
    """The plan with a route, a load and a group for every operator that is a call."""
    routing, more, held = dict(plan.routing), list(workers), list(groups)
    for app, rule in plan.dispatch.items():
        if not isinstance(rule, ChosenPlanDispatch):
            continue
        for node in called_by(plan, inputs, app):
            api, name = inputs.profile.apis[rule.placement[node]], f"call-{app}-{node}"
            made = _load(plan, inputs, app, node, name)
            more.append(
                Worker(
                    id=name,
                    period=period,
                    hardware=rule.placement[node],
                    loads=(PlannedLoad(id=name, app=app, node=node),),
                )
            )
            held.append(Group(name, (made,), shared=False, servers=made.servers, tier=api.tier))
            routing[app] = (*routing.get(app, ()), Route(node=node, to={name: 1.0}))
    return plan.model_copy(update={"routing": routing}), more, tuple(held)


def _load(plan: Plan, inputs: Inputs, app: str, node: str, name: str) -> Load:
    entry, wanted = measured_of(plan, inputs, app), inputs.slo.apps[app]
    call = called_by(plan, inputs, app)[node]
    api = inputs.profile.apis[call.api]
    tries, failed = _tries(plan, inputs, app, node, api)
    took = entry.get("runs", {}).get("seconds", {}).get(node, [entry["seconds"][node]])
    each = 1000.0 * np.resize(np.array([one or 0.0 for one in took]), tries.size) + failed * api.retry_ms
    gap_ms = 0.0 if wanted.streams else 1000.0 * api.gap_s(call.tokens)
    if gap_ms > 0.0:
        each = np.maximum(each - gap_ms * tries, 0.0)
    rate = wanted.stated_qps or 0.0
    several, most = _calls_of(inputs, app, node)
    servers = max(
        (wanted.streams or 1) * most, math.ceil(4.0 * several * rate * float(each.mean()) / 1000.0) + 16 * most
    )
    return Load(
        name, {app: Service(each[:, None])}, stages=(node,), servers=min(servers, MOST_AT_ONCE),
        bytes_out=float(entry["bytes"][node]),
        quality=quality_at(plan, inputs, app, node), fails=_fails(plan, inputs, app, node, api.retry_ms - gap_ms),
    )  # fmt: skip


def _calls_of(inputs: Inputs, app: str, node: str) -> tuple[float, int]:
    """How many calls of an operator a query makes: on average, and at most."""
    pipeline = pipeline_of(inputs.profile, inputs.slo.apps[app])
    return (1.0, 1) if pipeline is None else (visits(pipeline)[node], most_calls(pipeline)[node])


def _fails(plan: Plan, inputs: Inputs, app: str, node: str, again_ms: float) -> Fails | None:
    """How calls of a query fail, where each draws its own luck; None where kinds of queries say it, or none fails."""
    api = inputs.profile.apis[called_by(plan, inputs, app)[node].api]
    if api.failures == 0.0 or not several_fail(plan, inputs, app):
        return None
    return Fails(api.failures, api.retries, max(again_ms, 0.0), _rounds(plan, inputs, app, node))


def _rounds(plan: Plan, inputs: Inputs, app: str, node: str) -> NDArray[np.float64]:
    """How often each kind of query runs an operator in one call of it."""
    runs = measured_of(plan, inputs, app).get("runs", {})
    size = max(1, samples_of(plan, inputs, app))
    return np.resize(runs.get("rounds", {}).get(node, [1]), size).astype(float)


def _tries(
    plan: Plan, inputs: Inputs, app: str, node: str, api: Api
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How often the calls of each kind of query are made, and how many of these fail and are made again."""
    often = _rounds(plan, inputs, app, node)
    size, again = often.size, np.zeros(often.size)
    if api.failures > 0 and not several_fail(plan, inputs, app):
        random = np.random.default_rng(zlib.crc32(f"call-{app}-{node}".encode()))
        for rounds in range(int(often.max())):
            failed = np.floor(np.log(np.maximum(random.random(size), 1e-300)) / math.log(api.failures))
            again += np.where(rounds < often, np.minimum(failed, api.retries), 0.0)
    return often + again, again


def with_limits(plan: Plan, inputs: Inputs, system: System) -> System:
    """The system with a step before every call that has to wait for its turn, and a line for each API."""
    for app in system.apps:
        for node, call in _limited_calls(plan, inputs, app):
            system = _in_turn(plan, inputs, system, app.id, node, call)
    return system


def _limited_calls(plan: Plan, inputs: Inputs, app: App) -> Iterator[tuple[str, ApiCall]]:
    for node, call in called_by(plan, inputs, app.id).items() if app.clients == 0 else ():
        if inputs.profile.apis[call.api].gap_s(call.tokens) > 0:
            yield node, call


def _in_turn(plan: Plan, inputs: Inputs, system: System, app: str, node: str, call: ApiCall) -> System:
    api, turn, name = inputs.profile.apis[call.api], f"{node}, its turn", f"turn-{app}-{node}"
    gaps = 1000.0 * api.gap_s(call.tokens) * _tries(plan, inputs, app, node, api)[0]
    fails = _fails(plan, inputs, app, node, 1000.0 * api.gap_s(call.tokens))
    load = Load(name, {app: Service(gaps[:, None])}, stages=(turn,), fails=fails)
    line = next((group for group in system.groups if group.id == f"turn-{call.api}"), None)
    line = line or Group(f"turn-{call.api}", (), servers=1, tier=api.tier)
    groups = [group for group in system.groups if group.id != line.id] + [replace(line, loads=(*line.loads, load))]
    mine = [route for route in system.routes if route.app == app]
    turns = [
        PlayedRoute(
            app, turn, (Way(line.id, name, then={node: route.name} if route.name else {}),),
            name=route.name, kinds=route.kinds,
        )
        for route in mine if route.stage == node
    ]  # fmt: skip
    routes = [_rename_route(route, node, turn) if route in mine else route for route in system.routes]
    apps = tuple(replace(one, stages=_stages(one.stages, node, turn)) if one.id == app else one for one in system.apps)
    return replace(system, apps=apps, groups=tuple(groups), routes=(*routes, *turns))


def _stages(stages: Sequence[Stage], node: str, turn: str) -> tuple[Stage, ...]:
    """The steps, with one before `node` that all go to who went there; first those that nothing leads to."""
    made: list[Stage] = []
    for stage in stages:
        edges = tuple(replace(edge, to=turn) if edge.to == node else edge for edge in stage.edges)
        made += [Stage(turn, (Edge(node),))] if stage.id == node else []
        made.append(replace(stage, edges=edges))
    reached = {edge.to for stage in made for edge in stage.edges}
    return tuple(sorted(made, key=lambda stage: stage.id in reached))


def _rename_route(route: PlayedRoute, node: str, turn: str) -> PlayedRoute:
    def those(then: Mapping[str, str]) -> dict[str, str]:
        return {turn if stage == node else stage: name for stage, name in then.items()}

    ways = (
        replace(way, then=those(way.then), by_outcome={
            outcome: After(those(after.then), after.quality) for outcome, after in way.by_outcome.items()
        })
        for way in route.ways
    )  # fmt: skip
    return replace(route, ways=tuple(ways))
