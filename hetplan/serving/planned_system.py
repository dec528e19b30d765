"""From a plan to the system that it describes: one `System` per period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.operating_points import limits_of
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import SHARED
from hetplan.profiles.profile import Run
from hetplan.profiles.slo import App as WantedApp
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.profiles.workers import Worker
from hetplan.serving.demand import points_of, strictest_ms
from hetplan.serving.loads import run_of, slowdown_of, worker_price
from hetplan.serving.operators import Operator, input_bytes, is_operator, operators_of, samples_of, times_of
from hetplan.serving.plan_names import refuse_unknown_names
from hetplan.serving.routes import routes_of
from hetplan.serving.service import NoiseName, service_of
from hetplan.serving.steps import combine_of, late_of, outcomes_of, stages_of, weight_of
from hetplan.serving.system import LATE_POLICIES, App, Edge, Group, Late, Link, Load, PolicyTable, Service, System
from hetplan.serving.tokens import TextSystem, makes_text, text_system

__all__ = ["PlannedSystem", "planned_systems", "served_apps"]


@dataclass(frozen=True)
class PlannedSystem:
    """A period of a plan: from when to when, and what then runs."""

    start_s: float
    end_s: float | None
    system: System
    notes: tuple[tuple[str, str, str], ...] = field(default=())


@dataclass(frozen=True)
class _Reading:
    """What a period's groups are made from, and what is noticed meanwhile."""

    plan: Plan
    inputs: Inputs
    served: Mapping[str, WantedApp]
    noise: NoiseName
    services: Mapping[str, Service | Operator]
    notes: list[tuple[str, str, str]] = field(default_factory=list)


def planned_systems(
    plan: Plan, inputs: Inputs, *, noise: NoiseName = "table", services: Mapping[str, Service] | None = None
) -> list[PlannedSystem]:
    """What runs in each period. `services` gives, by load id, times that no latency table holds (operators)."""
    refuse_unknown_names(plan, inputs, named=services or {})
    known: dict[str, Service | Operator] = {**operators_of(plan, inputs), **(services or {})}
    return [
        PlannedSystem(period.start_s, period.end_s, *_system(plan, inputs, period.id, noise, known))
        for period in plan.periods
    ]


def _system(
    plan: Plan, inputs: Inputs, period: str, noise: NoiseName, services: Mapping[str, Service | Operator]
) -> tuple[System, tuple[tuple[str, str, str], ...]]:
    workers = [worker for worker in plan.workers if worker.period == period]
    mine = plan if len(workers) == len(plan.workers) else plan.model_copy(update={"workers": tuple(workers)})
    every = served_apps(plan, inputs)
    texts = {app_id: text_system(mine, inputs, app_id) for app_id in every if makes_text(mine, inputs, app_id)}
    served = {app_id: inputs.slo.apps[app_id] for app_id in every if app_id not in texts}
    if not served and texts:
        return System((), (), (), texts=texts), ()
    workers = [worker for one in workers if (worker := _without_text(one, texts)) is not None]
    if not served and any(getattr(rule, "candidate", None) is not None for rule in plan.dispatch.values()):
        raise InputError.one(
            file="plan", path="$.dispatch",
            why="stated candidates say what they take, not how long: there is nothing to be played",
            remedy="Simulate a plan whose applications run pipelines or variants.",
        )  # fmt: skip
    if not served:
        raise InputError.one(
            file="plan", path="$.routing", why="no application of the SLO file is routed anywhere",
            remedy="Simulate with the SLO file that the plan was made from.",
        )  # fmt: skip
    tiers = inputs.profile.tiers if inputs.profile.links else ()
    apps = tuple(_app(plan, inputs, app_id, wanted, workers, tiers) for app_id, wanted in served.items())
    reading = _Reading(plan, inputs, served, noise, services)
    groups = tuple(_group(reading, worker, f"$.workers[{number}]") for number, worker in enumerate(workers))
    if texts:
        groups = tuple(_at_its_share(group, plan, texts) for group in groups)
    if inputs.profile.apis:
        from hetplan.serving.calls import with_calls  # few plans call APIs

        plan, workers, groups = with_calls(plan, inputs, period, workers, groups)
    routes = tuple(route for app in apps for route in routes_of(plan, inputs, app, groups, workers))
    if SHARED in plan.requires:
        from hetplan.serving.early_exits import with_shared  # few plans have loads that are shared

        groups, routes = with_shared(plan, inputs, groups, routes)
    if any(stage.outcomes for app in apps for stage in app.stages if is_operator(plan, app.id)):
        from hetplan.serving.early_exits import with_exits  # few plans of operators have outcomes

        groups, routes = with_exits(plan, inputs, apps, groups, routes)
    links = tuple(_link(link) for link in inputs.profile.links)
    system = System(apps, groups, routes, tiers=tuple(tiers), links=links, texts=texts)
    if inputs.profile.apis:
        from hetplan.serving.calls import with_limits

        system = with_limits(plan, inputs, system)
    return system, tuple(dict.fromkeys(reading.notes))


def _without_text(worker: Worker, texts: Mapping[str, TextSystem]) -> Worker | None:
    """A worker with the loads that make no text; None where it has no other."""
    loads = tuple(load for load in worker.loads if load.app not in texts)
    if len(loads) == len(worker.loads):
        return worker
    return worker.model_copy(update={"loads": loads}) if loads else None


def _at_its_share(group: Group, plan: Plan, texts: Mapping[str, TextSystem]) -> Group:
    """A group at the part of its machines' price that is not paid by text on the same machines."""
    users = {load.app for worker in plan.workers if worker.id == group.id for load in worker.loads}
    return replace(group, price_nanos=group.price_nanos * len(users - set(texts)) // max(len(users), 1))


def served_apps(plan: Plan, inputs: Inputs) -> list[str]:
    """The applications of the SLO file that a plan serves, sorted."""
    named = {load.app for worker in plan.workers for load in worker.loads if load.app is not None}
    return sorted((named | set(plan.routing)) & set(inputs.slo.apps))


# Applications


def _app(
    plan: Plan, inputs: Inputs, app_id: str, wanted: WantedApp, workers: list[Worker], tiers: tuple[str, ...]
) -> App:
    dispatch = plan.dispatch.get(app_id)
    measured = is_operator(plan, app_id)
    file = inputs.files.get("profile", "")
    tier = _home_tier(inputs, app_id, wanted, workers, tiers)
    return App(
        id=app_id,
        stages=stages_of(inputs.profile, wanted, dispatch=dispatch, measured=measured, file=file),
        slo_ms=strictest_ms(wanted),
        kinds=samples_of(plan, inputs, app_id) or len(points_of(wanted.mix)),
        late=LATE_POLICIES.get(late_of(dispatch, wanted) or "serve", Late.SERVE),
        hop_ms=wanted.network_ms_per_hop,
        once_ms=wanted.network_ms_once,
        combine=combine_of(inputs.profile, wanted),
        tier=tiers[0] if measured and tiers else tier,
        bytes_in=input_bytes(plan, inputs, app_id),
        links=tuple(_link(link) for link in wanted.device.links) if wanted.device else (),
        clients=wanted.streams or 0,
    )


def _home_tier(inputs: Inputs, app_id: str, wanted: WantedApp, workers: list[Worker], tiers: tuple[str, ...]) -> str:
    """Where queries come from: the first tier for an application with a device, else where it is served first."""
    if not tiers:
        return ""
    if wanted.device is not None:
        return tiers[0]
    for worker in workers:
        if any(load.app in (app_id, None) for load in worker.loads):
            return inputs.profile.hardware[worker.hardware].tier or tiers[-1]
    return tiers[-1]


def _link(link: Any) -> Link:
    return Link(between=link.between, bandwidth_mbps=link.bandwidth_mbps, latency_ms=link.latency_ms)


# Groups


def _group(reading: _Reading, worker: Worker, at: str) -> Group:
    plan, inputs = reading.plan, reading.inputs
    loads, ready_s = [], 0.0
    for number, load in enumerate(worker.loads):
        made, load_s = _load(reading, worker, load, f"{at}.loads[{number}]")
        if made is not None:
            loads.append(made)
        ready_s = max(ready_s, load_s)
    hardware = inputs.profile.hardware[worker.hardware]
    return Group(
        id=worker.id,
        loads=tuple(loads),
        count=worker.count,
        standby=worker.standby,
        shared=worker.queue == "shared",
        servers=max((load.servers for load in loads), default=1),
        policies=_policies(plan, worker),
        hardware=worker.hardware,
        tier=hardware.tier or "",
        price_nanos=worker_price(inputs, worker) or 0,
        ready_ms=1000.0 * (hardware.startup_s + ready_s),
        offline_below=inputs.slo.change.offline_below,
    )


def _load(reading: _Reading, worker: Worker, load: PlannedLoad, at: str) -> tuple[Load | None, float]:
    plan, inputs, served = reading.plan, reading.inputs, reading.served
    apps = (
        [load.app]
        if load.app is not None
        else [app for app, entries in plan.routing.items() if any(load.id in entry.to for entry in entries)]
    )
    apps = [app for app in apps if app in served]
    if not apps:
        return None, 0.0
    shared: dict[str, Any] = {
        "id": load.id,
        "stages": (load.node,) if load.node else (),
        "max_wait_ms": load.serve.max_wait_ms,
        "servers": load.instances * load.serve.concurrency,
    }
    given = reading.services.get(load.id)
    if isinstance(given, Operator):
        laws = {app: times_of(plan, inputs, app, given, max_batch=load.serve.max_batch) for app in apps}
        return Load(services=laws, bytes_out=given.bytes_out, quality=given.quality, **shared), 0.0
    if given is not None:
        return Load(services=dict.fromkeys(apps, given), **shared), 0.0
    run = run_of(inputs.profile, load, worker.hardware, path=at)
    if run.rate is not None:
        reading.notes.append(
            (
                "W-rate-table",
                at,
                f"{load.variant} is timed by a rate: a request is taken to occupy its server for "
                "1 / rate, so its response time shows queueing, not its own latency",
            )
        )
    variant = inputs.profile.variants[load.variant or ""]
    quality = variant.quality.value if variant.quality is not None else 1.0
    made = Load(
        services={app: _service(reading, worker, load, run, app) for app in apps},
        quality=quality * weight_of(inputs.profile, served[apps[0]], load.node),
        slowdown=slowdown_of(inputs.profile, load.variant or "", run, load.serve.max_batch, knobs=load.knobs),
        fanout={edge.to: edge.sent_by(load.variant) for edge in _edges_from(inputs, served[apps[0]], load.node)},
        outcomes=outcomes_of(inputs.profile, served[apps[0]], load),
        **shared,
    )
    return made, run.load_s


def _service(reading: _Reading, worker: Worker, load: PlannedLoad, run: Run, app: str) -> Service:
    plan = reading.plan
    predict = getattr(plan.dispatch.get(app), "predict", {})
    believed: Table | None = plan.tables.get(predict.get(f"{load.variant}@{worker.hardware}", ""))
    # Policies plan with batches beyond their tables, extrapolated, and say so (W-extrapolated).
    extended = app in plan.policies
    points = points_of(reading.served[app].mix)
    profile, noise = reading.inputs.profile, reading.noise
    limits = limits_of(reading.served[app])
    return service_of(profile, load, run, points, noise=noise, believed=believed, extended=extended, limits=limits)


def _edges_from(inputs: Inputs, wanted: WantedApp, node: str | None) -> tuple[Edge, ...]:
    return next((stage.edges for stage in stages_of(inputs.profile, wanted) if stage.id == node), ())


def _policies(plan: Plan, worker: Worker) -> tuple[PolicyTable, ...]:
    """The worker's tables, lowest load first."""
    tables = [table for listed in plan.policies.values() for table in listed if _field(table, "workers") == worker.id]
    by_variant = {load.variant: place for place, load in enumerate(worker.loads)}
    return tuple(_policy(table, by_variant) for table in sorted(tables, key=lambda item: _field(item, "rate_qps")))


def _field(table: Any, name: str) -> Any:
    return table[name] if isinstance(table, Mapping) else getattr(table, name)


def _policy(table: Any, by_variant: Mapping[str | None, int]) -> PolicyTable:
    from hetplan.profiles.plan_policy import PolicyTable as Written

    written = Written.model_validate(table) if isinstance(table, Mapping) else table
    place = np.array([by_variant[model] for model in written.models], np.int32)
    most = written.otherwise.batch
    return PolicyTable(
        slack_ms=np.array(written.slack_ms),
        choice=place[np.array(written.model_rows())],
        batch=np.array(written.batch_rows(), np.int32),
        otherwise=by_variant[written.otherwise.model],
        otherwise_batch=0 if most == "max" else int(most),
        rate_qps=written.rate_qps,
    )
