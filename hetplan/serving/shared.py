"""Loads that several lines of queries share: operators of one model, or the outcomes of one operator.

A line has its own times, bytes and quality. All lines of a load wait for the same replicas, first come, first served,
and batches are made of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.operators import operator_at, times_of
from hetplan.serving.system import Group, Load, Route

__all__ = ["stations_of", "with_shared"]

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
