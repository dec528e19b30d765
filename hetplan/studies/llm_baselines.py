"""Baselines of an LLM plan (what people run instead), each of one machine type:

=================  =====================================================================================
``static-peak``    the type that makes an answer soonest, as many as are planned for the peak
``cheapest-type``  the type with the lowest price per machine, as many as are planned for the peak
``autoscaled``     the first, scaled as Kubernetes' horizontal pod autoscaler does it, by requests under way: each
                   machine is to have as many as one of ``static-peak`` has at the peak
=================  =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.api.plans_by_rate import Recipes
from hetplan.errors import InputError
from hetplan.planner.request import cheapest_first
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import inputs_of_part, of_part, of_period, text_apps
from hetplan.serving.system import System
from hetplan.serving.tokens import TextSystem, demand_of, text_system
from hetplan.simulator.baselines import BASELINES, Baseline, Name, baseline, stock_of
from hetplan.simulator.demand import LEAST_REQUESTS
from hetplan.simulator.report import SimulationReport, wishes_of
from hetplan.simulator.run_records import Glance
from hetplan.simulator.scalers import Hpa, Run, Scaled, Scaler, scaling
from hetplan.simulator.simulate import demands_of, percentiles_of, simulate_system
from hetplan.simulator.system_run import SideBySide
from hetplan.simulator.tokens import draw, play

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.simulator.demand import AppDemand

__all__ = ["OneType", "of_one_type", "text_beside"]


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
    plan: Plan,
    inputs: Inputs,
    *,
    names: Sequence[Name] = BASELINES,
    whole: Plan | None = None,
    queries: tuple[Plan, Inputs] | None = None,
    **how: Any,
) -> dict[str, SimulationReport]:
    """The baselines of a plan that makes text, by name, under the same requests as the plan.

    `whole` is the plan with the periods that `plan` is one of; `queries` what it has for the applications that make no
    text, whose baselines run beside.
    """
    apps, how = text_apps(whole) if whole is not None else list(inputs.slo.apps), {"noise": "table", **how}
    demands, reports = demands_of(plan, inputs), dict[str, SimulationReport]()
    batches = [one for one in demands if one.app not in apps]
    for name in names:
        systems, scaled = dict[str, TextSystem](), dict[str, Callable[[Run], None]]()
        for demand in (one for one in demands if one.app in apps):
            part, files = _of_app(whole or plan, inputs, demand)
            type_of, peak = _size_fleet(part, files, demand, cheapest=name == "cheapest-type")
            systems[demand.app] = type_of
            if name == "autoscaled":
                machines = OneType.of(type_of, files, demand, peak)
                systems[demand.app] = machines.at(demand.rate_qps)
                scaled[demand.app] = machines.scaled(Hpa(1.0, most=machines.most))
        beside = baseline(name, *queries, batches, noise=how["noise"]) if queries is not None else None

        def control(run: SideBySide, scaled: Any = scaled, beside: Baseline | None = beside) -> None:
            for app, scale in scaled.items():
                scale(run.texts[app])
            if beside is not None and beside.control is not None and run.queries is not None:
                beside.control(run.queries)

        system = replace(beside.system if beside is not None else System((), (), ()), texts=systems)
        report = simulate_system(system, demands, control=control, percentiles=percentiles_of(inputs), **how)
        reports[name] = replace(report, lines=wishes_of(plan, inputs, report), currency=inputs.slo.limits.currency)
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


def _size_fleet(plan: Plan, inputs: Inputs, demand: AppDemand, *, cheapest: bool) -> tuple[TextSystem, float]:
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
        system = text_system(of_period(planned, planned.periods[0]), one_type, demand.app).by_kind()
        found.append((_price(system) if cheapest else _answer_ms(system, inputs, demand), system))
    if not found:
        return text_system(plan, inputs, demand.app).by_kind(), peak
    return min(found, key=lambda one: one[0])[1], peak


def _price(system: TextSystem) -> float:
    return min(crew.price_nanos for crew in system.crews)


def _answer_ms(system: TextSystem, inputs: Inputs, demand: AppDemand) -> float:
    """How long an answer takes on the mean by the fastest of the machines, alone on it."""
    wanted = inputs.slo.apps[demand.app]
    asked = demand_of(wanted.mix, wanted.arrivals, demand.rate_qps)
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
        wanted = inputs.slo.apps[demand.app]
        drawn = demand_of(wanted.mix, wanted.arrivals, peak)
        busy = play(system.fleet, draw(drawn, seed=0, count=LEAST_REQUESTS), seed=0)
        many = sum(crew.count for crew in system.crews)
        usual = peak * float(np.nanmean(busy.response_ms)) / 1000.0 / many
        return cls(system, tuple(stock_of(inputs, crew.offer) for crew in system.crews), peak, usual)

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
        counts = cheapest_first(count, self.stock)
        return self.system.sized({crew.id: n for crew, n in zip(self.system.crews, counts, strict=True)})

    def scaled(self, scaler: Scaler) -> Callable[[Run], None]:
        """What scales it: a scaler of use sees requests under way, as a part of the usual."""
        if isinstance(scaler, Hpa):
            scaler = PerMachine(scaler, self.usual)
        return scaling([Scaled(tuple(crew.id for crew in self.system.crews), self.stock, scaler)])
