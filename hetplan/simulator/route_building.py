"""Routes, their targets and backups as rows of the world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.parts import parts_of_pool
from hetplan.errors import InputError
from hetplan.serving.system import Group, Route, Rule, Stage, System, Way
from hetplan.simulator.world import Crew, WorldBuilder

__all__ = ["add_routes"]


def add_routes(builder: WorldBuilder, system: System) -> dict[tuple[str, str, int], int]:
    """New routes; returns the default route of each (application, stage, class of query)."""
    builder.route_of = {}
    numbers: list[tuple[int, Route, int]] = []
    longest, groups = _longest_ms(builder, system), {group.id: group for group in system.groups}
    for planned in system.routes:
        route = planned if planned.matching is None else _by_matching(planned, groups)
        whole = -1
        # A divided route is a row of its own, without workers, and one for each of its parts.
        for part in range(-1, route.parts if route.parts > 1 else 0):
            number = _add_row(builder, route, longest[route.app, route.stage], part=part, whole=whole)
            whole = number if part < 0 else whole
            numbers.append((number, route, part))
            name = route.name if part < 0 else f"{route.name}#{part + 1}"
            for kind in route.kinds if route.kinds is not None else range(builder.spec[route.app].kinds):
                builder.route_of.setdefault((route.app, route.stage, name, kind), number)
    defaults: dict[tuple[str, str, int], int] = {}
    for (app, stage, _, kind), number in builder.route_of.items():
        defaults.setdefault((app, stage, kind), number)
    for number, route, part in numbers:
        if part >= 0 or route.parts == 1:
            _add_targets(builder, number, route, defaults, part=max(part, 0))
    return defaults


def _by_matching(route: Route, groups: Mapping[str, Group]) -> Route:
    """What rule matching/1 makes of a route: one matching of all workers, or of each part of a pool that is divided."""
    rule = route.matching
    assert rule is not None  # the caller asks of such routes alone
    members = [groups[way.group] for way in route.ways]
    hardware = list(dict.fromkeys(group.hardware for group in members))
    matching, weight, late = Matching.of(dict(rule), hardware)
    parts = 1
    if rule.split_above is not None:
        counts = [sum(group.count for group in members if group.hardware == name) for name in hardware]
        parts = parts_of_pool(counts, weight=[weight[name] for name in hardware], most=rule.split_above)
    ways = tuple(replace(way, late_cost=late[groups[way.group].hardware]) for way in route.ways)
    return replace(route, ways=ways, limit_ms=matching.limit_ms, merge=matching.merges, parts=parts)


def _add_row(builder: WorldBuilder, route: Route, longest_ms: float, *, part: int, whole: int) -> int:
    lane = builder.add("lane", station=-1, load=-1, policy=-1, head=-1, tail=-1, room=-1, row=builder.apps[route.app])
    builder.add("dirty")
    return builder.add(
        "route",
        rule=int(route.rule),
        pull=int(route.pull),
        lane=lane,
        heir=-1,
        limit=route.limit_ms,
        longest=longest_ms,
        merge=int(route.merge),
        parts=route.parts if part < 0 and route.parts > 1 else 0,
        whole=whole,
    )


def _longest_ms(builder: WorldBuilder, system: System) -> dict[tuple[str, str], float]:
    """Per application and stage, the longest execution of a full batch: what the stage's budget was made for."""
    found: dict[tuple[str, str], float] = {}
    for route in system.routes:
        for way in route.ways:
            for load in builder.crews[way.group].group.loads:
                if load.id == way.load and route.app in load.services:
                    took = float(load.services[route.app].mean_ms[:, -1].max())
                    found[route.app, route.stage] = max(found.get((route.app, route.stage), 0.0), took)
        found.setdefault((route.app, route.stage), 0.0)
    return found


def _add_targets(
    builder: WorldBuilder, number: int, route: Route, defaults: dict[tuple[str, str, int], int], *, part: int
) -> None:
    record = builder.fresh["route"][number - (builder.size["route"] - len(builder.fresh["route"]))]
    record["target0"] = builder.size["target"]
    shares: list[tuple[Way, Crew, int, int, float]] = []
    for way in route.ways:
        crew = builder.crews[way.group]
        made = sum(workers for _, workers in crew.chunks)
        shares += [(way, crew, lane0, workers, way.share * workers / made) for lane0, workers in crew.chunks]
    total = sum(item[-1] for item in shares) or 1.0
    upto = 0.0
    dealt: dict[str, int] = {}
    for way, crew, lane0, workers, share in shares:
        upto += share / total
        # Workers of one hardware are dealt out in turn to the parts, whatever groups they are in.
        kind = crew.group.hardware or way.group
        before = dealt.get(kind, 0)
        dealt[kind] = before + workers
        mine = range((part - before) % route.parts, workers, route.parts)
        then0 = builder.extend("indices", _thens(builder, route, way, defaults))
        builder.add(
            "target",
            lane0=lane0 + crew.lane_offset(way.load) + crew.stride * mine.start,
            lanes=len(mine),
            stride=crew.stride * route.parts,
            inner=int(way.inner),
            then0=then0,
            load=crew.loads[way.load or crew.group.loads[0].id],
            upto=upto,
            quality0=builder.extend("numbers", _qualities(builder, route, way)),
            weight=way.weight,
            late_cost=way.late_cost,
            share=way.share,
            way=route.ways.index(way),
        )
    record["targets"] = len(shares)
    if route.rule is Rule.CENTRAL and any(crew.stride > 1 and crew.group.shared for _, crew, *_ in shares):
        raise InputError.one(path=f"routing.{route.app}", why="a central queue needs workers with one load each")
    _add_backups(builder, record, route)


def _add_backups(builder: WorldBuilder, record: Any, route: Route) -> None:
    record["backup0"] = builder.size["backup"]
    record["backups"] = len(route.backups)
    for backup in route.backups:
        crew = builder.crews[backup.group]
        lane0, workers = crew.chunks[0]
        target = next(
            (
                record["target0"] + place
                for place, way in enumerate(route.ways)
                if (way.group, way.load) == (backup.group, backup.load)
            ),
            None,
        )
        if target is None:
            target = builder.add(
                "target",
                lane0=lane0 + crew.lane_offset(backup.load),
                lanes=workers,
                stride=crew.stride,
                inner=1,
                then0=builder.extend("indices", _thens(builder, route, route.ways[0], {})),
                load=crew.loads[backup.load],
                upto=1.0,
                quality0=builder.extend("numbers", [math.nan]),
                weight=1.0,
            )
        quality = next(load.quality for load in crew.group.loads if load.id == backup.load)
        builder.add("backup", target=target, exec_ms=backup.exec_ms, quality=quality, each_s=backup.left_qps)


def _stage_of(builder: WorldBuilder, route: Route) -> Stage:
    return next(stage for stage in builder.spec[route.app].stages if stage.id == route.stage)


def _qualities(builder: WorldBuilder, route: Route, way: Way) -> list[float]:
    """The measured quality of the path that ends with each outcome of the stage; NaN where there is none."""
    known = [way.after(outcome).quality for outcome in _stage_of(builder, route).outcomes or ("",)]
    return [math.nan if quality is None else quality for quality in known]


def _thens(builder: WorldBuilder, route: Route, way: Way, defaults: dict[tuple[str, str, int], int]) -> list[int]:
    """Per outcome, edge and class the route that follows; -1 along an edge that the outcome does not follow."""
    app, stage = builder.spec[route.app], _stage_of(builder, route)
    found: list[int] = []
    for outcome in stage.outcomes or ("",):
        then, followed = way.after(outcome).then, stage.followed(outcome)
        for edge in stage.edges:
            for kind in range(app.kinds):
                named = -1
                if edge in followed:
                    named = builder.route_of.get((app.id, edge.to, then.get(edge.to, ""), kind), -1)
                    named = defaults.get((app.id, edge.to, kind), -1) if named < 0 else named
                    if named < 0:
                        raise InputError.one(
                            path=f"routing.{app.id}",
                            value=edge.to,
                            why="no route leads to this stage",
                            remedy="Add a routing entry for it.",
                        )
                found.append(named)
    return found
