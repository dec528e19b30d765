"""Operators whose answers decide how a query goes on: each sample takes the exit that it took when measured.

So a query that is slow at one operator and then is passed on stays one query. A load of an operator with outcomes
becomes one per outcome, and samples of that outcome are routed to it.

Lines of queries also share a load where operators are of one model. A line has its own times, bytes and quality. All
lines of a load wait for the same replicas, first come, first served, and batches are made of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.who_answers import pipeline_of
from hetplan.serving.operators import is_operator, measured_of, operator_at, samples_of, times_of
from hetplan.serving.system import App, Group, Load, Route

__all__ = ["stations_of", "with_exits", "with_shared"]


Lines = Mapping[str, Sequence[Load]]


def with_shared(
    plan: Plan, inputs: Inputs, groups: tuple[Group, ...], routes: tuple[Route, ...]
) -> tuple[tuple[Group, ...], tuple[Route, ...]]:
    """Every load to which several operators' queries come, with a line for each."""
    users: dict[str, dict[tuple[str, str], None]] = {}
    for route in routes:
        for way in route.ways:
            users.setdefault(way.load, {})[route.app, route.stage] = None
    planned = {load.id: (load, worker) for worker in plan.workers for load in worker.loads}
    lines: dict[str, list[Load]] = {}
    for load in (one for group in groups for one in group.loads):
        for app, stage in users.get(load.id, ()) if len(users.get(load.id, ())) > 1 else ():
            known = operator_at(plan, inputs, (app, stage), *planned[load.id])
            times = {app: times_of(plan, inputs, app, known, max_batch=planned[load.id][0].serve.max_batch)}
            one = replace(
                load, id=_line(load.id, app, stage), stages=(stage,), services=times,
                bytes_out=known.bytes_out, quality=known.quality,
            )  # fmt: skip
            lines.setdefault(load.id, []).append(one)
    made = [
        replace(route, ways=tuple(
            replace(way, group=f"{way.group}:{way.load}", load=_line(way.load, route.app, route.stage))
            if way.load in lines else way for way in route.ways
        ))
        for route in routes
    ]  # fmt: skip
    return tuple(part for group in groups for part in stations_of(group, lines)), tuple(made)


def _line(load: str, app: str, stage: str) -> str:
    return f"{load}:{app}.{stage}"


def stations_of(group: Group, lines: Lines) -> list[Group]:
    """A group without the loads that have several lines, and each of those as a group whose lines share its servers."""
    if group.shared or not any(load.id in lines for load in group.loads):
        return [group]
    rest = tuple(load for load in group.loads if load.id not in lines)
    parts = [replace(group, loads=rest)] if rest else []
    parts += [
        replace(
            group,
            id=f"{group.id}:{load.id}",
            loads=tuple(lines[load.id]),
            shared=True,
            joined=True,
            servers=load.servers,
        )
        for load in group.loads
        if load.id in lines
    ]
    return [parts[0], *(replace(part, price_nanos=0) for part in parts[1:])]


def with_exits(
    plan: Plan, inputs: Inputs, apps: tuple[App, ...], groups: tuple[Group, ...], routes: tuple[Route, ...]
) -> tuple[tuple[Group, ...], tuple[Route, ...]]:
    """Loads and routes by what the answers of each sample came to."""
    split: dict[str, tuple[str, ...]] = {}
    made: list[Route] = []
    kinds = {app.id: _kinds(plan, inputs, app) for app in apps if is_operator(plan, app.id)}
    for route in routes:
        mine = kinds.get(route.app, {}).get(route.stage)
        if mine is None:
            made.append(route)
            continue
        for outcome, these in mine.items():
            part = tuple(kind for kind in these if route.kinds is None or kind in route.kinds)
            ways = tuple(replace(way, load=f"{way.load}:{outcome}") for way in route.ways)
            made += [replace(route, kinds=part, ways=ways)] if part else []
        split |= {way.load: tuple(mine) for way in route.ways}
    return _split(groups, tuple(made), split, {app.id for app in apps if app.clients == 0})


def _split(
    groups: Sequence[Group], routes: Sequence[Route], split: Mapping[str, tuple[str, ...]], rated: Set[str]
) -> tuple[tuple[Group, ...], tuple[Route, ...]]:
    """A load of an operator with outcomes as one per outcome; where queries come at a rate all wait for its servers."""
    made: list[Group] = []
    moved: dict[str, str] = {}
    for group in groups:
        lines = {
            load.id: [
                replace(load, id=f"{load.id}:{one}", outcomes={name: float(name == one) for name in split[load.id]})
                for one in split[load.id]
            ]
            for load in group.loads
            if load.id in split
        }
        together = {} if group.shared else {i: these for i, these in lines.items() if rated & these[0].services.keys()}
        for part in stations_of(group, together):
            loads = [one for load in part.loads for one in lines.get(load.id, [load])]
            made.append(replace(part, loads=tuple(loads)))
            moved |= {load.id: part.id for load in loads}
    ways = ((route, tuple(replace(way, group=moved[way.load]) for way in route.ways)) for route in routes)
    return tuple(made), tuple(replace(route, ways=these) for route, these in ways)


def _kinds(plan: Plan, inputs: Inputs, app: App) -> dict[str, dict[str, tuple[int, ...]]]:
    """By operator with outcomes, and by outcome: the kinds of query whose answer came to it."""
    pipeline = pipeline_of(inputs.profile, inputs.slo.apps[app.id])
    if pipeline is None or not pipeline.has_outcomes:
        return {}
    took = measured_of(plan, inputs, app.id).get("runs", {}).get("seconds", {})
    rows = list(zip(*(took[name] for name in pipeline.nodes), strict=True))
    ways = {ran: pipeline.way([name for name, there in zip(pipeline.nodes, ran, strict=True) if there]) or {}
            for ran in {tuple(one is not None for one in row) for row in rows}}  # fmt: skip
    by_sample = [ways[tuple(one is not None for one in row)] for row in rows]
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, node in pipeline.nodes.items():
        if node.outcomes is not None:
            found[name] = {
                outcome: tuple(
                    kind
                    for kind in range(samples_of(plan, inputs, app.id))
                    if by_sample[kind % len(rows)].get(name, node.outcomes.names[0]) == outcome
                )
                for outcome in node.outcomes.names
            }
    return found
