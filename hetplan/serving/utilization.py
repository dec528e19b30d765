"""The fluid utilization of each replica of a plan: the share of time that it must be busy if nothing ever waits.

Queries flow as the plan's routing says, from stage to stage as the pipeline's fan-outs and outcomes say:

    flow of a stage's class to a load  =  rate of that class at the stage  x  the route's share of the load
    rate of the next stage             =  sum over loads of flow x chance of the outcome x fan-out of the load

A load takes ``mean time of a full batch / its size`` per query. So its utilization is ``flow x time per query`` over
the servers that do the work: those of the whole group where its loads share them, else its own. Smaller batches, which
come whenever few queries wait, would take more. Nothing is said of loads that make text, or of what routes do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.demand import classes_of
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.route_choice import best_route
from hetplan.serving.system import App, Group, Load, Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rates = NDArray[np.float64]

__all__ = ["fluid_utilization"]


@dataclass(frozen=True)
class _Place:
    """A load and the group that holds it."""

    group: Group
    load: Load


def fluid_utilization(plan: Plan, inputs: Inputs, rates_qps: Mapping[str, float]) -> dict[str, float]:
    """Load id -> fluid utilization of each of its replicas, at these rates of the applications.

    Only loads of which all flows are known are in it. Where a load shares its servers with others the figure is that of
    the servers. A plan of one period is meant.
    """
    try:
        (planned,) = planned_systems(plan, inputs)
    except (InputError, KeyError, ValueError):
        return {}  # operators without measurements, stated candidates: there are no times
    places = {load.id: _Place(group, load) for group in planned.system.groups for load in group.loads}
    busy = dict.fromkeys(places, 0.0)
    unknown: set[str] = set()
    for app in planned.system.apps:
        held = {name for name, place in places.items() if app.id in place.load.services}
        work = _work_of(plan, inputs, app, places, rates_qps.get(app.id))
        if work is None:
            unknown |= held
            continue
        for name, servers in work.items():
            busy[name] += servers
    found: dict[str, float] = {}
    for group in planned.system.groups:
        names = [load.id for load in group.loads]
        if group.shared:
            if not unknown.intersection(names):
                total = sum(busy[name] for name in names) / (group.count * group.servers)
                found |= dict.fromkeys(names, total)
        else:
            found |= {
                load.id: busy[load.id] / (group.count * load.servers) for load in group.loads if load.id not in unknown
            }
    return found


def _work_of(
    plan: Plan, inputs: Inputs, app: App, places: Mapping[str, _Place], rate: float | None
) -> dict[str, float] | None:
    """Servers that an application keeps busy at each load; None where its flows are not known."""
    classes = classes_of(inputs.slo.apps[app.id].mix)
    entries = plan.routing.get(app.id, ())
    if rate is None or not entries or len(classes.shares) != app.kinds:
        return None
    stages = {stage.id: stage for stage in app.stages}
    work: dict[str, float] = {}
    # Classes are routed apart, and so are queries that came by other loads: (stage, class, loads so far, outcomes).
    keyed = any(entry.prefix or entry.after for entry in entries)
    for kind, (point, share) in enumerate(zip(classes.points, classes.shares, strict=True)):
        coming: dict[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], float] = {}
        reached = {edge.to for stage in app.stages for edge in stage.edges}
        for stage in app.stages:
            if stage.id not in reached:
                coming[stage.id, (), ()] = rate * share
        for stage in app.stages:  # each after all that lead to it
            here = [(key, flow) for key, flow in coming.items() if key[0] == stage.id and flow > 0.0]
            for (_, path, outcomes), flow in here:
                mine = [entry for entry in entries if (entry.node or app.entry) == stage.id]
                route = best_route(mine, path=path, outcomes=dict(outcomes), at=point)
                if route is None or not set(route.to) <= places.keys():
                    return None
                for name, part in route.to.items():
                    load = places[name].load
                    work[name] = work.get(name, 0.0) + flow * part * _seconds(load, app.id, kind)
                    for outcome, chance in _outcomes(stage, load):
                        after = (*outcomes, (stage.id, outcome)) if outcome else outcomes
                        for edge in stage.followed(outcome):
                            key = (edge.to, (*path, name), after) if keyed else (edge.to, (), after)
                            sent = flow * part * chance * load.fanout.get(edge.to, edge.fanout)
                            if edge.to in stages:
                                coming[key] = coming.get(key, 0.0) + sent
    return work


def _outcomes(stage: Stage, load: Load) -> list[tuple[str, float]]:
    return [(name, load.outcomes.get(name, 0.0)) for name in stage.outcomes] if stage.outcomes else [("", 1.0)]


def _seconds(load: Load, app: str, kind: int) -> float:
    """Of a server, per query, in full batches."""
    times: Rates = load.services[app].mean_ms
    batch = int(times.shape[1])
    return float(times[min(kind, len(times) - 1), -1]) / batch / 1000.0
