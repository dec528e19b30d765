"""Ways to serve a demand for text, side by side: each step of the demand is played token by token.

A step is a steady load on what runs then, once machines have filled, so a way is a fleet for each step: the plan's
own, one for the peak all day, or one for the rate that comes. Who plans anew every few seconds sees the rate of a step
look by look, and so has several fleets in it, one after another: each is played as if it went on, and its requests
count for as long as it is there; what piles up before the machines come is not carried over to them. Autoscalers are
not played of text. In time is a request that keeps all its limits at once.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from typing import Protocol, cast

from hetplan.dispatch.forecasting import Forecast, ForecastName
from hetplan.errors import Cancelled, InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import inputs_of_part, of_part, of_period, period_at
from hetplan.recipes import Recipes
from hetplan.serving.loads import worker_price
from hetplan.serving.runs import machine_price
from hetplan.serving.tokens import TokenFleet, demand_of, fleet_of_plan, limits_of, settling_s
from hetplan.simulator.following import Foresight
from hetplan.simulator.runs import seed_of
from hetplan.simulator.token_report import REQUESTS
from hetplan.simulator.tokens import draw, play
from hetplan.simulator.ways import Course, Played, Tuned, cheapest_of

__all__ = ["TEXT_WAYS", "Bench", "TextBench", "Together", "planned_steps"]

REPLANNING: Mapping[str, str] = {"replanning, ewma": "ewma", "replanning, seasonal": "seasonal"}
TEXT_WAYS = ("plan", "static, one type", "static, best mix", *REPLANNING, "perfect foresight")
"""The ways that are played of text."""
MOST_REQUESTS = 100_000


@dataclass(frozen=True, eq=False)
class _Step:
    """What runs in a step: machines of each offer, what they cost per hour, and their workers, by which it is known."""

    fleet: TokenFleet
    machines: Mapping[str, int]
    cost: float
    workers: tuple[str, ...]


@dataclass(frozen=True)
class _Fleets:
    """A way at one setting: for each step of the demand what runs then, each for a share of the step."""

    name: str
    value: float
    steps: Sequence[Sequence[tuple[float, _Step]]]

    @classmethod
    def of(cls, name: str, value: float, steps: Sequence[_Step]) -> _Fleets:
        """One fleet for each step."""
        return cls(name, value, [((1.0, step),) for step in steps])

    def in_turn(self) -> Iterator[_Step]:
        """What runs, one after another."""
        return (step for _, step in chain.from_iterable(self.steps))


@dataclass
class TextBench:
    """What the ways share: the demand, and plans for other rates. `rates` is one rate for each step of the course."""

    plan: Plan
    inputs: Inputs
    course: Course
    rates: Sequence[float]
    factors: Sequence[float]
    margins: Sequence[tuple[float, float]]
    """Who plans anew is ready for this quantile of its forecast, times so much."""
    looks: Foresight
    """How often who plans anew looks, and what was seen before."""
    hourly: Inputs | None = None
    """What perfect foresight rents from, where that is more than static fleets do; `lowest`: what nothing is below."""
    lowest: Inputs | None = None
    planned: Sequence[_Step] = ()
    """What the plan has in each step, where that is not the same all the time; its bill is counted elsewhere."""
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
            steps = self.planned or (self._step(self.plan),) * len(self.rates)
            return self._tuned(way, [_Fleets.of("as it is", 1.0, steps)])
        if way in REPLANNING:
            return self._replanned(way)
        if way == "static, one type":
            types = [self._through(way, self._recipes(one), steady=True) for one in self._types()]
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
            known = ([step.workers for step in one.in_turn()] for one in settings)
            if len(steps) < len(plans) or [step.workers for step in steps] in known:
                continue
            said = f"planned for {factor:g} of the peak" if steady else f"{factor:g} of what comes"
            if way == "static, one type":
                said = " + ".join(f"{count} {name}" for name, count in steps[0].machines.items())
            settings.append(_Fleets.of(said, factor, steps))
        if not settings:
            return Tuned(way, None, (), "no plan carries these rates")
        return self._tuned(way, settings)

    def _replanned(self, way: str) -> Tuned | None:
        """Over quantiles of a forecast's errors and margins, dearest first."""
        kind = cast(ForecastName, REPLANNING[way])
        if kind == "seasonal" and not any(self.looks.history.values()):
            return None
        recipes = self.mix if self.hourly is None else self._recipes(self.hourly)
        settings = list[_Fleets]()
        for quantile, margin in self.margins:
            how = replace(self.looks, kind=kind, quantile=quantile, margin=margin)
            steps = self._looked(how, recipes)
            if steps is not None:
                said = f"quantile {quantile:g}" + (f" times {margin:g}" if margin != 1.0 else "")
                settings.append(_Fleets(said, quantile * margin, steps))
        return self._tuned(way, settings) if settings else Tuned(way, None, (), "no plan carries these rates")

    def _looked(self, how: Foresight, recipes: Recipes) -> list[list[tuple[float, _Step]]] | None:
        """What runs in each step by what is foreseen look by look; machines that are added serve once they started."""
        step_s = self.course.length_s / len(self.rates)
        serving = list[tuple[float, _Step]]()  # from when which fleet, in the order in which they were asked for
        for number, rate in enumerate((self.rates[0], *self._foreseen(how, step_s))):
            plan = recipes.plan_for({self.app: max(rate, 1e-3)})
            if plan is None:
                return None
            step = self._step(plan)
            before = serving[-1][1] if serving else step
            if not serving or step.workers != before.workers:
                serving.append((number * how.every_s + self._start_s(before, step), step))
        found = list[list[tuple[float, _Step]]]()
        for number in range(len(self.rates)):
            begin_s, end_s, parts = number * step_s, (number + 1) * step_s, list[tuple[float, _Step]]()
            for turn, (from_s, step) in enumerate(serving):
                until_s = min([at_s for at_s, _ in serving[turn + 1 :]], default=math.inf)
                lasts_s = min(until_s, end_s) - max(from_s, begin_s)
                if lasts_s > 0:
                    parts.append((lasts_s / step_s, step))
            found.append(parts)
        return found

    def _foreseen(self, how: Foresight, step_s: float) -> Iterator[float]:
        """The rate to be ready for after each look; less only once less has been foreseen for so long."""
        forecast = Forecast(how.kind, how.quantile, how.every_s, how.lead_s + how.every_s, season_s=how.season_s)
        forecast.before(how.history.get(self.app, ()))
        held = deque[float](maxlen=max(1, round(how.hold_s / how.every_s)))
        for look in range(int(self.course.length_s / how.every_s)):
            forecast.observe(self.rates[min(int(look * how.every_s / step_s), len(self.rates) - 1)])
            held.append(how.margin * forecast.ahead())
            yield max(held)

    def _start_s(self, before: _Step, after: _Step) -> float:
        """How long the slowest of the machines takes that are added."""
        profile = (self.hourly or self.inputs).profile
        more = [name for name, count in after.machines.items() if count > before.machines.get(name, 0)]
        return max(
            (profile.hardware[profile.offers[name].hardware].startup_s for name in more if name in profile.offers),
            default=0.0,
        )

    def _tuned(self, way: str, settings: Sequence[_Fleets]) -> Tuned:
        found = cheapest_of(way, [partial(self._played, one) for one in settings], self.course)
        shown, demand = found.shown, demand_of(self.inputs.slo.apps[self.app], 1.0)
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
            self._steps[key] = _Step(fleet_of_plan(single, files, self.app), machines, cost, _said(single))
        return self._steps[key]

    def _played(self, setting: _Fleets, course: Course) -> Played:
        """Each step once per seed; machines are paid while they start."""
        step_s = course.length_s / len(self.rates)
        shares = [
            [
                sum(part * self._share(step, rate, seed) for part, step in parts)
                for parts, rate in zip(setting.steps, self.rates, strict=True)
            ]
            for seed in course.seeds
        ]
        came = [rate * step_s for rate in self.rates]
        good = sum(share * count for one in shares for share, count in zip(one, came, strict=True))
        stretches = tuple(sum(one[n] for one in shares) / len(shares) for n in range(len(came)))
        total = sum(came) * len(shares)
        cost = sum(part * one.cost for parts in setting.steps for part, one in parts) / len(setting.steps)
        cost += self._starting(setting.in_turn()) / (course.length_s / 3600.0)
        return Played(
            setting=setting.name, value=setting.value, cost_per_hour=cost, in_time={self.app: good / max(total, 1e-9)},
            worst={self.app: min(stretches)}, queries=round(total), timely=round(good), costs=(cost,) * len(shares),
            stretches={self.app: tuple(round(one, 6) for one in stretches)},
        )  # fmt: skip

    def _starting(self, steps: Iterator[_Step]) -> float:
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
        if self.course.cancel is not None and self.course.cancel.is_set():
            raise Cancelled("the comparison was cancelled")
        key = (step.workers, rate, seed)
        if rate > 0 and key not in self._shares:
            wanted = self.inputs.slo.apps[self.app]
            demand, limits = demand_of(wanted, rate), limits_of(wanted)
            settles_s = settling_s(demand, limits, [group.law for group in step.fleet.groups])
            usual = math.ceil(max(2.0 * settles_s, demand.arrivals.cycle_s) * rate)
            count = min(max(REQUESTS, usual), MOST_REQUESTS)
            coming = draw(demand, seed=seed_of(seed, 0), count=count, settles_s=settles_s)
            self._shares[key] = play(step.fleet, coming, seed=seed_of(seed, 0)).goodput(limits)
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

    @property
    def course(self) -> Course:
        """The course of the first, with what is asked in all."""
        attain = {app: share for bench in self.benches for app, share in bench.course.attain.items()}
        return replace(self.benches[0].course, attain=attain)

    def row(self, way: str) -> Tuned | None:
        """A way, tuned in each; None where one has no such way."""
        rows = [bench.row(way) for bench in self.benches if way in TEXT_WAYS]
        found = [row for row in rows if row is not None]
        shown = [one for row in found if (one := row.nearest) is not None]
        if not rows or len(found) < len(rows):
            return None
        if len(shown) < len(rows):
            return Tuned(way, None, (), next(row.note for row in found if row.nearest is None))
        whole = _added(shown)
        fresh = [row.fresh for row in found if row.fresh is not None]
        best = whole if all(row.best is not None for row in found) else None
        apps = [", ".join(bench.course.attain) for bench in self.benches]
        notes = "; ".join(f"{app}: {row.note}" for app, row in zip(apps, found, strict=True) if row.note)
        return Tuned(way, best, (whole,), notes, _added(fresh) if len(fresh) == len(found) else None)

    def least(self) -> float | None:
        """The sum of what no way can be below."""
        found = [bench.least() for bench in self.benches]
        known = [one for one in found if one is not None]
        return sum(known) if len(known) == len(found) else None


def _added(played: Sequence[Played]) -> Played:
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
            known[name] = _Step(fleet_of_plan(alone, files, app), {}, 0.0, _said(alone))
        found.append(known[name])
    return found


def _said(plan: Plan) -> tuple[str, ...]:
    return tuple(worker.model_dump_json() for worker in plan.workers)
