"""The way from what runs to what is planned, played: a plan's actions under its demand, and who is answered meanwhile.

At 0 the state's workers run and the demand begins. An action begins when those that it comes `after` are done. A start
takes the hardware's `startup_s`, and what more machines of a running group have to load; a load, an upgrade or a move
takes the run's `load_s`; whatever goes, goes at once, and what it had not begun is sent on. Applications under a rule
of pools keep it all the way. Others go to the shortest queue of what runs for their step, until everything that their
routes name is up: from then on the routes hold.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Event
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Action, Plan, Route
from hetplan.profiles.plan_dispatch_rules import QueueSlackDispatch
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.needs import load_s_of
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.service import NoiseName, noise_of
from hetplan.serving.system import Service, System
from hetplan.simulator.control import follow_load
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import mean_share
from hetplan.simulator.report import OnTheWay, TransitionReport
from hetplan.simulator.run_records import RunResult
from hetplan.simulator.runs import check_size, run_all
from hetplan.simulator.simulation import Simulation

__all__ = ["Scene", "play_transition", "scenes_of"]

_POOL_RULES = ("matching/1", "fcfs/1", "threshold/1", "earliest/1")
_LOADING = ("load", "replicate", "upgrade", "downgrade", "move")
_ACTIVATING = ("load", "replicate", "upgrade", "downgrade")
_TIMES_THE_WAY, _LEAST_QUERIES, _MOST_QUERIES, _LEAST_SPANS = 5.0, 1000.0, 2e6, 20.0
"""After the last action so many times the way is played: at least so many queries and latency limits, and no more."""
_STRETCHES = 50


@dataclass(frozen=True)
class Scene:
    """What serves from `at_s` on; `done` are the actions that made it so."""

    at_s: float
    workers: tuple[Worker, ...]
    done: tuple[Action, ...] = ()


def scenes_of(plan: Plan, inputs: Inputs) -> list[Scene]:
    """What serves after each moment at which actions end; the first is the state's, the last the plan's own workers."""
    running = inputs.state.workers if inputs.state is not None else ()
    planned = tuple(worker for worker in plan.workers if worker.period == plan.periods[0].id)
    kept = {worker.id: worker for worker in (*running, *planned)}
    loads = {load.id: load for worker in (*planned, *running) for load in worker.loads}
    home = {load.id: worker.id for worker in (*running, *planned) for load in worker.loads}
    up = Counter({worker.id: worker.count + worker.standby for worker in running})
    goal = {worker.id: worker.count + worker.standby for worker in planned}
    active = {load.id for worker in running for load in worker.loads}
    # A planned worker may have the name of a running one, with other loads.
    on = {load.id: worker.hardware for worker in (*running, *planned) for load in worker.loads}
    ends = _ends(plan, inputs, kept, loads, set(active), on)
    scenes = [Scene(0.0, running)]
    for at_s in sorted(set(ends.values())):
        done = tuple(action for action in plan.actions if ends[action.id] == at_s)
        for action in done:
            _apply(action, up, goal, active, home)
        scenes.append(Scene(at_s, _up_now(kept, loads, home, up, active), done))
    return [*scenes[:-1], replace(scenes[-1], workers=planned)]


def _ends(
    plan: Plan, inputs: Inputs, kept: Mapping[str, Worker], loads: Mapping[str, Load], active: set[str],
    on: Mapping[str, str],
) -> dict[int, float]:  # fmt: skip
    """When each action is done, in seconds; `active` are the loads there before the first, `on` their hardware."""
    ends: dict[int, float] = {}
    for action in plan.actions:
        takes_s = 0.0
        worker = kept.get(action.worker or "")
        if action.do == "start" and worker is not None:
            known = [load_s_of(inputs, load, worker.hardware) for load in worker.loads if load.id in active]
            takes_s = inputs.profile.hardware[worker.hardware].startup_s + max(known, default=0.0)
        load = loads.get(action.load or "")
        if action.do in _LOADING and load is not None:
            takes_s = load_s_of(inputs, load, on[load.id])
            active.add(load.id)
        ends[action.id] = max((ends.get(earlier, 0.0) for earlier in action.after), default=0.0) + takes_s
    return ends


def _apply(
    action: Action, up: Counter[str], goal: Mapping[str, int], active: set[str], home: Mapping[str, str]
) -> None:
    worker, load = action.worker or "", action.load or ""
    if action.do == "start":
        up[worker] += action.count or goal.get(worker, 0) - up[worker]
    elif action.do == "stop":
        up[worker] -= min(up[worker], action.count or up[worker])
        if not up[worker]:
            active -= {one for one in active if home[one] == worker}
    elif action.do == "unload":
        active.discard(load)
    elif action.do in _ACTIVATING:
        active.add(load)


def _up_now(
    kept: Mapping[str, Worker], loads: Mapping[str, Load], home: Mapping[str, str], up: Counter[str], active: set[str]
) -> tuple[Worker, ...]:
    """The workers that are up with at least one load; those on standby serve nothing."""
    found = []
    for name, worker in kept.items():
        there = tuple(loads[load] for load in loads if load in active and home[load] == name)
        count = up[name] - worker.standby
        if there and count > 0:
            found.append(worker.model_copy(update={"count": count, "loads": there}))
    return tuple(found)


# What serves, as plans of their own


def _plan_of(plan: Plan, inputs: Inputs, workers: tuple[Worker, ...]) -> Plan:
    """The plan with these workers in place of its own, and other routes where its own name what is not there."""
    there = {load.id: load for worker in workers for load in worker.loads}
    routing, dispatch = dict(plan.routing), dict(plan.dispatch)
    for app, entries in plan.routing.items():
        rule, wanted = dispatch.get(app), inputs.slo.apps[app]
        if rule is not None and rule.rule in _POOL_RULES:
            if any(_may_serve(inputs, wanted, app, load) for load in there.values()):
                continue
        elif app not in plan.policies and all(load in there for entry in entries for load in entry.to):
            continue
        nodes = {entry.node for entry in entries}
        routing[app] = tuple(_shortest(inputs, wanted, app, node, there.values()) for node in sorted(nodes, key=str))
        dispatch[app] = QueueSlackDispatch(balancing="shortest_queue")
    period = plan.periods[0]
    placed = tuple(worker.model_copy(update={"period": period.id}) for worker in workers)
    return plan.model_copy(
        update={"workers": placed, "routing": routing, "dispatch": dispatch, "periods": (period,), "policies": {}}
    )


def _shortest(inputs: Inputs, wanted: App, app: str, node: str | None, loads: Any) -> Route:
    """An entry for all loads that may serve a step of an application."""
    fit = [load.id for load in loads if load.node == node and _may_serve(inputs, wanted, app, load)]
    return Route.model_construct(when={}, prefix=(), node=node, to=dict.fromkeys(fit, 1.0 / max(len(fit), 1)))


def _may_serve(inputs: Inputs, wanted: App, app: str, load: Load) -> bool:
    if load.app is not None:
        return load.app == app
    variant = inputs.profile.variants.get(load.variant or "")
    if variant is None:
        return False
    named = (*(wanted.named_models or ()), *(wanted.families or ()), wanted.task)
    return bool({load.variant, variant.family, variant.task} & {name for name in named if name is not None})


def _systems(
    plan: Plan, inputs: Inputs, noise: NoiseName, services: Mapping[str, Service] | None
) -> list[tuple[Scene, System]]:
    """Each scene with its system; applications are the plan's own all the way, and what serves is ready at once."""
    scenes = scenes_of(plan, inputs)
    last = planned_systems(plan, inputs, noise=noise, services=services)[0].system
    found = [
        (
            scene,
            planned_systems(_plan_of(plan, inputs, scene.workers), inputs, noise=noise, services=services)[0].system,
        )
        for scene in scenes[:-1]
    ]
    return [
        (scene, replace(system, apps=last.apps, groups=tuple(replace(group, ready_ms=0.0) for group in system.groups)))
        for scene, system in (*found, (scenes[-1], last))
    ]


# The run


def play_transition(
    plan: Plan,
    inputs: Inputs,
    demands: Sequence[AppDemand],
    *,
    run_seeds: Sequence[int],
    noise: NoiseName = "table",
    misprediction: float = 0.0,
    services: Mapping[str, Service] | None = None,
    threads: int = 2,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> TransitionReport:
    """Go the way once per seed, under the plan's demand from the first second on."""
    systems = _systems(plan, inputs, noise, services)
    seconds = systems[-1][0].at_s
    played_s = seconds + max(_after_s(demand, seconds) for demand in demands)
    check_size(demands, played_s, seeds=len(run_seeds), asked=False)

    def one(seed: int) -> Callable[[threading.Event, Callable[[float], None]], dict[str, _Course]]:
        def job(stop: threading.Event, progressed: Callable[[float], None]) -> dict[str, _Course]:
            run = Simulation(
                systems[0][1],
                [demand.stream(seed, played_s) for demand in demands],
                seed=seed,
                noise=noise_of(noise),
                mispredict=misprediction,
                horizon_ms=played_s * 1000.0,
            )
            for scene, system in systems[1:]:
                run.at(scene.at_s * 1000.0, lambda system=system: run.change(system, overlap=False))  # type: ignore[misc]
            run.at(seconds * 1000.0, lambda: follow_load(run, systems[-1][1]))
            result = run.run(cancel=stop, on_progress=progressed)
            return {demand.app: _course(result, demand.app, seconds, played_s) for demand in demands}

        return job

    runs = run_all([one(seed) for seed in run_seeds], threads=threads, on_event=on_event, cancel=cancel)
    apps = {
        demand.app: _on_the_way([run[demand.app] for run in runs], demand.percentile, (played_s - seconds) / _STRETCHES)
        for demand in demands
    }
    steps = tuple((scene.at_s, ", ".join(_said(action) for action in scene.done)) for scene, _ in systems[1:])
    return TransitionReport(seconds, played_s, steps, apps)


def _after_s(demand: AppDemand, way_s: float) -> float:
    """How long is played after the way for an application."""
    spans = _LEAST_SPANS * demand.slo_ms / 1000.0 if np.isfinite(demand.slo_ms) else 0.0
    if demand.rate_qps <= 0:
        return max(spans, way_s, 1e-3)
    return max(spans, _LEAST_QUERIES / demand.rate_qps, min(_TIMES_THE_WAY * way_s, _MOST_QUERIES / demand.rate_qps))


@dataclass(frozen=True)
class _Course:
    """Of one run: shares on the way; of each stretch after it how many came, and how many of them were in time."""

    in_time: float
    dropped: float
    came: NDArray[np.float64]
    answered: NDArray[np.float64]


def _course(result: RunResult, app: str, way_s: float, played_s: float) -> _Course:
    every = result.columns
    mine = every.app == result.apps.index(app)
    arrival, in_time = every.arrival[mine], every.in_time[mine]
    dropped = (every.status[mine] == 2) | (every.status[mine] == 3)
    before = arrival < way_s * 1000.0
    edges = np.linspace(way_s, played_s, _STRETCHES + 1) * 1000.0
    came, answered = (np.histogram(arrival[one], edges)[0].astype(np.float64) for one in (~before, in_time))
    shares = [float(of[before].mean()) if before.any() else float("nan") for of in (in_time, dropped)]
    return _Course(shares[0], shares[1], came, answered)


def _on_the_way(courses: Sequence[_Course], percentile: float, stretch_s: float) -> OnTheWay:
    came, answered = (np.sum([getattr(one, name) for one in courses], axis=0) for name in ("came", "answered"))
    good = np.flatnonzero((answered >= came * min(percentile / 100.0, 1.0)) & (came > 0))
    settled_s = float(good[0]) * stretch_s if good.size else None
    return OnTheWay(
        mean_share([one.in_time for one in courses]), mean_share([one.dropped for one in courses]), settled_s
    )


def _said(action: Action) -> str:
    of = action.worker or action.load or action.host or ""
    return " ".join(part for part in (action.do, str(action.count or ""), of) if part)
