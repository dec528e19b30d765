"""Operators that are calls of an API, as parts of the system that a plan describes: groups that are nobody's machines.

A query takes what a call of its sample took; calls that fail, drawn by the chance that the profile states, make it take
longer. An API answers as many calls at once as come. That its limits are kept on average is checked by `verify`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.plan_dispatch_further import ChosenPlanDispatch
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.profiles.workers import Worker
from hetplan.serving.operators import called_by, measured_of, quality_at, samples_of
from hetplan.serving.system import Group, Load, Service

__all__ = ["with_calls"]

MOST_AT_ONCE = 10_000


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
    entry, demand = measured_of(plan, inputs, app), inputs.slo.apps[app].demand
    api = inputs.profile.apis[called_by(plan, inputs, app)[node].api]
    took = entry.get("runs", {}).get("seconds", {}).get(node, [entry["seconds"][node]])
    each = 1000.0 * np.array([one or 0.0 for one in took])
    each = np.resize(each, max(1, samples_of(plan, inputs, app)))
    if api.failures > 0:
        often = np.resize(entry.get("runs", {}).get("rounds", {}).get(node, [1]), each.size)
        random = np.random.default_rng(zlib.crc32(name.encode()))
        for rounds in range(int(often.max())):
            failed = np.floor(np.log(np.maximum(random.random(each.size), 1e-300)) / math.log(api.failures))
            each = each + np.where(rounds < often, np.minimum(failed, api.retries) * api.retry_ms, 0.0)
    rate = demand.rate_qps if isinstance(demand.rate_qps, int | float) else 0.0
    servers = max(demand.streams or 1, math.ceil(4.0 * rate * float(each.mean()) / 1000.0) + 16)
    return Load(
        name, {app: Service(each[:, None])}, stages=(node,), servers=min(servers, MOST_AT_ONCE),
        bytes_out=float(entry["bytes"][node]),
        quality=quality_at(plan, inputs, app, node),
    )  # fmt: skip
