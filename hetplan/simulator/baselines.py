"""What people run today, to compare any plan with: one type of machine, sized for the peak or scaled.

=================  =====================================================================================
``static-peak``    the fastest type, enough of it that the peak keeps it at the target utilisation
``cheapest-type``  the type with the lowest price per hour, sized in the same way
``autoscaled``     the fastest type, scaled as Kubernetes' horizontal pod autoscaler does it (`Hpa`)
=================  =====================================================================================

Each serves every stage with one variant (the best that the plan itself uses there) behind a balancer that sends a
query to the worker with the fewest under way. Machines come from the offers of their type, cheapest first, and there
are never more of them than the offers have in stock. They get the same demand, draws and noise as the plan.
`hetplan compare` tunes such systems until they reach the same share of queries in time (`OneType`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.planner.request import cheapest_first
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan, Route, SharesDispatch
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load as PlannedLoad
from hetplan.profiles.workers import Serve, Share, Worker
from hetplan.serving.demand import classes_of
from hetplan.serving.law import OffTable
from hetplan.serving.loads import law_of_run, same_point
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.price import price_of
from hetplan.serving.runs import at_of, instances_on
from hetplan.serving.service import NoiseName
from hetplan.serving.system import App, Group, Rule, System
from hetplan.serving.table_points import answering_statistic
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.report import SimulationReport
from hetplan.simulator.scalers import Hpa, Scaled, Scaler, scaling
from hetplan.simulator.simulate import demands_of, simulate, simulate_system
from hetplan.simulator.simulation import Simulation

__all__ = [
    "BASELINES",
    "Baseline",
    "Kind",
    "Name",
    "OneType",
    "baseline",
    "beside",
    "compare",
    "kinds_of",
    "one_type",
    "stock_of",
]

Name = Literal["static-peak", "cheapest-type", "autoscaled"]
BASELINES: tuple[Name, ...] = ("static-peak", "cheapest-type", "autoscaled")
TARGET_UTILISATION = 0.7
NO_LIMIT = 1_000_000
"""The stock of an offer that states none."""

Place = tuple[str, str | None]
"""An application and its stage."""


@dataclass(frozen=True)
class Kind:
    """One way to serve a stage: a variant's run on a type of machine, and the offers of that type, cheapest first."""

    variant: str
    run: Run
    serve: Serve
    instances: int
    offers: tuple[tuple[str | None, int, int, Share | None], ...]
    """(offer, price in 1e-9 per hour, stock, slice that is paid)."""
    longest_ms: float
    each_ms: float
    """Of one machine per query, at full batches, over the mix."""

    @property
    def price(self) -> int:
        """The lowest price of a machine."""
        return self.offers[0][1]

    @property
    def work_price(self) -> float:
        """What a rate of one costs per hour, at full use of the cheapest machines."""
        return self.price * self.each_ms / 1000.0

    @property
    def hardware(self) -> str:
        """The type."""
        return self.run.hardware


@dataclass(frozen=True)
class OneType:
    """Every stage on one type of machine: a system with one machine of each stage's first offer, and how it grows."""

    system: System
    stages: Mapping[Place, tuple[str, ...]]
    """Per stage its groups, one for each offer, cheapest first."""
    stock: Mapping[Place, tuple[int, ...]]
    hardware: Mapping[str, str]

    def counts(self, demands: Sequence[AppDemand], utilisation: float, *, at_peak: bool) -> dict[Place, int]:
        """As many machines of each stage as keep it at a utilisation, at the peak or at the mean rate."""
        rates = _stage_rates(self.system, demands, at_peak=at_peak)
        shares = {demand.app: demand.shares() for demand in demands}
        groups = {group.id: group for group in self.system.groups}
        found = {}
        for place, names in self.stages.items():
            most = sum(self.stock[place])
            found[place] = min(_count(groups[names[0]], rates, shares, self.system, utilisation), most)
        return found

    def sized(self, counts: Mapping[Place, int]) -> System:
        """The system with so many machines per stage."""
        of = {
            name: count
            for place, names in self.stages.items()
            for name, count in zip(names, cheapest_first(counts[place], self.stock[place]), strict=True)
        }
        groups = tuple(replace(group, count=of[group.id]) for group in self.system.groups)
        return replace(self.system, groups=groups)

    def scaled(self, scaler: Callable[[int], Scaler]) -> Callable[[Simulation], None]:
        """What lets a run of it be scaled; `scaler` makes a stage's scaler, which may ask for so many at most."""
        return scaling(
            [
                Scaled(names, self.stock[place], scaler(sum(self.stock[place])))
                for place, names in self.stages.items()
            ]
        )  # fmt: skip


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

    def first(kind: Kind) -> tuple[float, float]:
        return (kind.price, kind.longest_ms) if name == "cheapest-type" else (kind.longest_ms, kind.price)

    chosen = {place: min(_best_variant(kinds, inputs), key=first) for place, kinds in kinds_of(plan, inputs).items()}
    made = one_type(plan, inputs, chosen, noise=noise)
    scaled = name == "autoscaled"
    system = made.sized(made.counts(demands, TARGET_UTILISATION, at_peak=not scaled))
    control = made.scaled(lambda most: Hpa(TARGET_UTILISATION, most=most)) if scaled else None
    return Baseline(name, system, made.hardware, control)


def one_type(plan: Plan, inputs: Inputs, chosen: Mapping[Place, Kind], *, noise: NoiseName = "table") -> OneType:
    """The system that serves each stage of a plan by the kind chosen for it."""
    workers, routing, stages = list[Worker](), dict[str, tuple[Route, ...]](), dict[Place, tuple[str, ...]]()
    for (app, node), kind in chosen.items():
        name, to = _group_id(app, node), dict[str, float]()
        for number, (offer, _, _, share) in enumerate(kind.offers):
            group = f"{name}-{number + 1}" if number else name
            load = PlannedLoad(
                id=f"{group}.a", app=app, node=node, variant=kind.variant, at=at_of(kind.run), serve=kind.serve,
                instances=kind.instances, share=share,
            )  # fmt: skip
            workers.append(Worker(id=group, hardware=kind.hardware, offer=offer, loads=(load,)))
            to[load.id] = 1.0 / len(kind.offers)
        routing[app] = (*routing.get(app, ()), Route(node=node, to=to))
        stages[app, node] = tuple(load.rpartition(".")[0] for load in to)
    substitute = plan.model_copy(
        update={
            "workers": tuple(workers),
            "routing": routing,
            "dispatch": {app: SharesDispatch() for app in routing},
            "periods": (Period(id="t0"),),
            "policies": {},
        }
    )
    system = planned_systems(substitute, inputs, noise=noise)[0].system
    routes = tuple(replace(route, rule=Rule.SHORTEST) for route in system.routes)
    stock = {place: tuple(most for _, _, most, _ in kind.offers) for place, kind in chosen.items()}
    hardware = {group.id: group.hardware for group in system.groups}
    return OneType(replace(system, routes=routes), stages, stock, hardware)


def kinds_of(plan: Plan, inputs: Inputs) -> dict[Place, list[Kind]]:
    """Per stage of what a plan serves, every type of machine that runs a variant which the plan uses there."""
    found: dict[Place, list[Kind]] = {}
    for worker in plan.workers:
        for load in worker.loads:
            for app in _apps_of(plan, load):
                if app in inputs.slo.apps and load.variant in inputs.profile.variants:
                    known = found.setdefault((app, load.node), [])
                    if not any(kind.variant == load.variant for kind in known):
                        known += _kinds(inputs, app, load)
    for worker in plan.workers:
        for load in worker.loads:
            for app in _apps_of(plan, load):
                if app in inputs.slo.apps and not found.get((app, load.node)):
                    raise InputError.one(
                        file="plan",
                        path="$.workers",
                        value=load.node or app,
                        why="no load with a variant to compare with",
                        remedy="Baselines are for plans that choose variants.",
                    )
    return found


def _apps_of(plan: Plan, load: PlannedLoad) -> list[str]:
    if load.app:
        return [load.app]
    return [app for app, routes in plan.routing.items() if any(load.id in route.to for route in routes)]


def _best_variant(kinds: Sequence[Kind], inputs: Inputs) -> list[Kind]:
    def quality(kind: Kind) -> float:
        stated = inputs.profile.variants[kind.variant].quality
        return stated.value if stated is not None else 0.0

    highest = max(map(quality, kinds))
    return [kind for kind in kinds if quality(kind) == highest]


def _group_id(app: str, node: str | None) -> str:
    return f"{app}.{node}" if node else app


def _kinds(inputs: Inputs, app: str, load: PlannedLoad) -> Iterator[Kind]:
    """Each way to run a load's variant: as the load runs, where that can be."""
    profile, coming = inputs.profile, classes_of(inputs.slo.apps[app].mix).coming()
    runs = profile.variants[load.variant or ""].runs
    alike = {run.hardware for run in runs if same_point(run.at, load.at or {})}
    for run in runs:
        if run.hardware in alike and not same_point(run.at, load.at or {}):
            continue
        names: list[str | None] = [name for name, offer in profile.offers.items() if offer.hardware == run.hardware]
        if profile.offers and not names and run.price_per_hour is None:
            continue
        priced = [(price_of(profile, run, name), name) for name in names or [None]]
        law = law_of_run(profile, load.variant or "", run, knobs=load.knobs)
        mean = answering_statistic(law.statistics, "mean")
        try:
            times = [law.ms(point, load.serve.max_batch, mean) for point in coming.points]
        except OffTable:
            continue
        offers = tuple(
            (name, price.nanos, stock_of(inputs, name), price.share)
            for price, name in sorted(priced, key=lambda one: (one[0].nanos, one[1] or ""))
        )
        each_ms = sum(share * ms for share, ms in zip(coming.shares, times, strict=True)) / load.serve.max_batch
        sliced = any(price.share is not None for price, _ in priced)
        many = 1 if sliced else instances_on(run, profile.hardware[run.hardware])
        yield Kind(load.variant or "", run, load.serve, many, offers, max(times), each_ms / many)


def stock_of(inputs: Inputs, named: str | None) -> int:
    """How many machines an offer has."""
    offer = inputs.profile.offers.get(named or "")
    return NO_LIMIT if offer is None or offer.stock is None else offer.stock


def _stage_rates(system: System, demands: Sequence[AppDemand], *, at_peak: bool) -> dict[tuple[str, str], float]:
    rates: dict[tuple[str, str], float] = {}
    for demand in demands:
        app = next(item for item in system.apps if item.id == demand.app)
        start = demand.peak_qps() if at_peak else demand.rate_qps
        for stage in app.stages:
            own = rates.setdefault((app.id, stage.id), start)
            for edge in stage.edges:
                before = rates.get((app.id, edge.to), 0.0)
                rates[app.id, edge.to] = before + own * _fan(system, app, stage.id, edge.to, edge.fanout)
    return rates


def _fan(system: System, app: App, stage: str, to: str, otherwise: float) -> float:
    for group in system.groups:
        if group.id == _group_id(app.id, stage):
            return group.loads[0].fanout.get(to, otherwise)
    return otherwise


def _count(
    group: Group,
    rates: Mapping[tuple[str, str], float],
    shares: Mapping[str, Any],
    system: System,
    utilisation: float,
) -> int:
    load = group.loads[0]
    app = next(iter(load.services))
    stage = load.stages[0] if load.stages else next(item for item in system.apps if item.id == app).entry
    mean = load.services[app].mean_ms
    per_query = min(float(shares[app] @ mean[:, size]) / (size + 1) for size in range(mean.shape[1]))
    servers = load.servers if not group.shared else group.servers
    return max(1, math.ceil(rates[app, stage] * per_query / 1000.0 / servers / utilisation - 1e-9))


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
    return reports | beside(plan, inputs, names=names, arrivals=arrivals, trace=trace, **common)


def beside(
    plan: Plan,
    inputs: Inputs,
    *,
    names: Sequence[Name] = BASELINES,
    noise: NoiseName = "table",
    arrivals: Any = None,
    trace: Any = None,
    **how: Any,
) -> dict[str, SimulationReport]:
    """The baselines alone; `how` is `simulate_system`'s."""
    demands, reports = demands_of(plan, inputs, arrivals=arrivals, trace=trace), dict[str, SimulationReport]()
    for name in names:
        other = baseline(name, plan, inputs, demands, noise=noise)
        reports[name] = simulate_system(other.system, demands, control=other.control, noise=noise, **how)
    return reports
