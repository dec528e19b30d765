"""Ways to serve a demand for text, side by side: each step of the demand is played token by token.

A step is a steady load on what runs then, once machines have filled, so a way is a fleet for each step: the plan's
own, one for the peak all day, or one for the rate that comes. What scales machines within a step (autoscalers,
replanning every few seconds) is not played of text. In time is a request that keeps all its limits at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from hetplan.errors import Cancelled, InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.replanned import Recipes
from hetplan.serving.loads import worker_price
from hetplan.serving.price import machine_price
from hetplan.serving.tokens import TokenFleet, demand_of, fleet_of_plan, limits_of, settling_s
from hetplan.simulator.runs import seed_of
from hetplan.simulator.token_report import REQUESTS
from hetplan.simulator.tokens import draw, play
from hetplan.simulator.ways import Course, Played, Tuned, cheapest_of

__all__ = ["TEXT_WAYS", "TextBench"]

TEXT_WAYS = ("plan", "static, one type", "static, best mix", "perfect foresight")
"""The ways that are played of text."""
MOST_REQUESTS = 100_000


@dataclass(frozen=True, eq=False)
class _Step:
    """What runs in a step: machines of each offer, and what they cost per hour."""

    fleet: TokenFleet
    machines: Mapping[str, int]
    cost: float


@dataclass(frozen=True)
class _Fleets:
    """A way at one setting: a fleet for each step of the demand."""

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
    _shares: dict[object, float] = field(default_factory=dict)
    _steps: dict[object, _Step] = field(default_factory=dict)

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
        """A way, tuned; None where text has no such way."""
        if way not in TEXT_WAYS:
            return None
        if way == "plan":
            step = self._step(self.plan)
            return self._tuned(way, [_Fleets("as it is", 1.0, (step,) * len(self.rates))])
        if way == "static, one type":
            types = [self._through(way, self._recipes(one), steady=True) for one in self._types()]
            return min(types, key=lambda one: one.best.cost_per_hour if one.best is not None else math.inf)
        return self._through(way, self.mix, steady=way == "static, best mix")

    def least(self) -> float | None:
        """The bound per hour, as a mean over time, of the share that may not be late."""
        share, total = min(self.course.attain.values(), default=1.0), 0.0
        for rate in self.rates:
            bound = self.mix.least_cost({self.app: max(share * rate, 1e-3)})
            if bound is None:
                return None
            total += bound
        return total / len(self.rates)

    def _types(self) -> list[Inputs]:
        """The files with the offers of one hardware alone, for each that the application runs on."""
        profile = self.inputs.profile
        runs = {run.hardware for one in profile.variants.values() for run in one.runs if run.engine is not None}
        found = []
        for hardware in sorted(runs & {offer.hardware for offer in profile.offers.values()}):
            offers = {name: offer for name, offer in profile.offers.items() if offer.hardware == hardware}
            found.append(replace(self.inputs, profile=profile.model_copy(update={"offers": offers})))
        return found

    def _through(self, way: str, recipes: Recipes, *, steady: bool) -> Tuned:
        """Over factors of the rates, dearest first; what has no plan is left out."""
        settings = list[_Fleets]()
        for factor in self.factors:
            wanted = [factor * (max(self.rates) if steady else rate) for rate in self.rates]
            plans = [recipes.plan_for({self.app: max(rate, 1e-3)}) for rate in wanted]
            steps = [self._step(plan) for plan in plans if plan is not None]
            if len(steps) < len(plans) or any(one.steps == steps for one in settings):
                continue
            said = f"planned for {factor:g} of the peak" if steady else f"{factor:g} of what comes"
            if way == "static, one type":
                said = " + ".join(f"{count} {name}" for name, count in steps[0].machines.items())
            settings.append(_Fleets(said, factor, steps))
        if not settings:
            return Tuned(way, None, (), "no plan carries these rates")
        return self._tuned(way, settings)

    def _tuned(self, way: str, settings: Sequence[_Fleets]) -> Tuned:
        found = cheapest_of(way, [partial(self._played, one) for one in settings], self.course)
        shown, demand = found.shown, demand_of(self.inputs.slo.apps[self.app], 1.0)
        if shown is None or not shown.timely:
            return found
        price = shown.per_million(self.course.length_s / 3600.0 * max(1, len(shown.costs))) / demand.output_tokens
        return replace(found, note=f"{price:.4g} per million tokens in time")

    def _step(self, plan: Plan) -> _Step:
        key = plan.digest or id(plan)
        if key not in self._steps:
            machines = Counter[str]()
            for worker in plan.workers:
                machines[worker.offer or worker.hardware] += worker.count
            cost = sum((worker_price(self.inputs, worker) or 0) * worker.count for worker in plan.workers) / NANO
            self._steps[key] = _Step(fleet_of_plan(plan, self.inputs, self.app), machines, cost)
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
        cost += self._starting(setting.steps) / (course.length_s / 3600.0)
        return Played(
            setting=setting.name, value=setting.value, cost_per_hour=cost, in_time={self.app: good / max(total, 1e-9)},
            worst={self.app: min(stretches)}, queries=round(total), timely=round(good), costs=(cost,) * len(shares),
            stretches={self.app: tuple(round(one, 6) for one in stretches)},
        )  # fmt: skip

    def _starting(self, steps: Sequence[_Step]) -> float:
        """What machines cost while they start, in all."""
        profile, total = self.inputs.profile, 0.0
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
        if self.course.cancel is not None and self.course.cancel.is_set():
            raise Cancelled("the comparison was cancelled")
        key = (id(step), rate, seed)
        if rate > 0 and key not in self._shares:
            wanted = self.inputs.slo.apps[self.app]
            demand, limits = demand_of(wanted, rate), limits_of(wanted)
            settles_s = settling_s(demand, limits, [group.law for group in step.fleet.groups])
            usual = math.ceil(max(2.0 * settles_s, demand.arrivals.cycle_s) * rate)
            count = min(max(REQUESTS, usual), MOST_REQUESTS)
            coming = draw(demand, seed=seed_of(seed, 0), count=count, settles_s=settles_s)
            self._shares[key] = play(step.fleet, coming, seed=seed_of(seed, 0)).goodput(limits)
        return self._shares.get(key, 1.0)
