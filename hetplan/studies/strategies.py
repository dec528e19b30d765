"""Compares ways to serve one demand: simulates each, and tunes it to its cheapest setting at equal attainment.

==============================  ======================================================================================
``plan``                        the plan as it is, all the time
``static, one type``            the cheapest type of machine, enough of it all day
``static, best mix``            the plan's own question at one rate, all day
``HPA``                         that type, by Kubernetes' horizontal pod autoscaler; its target is tuned
``concurrency``                 that type, by queries under way (Knative); its target is tuned
``replanning, ewma``            the plan's own question for what a moving average foresees; its quantile is tuned
``replanning, seasonal``        the same, for what the day before says
``perfect foresight``           the plan's own question for the rates that will come, started ahead; how much of them
==============================  ======================================================================================

Of a plan with periods the plan is played hour by hour and costs its bill; the other ways are those of
`hetplan.studies.fleet_strategies`.

Text is played by `hetplan.studies.llm_strategies`; its autoscalers count requests under way.

Beside them `least` is a bound that no way can be below: what the question's certified bounds say of the rates that
came, over time, less the share that may be late (of every class of query alike).

>>> import hetplan as hp
>>> from hetplan.studies.strategies import compare_ways  # doctest: +SKIP
>>> print(compare_ways(plan, inputs).as_csv())  # doctest: +SKIP
"""

from __future__ import annotations

import csv
import io
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from hetplan.api.plans_by_rate import GRID, Recipes
from hetplan.dispatch.replanning import Replanning
from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.planner.spread import Spread, Task
from hetplan.profiles.canonical import digest
from hetplan.profiles.fields import HOURS_A_MONTH
from hetplan.profiles.plan_periods import text_apps, text_is_shared, without
from hetplan.serving.demand import response_targets
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import System
from hetplan.simulator.autoscale import following_plans, system_of
from hetplan.simulator.baselines import Kind, OneType, Place, kinds_of, one_type
from hetplan.simulator.day_text import promised_of_text
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.scalers import Concurrency, Hpa
from hetplan.simulator.simulate import demands_of
from hetplan.simulator.system_changes import follow, lead_and_limits, scheduled
from hetplan.simulator.ways import Course, Played, Setting, Tuned, tuned
from hetplan.studies.fleet_strategies import FleetPlayed
from hetplan.studies.llm_strategies import MOST_TIMES, Bench, TextBench, Together, planned_steps
from hetplan.studies.replanning import PLAYED

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.serving.service import NoiseName

__all__ = ["WAYS", "Compared", "Comparison", "compare_ways"]

WAYS = (
    "plan", "static, one type", "static, best mix", "HPA", "concurrency", "replanning, ewma", "replanning, seasonal",
    "perfect foresight",
)  # fmt: skip

TARGETS = tuple(round(0.25 + 0.05 * step, 2) for step in range(15))
UNDER_WAY = tuple(round(0.2 * 1.25**step, 3) for step in range(16))
TEXT_SCALERS = {"HPA": UNDER_WAY, "concurrency": UNDER_WAY}
"""Of what each machine has under way at the peak."""
MARGINS = (
    (1.0, 1.2), (1.0, 1.0), *((0.95, margin) for margin in (1.4, 1.25, 1.15, 1.1, 1.05)),
    *((0.95, margin) for margin in (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.65, 0.55)),
)  # fmt: skip
"""(quantile of the forecast's errors, times): ready for the worst rise that was seen, or for more or less than most."""
SHARES = tuple(round(1.3 - 0.05 * step, 2) for step in range(14))
TYPES_TRIED = 3
"""Machine types that are tried as the only one, those of the least price for the work first."""


@dataclass(frozen=True)
class Compared:
    """What is compared: a demand over time, per application in rates per period; `history` is what came before it.

    `attain` is the share in time (default: what the strictest limit of each application asks). `every_s` is how often
    who replans looks at demand.
    """

    series: Mapping[str, Sequence[float]]
    period_s: float
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    attain: float | None = None
    ways: Sequence[str] = WAYS
    seeds: int = 1
    seed: int = 0
    noise: NoiseName = "table"
    every_s: float = 15.0
    fresh: int = 1
    """Draws of the demand that no setting was tuned on: what is reported of the chosen settings. 0: as tuned."""

    begin_s: float = 0.0
    """At which moment of its day a plan with periods begins."""

    @property
    def length_s(self) -> float:
        """How long is played."""
        return self.period_s * self.steps

    @property
    def steps(self) -> int:
        """How many periods are played."""
        return max(map(len, self.series.values()))


@dataclass(frozen=True)
class Comparison:
    """The ways, each tuned; what was asked of them; and the bound."""

    rows: tuple[Tuned, ...]
    attain: Mapping[str, float]
    hours: float
    currency: str
    least: float | None
    least_is: str

    def per_million(self, played: Played) -> float:
        """Money for a million queries in time."""
        return played.per_million(self.hours * max(1, len(played.costs)))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": "hetplan/ways/1.0",
            "attain": dict(self.attain),
            "hours": self.hours,
            "currency": self.currency,
            "least_cost_per_hour": self.least,
            "least_is": self.least_is,
            "ways": [
                {
                    "way": row.way,
                    "reached": row.best is not None,
                    "note": row.note,
                    "best": self._played_dict(row.nearest) if row.nearest is not None else None,
                    "fresh": self._played_dict(row.fresh) if row.fresh is not None else None,
                    "tried": [self._played_dict(one) for one in row.tried],
                }
                for row in self.rows
            ],
        }

    def _played_dict(self, one: Played) -> dict[str, Any]:
        return {
            "setting": one.setting,
            "value": one.value,
            "cost_per_hour": one.cost_per_hour,
            "cost_per_month": HOURS_A_MONTH * one.cost_per_hour,
            "cost_per_million_in_time": self.per_million(one),
            "late": one.late,
            "in_time": dict(one.in_time),
            "worst_hour": dict(one.worst),
            "queries": one.queries,
            "costs": list(one.costs),
        }

    def as_csv(self) -> str:
        """A line for every setting that was played: lateness against money."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(
            ["way", "setting", "value", "chosen", "reached", "cost_per_hour", "cost_per_month",
             "cost_per_million_in_time", "late", "least_in_time", "worst_hour", "fresh"]
        )  # fmt: skip
        for row in self.rows:
            for one in (*row.tried, *([row.fresh] if row.fresh is not None else [])):
                figures = (one.cost_per_hour, HOURS_A_MONTH * one.cost_per_hour, self.per_million(one), one.late,
                           min(one.in_time.values(), default=1.0), min(one.worst.values(), default=1.0))  # fmt: skip
                chosen = one is row.nearest
                reached = one.reaches(self.attain)
                lines.writerow(
                    [
                        row.way,
                        one.setting,
                        one.value,
                        int(chosen),
                        int(reached),
                        *(f"{x:.9g}" for x in figures),
                        int(one is row.fresh),
                    ]
                )
        if self.least is not None:
            lines.writerow(["least", self.least_is, "", "", "", f"{self.least:.9g}", *([""] * 6)])
        return text.getvalue()


def compare_ways(
    plan: Plan,
    inputs: Inputs,
    what: Compared,
    *,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    spread: Spread | None = None,
) -> Comparison:
    """Every way at the cheapest setting that reaches the same share of queries in time, under the same queries.

    With a `spread` the ways are tuned side by side, and what its journal has is not played again.
    """
    unknown = [way for way in what.ways if way not in WAYS]
    if unknown:
        raise InputError.one(
            file="--ways", value=unknown[0], why="no such way", remedy=f"Choose among: {'; '.join(WAYS)}."
        )
    _refuse(plan)
    bench = _bench(plan, inputs, what, cancel)
    if spread is not None:
        spread.of = digest({"inputs": dict(inputs.digests), "plan": plan.digest, "what": repr(what)})
        with spread:
            found = spread.all(_tuned_way, (plan, inputs, what), [{"way": way} for way in what.ways], about="ways")
        rows = [row for one in found if (row := _read_way(one)) is not None]
    else:
        rows = []
        for way in what.ways:
            if on_event is not None:
                on_event(Event("compare", way))
            row = bench.row(way)
            if row is not None:
                rows.append(row)
    least = bench.least()
    return Comparison(
        tuple(rows), bench.course.attain, what.length_s / 3600.0, inputs.slo.limits.currency, least,
        "the question's certified bounds for the rates that come, less the share that may be late",
    )  # fmt: skip


def _refuse(plan: Plan) -> None:
    """Plans of which no way is played, by name."""
    questions = {part.question for part in plan.parts.values()} if plan.parts is not None else {plan.question}
    if not questions <= set(PLAYED):
        raise InputError.one(
            file="plan", path="$.question", value=plan.question, why="policies are not compared for this problem",
            remedy=f"Compare a plan of {', '.join(PLAYED)}, or a fleet of these; `hetplan simulate` plays this "
            "one, `hetplan explain` says what other fleets cost.",
        )  # fmt: skip


def _tuned_way(shared: tuple[Plan, Inputs, Compared], task: Task, cancel: threading.Event | None) -> dict[str, Any]:
    """One way, tuned, as plain data; a bench of its own, so that it does not matter who is first."""
    row = _bench(*shared, cancel).row(task["way"])
    if row is None:
        return {"way": None}
    best = None if row.best is None else row.tried.index(row.best)
    fresh = None if row.fresh is None else asdict(row.fresh)
    tried = [asdict(one) for one in row.tried]
    return {"way": row.way, "note": row.note, "best": best, "tried": tried, "fresh": fresh}


def _read_way(found: Mapping[str, Any]) -> Tuned | None:
    if found["way"] is None:
        return None

    def read(one: Mapping[str, Any]) -> Played:
        stretches = {app: tuple(part) for app, part in one["stretches"].items()}
        return Played(**{**one, "costs": tuple(one["costs"]), "stretches": stretches})

    tried = tuple(read(one) for one in found["tried"])
    best = None if found["best"] is None else tried[found["best"]]
    return Tuned(found["way"], best, tried, found["note"], None if found["fresh"] is None else read(found["fresh"]))


def _bench(plan: Plan, inputs: Inputs, what: Compared, cancel: threading.Event | None) -> Bench:
    if plan.question == "llm":
        app = next(iter(inputs.slo.apps))
        course = _course_of_text(app, plan, inputs, what, cancel)
        return TextBench(plan, inputs, course, what.series[app], SHARES, TEXT_SCALERS, MARGINS, _looks(what))
    texts = text_apps(plan)
    if not texts:
        return _Bench(plan, inputs, what, cancel)
    begins_s, benches = [what.begin_s + number * what.period_s for number in range(what.steps)], list[Bench]()
    for app in texts:
        alone, files = without(plan, inputs, [name for name in inputs.slo.apps if name != app])
        fleet, planned = FleetPlayed(alone, files), planned_steps(plan, inputs, app, begins_s)
        course = _course_of_text(app, fleet.busiest, files, what, cancel)
        benches.append(
            TextBench(
                alone,
                fleet.on_demand,
                course,
                what.series[app],
                SHARES,
                TEXT_SCALERS,
                MARGINS,
                _looks(what),
                fleet.by_the_hour,
                fleet.cheapest,
                planned,
            )
        )
    others = without(plan, inputs, texts)
    if others[1].slo.apps:
        kept = {app: rates for app, rates in what.series.items() if app not in texts}
        return Together([_Bench(*others, replace(what, series=kept), cancel), *benches], text_is_shared(plan))
    raise InputError.one(
        file="plan", path="$.parts", value="llm", why="all applications are LLMs, which have no bill to simulate",
        remedy="Compare the plan of one period: hetplan solve with one rate.",
    )  # fmt: skip


def _course_of_text(app: str, plan: Plan, inputs: Inputs, what: Compared, cancel: threading.Event | None) -> Course:
    if app not in what.series:
        _no_rates(app)
    asked = what.attain if what.attain is not None else promised_of_text(inputs.slo.apps[app])
    seeds = tuple(range(what.seed, what.seed + what.seeds + what.fresh))
    return Course(
        _demands(plan, inputs, what),
        what.length_s,
        {app: asked},
        seeds[: what.seeds],
        what.noise,
        stretch_s=what.period_s,
        cancel=cancel,
        fresh=seeds[what.seeds :],
    )


def _looks(what: Compared) -> Replanning:
    """What decides for who plans anew, with what was seen before. How much is kept beyond a forecast is tuned.

    Plans are for rates of a grid, and demand that moved by less than its step is no reason.
    """
    history = {
        app: [rate for rate in rates for _ in range(round(what.period_s / what.every_s))]
        for app, rates in what.history.items()
    }
    return Replanning(every_s=what.every_s, history=history, change=GRID, headroom=0.0, floor_qps=1e-3)


def _no_rates(app: str) -> NoReturn:
    raise InputError.one(
        file="--demand", value=app, why="the plan serves it, and no rates are given for it",
        remedy=f"Give --demand {app}=FILE.csv, or rate_qps.series in the SLO file.",
    )  # fmt: skip


class _Bench:
    """What the ways share: the demand as drawn, the question's plans for other rates, types of machines."""

    def __init__(self, plan: Plan, inputs: Inputs, what: Compared, cancel: threading.Event | None) -> None:
        self.fleet = None
        if plan.parts is not None:
            self.fleet = FleetPlayed(plan, inputs, what.noise)
            plan, inputs = self.fleet.busiest, self.fleet.on_demand
        self.plan, self.inputs, self.what = plan, inputs, what
        self.demands = _demands(plan, inputs, what)
        attain = {
            app: what.attain if what.attain is not None else _asked_share(inputs, app)
            for app in (demand.app for demand in self.demands)
        }
        seeds = tuple(range(what.seed, what.seed + what.seeds))
        self.course = Course(
            self.demands, what.length_s, attain, seeds, what.noise, stretch_s=min(3600.0, what.length_s), cancel=cancel,
            fresh=tuple(range(seeds[-1] + 1, seeds[-1] + 1 + what.fresh)),
        )  # fmt: skip
        fleet = self.fleet
        self.recipes = fleet.recipes(inputs) if fleet else Recipes(plan, inputs, noise=what.noise)
        self.following = fleet.recipes(fleet.by_the_hour) if fleet else self.recipes
        self.chosen: OneType | None = None

    def row(self, way: str) -> Tuned | None:
        """A way, tuned; None where the question has no such way."""
        made: dict[str, Callable[[str], Tuned | None]] = {
            "plan": self._plan,
            "static, one type": self._one_type,
            "static, best mix": self._best_mix,
            "HPA": partial(self._tune_scaler, settings=TARGETS, scaler=Hpa, said="target {:.0%} use"),
            "concurrency": partial(
                self._tune_scaler, settings=UNDER_WAY, scaler=Concurrency, said="target {:g} under way"
            ),
            "replanning, ewma": partial(self._tune_replanning, kind="ewma"),
            "replanning, seasonal": partial(self._tune_replanning, kind="seasonal"),
            "perfect foresight": self._oracle,
        }
        return made[way](way)

    # The plan itself, and the question's plans

    def _plan(self, way: str) -> Tuned:
        if self.fleet is not None:
            (_, first), *steps = self.fleet.schedule(self.what.length_s, self.what.begin_s)
            bill = self.fleet.cost_per_hour(self.what.length_s, self.what.begin_s)
            hour = Setting("as it is, its bill", 1.0, first, scheduled(steps) if steps else None, bill)
            return tuned(way, [lambda: hour], self.course)
        stages = planned_systems(self.plan, self.inputs, noise=self.what.noise)
        steps = [(stage.start_s, stage.system) for stage in stages[1:]]
        setting = Setting("as it is", 1.0, stages[0].system, scheduled(steps) if steps else None)
        return tuned(way, [lambda: setting], self.course)

    def _system(self, rates: Mapping[str, float], recipes: Recipes | None = None) -> System | None:
        recipes = recipes or self.recipes
        plan = recipes.plan_for(rates)
        if plan is None:
            return None
        if self.fleet is None and recipes.stateful:
            return system_of(plan, self.inputs, self.what.noise)
        return recipes.system_of(plan)

    def _rates(self, turn: int, factor: float = 1.0) -> dict[str, float]:
        return {app: max(factor * rates[min(turn, len(rates) - 1)], 1e-3) for app, rates in self.what.series.items()}

    @property
    def _peak(self) -> dict[str, float]:
        return {app: max(rates) for app, rates in self.what.series.items()}

    def _best_mix(self, way: str) -> Tuned:
        def at(factor: float) -> Setting | None:
            system = self._system({app: factor * rate for app, rate in self._peak.items()})
            return None if system is None else Setting(f"planned for {factor:g} of the peak", factor, system)

        return self._through(way, at, SHARES)

    def _oracle(self, way: str) -> Tuned:
        turns = max(map(len, self.what.series.values()))

        def at(factor: float) -> Setting | None:
            systems = [self._system(self._rates(turn, factor), self.following) for turn in range(turns)]
            first = systems[0]
            if first is None or any(one is None for one in systems):
                return None
            steps = [(turn * self.what.period_s, system) for turn, system in enumerate(systems) if system is not None]
            return Setting(f"{factor:g} of what comes", factor, first, scheduled(steps[1:]))

        return self._through(way, at, SHARES)

    def _tune_replanning(self, way: str, *, kind: str) -> Tuned | None:
        if kind == "seasonal" and not any(self.what.history.values()):
            return None
        apps, recipes = list(self.what.series), self.following
        first = recipes.plan_for(self._rates(0))
        if first is None:
            return Tuned(way, None, (), "no plan carries the first rates")
        begin = self._system(self._rates(0), recipes)
        assert begin is not None
        facts = {"runs_for": self._rates(0), **lead_and_limits(begin, self.demands)}
        plain = replace(_looks(self.what), kind=kind, **facts)  # type: ignore[arg-type]

        def at(setting: tuple[float, float]) -> Setting:
            how = replace(plain, quantile=setting[0], margin=setting[1])
            said = f"quantile {setting[0]:g}" + (f" times {setting[1]:g}" if setting[1] != 1.0 else "")
            if self.fleet is not None or not recipes.stateful:
                return Setting(said, setting[0] * setting[1], begin, follow(recipes, how, apps))
            control = following_plans(first, self.inputs, recipes.plan_for, how, apps, noise=self.what.noise)
            return Setting(said, setting[0] * setting[1], begin, control)

        return tuned(way, [partial(at, setting) for setting in MARGINS], self.course)

    def _through(self, way: str, at: Callable[[float], Setting | None], factors: Sequence[float]) -> Tuned:
        """Tuned over factors, dearest first; what has no plan, or the same machines as a dearer one, is left out."""
        settings = list[Setting]()
        for factor in factors:
            made = at(factor)
            if made is not None and not any(one.system is made.system and one.control is None for one in settings):
                settings.append(made)
        if not settings:
            return Tuned(way, None, (), "no plan carries these rates")
        return tuned(way, [partial(_same, one) for one in settings], self.course)

    # One type of machine

    def _types(self) -> list[dict[Place, Kind]]:
        """What to serve each stage by, the least work for its money first, as far as a query is in time alone."""
        limits = {demand.app: demand.slo_ms for demand in self.demands}
        ranked = {
            place: sorted(
                [kind for kind in kinds if kind.longest_ms <= limits[place[0]]] or kinds,
                key=lambda kind: (kind.work_price, kind.price),
            )
            for place, kinds in kinds_of(self.plan, self.inputs).items()
        }  # fmt: skip
        most = max(map(len, ranked.values()))
        return [
            {place: kinds[min(number, len(kinds) - 1)] for place, kinds in ranked.items()}
            for number in range(min(most, TYPES_TRIED))
        ]

    def _static(self, made: OneType, way: str) -> Tuned:
        peak = [replace(one, rate_qps=max(one.series_qps or (one.rate_qps,))) for one in self.demands]
        sizes = dict[tuple[int, ...], float]()
        for step in range(97):
            use = round(0.2 + step * 0.0125, 4)
            sizes.setdefault(tuple(made.counts(peak, use, at_peak=False).values()), use)
        places = list(made.stages)

        def at(counts: tuple[int, ...], use: float) -> Setting:
            shown = " + ".join(f"{n} {made.hardware[made.stages[p][0]]}" for n, p in zip(counts, places, strict=True))
            return Setting(shown, use, made.sized(dict(zip(places, counts, strict=True))))

        return tuned(way, [partial(at, counts, use) for counts, use in sizes.items()], self.course)

    def _one_type(self, way: str) -> Tuned:
        found = list[tuple[Tuned, OneType]]()
        for chosen in self._types():
            made = one_type(self.plan, self.inputs, chosen, noise=self.what.noise)
            found.append((self._static(made, way), made))
        best = min(found, key=lambda one: one[0].best.cost_per_hour if one[0].best is not None else math.inf)
        self.chosen = best[1]
        return best[0]

    def _tune_scaler(self, way: str, *, settings: Sequence[float], scaler: Callable[..., Any], said: str) -> Tuned:
        if self.chosen is None:
            self._one_type(way)
        made = self.chosen
        assert made is not None
        first = [replace(one, rate_qps=(one.series_qps or (one.rate_qps,))[0]) for one in self.demands]
        peak = [replace(one, rate_qps=max(one.series_qps or (one.rate_qps,))) for one in self.demands]
        cap = MOST_TIMES * max(made.counts(peak, 1.0, at_peak=False).values())
        batch = max(load.services[app].mean_ms.shape[1] for group in made.system.groups for load in group.loads
                    for app in load.services)  # fmt: skip

        def at(value: float) -> Setting:
            use = value if scaler is Hpa else min(0.9, value)
            begin = made.sized(made.counts(first, max(use, 0.2), at_peak=False))
            control = made.scaled(lambda most: scaler(value, most=min(most, cap)))
            return Setting(said.format(value), value, begin, control)

        values = settings if scaler is Hpa else [round(value * batch**0.5, 3) for value in settings]
        return tuned(way, [partial(at, value) for value in values], self.course, both=True)

    # What no way can be below

    def least(self) -> float | None:
        """The bound per hour, as a mean over time; None where the question proves none of a cost."""
        share = min(self.course.attain.values(), default=1.0)
        total, turns = 0.0, max(map(len, self.what.series.values()))
        recipes = self.fleet.recipes(self.fleet.cheapest) if self.fleet is not None else self.recipes
        for turn in range(turns):
            rates = self._rates(turn, share)
            if max(rates.values()) < 1e-2:
                continue
            bound = recipes.least_cost(rates)
            if bound is None:
                return None
            total += bound
        return total / turns


def _same(setting: Setting) -> Setting:
    return setting


def _asked_share(inputs: Inputs, app: str) -> float:
    """The share in time that the strictest limit of an application asks."""
    wanted = inputs.slo.apps[app]
    shares = [target.percentile / 100.0 for target in response_targets(wanted)]
    return min(max(shares, default=0.99), 0.9999)


def _demands(plan: Plan, inputs: Inputs, what: Compared) -> list[AppDemand]:
    """What each application asks for, with the rates that are compared under in place of its own."""
    found = []
    for demand in demands_of(plan, inputs):
        rates = what.series.get(demand.app)
        if rates is None:
            _no_rates(demand.app)
        mean = sum(rates) / len(rates)
        found.append(
            replace(
                demand, rate_qps=mean, series_qps=tuple(rates), period_s=what.period_s, trace_s=None, as_recorded=False
            )
        )
    return found
