"""Operators whose answers decide how a query goes on: each sample goes the way that it went when it was measured.

So a query that is slow at one operator and then is passed on stays one query. A load of an operator with outcomes
becomes one per outcome, and samples of that outcome are routed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.operators import is_operator, measured_of, samples_of
from hetplan.serving.shared import stations_of
from hetplan.serving.steps import pipeline_of
from hetplan.serving.system import App, Group, Route

__all__ = ["with_exits"]


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
