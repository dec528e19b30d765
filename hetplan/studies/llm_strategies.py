"""Compares ways to serve a demand of LLM requests: each step of the demand is simulated token by token.

The plan's own machines, those for the peak all day, and those for the rate that comes are a fleet for each step of the
demand: each is played under a steady load, once its machines have filled. Autoscalers, and who plans anew every few
seconds, change machines under way: there the whole demand is played, with machines that start, load and end
(`hetplan.simulator.ways`). In time is a request that keeps all its limits at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Protocol, cast

from hetplan.api.plans_by_rate import Recipes
from hetplan.dispatch.forecasting import ForecastName
from hetplan.dispatch.replanning import Replanning
from hetplan.errors import InputError, Interrupted
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import inputs_of_part, of_part, of_period, period_at
from hetplan.serving.loads import worker_price
from hetplan.serving.runs import machine_price
from hetplan.serving.system import System
from hetplan.serving.tokens import TokenFleet, demand_of, fleet_of_plan, text_system
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.runs import seed_of
from hetplan.simulator.scalers import Concurrency, Hpa
from hetplan.simulator.system_changes import follow, lead_and_limits
from hetplan.simulator.tokens import steady_goodput
from hetplan.simulator.ways import Course, Played, Setting, Tuned, cheapest_of
from hetplan.simulator.ways import play as play_way
from hetplan.studies.llm_baselines import OneType, of_one_type

__all__ = ["MOST_TIMES", "Bench", "TextBench", "Together", "planned_steps"]

REPLANNING: Mapping[str, str] = {"replanning, ewma": "ewma", "replanning, seasonal": "seasonal"}
MOST_REQUESTS = 100_000
"""Of one step."""
MOST_PLAYED = 10_000_000
"""Of the whole demand."""
MOST_TIMES = 8
"""The most machines that a scaler may ask for, as a multiple of what the peak would fill."""


@dataclass(frozen=True, eq=False)
class _Step:
    """What runs in a step: machines of each offer, what they cost per hour, and their workers, by which it is known."""

    fleet: TokenFleet
    machines: Mapping[str, int]
    cost: float
    workers: tuple[str, ...]


@dataclass(frozen=True)
class _Fleets:
    """A way at one setting: for each step of the demand what runs then."""

    name: str
    value: float
    steps: Sequence[_Step]


@dataclass
class TextBench:
    """What the ways share: the demand, and plans for other rates. `rates` is one rate for each step of the course."""

    plan: Plan
    inputs: Inputs
    course: Course
    rates: Sequence[float]
    factors: Sequence[float]
    targets: Mapping[str, Sequence[float]]
    """By the name of a scaler: requests under way per machine, as a part of what each has at the peak."""
    margins: Sequence[tuple[float, float]]
    """Who plans anew is ready for this quantile of its forecast, times so much."""
    looks: Replanning
    """How who plans anew decides: how often it looks, and what was seen before."""
    hourly: Inputs | None = None
    """What perfect foresight rents from, where that is more than static fleets do; `lowest`: what nothing is below."""
    lowest: Inputs | None = None
    planned: Sequence[_Step] = ()
    """What the plan has in each step, where that is not the same all the time; its bill is counted elsewhere."""
    _shares: dict[object, float] = field(default_factory=dict)
    _steps: dict[object, _Step] = field(default_factory=dict)
    _chosen: OneType | None = None

    def __post_init__(self) -> None:
        """The plans for other rates, sized by their program: what is played here is a simulation of them all."""
        if self.course.noise != "table":
            raise InputError.one(
                file="--noise", value=self.course.noise, why="iterations take what their law says",
                remedy="Leave it out, or make the law slower.",
            )  # fmt: skip
        self.app = next(iter(self.inputs.slo.apps))
        self.mix = self._recipes(self.inputs)

    def _recipes(self, inputs: Inputs) -> Recipes:
        return Recipes(self.plan, inputs)

    def row(self, way: str) -> Tuned | None:
        """A way, tuned; None where the demand has no such way."""
        if way == "plan":
            steps = self.planned or (self._step(self.plan),) * len(self.rates)
            return self._tune(way, [_Fleets("as it is", 1.0, steps)])
        if way in self.targets:
            return self._scaled(way)
        if way in REPLANNING:
            return self._replanned(way)
        if way == "static, one type":
            types = [self._through(way, self._recipes(one), steady=True) for one in of_one_type(self.inputs)]
            return min(types, key=lambda one: one.best.cost_per_hour if one.best is not None else math.inf)
        if way == "static, best mix" or self.hourly is None:
            return self._through(way, self.mix, steady=way == "static, best mix")
        return self._through(way, self._recipes(self.hourly), steady=False)

    def least(self) -> float | None:
        """The bound per hour, as a mean over time, of the share that may not be late."""
        share, total = min(self.course.attain.values(), default=1.0), 0.0
        recipes = self.mix if self.lowest is None else self._recipes(self.lowest)
        for rate in self.rates:
            bound = recipes.least_cost({self.app: max(share * rate, 1e-3)})
            if bound is None:
                return None
            total += bound
        return total / len(self.rates)

    def _through(self, way: str, recipes: Recipes, *, steady: bool) -> Tuned:
        """Over factors of the rates, dearest first; what has no plan is left out."""
        settings = list[_Fleets]()
        for factor in self.factors:
            wanted = [factor * (max(self.rates) if steady else rate) for rate in self.rates]
            plans = [recipes.plan_for({self.app: max(rate, 1e-3)}) for rate in wanted]
            steps = [self._step(plan) for plan in plans if plan is not None]
            known = ([step.workers for step in one.steps] for one in settings)
            if len(steps) < len(plans) or [step.workers for step in steps] in known:
                continue
            said = f"planned for {factor:g} of the peak" if steady else f"{factor:g} of what comes"
            if way == "static, one type":
                said = " + ".join(f"{count} {name}" for name, count in steps[0].machines.items())
            settings.append(_Fleets(said, factor, steps))
        if not settings:
            return Tuned(way, None, (), "no plan carries these rates")
        return self._tune(way, settings)

    def _scaled(self, way: str) -> Tuned:
        """Machines of one type, as many as a scaler asks for; over its targets, dearest first."""
        if why := self._why_not_whole():
            return Tuned(way, None, (), why)
        machines = self._cheapest_type()
        if machines is None:
            return Tuned(way, None, (), "no machine type alone serves these rates")

        def at(target: float) -> Setting:
            most = min(machines.most, MOST_TIMES * machines.count)
            scaler = Hpa(target, most=most) if way == "HPA" else Concurrency(target * machines.usual, most=most)
            said = f"target {target:.0%} of the usual" if way == "HPA" else f"target {scaler.target:.3g} under way"
            first = machines.at(self.rates[0] / min(max(target, 0.2), 1.0))
            scale = machines.scaled(scaler)
            system = System((), (), (), texts={self.app: first})
            return Setting(said, target, system, lambda run: scale(run.texts[self.app]))

        return self._tune(way, [at(target) for target in self.targets[way]], both=True)

    def _cheapest_type(self) -> OneType | None:
        """The type of machine whose plan for the peak costs least."""
        if self._chosen is None:
            peak, found = max(self.rates), list[tuple[float, int, Plan, Inputs]]()
            for number, inputs in enumerate(of_one_type(self.inputs)):
                plan = self._recipes(inputs).plan_for({self.app: peak})
                if plan is not None:
                    found.append((self._step(plan).cost, number, plan, inputs))
            if not found:
                return None
            _, _, plan, inputs = min(found, key=lambda one: one[:2])
            system = text_system(of_period(plan, plan.periods[0]), inputs, self.app).by_kind()
            self._chosen = OneType.of(system, inputs, self._demand, peak)
        return self._chosen

    def _replanned(self, way: str) -> Tuned | None:
        """Over quantiles of a forecast's errors and margins, dearest first."""
        kind = cast(ForecastName, REPLANNING[way])
        if kind == "seasonal" and not any(self.looks.history.values()):
            return None
        if why := self._why_not_whole():
            return Tuned(way, None, (), why)
        recipes = self.mix if self.hourly is None else self._recipes(self.hourly)
        rates = {self.app: max(self.rates[0], 1e-3)}
        first = recipes.system_for(rates)
        if first is None:
            return Tuned(way, None, (), "no plan carries the first rate")
        how = replace(self.looks, kind=kind, runs_for=rates, **lead_and_limits(first, [self._demand]))

        def at(quantile: float, margin: float) -> Setting:
            said = f"quantile {quantile:g}" + (f" times {margin:g}" if margin != 1.0 else "")
            looks = replace(how, quantile=quantile, margin=margin)
            return Setting(said, quantile * margin, first, follow(recipes, looks, [self.app]))

        return self._tune(way, [at(*setting) for setting in self.margins])

    def _tune(self, way: str, settings: Sequence[_Fleets | Setting], *, both: bool = False) -> Tuned:
        plays = [partial(self._played, one) if isinstance(one, _Fleets) else partial(play_way, one) for one in settings]
        found = cheapest_of(way, plays, self.course, both=both)
        shown, wanted = found.shown, self.inputs.slo.apps[self.app]
        demand = demand_of(wanted.mix, wanted.arrivals, 1.0)
        if shown is None or not shown.timely or not shown.cost_per_hour:
            return found
        price = shown.per_million(self.course.length_s / 3600.0 * max(1, len(shown.costs))) / demand.output_tokens
        return replace(found, note=f"{price:.4g} per million tokens in time")

    def _step(self, plan: Plan) -> _Step:
        key = plan.digest or id(plan)
        if key not in self._steps:
            machines, single = Counter[str](), of_period(plan, plan.periods[0])
            for worker in single.workers:
                machines[worker.offer or worker.hardware] += worker.count
            files = self.hourly or self.inputs
            cost = sum((worker_price(files, worker) or 0) * worker.count for worker in single.workers) / NANO
            self._steps[key] = _Step(fleet_of_plan(single, files, self.app), machines, cost, _workers_text(single))
        return self._steps[key]

    def _played(self, setting: _Fleets, course: Course) -> Played:
        """Each step once per seed; machines are paid while they start."""
        step_s = course.length_s / len(self.rates)
        shares = [
            [self._share(step, rate, seed) for step, rate in zip(setting.steps, self.rates, strict=True)]
            for seed in course.seeds
        ]
        came = [rate * step_s for rate in self.rates]
        good = sum(share * count for one in shares for share, count in zip(one, came, strict=True))
        stretches = tuple(sum(one[n] for one in shares) / len(shares) for n in range(len(came)))
        total = sum(came) * len(shares)
        cost = sum(one.cost for one in setting.steps) / len(setting.steps)
        cost += self._starting_cost(setting.steps) / (course.length_s / 3600.0)
        return Played(
            setting=setting.name, value=setting.value, cost_per_hour=cost, in_time={self.app: good / max(total, 1e-9)},
            worst={self.app: min(stretches)}, queries=round(total), timely=round(good), costs=(cost,) * len(shares),
            stretches={self.app: tuple(round(one, 6) for one in stretches)},
        )  # fmt: skip

    def _why_not_whole(self) -> str:
        """Why the whole demand is not played ("" where it is)."""
        if not max(self.rates) > 0:
            return "nothing comes"
        count = self._demand.rate_qps * self.course.length_s
        return f"not simulated: {count:.3g} requests, and {MOST_PLAYED} are at most" if count > MOST_PLAYED else ""

    @property
    def _demand(self) -> AppDemand:
        return next(one for one in self.course.demands if one.app == self.app)

    def _go_on(self) -> None:
        if self.course.cancel is not None and self.course.cancel.is_set():
            raise Interrupted("the comparison was cancelled")

    def _starting_cost(self, steps: Sequence[_Step]) -> float:
        """What machines cost while they start, in all."""
        profile, total = (self.hourly or self.inputs).profile, 0.0
        for before, after in pairwise(steps):
            for name, count in after.machines.items():
                offer = profile.offers.get(name)
                new = max(count - before.machines.get(name, 0), 0)
                if offer is not None:
                    hardware = profile.hardware[offer.hardware]
                    total += new * hardware.startup_s / 3600.0 * machine_price(offer, hardware) / NANO
        return total

    def _share(self, step: _Step, rate: float, seed: int) -> float:
        """The share of a step's requests that keep all limits."""
        self._go_on()
        key = (step.workers, rate, seed)
        if rate > 0 and key not in self._shares:
            wanted, number = self.inputs.slo.apps[self.app], seed_of(seed, 0)
            self._shares[key], _ = steady_goodput(step.fleet, wanted, rate, seed=number, most=MOST_REQUESTS)
        return self._shares.get(key, 1.0)


# Text beside other applications, in a plan with periods


class Bench(Protocol):
    """What tunes ways."""

    @property
    def course(self) -> Course:
        """The demand, and what is asked of it."""
        ...

    def row(self, way: str) -> Tuned | None:
        """A way, tuned; None where there is no such way."""
        ...

    def least(self) -> float | None:
        """What no way can be below, per hour."""
        ...


@dataclass
class Together:
    """Several benches under one demand: each way is tuned in each of them by itself, and its money is added."""

    benches: Sequence[Bench]
    shared: bool = False
    """Whether some of them run on the same machines: what each costs alone bounds nothing then."""

    @property
    def course(self) -> Course:
        """The course of the first, with what is asked in all."""
        attain = {app: share for bench in self.benches for app, share in bench.course.attain.items()}
        return replace(self.benches[0].course, attain=attain)

    def row(self, way: str) -> Tuned | None:
        """A way, tuned in each; None where one has no such way."""
        rows = [bench.row(way) for bench in self.benches]
        found = [row for row in rows if row is not None]
        shown = [one for row in found if (one := row.nearest) is not None]
        if len(found) < len(rows):
            return None
        if len(shown) < len(rows):
            return Tuned(way, None, (), next(row.note for row in found if row.nearest is None))
        whole = _sum_of(shown)
        fresh = [row.fresh for row in found if row.fresh is not None]
        best = whole if all(row.best is not None for row in found) else None
        apps = [", ".join(bench.course.attain) for bench in self.benches]
        notes = "; ".join(f"{app}: {row.note}" for app, row in zip(apps, found, strict=True) if row.note)
        return Tuned(way, best, (whole,), notes, _sum_of(fresh) if len(fresh) == len(found) else None)

    def least(self) -> float | None:
        """The sum of what no way can be below; None where that is not known of all, or they share machines."""
        found = [None if self.shared else bench.least() for bench in self.benches]
        known = [one for one in found if one is not None]
        return sum(known) if len(known) == len(found) else None


def _sum_of(played: Sequence[Played]) -> Played:
    """Several plays of one demand, of different applications."""
    return Played(
        setting="; ".join(one.setting for one in played),
        value=played[0].value,
        cost_per_hour=sum(one.cost_per_hour for one in played),
        in_time={app: share for one in played for app, share in one.in_time.items()},
        worst={app: share for one in played for app, share in one.worst.items()},
        queries=sum(one.queries for one in played),
        timely=sum(one.timely for one in played),
        costs=tuple(map(sum, zip(*(one.costs for one in played), strict=True))),
        stretches={app: shares for one in played for app, shares in one.stretches.items()},
    )


def planned_steps(plan: Plan, inputs: Inputs, app: str, begins_s: Sequence[float]) -> list[_Step]:
    """What a plan with periods has for an application at these moments of its day; its bill has the money."""
    found, known = list[_Step](), dict[str, _Step]()
    for at_s in begins_s:
        names = period_at(plan, at_s).parts or ()
        name = next(name for name in names if app in (plan.parts or {})[name].rate_qps)
        if name not in known:
            files = inputs_of_part(inputs, (plan.parts or {})[name].rate_qps)
            alone = of_part(plan, name)
            known[name] = _Step(fleet_of_plan(alone, files, app), {}, 0.0, _workers_text(alone))
        found.append(known[name])
    return found


def _workers_text(plan: Plan) -> tuple[str, ...]:
    return tuple(worker.model_dump_json() for worker in plan.workers)
