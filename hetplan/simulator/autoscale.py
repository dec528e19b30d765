"""Autoscaling over time: loads that change, a planner asked again and again, instances that take their time to load.

The planner is handed in as a callable (rates seen, plan in force) -> the next plan, or None to stay: any formulation of
any question, or a rule. What it decides is played by the general engine: what comes serves once it is loaded, what goes
serves until then. Offline work may run beside, gated by the rule of `hetplan.dispatch.offline_gate`.

>>> from hetplan.simulator.autoscale import autoscale  # doctest: +SKIP
>>> report = autoscale(plan, inputs, lambda rates, now: planner(rates, now), series={"images": [10.0, 400.0]})
... # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.plan import Plan
from hetplan.profiles.inputs import Inputs
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.plan_service import NoiseName
from hetplan.simulator.plan_system import planned_systems, slo_ms_of
from hetplan.simulator.simulate import simulate_system
from hetplan.simulator.simulation import Simulation
from hetplan.simulator.system import App, Load, Route, Service, Stage, System, Way

if TYPE_CHECKING:
    from hetplan.planner.contract import Event
    from hetplan.simulator.report import SimulationReport

__all__ = ["OfflineWork", "PlanFor", "autoscale"]

PlanFor = Callable[[Mapping[str, float], Plan], "Plan | None"]

_OFFLINE = "offline-work"


@dataclass(frozen=True)
class OfflineWork:
    """Jobs without a deadline that run on idle workers: how long each takes, how often they come.

    With `gated` they stand aside above `change.offline_below` of the SLO file; without, they run whenever they come.
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
    period_s: float = 10.0,
    every_s: float = 1.0,
    hold: int = 10,
    seeds: int = 1,
    seed: int = 0,
    noise: NoiseName = "table",
    offline: OfflineWork | None = None,
    threads: int = 1,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> SimulationReport:
    """Play a plan and its successors under loads given as rates of successive periods.

    Every `every_s` seconds the planner hears the rate of each application: the highest of the last `hold` looks, so
    that what chance takes away for a second is not unloaded and loaded again. Figures in the
    report are those of the queries (late and dropped ones are violations); its cost counts workers while they are paid
    for, loading included.
    """
    demands = _demands(inputs, series, period_s, offline)
    first = _system(plan, inputs, noise, offline)

    def control(run: Simulation) -> None:
        held = [plan]
        past: dict[str, deque[float]] = {app: deque(maxlen=max(1, hold)) for app in series}

        def look() -> None:
            seen = run.observe()
            for app, heard in past.items():
                heard.append(1000.0 * seen.arrived.get(app, 0) / seen.span_ms)
            rates = {app: max(heard) for app, heard in past.items()}
            following = plan_for(rates, held[0])
            if following is not None and following.workers:
                if following.workers != held[0].workers or following.routing != held[0].routing:
                    run.change(_system(following, inputs, noise, offline))
                held[0] = following
            if run.now_ms + 1000.0 * every_s < run.horizon_ms:
                run.at(run.now_ms + 1000.0 * every_s, look)

        run.at(1000.0 * every_s, look)

    length_s = period_s * max(len(rates) for rates in series.values())
    return simulate_system(
        first, demands, seeds=seeds, seed=seed, duration_s=length_s, noise=noise, control=control, threads=threads,
        on_event=on_event, cancel=cancel,
    )  # fmt: skip


def _demands(
    inputs: Inputs, series: Mapping[str, Sequence[float]], period_s: float, offline: OfflineWork | None
) -> list[AppDemand]:
    found = []
    for number, (name, rates) in enumerate(sorted(series.items())):
        wanted = inputs.slo.apps[name]
        percentile = max((t.percentile for t in wanted.latency if t.of == "response"), default=99.0)
        found.append(
            AppDemand(
                name, number, sum(rates) / len(rates), wanted.demand.arrivals, slo_ms_of(wanted), percentile,
                mix=wanted.demand.mix, series_qps=tuple(rates), period_s=period_s,
            )
        )  # fmt: skip
    if offline is not None:
        length = max(len(rates) for rates in series.values())
        process = inputs.slo.apps[min(series)].demand.arrivals
        rates = (offline.rate_qps,) * length
        found.append(
            AppDemand(_OFFLINE, len(found), offline.rate_qps, process, 1e12, 99.0, series_qps=rates, period_s=period_s)
        )
    return found


def _system(plan: Plan, inputs: Inputs, noise: NoiseName, offline: OfflineWork | None) -> System:
    """What a plan says to run; with offline work, a lane for it on every worker."""
    system = planned_systems(plan, inputs, noise=noise)[0].system
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
