"""From a plan's routing and dispatch sections to routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan import Route as PlannedRoute
from hetplan.profiles.workers import Worker
from hetplan.serving.demand import points_of
from hetplan.serving.route_choice import best_route, is_large, preferred_first
from hetplan.serving.steps import balancing_of, paths_of
from hetplan.serving.system import After, App, Backup, Group, Inner, Pull, Route, Rule, Stage, Way

__all__ = ["RULES", "routes_of"]

RULES = (
    "shares/1", "path-shares/1", "most-accurate-first/1", "queue-slack/1", "matching/1", "fcfs/1", "threshold/1",
    "earliest/1", "chosen-plan/1",
)  # fmt: skip
"""The dispatch rules that a plan may name and the simulator plays."""


def routes_of(plan: Plan, inputs: Inputs, app: App, groups: Sequence[Group], workers: Sequence[Worker]) -> list[Route]:
    """The routes of one application."""
    dispatch = plan.dispatch.get(app.id)
    rule = dispatch.rule if dispatch is not None else "shares/1"
    if rule not in RULES:
        raise InputError.one(
            file="plan",
            path=f"$.dispatch.{app.id}.rule",
            value=rule,
            why="a rule that the simulator does not know",
            remedy="Upgrade hetplan.",
        )
    home = {load.id: group.id for group in groups for load in group.loads}
    if rule in ("matching/1", "fcfs/1", "threshold/1", "earliest/1"):
        return _pool_routes(inputs, app, groups, dispatch, str(rule))
    return _share_routes(plan, inputs, app, home, dispatch, {worker.id: worker for worker in workers})


# Pools: one queue, or one decision, over all workers that hold a load of the application


def _pool_routes(inputs: Inputs, app: App, groups: Sequence[Group], dispatch: Any, rule: str) -> list[Route]:
    weight: Mapping[str, float] = getattr(dispatch, "weight", {}) or {}
    members = [(group, load.id) for group in groups for load in group.loads if app.id in load.services]
    # The heaviest type is the base: where nothing else decides, it is asked first.
    members.sort(key=lambda member: -weight.get(member[0].hardware, 1.0))
    stage = app.entry
    if rule == "earliest/1":
        return [Route(app.id, stage, tuple(Way(group.id, load) for group, load in members), rule=Rule.EARLIEST)]
    if rule == "fcfs/1":
        order = preferred_first(dispatch.prefer, [group.hardware for group, _ in members])
        members.sort(key=lambda member: order.index(member[0].hardware))
        return [Route(app.id, stage, tuple(Way(group.id, load) for group, load in members), rule=Rule.CENTRAL)]
    if rule == "threshold/1":
        return _threshold_routes(inputs, app, members, dispatch)
    return [_matching_route(app, members, dispatch)]


def _matching_route(app: App, members: Sequence[tuple[Group, str]], dispatch: Any) -> Route:
    """One matching of all workers, or of each part of a pool that the plan divides."""
    weight = dispatch.weight
    ways = tuple(Way(group.id, load, weight=weight.get(group.hardware, 1.0)) for group, load in members)
    return Route(app.id, app.entry, ways, rule=Rule.CENTRAL, pull=Pull.MATCHING, matching=dispatch)


def _threshold_routes(inputs: Inputs, app: App, members: Sequence[tuple[Group, str]], dispatch: Any) -> list[Route]:
    kinds = points_of(inputs.slo.apps[app.id].mix)
    large = tuple(n for n, kind in enumerate(kinds) if is_large(kind, dispatch.threshold))
    small = tuple(n for n in range(len(kinds)) if n not in large)
    base = dispatch.base if isinstance(dispatch.base, str) else members[0][0].hardware
    basic = tuple(Way(group.id, load) for group, load in members if group.hardware == base)
    others = tuple(Way(group.id, load) for group, load in members if group.hardware != base)
    routes = [(large, basic), (small, others)]
    return [
        Route(app.id, app.entry, ways, rule=Rule.CENTRAL, kinds=part, name=name)
        for (part, ways), name in zip(routes, ("", "small"), strict=True)
        if part
    ]


# Shares, along paths where the plan has them


@dataclass(frozen=True)
class _Path:
    """A path so far: its loads, the steps as measured paths name them, what its answers came to, and its own name."""

    loads: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    outcomes: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def through(self, stage: str, load: str, variant: str, outcome: str) -> _Path:
        mark = f":{outcome}" if outcome else ""
        return _Path(
            (*self.loads, load),
            (*self.named, f"{stage}={variant}{mark}"),
            {**self.outcomes, stage: outcome} if outcome else self.outcomes,
            f"{self.name}/{load}{mark}" if self.name else f"{load}{mark}",
        )


def _share_routes(
    plan: Plan,
    inputs: Inputs,
    app: App,
    home: Mapping[str, str],
    dispatch: Any,
    workers: Mapping[str, Worker],
) -> list[Route]:
    entries = plan.routing.get(app.id, ()) or _to_every_worker(plan, app.id)
    kinds = _kinds(inputs, app)
    rule, inner = _dispatch_rules(inputs, app, dispatch, bool(plan.routing.get(app.id)))
    by_stage = {stage.id: [entry for entry in entries if (entry.node or app.entry) == stage.id] for stage in app.stages}
    variants = {load.id: load.variant or load.id for worker in workers.values() for load in worker.loads}
    paths = paths_of(inputs.profile, inputs.slo.apps[app.id])
    keyed = bool(paths) or any(entry.prefix or entry.after for entry in entries)
    made: dict[tuple[str, str], list[Route]] = {}

    def after(stage: Stage, path: _Path, load: str, outcome: str) -> After:
        """What follows a load at the end of a path, with an outcome ("" where the stage has none)."""
        path = path.through(stage.id, load, variants[load], outcome)
        followed = stage.followed(outcome)
        then = {edge.to: add(stages[edge.to], path) for edge in followed} if keyed else {}
        return After(then, paths.get("/".join(path.named)) if not followed else None)

    def add(stage: Stage, path: _Path) -> str:
        """Routes of a stage after a path of loads, and of all stages after it; the name of that path's routes."""
        if (stage.id, path.name) in made:
            return path.name
        routes = made[stage.id, path.name] = []
        for entry, part in _by_kind(by_stage[stage.id], kinds, path, app, stage):
            ways = []
            for load, share in entry.to.items():
                if load not in home:
                    continue  # of another period
                ends = {outcome: after(stage, path, load, outcome) for outcome in stage.outcomes or ("",)}
                only = ends.get("", After())
                ways.append(
                    Way(home[load], load, share=share, inner=inner, then=only.then, quality=only.quality,
                        by_outcome=ends if stage.outcomes else {})
                )  # fmt: skip
            routes.append(
                Route(
                    app.id,
                    stage.id,
                    tuple(ways),
                    rule=rule,
                    name=path.name,
                    kinds=part,
                    backups=_backups(dispatch, stage.id, home),
                )
            )
        return path.name

    stages = {stage.id: stage for stage in app.stages}
    reached = {edge.to for stage in app.stages for edge in stage.edges}
    for stage in app.stages:
        if stage.id not in reached or not keyed:
            add(stage, _Path())
    return [route for routes in made.values() for route in routes]


def _kinds(inputs: Inputs, app: App) -> tuple[dict[str, float], ...]:
    """The classes of queries; the samples that were measured of operators are some too, all routed alike."""
    kinds = points_of(inputs.slo.apps[app.id].mix)
    return kinds if len(kinds) == app.kinds else kinds[:1] * app.kinds


def _dispatch_rules(inputs: Inputs, app: App, dispatch: Any, stated: bool) -> tuple[Rule, Inner]:
    """How a route chooses a group, and within a group; `stated`: whether the plan says what goes to each group."""
    wanted = balancing_of(dispatch, inputs.slo.apps[app.id])
    if getattr(dispatch, "rule", "") == "chosen-plan/1":
        # Each stream has a device, and on each machine an operator, for itself.
        return Rule.SHORTEST, Inner.SHORTEST
    # Machines of one kind are one: unlike ones, whose shares the plan then states, are chosen by these first.
    together = getattr(dispatch, "rule", "") == "queue-slack/1" and not stated
    if wanted == "shortest_queue":
        return (Rule.SHORTEST if together else Rule.SHARES), Inner.SHORTEST
    if wanted == "round_robin":
        return (Rule.ROUND_ROBIN if together else Rule.SHARES), Inner.ROUND_ROBIN
    return Rule.SHARES, Inner.RANDOM


def _to_every_worker(plan: Plan, app: str) -> tuple[PlannedRoute, ...]:
    """What a plan of policies leaves unsaid: queries go to all its machines alike, whose queue all models share."""
    if app not in plan.policies:
        return ()
    counts = {
        next(load.id for load in worker.loads if load.app == app): worker.count
        for worker in plan.workers
        if any(load.app == app for load in worker.loads)
    }
    total = sum(counts.values())
    return (PlannedRoute(to={load: count / total for load, count in counts.items()}),) if total else ()


def _by_kind(
    entries: Sequence[PlannedRoute],
    kinds: Sequence[Mapping[str, float]],
    path: _Path,
    app: App,
    stage: Stage,
) -> list[tuple[PlannedRoute, tuple[int, ...]]]:
    """Which entry routes which classes, by the one rule of `route_choice`."""
    chosen: dict[int, tuple[PlannedRoute, list[int]]] = {}
    known: dict[int, PlannedRoute | None] = {}
    for number, kind in enumerate(kinds):
        if id(kind) not in known:  # samples are many, and all of one class
            known[id(kind)] = best_route(entries, path=path.loads, outcomes=path.outcomes, at=kind)
        best = known[id(kind)]
        if best is None:
            raise InputError.one(
                file="plan",
                path=f"$.routing.{app.id}",
                value=dict(kind) or stage.id,
                why=f"no entry routes these queries at {stage.id}",
                remedy="Make the plan again for this SLO file.",
            )
        chosen.setdefault(id(best), (best, []))[1].append(number)
    return [(entry, tuple(numbers)) for entry, numbers in chosen.values()]


def _backups(dispatch: Any, stage: str, home: Mapping[str, str]) -> tuple[Backup, ...]:
    stated = [one for one in getattr(dispatch, "backup", ()) if one.node == stage and one.to in home]
    return tuple(Backup(home[one.to], one.to, one.latency_ms, one.left_qps) for one in stated)
