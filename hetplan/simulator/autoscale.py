"""Autoscaling over time: loads that change, a planner asked again and again, instances that take their time to load.

The planner is handed in as a callable (rates wanted, plan in force) -> the next plan: any formulation of any question,
or a rule. None says that it has none: what runs goes on, and it is asked again later. What it decides is played by the
general engine: what comes serves once it is loaded, what goes serves until then. Offline work may run beside, gated by
the rule of `hetplan.dispatch.variants`.

>>> from hetplan.simulator.autoscale import autoscale  # doctest: +SKIP
>>> report = autoscale(plan, inputs, lambda rates, now: planner(rates, now), series={"images": [10.0, 400.0]})
... # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hetplan.dispatch.replanning import Look, Replanning
from hetplan.planner.tolerances import SLIP
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.serving.needs import load_s_of
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.service import NoiseName
from hetplan.serving.system import App, Group, Inner, Load, Route, Service, Stage, System, Way
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.report import wishes_of
from hetplan.simulator.simulate import demands_of, percentiles_of, simulate_system
from hetplan.simulator.simulation import Simulation, content_of
from hetplan.simulator.system_changes import look_every

if TYPE_CHECKING:
    from hetplan.planner.contract import Event
    from hetplan.simulator.report import SimulationReport

__all__ = ["OfflineWork", "PlanFor", "autoscale", "following_plans", "system_of"]

PlanFor = Callable[[Mapping[str, float], Plan], "Plan | None"]

_OFFLINE = "offline-work"
_What = tuple[str | None, str | None, int]
"""A variant at a batch, and whose where it is one application's."""
_Ready = dict[tuple[str, str], float]
"""By group and load: when it can serve."""


@dataclass(frozen=True)
class OfflineWork:
    """Jobs without a deadline that run on idle workers: how long each takes, how often they come.

    With `gated` they pause above `change.offline_below` of the SLO file; without, they run whenever they come.
    """

    job_ms: float
    rate_qps: float
    gated: bool = True


def autoscale(
    plan: Plan,
    inputs: Inputs,
    plan_for: PlanFor,
    *,
    series: Mapping[str, Sequence[float]],
    replanning: Replanning,
    period_s: float = 10.0,
    seeds: int = 1,
    seed: int = 0,
    noise: NoiseName = "table",
    offline: OfflineWork | None = None,
    threads: int = 1,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> SimulationReport:
    """Play a plan and its successors under loads given as rates of successive periods.

    The planner is asked where and for which rates `replanning` says so, as `hetplan autoscale` asks it. Figures in the
    report are those of the queries (late and dropped ones are violations), its lines the wishes of the SLO file over
    the whole time; its cost counts workers while they are paid for, loading included.
    """
    demands = _demands(plan, inputs, series, period_s, offline)
    first = _with_offline(system_of(plan, inputs, noise), offline)

    control = following_plans(plan, inputs, plan_for, replanning, list(series), noise=noise, offline=offline)
    length_s = period_s * max(len(rates) for rates in series.values())
    report = simulate_system(
        first, demands, seeds=seeds, seed=seed, duration_s=length_s, noise=noise, control=control, threads=threads,
        on_event=on_event, cancel=cancel, percentiles=percentiles_of(inputs),
    )  # fmt: skip
    online = replace(report, apps={name: report.apps[name] for name in series if name in report.apps})
    lines = wishes_of(plan, inputs, online)
    return replace(report, plan=plan.digest, currency=inputs.slo.limits.currency, lines=lines)


def following_plans(
    plan: Plan,
    inputs: Inputs,
    plan_for: PlanFor,
    how: Replanning,
    apps: Sequence[str],
    *,
    noise: NoiseName = "table",
    offline: OfflineWork | None = None,
) -> Callable[[Simulation], None]:
    """What lets a run go from plan to plan for the rates that are decided."""

    def control(run: Simulation) -> None:
        scaling = _Scaling(run, plan, lambda wanted: system_of(wanted, inputs, noise), inputs, offline)

        def act(look: Look) -> Mapping[str, float] | None:
            rates = scaling.rates(look.demand_qps)
            following = plan_for(rates, scaling.plan)
            if following is None or not following.workers:
                return None
            scaling.go_to(following, rates)
            made_for = {app: most for app, (_, most) in following.valid.rate_qps.items() if most is not None}
            is_short = any(made_for.get(app, rate) < rate * (1.0 - SLIP) for app, rate in rates.items())
            return {} if is_short else rates

        look_every(run, how, apps, act)

    return control


def _demands(
    plan: Plan, inputs: Inputs, series: Mapping[str, Sequence[float]], period_s: float, offline: OfflineWork | None
) -> list[AppDemand]:
    found = [
        replace(one, rate_qps=sum(rates) / len(rates), series_qps=tuple(rates), period_s=period_s)
        for one in demands_of(plan, inputs)
        if (rates := series.get(one.app)) is not None
    ]
    if offline is not None:
        length = max(len(rates) for rates in series.values())
        process = inputs.slo.apps[min(series)].arrivals
        rates = (offline.rate_qps,) * length
        found.append(
            AppDemand(_OFFLINE, len(found), offline.rate_qps, process, 1e12, 99.0, series_qps=rates, period_s=period_s)
        )
    return found


def system_of(plan: Plan, inputs: Inputs, noise: NoiseName) -> System:
    """What a plan says to run; queries of a variant go to the instance with the fewest, as INFaaS sends them."""
    system = planned_systems(plan, inputs, noise=noise)[0].system
    routes = tuple(
        replace(route, ways=tuple(replace(way, inner=Inner.SHORTEST) for way in route.ways)) for route in system.routes
    )
    return replace(system, routes=routes)


def _with_offline(system: System, offline: OfflineWork | None) -> System:
    """With offline work, a lane for it on every worker."""
    if offline is None:
        return system
    work = Load(_OFFLINE, {_OFFLINE: Service(np.array([[offline.job_ms]]))}, offline=offline.gated)
    # On a server shared with the online loads: what runs offline keeps an online query waiting.
    groups = tuple(
        replace(group, loads=(*group.loads, replace(work, id=f"{group.id}.{_OFFLINE}")), shared=True)
        for group in system.groups
    )
    ways = tuple(Way(group.id, f"{group.id}.{_OFFLINE}", share=float(group.count)) for group in groups)
    total = sum(way.share for way in ways)
    route = Route(_OFFLINE, "serve", tuple(replace(way, share=way.share / total) for way in ways))
    app = App(_OFFLINE, (Stage("serve"),), slo_ms=1e12)
    return replace(system, apps=(*system.apps, app), groups=groups, routes=(*system.routes, route))


@dataclass(frozen=True)
class _Part:
    """What one application runs on: its routes, and the groups that they lead to."""

    routes: tuple[Route, ...]
    groups: Mapping[str, Group]


class _Loaded:
    """When so many instances of each load are loaded on each machine that was asked to hold them."""

    def __init__(self) -> None:
        self.at: dict[str, dict[_What, list[tuple[int, float]]]] = {}

    def begin(self, plan: Plan) -> None:
        """What runs from the start."""
        for worker in plan.workers:
            self.at[worker.id] = {_what(load): [(load.instances, 0.0)] for load in worker.loads}

    def ask(self, plan: Plan, before: Plan, whole_ms: Mapping[str, float], inputs: Inputs, now: float) -> _Ready:
        """When each load of each machine of a plan that follows another is there.

        A machine that runs already only loads what it has not; another takes what a whole one takes.
        """
        running = {worker.id: worker for worker in before.workers}
        known, ready = self.at, _Ready()
        self.at = {}
        for worker in plan.workers:
            was = running.get(worker.id)
            anew = was is None or was.hardware != worker.hardware or worker.count > was.count
            held, at = known.get(worker.id, {}) if not anew else {}, dict[_What, list[tuple[int, float]]]()
            for load in worker.loads:
                wait = whole_ms.get(worker.id, 0.0) if anew else 1000.0 * load_s_of(inputs, load, worker.hardware)
                steps = held.get(_what(load), [])
                done = next((when for count, when in steps if count >= load.instances), now + wait)
                at[_what(load)] = [step for step in steps if step[0] < load.instances] + [(load.instances, done)]
                ready[worker.id, load.id] = done
            self.at[worker.id] = at
        return ready


def _what(load: PlannedLoad) -> _What:
    return load.variant, load.app, load.serve.max_batch


class _Scaling:
    """Plans come into force application by application: each goes over when what it waits for is loaded.

    Groups that change what they hold are new groups (under a name of their own), beside the old ones until then; one
    that holds what a group of that machine held before goes on under its name.
    """

    def __init__(
        self,
        run: Simulation,
        plan: Plan,
        system_of: Callable[[Plan], System],
        inputs: Inputs,
        offline: OfflineWork | None,
    ) -> None:
        self.run, self.plan, self.system_of, self.inputs, self.offline = run, plan, system_of, inputs, offline
        self.names: dict[str, list[Group]] = {}
        self.loaded = _Loaded()
        self.ready_ms = _Ready()
        self.waiting: dict[str, tuple[_Part, float]] = {}
        """Applications that are about to go over, and the rates for which."""
        first = self._named(system_of(plan))
        self.loaded.begin(plan)
        self.apps, self.links = first.apps, first
        self.in_force = _parts(first)
        self.counts = {group.id: group.count for group in first.groups}

    def rates(self, heard: Mapping[str, float]) -> dict[str, float]:
        """What the planner sees: queries that wait for instances go on asking for them."""
        return {app: max(rate, self.waiting[app][1] if app in self.waiting else 0.0) for app, rate in heard.items()}

    def go_to(self, plan: Plan, rates: Mapping[str, float]) -> None:
        """Ask for what the plan has more, and let each application go over once it is there."""
        if plan.workers == self.plan.workers and plan.routing == self.plan.routing:
            self.plan = plan
            return
        now, system = self.run.now_ms, self.system_of(plan)
        whole_ms = {group.id: group.ready_ms for group in system.groups}
        asked = self.loaded.ask(plan, self.plan, whole_ms, self.inputs, now)
        # A machine opens with the first of its loads; who needs another goes over later.
        first = {
            group.id: min((asked[group.id, load.id] for load in group.loads), default=now) for group in system.groups
        }
        system = replace(
            system, groups=tuple(replace(group, ready_ms=max(first[group.id] - now, 0.0)) for group in system.groups)
        )
        named = self._named(system)
        for group, called in zip(system.groups, named.groups, strict=True):
            if group.count > self.counts.get(called.id, 0):
                self.ready_ms.update({(called.id, load.id): asked[group.id, load.id] for load in group.loads})
        self.plan = plan
        for app, part in _parts(named).items():
            ways = [way for route in part.routes for way in route.ways]
            ready = max((self.ready_ms.get((way.group, way.load), now) for way in ways), default=now)
            if ready > now:
                self.waiting[app] = (part, rates.get(app, 0.0))
                self.run.at(ready, partial(self._settle, app, part))
            else:
                self.waiting.pop(app, None)
                self.in_force[app] = part
        self._install()

    def _settle(self, app: str, part: _Part) -> None:
        if app in self.waiting and self.waiting[app][0] is part:
            del self.waiting[app]
            self.in_force[app] = part
            self._install()

    def _install(self) -> None:
        """Everything that some application uses or waits for, and the routes that are in force."""
        groups: dict[str, Group] = {}
        for part in (*self.in_force.values(), *(part for part, _ in self.waiting.values())):
            for name, group in part.groups.items():
                # Only the plan that came last may ask for more than there is: its `ready_ms` holds, not an older one's.
                if name not in groups or groups[name].count < group.count:
                    groups[name] = group
        self.counts = {name: group.count for name, group in groups.items()}
        self.ready_ms = {at: ready for at, ready in self.ready_ms.items() if at[0] in groups}
        routes = tuple(route for part in self.in_force.values() for route in part.routes)
        system = replace(self.links, groups=tuple(groups.values()), routes=routes)
        self.run.change(_with_offline(system, self.offline), overlap=False)

    def _named(self, system: System) -> System:
        """The same with a name of its own for every content that a group of that name ever had."""
        called = dict[str, str]()
        for group in system.groups:
            known = self.names.setdefault(group.id, [])
            number = next((n for n, other in enumerate(known) if _same(other, group)), len(known))
            if number == len(known):
                known.append(group)
            called[group.id] = f"{group.id}~{number}" if number else group.id
        groups = tuple(replace(group, id=called[group.id]) for group in system.groups)
        routes = tuple(
            replace(route, ways=tuple(replace(way, group=called[way.group]) for way in route.ways))
            for route in system.routes
        )
        return replace(system, groups=groups, routes=routes)


def _parts(system: System) -> dict[str, _Part]:
    groups = {group.id: group for group in system.groups}
    found: dict[str, _Part] = {}
    for app in system.apps:
        routes = tuple(route for route in system.routes if route.app == app.id)
        used = {way.group: groups[way.group] for route in routes for way in route.ways}
        found[app.id] = _Part(routes, used)
    return found


def _same(one: Group, other: Group) -> bool:
    """Whether they hold the same, whatever their number and however they came to it."""
    first, second = (content_of(replace(group, count=1, standby=0, ready_ms=0.0)) for group in (one, other))
    return bool(first == second)
