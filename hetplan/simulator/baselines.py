"""What people run today, to compare any plan with: one type of machine, sized for the peak or scaled by utilisation.

=================  =====================================================================================
``static-peak``    the fastest type, enough of it that the peak keeps it at the target utilisation
``cheapest-type``  the type with the lowest price per hour, sized in the same way
``autoscaled``     the fastest type, scaled as Kubernetes' horizontal pod autoscaler does it, on utilisation
=================  =====================================================================================

Each serves every stage with one variant (the best that the plan itself uses there) behind a balancer that sends a
query to the worker with the fewest under way. They get the same demand, draws and noise as the plan.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan, Route, SharesDispatch
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.profiles.workers import Serve, Worker
from hetplan.serving.demand import classes_of
from hetplan.serving.law import OffTable, answering
from hetplan.serving.loads import law_of_run, same_point
from hetplan.serving.price import price_of
from hetplan.serving.runs import at_of
from hetplan.serving.service import NoiseName
from hetplan.serving.system import App, Group, Rule, System
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.planned import planned_systems
from hetplan.simulator.report import SimulationReport
from hetplan.simulator.simulate import demands_of, simulate, simulate_system
from hetplan.simulator.simulation import Observation, Simulation

__all__ = ["BASELINES", "Autoscaler", "Baseline", "baseline", "compare"]

Name = Literal["static-peak", "cheapest-type", "autoscaled"]
BASELINES: tuple[Name, ...] = ("static-peak", "cheapest-type", "autoscaled")
TARGET_UTILISATION = 0.7


@dataclass
class Autoscaler:
    """Target-utilisation scaling of one group, as the horizontal pod autoscaler does it.

    Every `period_s` it wants ``ceil(workers x utilisation / target)``, unless that ratio is within `tolerance` of 1. It
    goes up at once, and down only to the largest wish of the last `down_window_s`.
    """

    group: str
    target: float = TARGET_UTILISATION
    period_s: float = 15.0
    tolerance: float = 0.1
    down_window_s: float = 300.0
    least: int = 1
    most: int = 10_000

    def __post_init__(self) -> None:
        self._wishes: list[tuple[float, int]] = []

    def wanted(self, seen: Observation) -> int:
        """How many workers to have now.

        >>> scaler = Autoscaler("w", target=0.5)
        >>> scaler.wanted(Observation(15e3, 15e3, {}, {"w": 0.9}, {}, {"w": 2}))
        4
        >>> scaler.wanted(Observation(30e3, 15e3, {}, {"w": 0.1}, {}, {"w": 4}))
        4
        """
        workers = seen.workers[self.group]
        ratio = seen.utilisation[self.group] / self.target
        wish = workers if abs(ratio - 1.0) <= self.tolerance else math.ceil(workers * ratio - 1e-9)
        wish = min(max(wish, self.least), self.most)
        now_s = seen.now_ms / 1000.0
        self._wishes = [item for item in self._wishes if item[0] > now_s - self.down_window_s] + [(now_s, wish)]
        return max(item[1] for item in self._wishes) if wish < workers else wish


@dataclass(frozen=True)
class Baseline:
    """A system that someone might run instead, and what changes it while it runs."""

    name: Name
    system: System
    hardware: Mapping[str, str]
    control: Callable[[Simulation], None] | None = None


def baseline(
    name: Name, plan: Plan, inputs: Inputs, demands: Sequence[AppDemand], *, noise: NoiseName = "table"
) -> Baseline:
    """The baseline of that name for what a plan serves."""
    if name not in BASELINES:
        raise InputError.one(
            file="baseline", value=name, why="no such baseline", remedy=f"One of {', '.join(BASELINES)}."
        )
    chosen = {
        (app, node): _choose(plan, inputs, app, node, cheapest=name == "cheapest-type")
        for app, node in _stages(plan, inputs)
    }
    workers = tuple(
        Worker(
            id=_group_id(app, node),
            hardware=run.hardware,
            offer=offer,
            loads=(_load(app, node, variant, run, serve),),
        )
        for (app, node), (variant, run, offer, serve) in chosen.items()
    )
    routing: dict[str, tuple[Route, ...]] = {}
    for app, node in chosen:
        routing[app] = (*routing.get(app, ()), Route(node=node, to={f"{_group_id(app, node)}.a": 1.0}))
    substitute = plan.model_copy(
        update={
            "workers": workers,
            "routing": routing,
            "dispatch": {app: SharesDispatch() for app in routing},
            "periods": (Period(id="t0"),),
            "policies": {},
        }
    )
    system = planned_systems(substitute, inputs, noise=noise)[0].system
    scaled = name == "autoscaled"
    system = _sized(system, demands, at_peak=not scaled)
    control = _autoscale(system) if scaled else None
    return Baseline(name, system, {group.id: group.hardware for group in system.groups}, control)


def _group_id(app: str, node: str | None) -> str:
    return f"{app}.{node}" if node else app


def _stages(plan: Plan, inputs: Inputs) -> Iterator[tuple[str, str | None]]:
    seen: set[tuple[str, str | None]] = set()
    for worker in plan.workers:
        for load in worker.loads:
            apps = (
                [load.app]
                if load.app
                else [app for app, routes in plan.routing.items() if any(load.id in route.to for route in routes)]
            )
            for app in apps:
                if app in inputs.slo.apps and (app, load.node) not in seen:
                    seen.add((app, load.node))
                    yield app, load.node


def _load(app: str, node: str | None, variant: str, run: Run, serve: Serve) -> PlannedLoad:
    name = f"{_group_id(app, node)}.a"
    return PlannedLoad(id=name, app=app, node=node, variant=variant, at=at_of(run), serve=serve)


def _choose(
    plan: Plan, inputs: Inputs, app: str, node: str | None, *, cheapest: bool
) -> tuple[str, Run, str | None, Serve]:
    """Variant, run, offer and batching: the plan's best variant for the stage, on one type."""
    loads = [load for worker in plan.workers for load in worker.loads if load.app in (app, None) and load.node == node]
    known = [load for load in loads if load.variant in inputs.profile.variants]
    if not known:
        raise InputError.one(
            file="plan",
            path="$.workers",
            value=node or app,
            why="no load with a variant to compare with",
            remedy="Baselines are for plans that choose variants.",
        )

    def quality(load: PlannedLoad) -> float:
        quality = inputs.profile.variants[load.variant or ""].quality
        return quality.value if quality is not None else 0.0

    load = max(known, key=quality)
    points = classes_of(inputs.slo.apps[app].demand.mix).coming().points
    options = list(_options(inputs.profile, load, points))
    best = min(options, key=lambda option: option[:2] if cheapest else (option[1], option[0]))
    return load.variant or "", best[2], best[3], load.serve


def _options(
    profile: Profile, load: PlannedLoad, points: Sequence[Mapping[str, float]]
) -> Iterator[tuple[int, float, Run, str | None]]:
    """Price, longest time, run and offer of each way to run a variant: as the load runs, where that can be."""
    runs = profile.variants[load.variant or ""].runs
    alike = {run.hardware for run in runs if same_point(run.at, load.at or {})}
    for run in runs:
        if run.hardware in alike and not same_point(run.at, load.at or {}):
            continue
        offers: list[str | None] = [name for name, offer in profile.offers.items() if offer.hardware == run.hardware]
        if profile.offers and not offers and run.price_per_hour is None:
            continue
        nanos, offer = min((price_of(profile, run, name).nanos, name) for name in offers or [None])
        law = law_of_run(profile, load.variant or "", run, knobs=load.knobs)
        mean = answering(law.statistics, "mean")
        try:
            longest_ms = max(law.ms(point, load.serve.max_batch, mean) for point in points)
        except OffTable:
            continue
        yield nanos, longest_ms, run, offer


def _sized(system: System, demands: Sequence[AppDemand], *, at_peak: bool) -> System:
    """As many workers of each group as keep it at the target utilisation, at the peak or at the mean rate."""
    rates: dict[tuple[str, str], float] = {}
    for demand in demands:
        app = next(item for item in system.apps if item.id == demand.app)
        start = demand.peak_qps() if at_peak else demand.rate_qps
        for stage in app.stages:
            own = rates.setdefault((app.id, stage.id), start)
            for edge in stage.edges:
                before = rates.get((app.id, edge.to), 0.0)
                rates[app.id, edge.to] = before + own * _fan(system, app, stage.id, edge.to, edge.fanout)
    shares = {demand.app: demand.shares() for demand in demands}
    groups = tuple(replace(group, count=_count(group, rates, shares, system)) for group in system.groups)
    routes = tuple(replace(route, rule=Rule.SHORTEST) for route in system.routes)
    return replace(system, groups=groups, routes=routes)


def _fan(system: System, app: App, stage: str, to: str, otherwise: float) -> float:
    for group in system.groups:
        if group.id == _group_id(app.id, stage):
            return group.loads[0].fanout.get(to, otherwise)
    return otherwise


def _count(group: Group, rates: Mapping[tuple[str, str], float], shares: Mapping[str, Any], system: System) -> int:
    load = group.loads[0]
    app = next(iter(load.services))
    stage = load.stages[0] if load.stages else next(item for item in system.apps if item.id == app).entry
    mean = load.services[app].mean_ms
    per_query = min(float(shares[app] @ mean[:, size]) / (size + 1) for size in range(mean.shape[1]))
    servers = load.servers if not group.shared else group.servers
    return max(1, math.ceil(rates[app, stage] * per_query / 1000.0 / servers / TARGET_UTILISATION - 1e-9))


def _autoscale(system: System) -> Callable[[Simulation], None]:
    def control(run: Simulation) -> None:
        scalers = [Autoscaler(group.id) for group in system.groups]
        every_ms = 1000.0 * scalers[0].period_s

        def look() -> None:
            seen = run.observe()
            for scaler in scalers:
                wanted = scaler.wanted(seen)
                if wanted != run.workers(scaler.group):
                    run.scale(scaler.group, wanted)
            if run.now_ms + every_ms <= run.horizon_ms:
                run.at(run.now_ms + every_ms, look)

        run.at(every_ms, look)

    return control


def compare(
    plan: Plan,
    inputs: Inputs,
    *,
    names: Sequence[Name] = BASELINES,
    seeds: int = 3,
    seed: int = 0,
    duration_s: float | None = None,
    noise: NoiseName = "table",
    arrivals: Any = None,
    trace: Any = None,
    misprediction: float = 0.0,
    learn: bool = False,
    threads: int = 2,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, SimulationReport]:
    """The plan and the baselines under the same demand, draws and noise, by name ("plan" first)."""
    if plan.question == "llm":
        raise InputError.one(
            file="--baselines", value=plan.question, why="the baselines serve queries by tables, not text by laws",
            remedy="Compare plans of other profiles (one type each), or other rules: --set rule=round-robin/1.",
        )  # fmt: skip
    common: dict[str, Any] = {
        "seeds": seeds,
        "seed": seed,
        "duration_s": duration_s,
        "noise": noise,
        "misprediction": misprediction,
        "threads": threads,
        "on_event": on_event,
        "cancel": cancel,
    }
    reports = {"plan": simulate(plan, inputs, arrivals=arrivals, trace=trace, learn=learn, **common)}
    demands = demands_of(plan, inputs, arrivals=arrivals, trace=trace)
    for name in names:
        other = baseline(name, plan, inputs, demands, noise=noise)
        reports[name] = simulate_system(other.system, demands, control=other.control, **common)
    return reports
