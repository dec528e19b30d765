"""Text that is planned anew while it is made: plans for the rates foreseen, machines that start, requests under way.

`play_with_text` plays a plan of `llm`, or of a fleet with such parts, and its successors. `text_beside` plays what
people run instead, of one type of machine:

=================  =====================================================================================
``static-peak``    the type that makes an answer soonest, as many as are planned for the peak
``cheapest-type``  the type with the lowest price per machine, as many as are planned for the peak
``autoscaled``     the first, scaled as Kubernetes' horizontal pod autoscaler does it, by requests under way: each
                   machine is to have as many as one of ``static-peak`` has at the peak
=================  =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import inputs_of_part, of_part, of_period, text_apps, without
from hetplan.recipes import Recipes
from hetplan.serving.tokens import demand_of
from hetplan.simulator.baselines import BASELINES, NO_LIMIT
from hetplan.simulator.following import Foresight, Names, follow
from hetplan.simulator.planned import planned_systems
from hetplan.simulator.report import SimulationReport, lines_of
from hetplan.simulator.run_records import Glance
from hetplan.simulator.scalers import Hpa, Run, Scaled, Scaler, scaling, shared_out
from hetplan.simulator.simulate import demands_of
from hetplan.simulator.token_course import Course, Fleet, play_course
from hetplan.simulator.token_report import REQUESTS
from hetplan.simulator.token_run import TextSystem, TokenRun, text_system
from hetplan.simulator.tokens import draw, play

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.serving.service import NoiseName
    from hetplan.serving.system import System
    from hetplan.simulator.demand import AppDemand

__all__ = ["Fleets", "OneType", "of_one_type", "play_with_text", "text_beside"]


@dataclass
class Fleets:
    """What runs by the plans of recipes; the same plan is the same fleet, and machines that stay keep their names."""

    plan: Plan
    inputs: Inputs
    recipes: Recipes
    noise: NoiseName = "table"

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self.names, self._known, self._plans = Names(), dict[str, Fleet](), dict[int, Plan]()
        self.apps = text_apps(self.plan) if self.plan.parts is not None else list(self.inputs.slo.apps)

    def of(self, plan: Plan) -> Fleet:
        """What runs by a plan, in its first period."""
        key = plan.digest or ""
        if key not in self._known or not key:
            single = of_period(plan, plan.periods[0])
            texts = {app: text_system(single, self.inputs, app) for app in self.apps}
            self._known[key] = Fleet(self._queries(plan), texts)
            self._plans[id(self._known[key])] = plan
        return self._known[key]

    def fleet_for(self, rates: Mapping[str, float], before: Fleet | None = None) -> Fleet | None:
        """What runs by the plan for these rates, after what runs `before`."""
        plan = self.recipes.plan_for(rates, self._plans.get(id(before)))
        return self.of(plan) if plan is not None else None

    def _queries(self, plan: Plan) -> System | None:
        if plan.parts is None:
            return None
        rest, inputs = without(plan, self.inputs, self.apps)
        if not inputs.slo.apps:
            return None
        single = of_period(rest, rest.periods[0])
        labels = {worker.id: worker.offer or "" for worker in single.workers}
        system = planned_systems(single, inputs, noise=self.noise)[0].system
        return _at_their_share(self.names.named(system, labels=labels), single, of_period(plan, plan.periods[0]))


def _at_their_share(system: System, single: Plan, whole: Plan) -> System:
    """The system of a plan's workers, its machines at a share of their price where text is on them too."""
    apps = {worker.id: len({load.app for load in worker.loads}) for worker in whole.workers}
    groups = [
        replace(group, price_nanos=group.price_nanos * len({load.app for load in worker.loads}) // apps[worker.id])
        if apps.get(worker.id)
        else group
        for group, worker in zip(system.groups, single.workers, strict=True)
    ]
    return replace(system, groups=tuple(groups))


def play_with_text(
    plan: Plan, inputs: Inputs, recipes: Recipes, every_s: float, how: Mapping[str, Any], *, whole: Plan | None = None
) -> SimulationReport:
    """Plans one after another for the rates that are foreseen; `plan` has one period, `whole` its parts if it has any.

    What is under way when a plan changes goes on; every wish is judged over the whole time.
    """
    fleets = Fleets(whole or plan, inputs, recipes, how.get("noise", "table"))
    demands = demands_of(plan, inputs)
    first = fleets.fleet_for({one.app: one.series_qps[0] for one in demands if one.series_qps})
    first = first or fleets.of(whole or plan)
    course = Course(inputs, demands, frozenset(fleets.apps))
    others = [one.slo_ms for one in demands if one.app not in course.texts and math.isfinite(one.slo_ms)]
    foresight = Foresight(
        every_s=every_s, lead_s=first.ready_ms / 1000.0, limit_s=max(others, default=1000.0) / 1000.0,
        limits_s=course.limits_s(first),
    )  # fmt: skip
    course = replace(course, control=follow(fleets.fleet_for, foresight, [one.app for one in demands]))
    report = play_course(first, course, percentiles=_percentiles(inputs), **how)
    return replace(
        report, plan=(whole or plan).digest, lines=(*report.lines, *_other_lines(plan, inputs, report, course))
    )


def _other_lines(plan: Plan, inputs: Inputs, report: SimulationReport, course: Course) -> tuple[Any, ...]:
    """The wishes of the applications that make no text."""
    apps = {app: one for app, one in report.apps.items() if app not in course.texts}
    if not apps:
        return ()
    return lines_of(plan.model_copy(update={"promises": ()}), inputs, replace(report, apps=apps))


def _percentiles(inputs: Inputs) -> list[float]:
    asked = {target.percentile for app in inputs.slo.apps.values() for target in app.latency}
    return sorted({50.0, 90.0, 95.0, 99.0} | asked)


# What people run instead


@dataclass
class PerMachine:
    """A scaler of use, which is how many requests each ready machine has under way, of so many that it is to have."""

    scaler: Scaler
    usual: float

    @property
    def period_s(self) -> float:
        """How often it looks."""
        return self.scaler.period_s

    def wanted(self, seen: Glance) -> int:
        """How many machines to have now."""
        return self.scaler.wanted(replace(seen, use=seen.jobs / max(seen.ready, 1) / self.usual))

    def anew(self) -> PerMachine:
        """The same, with nothing seen yet."""
        return replace(self, scaler=self.scaler.anew())


def text_beside(
    plan: Plan, inputs: Inputs, *, names: Sequence[str] = BASELINES, whole: Plan | None = None, **how: Any
) -> dict[str, SimulationReport]:
    """The baselines of the applications that make text, by name, under the same requests as the plan."""
    apps = text_apps(whole) if whole is not None else list(inputs.slo.apps)
    demands = [one for one in demands_of(plan, inputs) if one.app in apps]
    reports = dict[str, SimulationReport]()
    for name in names:
        systems, scaled = dict[str, TextSystem](), dict[str, Callable[[TokenRun], None]]()
        for demand in demands:
            part, files = _of_app(whole or plan, inputs, demand)
            type_of, peak = _sized(part, files, demand, cheapest=name == "cheapest-type")
            systems[demand.app] = type_of
            if name == "autoscaled":
                machines = OneType.of(type_of, files, demand, peak)
                systems[demand.app] = machines.at(demand.rate_qps)
                scaled[demand.app] = machines.scaled(Hpa(1.0, most=machines.most))

        def alone(run: TokenRun, scaled: Mapping[str, Callable[[TokenRun], None]] = scaled) -> None:
            if run.app in scaled:
                scaled[run.app](run)

        course = Course(inputs, demands, frozenset(systems), alone=alone)
        report = play_course(Fleet(None, systems), course, percentiles=_percentiles(inputs), **how)
        reports[name] = report
    return reports


def _of_app(plan: Plan, inputs: Inputs, demand: AppDemand) -> tuple[Plan, Inputs]:
    """A plan of the application alone, and its files."""
    if plan.parts is None:
        return plan, inputs
    name = next(name for name, part in plan.parts.items() if demand.app in part.rate_qps)
    return of_part(plan, name), inputs_of_part(inputs, {demand.app: demand.peak_qps()})


def of_one_type(inputs: Inputs) -> list[Inputs]:
    """The files with the offers of one hardware alone, for each that makes text."""
    profile = inputs.profile
    runs = {run.hardware for one in profile.variants.values() for run in one.runs if run.engine is not None}
    found = []
    for hardware in sorted(runs & {offer.hardware for offer in profile.offers.values()}):
        offers = {name: one for name, one in profile.offers.items() if one.hardware == hardware}
        found.append(replace(inputs, profile=profile.model_copy(update={"offers": offers})))
    return found


def _sized(plan: Plan, inputs: Inputs, demand: AppDemand, *, cheapest: bool) -> tuple[TextSystem, float]:
    """The fleet of one type that is planned for the peak, and the rate that it is planned for.

    Where no single type carries the peak, what the plan runs; where it carries less, what carries most.
    """
    peak = demand.peak_qps()
    found = list[tuple[float, TextSystem]]()
    for one_type in of_one_type(inputs):
        try:
            planned = Recipes(plan, one_type).plan_for({demand.app: peak})
        except InputError:
            planned = None  # the text cannot be made on this type alone
        if planned is None:
            continue
        system = text_system(of_period(planned, planned.periods[0]), one_type, demand.app)
        found.append((_price(system) if cheapest else _answer_ms(system, inputs, demand), system))
    if not found:
        return text_system(plan, inputs, demand.app), peak
    return min(found, key=lambda one: one[0])[1], peak


def _price(system: TextSystem) -> float:
    return min(crew.price for crew in system.crews)


def _answer_ms(system: TextSystem, inputs: Inputs, demand: AppDemand) -> float:
    """How long an answer takes on the mean by the fastest of the machines, alone on it."""
    asked = demand_of(inputs.slo.apps[demand.app], demand.rate_qps)
    times = [
        np.average(group.law.prefill_ms(asked.requests) + (asked.requests.output - 1) * group.law.decode_ms(),
                   weights=asked.weight)
        for group in system.fleet.groups
    ]  # fmt: skip
    return float(min(times))


@dataclass(frozen=True)
class OneType:
    """Machines of one type that make text: the fleet planned for the highest rate, `peak`."""

    system: TextSystem
    stock: tuple[int, ...]
    peak: float
    usual: float
    """Requests that each machine has under way at the peak, on the mean."""

    @classmethod
    def of(cls, system: TextSystem, inputs: Inputs, demand: AppDemand, peak: float) -> OneType:
        """What each machine has under way is played."""
        drawn = demand_of(inputs.slo.apps[demand.app], peak)
        busy = play(system.fleet, draw(drawn, seed=0, count=REQUESTS), seed=0)
        many = sum(crew.count for crew in system.crews)
        usual = peak * float(np.nanmean(busy.response_ms)) / 1000.0 / many
        return cls(system, tuple(_stock(inputs, crew.id) for crew in system.crews), peak, usual)

    @property
    def count(self) -> int:
        """The machines for the peak."""
        return sum(crew.count for crew in self.system.crews)

    @property
    def most(self) -> int:
        """All the machines that there are."""
        return sum(self.stock)

    def at(self, rate: float) -> TextSystem:
        """Its part of the machines for a rate, the first crews first."""
        count = min(max(1, math.ceil(self.count * rate / self.peak - 1e-9)), self.most)
        counts = shared_out(count, self.stock)
        return self.system.sized({crew.id: n for crew, n in zip(self.system.crews, counts, strict=True)})

    def scaled(self, scaler: Scaler) -> Callable[[Run], None]:
        """What scales it: a scaler of use sees requests under way, as a part of the usual."""
        if isinstance(scaler, Hpa):
            scaler = PerMachine(scaler, self.usual)
        return scaling([Scaled(tuple(crew.id for crew in self.system.crews), self.stock, scaler)])


def _stock(inputs: Inputs, crew: str) -> int:
    offer = inputs.profile.offers.get(crew.split(" ", 1)[0])
    return NO_LIMIT if offer is None or offer.stock is None else offer.stock
