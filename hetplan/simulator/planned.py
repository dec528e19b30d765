"""The systems of a plan, ready to be played: what the rule ``matching/1`` makes of its pools is worked out here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.parts import parts_of_pool
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.of_plan import PlannedSystem, of_plan
from hetplan.serving.service import NoiseName
from hetplan.serving.system import Group, Route, Service

__all__ = ["planned_systems"]


def planned_systems(
    plan: Plan, inputs: Inputs, *, noise: NoiseName = "table", services: Mapping[str, Service] | None = None
) -> list[PlannedSystem]:
    """What runs in each period. `services` gives, by load id, times that no latency table holds (operators)."""
    return [_matched(period) for period in of_plan(plan, inputs, noise=noise, services=services)]


def _matched(period: PlannedSystem) -> PlannedSystem:
    groups = {group.id: group for group in period.system.groups}
    routes = tuple(route if route.matching is None else _route(route, groups) for route in period.system.routes)
    return replace(period, system=replace(period.system, routes=routes))


def _route(route: Route, groups: Mapping[str, Group]) -> Route:
    """One matching of all workers, or of each part of a pool that the plan divides."""
    rule = route.matching
    assert rule is not None
    members = [groups[way.group] for way in route.ways]
    hardware = list(dict.fromkeys(group.hardware for group in members))
    weight = {**dict.fromkeys(hardware, 1.0), **rule.weight}
    matching = Matching(
        slo_ms=rule.slo_ms, weight=tuple(weight.values()) or (1.0,), xi=rule.xi, penalty=rule.penalty
    )  # fmt: skip
    if rule.penalty_ms is not None:
        matching = replace(matching, penalty_ms=rule.penalty_ms)
    late = dict(zip(weight, matching.late_cost().tolist(), strict=False))
    parts = 1
    if rule.split_above is not None:
        counts = [sum(group.count for group in members if group.hardware == name) for name in hardware]
        parts = parts_of_pool(counts, weight=[weight[name] for name in hardware], most=rule.split_above)
    ways = tuple(replace(way, late_cost=late[groups[way.group].hardware]) for way in route.ways)
    return replace(route, ways=ways, limit_ms=matching.limit_ms, merge=matching.merges, parts=parts)
