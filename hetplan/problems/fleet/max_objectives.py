"""Plans one period for the most rate, the most quality, or each application's best variant: levels are tried in turn.

A *level* of an application is one way to serve it: by one variant, where a pool plans it, else by variants of at least
some quality. A choice of one level for each application is an ordinary fleet (`once`), so

- the most quality is that of the first choice that can be had, from the best one down: the mean over applications of
  the least quality of their answers, by their rates (of a pipeline: the mean quality of its answers);
- the most rate is found by halving: what can be had at a rate can be had at a lower one. Where the rate of machines is
  that of a linear program, each fleet that is found says itself how much it carries, and the search goes on from there;
- the least cost is that of the cheapest choice, of those whose bound is below it;
- the fewest moves from what runs are those of the program of one period, which counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import floor, log10

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.planner.fleet_part import Cone, Part, Table
from hetplan.problems.fleet.candidate_columns import CandidateColumns, Choice, surviving
from hetplan.problems.fleet.formulations import Bound, Found, plan_parts
from hetplan.problems.fleet.infeasible import explain_infeasible
from hetplan.problems.fleet.program import cheapest_of_one, moves_of
from hetplan.problems.fleet.request import HUGE, Application, FleetRequest, of_one_variant
from hetplan.problems.fleet.search import Fleet, Search
from hetplan.profiles.fields import NANO
from hetplan.profiles.slo_sections import QualityTarget

__all__ = ["best_fleet_of_period", "needs_levels"]

CHOICES = 512
"""So many choices of levels are looked at, at most."""
STEPS = 6
"""Of a pipeline, whose quality is a mean, so many floors are tried."""
DIGITS = 6
"""A rate is said in so many digits, rounded down."""
LARGEST = 1e7
LEAST = 2.0**-10
ROOM = 4.0
"""So many times the machines that the budget buys may be asked for, when it is asked what they would cost."""
EXACT = 1e-5
"""So little more is asked for first, where machines said themselves how much they carry."""

PartOf = Callable[[FleetRequest, Application], Part]


@dataclass(frozen=True)
class Level:
    """One way to serve an application, its quality, and a quality that this way is below."""

    quality: float | None
    variant: str | None = None
    floor: float | None = None
    below: float | None = None


@dataclass
class LevelSearch:
    """The levels of all applications, and their parts as they are needed."""

    wish: FleetRequest
    part_of: PartOf
    ask: Ask

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self.parts: dict[tuple[str, int], Part] = {}

    @cached_property
    def levels(self) -> Mapping[str, Sequence[Level]]:
        """The levels of each application, best first."""
        found = {app.name: _levels(self.wish, app) for app in self.wish.apps}
        count = 1
        for levels in found.values():
            count *= len(levels)
        if count > CHOICES:
            why = f"{count} choices of variants, one for each application, and {CHOICES} are looked at"
            raise InputError.one(file="slo", path="$.apps", why=why, remedy="Name fewer variants, or floors.")
        return found

    @cached_property
    def choices(self) -> list[tuple[int, ...]]:
        """One level for each application, in numbers; best first."""
        all_levels = [range(len(self.levels[app.name])) for app in self.wish.apps]
        return sorted(product(*all_levels), key=lambda one: (-self.quality(one), one))

    def quality(self, choice: Sequence[int]) -> float:
        """The mean quality of a choice by the rates of applications that have one."""
        return _mean(
            self.wish, [self.levels[app.name][n].quality for app, n in zip(self.wish.apps, choice, strict=True)]
        )

    def below(self, choice: Sequence[int]) -> float:
        """What no plan of a choice reaches: of a pipeline the next floor is not shown to be the next quality."""
        levels = [self.levels[app.name][n] for app, n in zip(self.wish.apps, choice, strict=True)]
        return _mean(self.wish, [one.quality if one.below is None else one.below for one in levels])

    def is_harder(self, choice: Sequence[int], other: Sequence[int]) -> bool:
        """Whether a choice asks for more than another, in floors; of single variants neither asks for more."""
        for app, mine, its in zip(self.wish.apps, choice, other, strict=True):
            levels = self.levels[app.name]
            if mine > its or (mine < its and levels[mine].floor is None):
                return False
        return True

    def files(self, choice: Sequence[int]) -> FleetRequest:
        """The wish in which each application is served so."""
        inputs = self.wish.inputs
        for app, number in zip(self.wish.apps, choice, strict=True):
            level = self.levels[app.name][number]
            if level.variant is not None:
                inputs = of_one_variant(inputs, app.name, level.variant)
            elif level.floor is not None:
                inputs = inputs.with_app(app.name, quality=QualityTarget(min=level.floor))
        return replace(self.wish, inputs=inputs)

    def search(self, choice: Sequence[int], rate: float | None = None) -> Search:
        """The search of a choice; `rate` is that of the application of which the most is wanted."""
        wish, parts = self.files(choice), dict[str, Part]()
        for app, number in zip(self.wish.apps, choice, strict=True):
            if (app.name, number) not in self.parts:
                self.parts[app.name, number] = self.part_of(wish, app)
            parts[app.name] = self.parts[app.name, number]
        if rate is not None:
            apps = [replace(app, rates=(rate,)) if app.name == wish.most else app for app in wish.apps]
            wish = replace(wish, apps=tuple(apps))
        return Search.of(wish, parts, self.ask)

    def cost(self, choice: Sequence[int]) -> float:
        """What a choice costs at least: each application by itself, at the lowest prices."""
        search = self.search(choice)
        prices = search.lowest()
        wanted = [(app, search.wish.rate(app, 0), prices) for app in search.wish.apps]
        menus = CandidateColumns(search.wish, search.menus.parts)
        return sum(bound for bound, _ in menus.price(self.ask, wanted)) * self.wish.length(0)


def needs_levels(wish: FleetRequest) -> bool:
    """Whether a request asks for more than the cheapest machines for given variants, so that levels must be tried."""
    if wish.periods > 1:
        return False
    pools = (wish.request.apps[app.name] for app in wish.apps if app.question == "pool")
    limited = wish.stated and wish.request.changes is not None
    return wish.goal != "cost" or limited or any(len(app.variants) > 1 for app in pools)


def best_fleet_of_period(
    wish: FleetRequest, part_of: PartOf, ask: Ask
) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
    """The best fleet of one period for its objective, with its parts by application; or why there is none."""
    between = LevelSearch(wish, part_of, ask)
    if wish.goal == "rate":
        return _most_rate(between)
    if wish.goal == "changes":
        return _fewest_moves(between)
    return _best_quality(between) if wish.goal == "quality" else _least_cost(between)


def _qualities(wish: FleetRequest, app: Application) -> dict[str, float | None]:
    """The variants that may serve an application by its files, the quality asked for included, each with its own."""
    asked = wish.request.apps[app.name]
    known = {name: wish.request.known.quality(name) for name in asked.variants}
    if not asked.has_quality_limit:
        return known
    return {name: one for name, one in known.items() if one is not None and asked.meets_quality(one, slip=1e-12)}


def _levels(wish: FleetRequest, app: Application) -> list[Level]:
    qualities = _qualities(wish, app)
    if app.question == "pool":
        if not qualities:
            why, remedy = "no variant that it may run has the quality asked for", "Lower its quality."
            raise InputError.one(file="slo", path=f"$.apps.{app.name}.quality", why=why, remedy=remedy)
        ordered = sorted(qualities, key=lambda name: (-(qualities[name] or 0.0), name))
        return [Level(qualities[name], variant=name) for name in ordered]
    if wish.goal != "quality":
        return [Level(None)]
    if app.question == "pipeline":
        return _of_pipeline(wish, app)
    stated = sorted({value for value in qualities.values() if value is not None}, reverse=True)
    return [Level(value, floor=value) for value in stated] if stated and app.question == "variants" else [Level(None)]


def _of_pipeline(wish: FleetRequest, app: Application) -> list[Level]:
    """Floors from the best quality that its steps have down to the floor of the files, or to the worst."""
    request = wish.request
    asked, pipeline = request.apps[app.name], request.profile.pipelines[request.apps[app.name].pipeline or ""]
    best = worst = 1.0
    for names in request.steps(app.name).values():
        known = [one for name in names if (one := request.known.quality(name)) is not None]
        best, worst = best * max(known, default=1.0), worst * min(known, default=1.0)
    if pipeline.quality.rule != "product":
        best, worst = 1.0, 0.0
    least = worst if asked.floor is None else asked.floor
    floors = [best - (best - least) * step / (STEPS - 1) for step in range(STEPS)] if best > least else [least]
    return [Level(one, floor=one, below=best if n == 0 else floors[n - 1]) for n, one in enumerate(floors)]


def _mean(wish: FleetRequest, qualities: Sequence[float | None]) -> float:
    known = [(app.rates[0], one) for app, one in zip(wish.apps, qualities, strict=True) if one is not None]
    total = sum(rate for rate, _ in known)
    return sum(rate * one for rate, one in known) / total if total > 0 else 0.0


def _found(search: Search) -> tuple[Found | None, str]:
    """The cheapest fleet of a search with all its parts settled, or why there is none."""
    if is_own_problem(search):
        return _alone(search)
    once = cheapest_of_one(search)
    if once.fleet is None:
        return None, "" if once.impossible else "the engine found no machines in its time"
    parts, refused = plan_parts(search, once.fleet)
    if refused:
        return None, next(iter(refused.values()))
    return Found(search.wish, once.fleet, parts, Bound(once.answer.bound or 0.0)), ""


def is_own_problem(search: Search) -> bool:
    """Whether one application's own problem finds the cheapest machines: nothing but stock and a budget limits it."""
    wish, asked = search.wish, search.wish.request
    (part, *others) = search.menus.parts.values()
    limited = asked.shares or asked.resources or asked.instances or asked.only_listed or wish.stated
    quotas = any(asked.quotas.values())
    bought = any(offer.reserved_price is not None for offer in wish.offers)
    return isinstance(part, Table) and not (others or limited or quotas or bought) and len(wish.situations) == 1


def _alone(search: Search) -> tuple[Found | None, str]:
    """The cheapest machines of one application, asked of its question: without a stock first, and then within it.

    What is dearer than the budget without a stock is so within one; this spares most questions that have no answer.
    """
    wish, ((app, part),) = search.wish, ((app, search.menus.parts[app.name]) for app in search.wish.apps)
    assert isinstance(part, Table)
    budget = wish.request.budget
    top = HUGE if budget is None else int(ROOM * budget / NANO / max(float(wish.prices.min()), 1e-9)) + 1
    roomy = {offer.name: top for offer in wish.offers}
    stock = {offer.name: min(offer.stock, top) for offer in wish.offers}
    machines, least = (0,) * len(wish.offers), list[float]()
    for held in (roomy, stock) if budget is not None else (stock,):
        search.menus.counted[0] += 1
        most = {h: (0, sum(held[wish.offers[n].name] for n in wish.on(h))) for h in part.hardware}
        plan = part.own_plan(part.files(wish.rate(app, 0), most, held))
        if isinstance(plan, str):
            return None, ""
        least = [claim.bound for claim in plan.claims if claim.about == "cost_per_hour" and claim.bound is not None]
        counts = Counter[str]()
        for worker in plan.workers:
            counts[worker.offer or ""] += worker.count + worker.standby
        machines = tuple(counts[offer.name] for offer in wish.offers)
        cost = float(wish.prices @ np.array(machines))
        if budget is not None and cost > budget / NANO * (1 + 1e-9):
            return None, ""
        if all(count <= offer.stock for count, offer in zip(machines, wish.offers, strict=True)):
            break
    fleet = Fleet((0,) * len(machines), {(app.name, 0): Choice(machines)}, (machines,))
    parts, refused = plan_parts(search, fleet)
    if refused:
        return None, next(iter(refused.values()))
    return Found(wish, fleet, parts, Bound(min(least, default=0.0) * wish.length(0))), ""


def _least_cost(between: LevelSearch) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
    """The cheapest choice: in the order of what each costs at least, until that is more than what is known."""
    bounds = {choice: between.cost(choice) for choice in between.choices}
    order = sorted(between.choices, key=lambda one: (bounds[one], one))
    best: tuple[float, Found, Search] | None = None
    least = float("inf")
    for choice in order:
        if best is not None and bounds[choice] >= best[0] - 1e-9:
            least = min(least, bounds[choice])
            break
        search = between.search(choice)
        found, why = _found(search)
        least = min(least, found.shown.value if found is not None else bounds[choice] if why else float("inf"))
        if found is not None:
            cost = found.cost_per_hour * between.wish.length(0)
            if best is None or cost < best[0] - 1e-9:
                best = cost, found, search
    if best is None:
        return explain_infeasible(_begun(between.search(order[0])))
    return replace(best[1], shown=Bound(min(least, best[0]))), best[2].menus.parts


def _fewest_moves(between: LevelSearch) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
    """The fewest machines anew, of all choices; of those the cheapest."""
    best: tuple[float, float, Found, Search] | None = None
    for choice in between.choices:
        search = between.search(choice)
        found, _ = _found(search)
        if found is not None:
            moves = moves_of(search.wish, found.fleet.choices)
            if best is None or (moves, found.cost_per_hour) < best[:2]:
                best = float(moves), found.cost_per_hour, found, search
    if best is None:
        return explain_infeasible(_begun(between.search(between.choices[0])))
    fewest, _, found, search = best
    note = "machines that an application gets new, beside those that run: by the program of one period"
    goal = Reported("changes", "min", "problem", value=fewest, bound=fewest, vouched="claimed", note=note)
    return replace(found, goal=goal, shown=Bound()), search.menus.parts


def _begun(search: Search) -> Search:
    search.begin()
    return search


def _best_quality(between: LevelSearch) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
    """The first choice that can be had, from the best down; of those of one quality the cheapest."""
    never, bound = list[tuple[int, ...]](), -float("inf")
    best: tuple[float, Found, Search] | None = None
    reached = -float("inf")
    for choice in between.choices:
        quality = between.quality(choice)
        if best is not None and quality < reached - 1e-12:
            break
        if any(between.is_harder(choice, one) for one in never):
            continue
        search = between.search(choice)
        between.ask.note(Event("fleet", detail=f"quality {quality:.6g}"))
        found, why = _found(search)
        if found is None:
            if why:
                bound = max(bound, between.below(choice))  # not shown to be impossible
            else:
                never.append(choice)
            continue
        bound = max(bound, between.below(choice))
        cost = found.cost_per_hour
        if best is None or cost < best[0] - 1e-9:
            best, reached = (cost, found, search), quality
    if best is None:
        return explain_infeasible(_begun(between.search(between.choices[-1])))
    _, found, search = best
    value = quality_of(found)
    note = (
        "one choice of variants after the other, best first: the mean, by rates, of the least quality of each "
        "application's answers; of pipelines, of the floors tried"
    )
    goal = Reported("quality", "max", "problem", value=value, bound=max(bound, value), vouched="claimed", note=note)
    return replace(found, goal=goal), search.menus.parts


def quality_of(found: Found) -> float:
    """The mean quality that the parts of a fleet of one period have, by the rates of its applications."""
    wish, qualities = found.wish, list[float | None]()
    for app in wish.apps:
        part = found.parts.get((app.name, 0))
        qualities.append(None)
        if part is None:
            continue
        if part.question == "pipeline":
            said = [one.value for one in part.promises if one.quantity == "quality" and one.app == app.name]
            qualities[-1] = min(said, default=None)
        elif part.question in ("pool", "variants"):
            used = {load.variant for worker in part.workers for load in worker.loads if load.app in (app.name, None)}
            known = [wish.request.known.quality(name) for name in used if name is not None]
            if None not in known:
                qualities[-1] = min((one for one in known if one is not None), default=None)
    return _mean(wish, qualities)


def _most_rate(between: LevelSearch) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
    """The most rate of one application beside the others, by halving, for the best of all choices.

    Where half the way was too much, it is asked whether machines that carry no more were the best.
    """
    near = max(between.wish.options.gap, 1e-6)
    never = dict[tuple[int, ...], float]()
    low, high, best = 0.0, 1.0, None
    while high < LARGEST and (found := _reached(between, high, never)) is not None:
        low, best = found.rate, found
        high = max(2.0 * high, low * (1.0 + EXACT))
    while best is None and high > LEAST:
        high /= 2.0
        best = _reached(between, high, never)
        low, high = (best.rate, 2.0 * high) if best is not None else (0.0, high)
    if best is None:
        return explain_infeasible(_begun(between.search(between.choices[-1], LEAST)))
    failed = True
    while high - low > near * low:
        closer = failed and best.exact and high > low * (1.0 + EXACT) * (1.0 + 1e-9)
        middle = low * (1.0 + EXACT) if closer else _digits(0.5 * (low + high))
        if not low < middle < high:
            break
        found = _reached(between, middle, never)
        failed = found is None
        if found is None:
            high = middle
        else:
            low, best = found.rate, found
        between.ask.note(Event("fleet", detail=f"rate of {between.wish.most}", value=low, bound=high))
    note = "the most beside the others: no machines within the limits carry the bound, by programs of one period"
    goal = Reported("rate_qps", "max", "problem", value=low, bound=high, vouched="claimed", note=note)
    return replace(best.found, goal=goal), best.search.menus.parts


@dataclass(frozen=True)
class _Reached:
    """A fleet of so much rate; `exact` where its machines carry no more."""

    rate: float
    found: Found
    search: Search
    exact: bool


def _reached(between: LevelSearch, rate: float, never: dict[tuple[int, ...], float]) -> _Reached | None:
    """A fleet of this rate or more, by any choice; `never` is from which rate on a choice has none."""
    for choice in between.choices:
        if never.get(choice, float("inf")) <= rate:
            continue
        search = between.search(choice, rate)
        found, _ = _found(search)
        if found is None:
            never[choice] = rate
            continue
        more = _digits(_carried(search, found, between.wish.most or ""))
        if more > rate:
            search = between.search(choice, more)
            again, _ = _found(search)
            if again is not None:
                return _Reached(more, again, search, exact=True)
            search = between.search(choice, rate)
        return _Reached(rate, found, search, exact=0 < more <= rate)
    return None


def _carried(search: Search, found: Found, name: str) -> float:
    """How much of an application its machines carry, in every situation; 0 where only its question can say."""
    part, wish = search.menus.parts[name], search.wish
    if not isinstance(part, Cone):
        return 0.0
    machines = found.fleet.choices[name, 0].machines
    most = [part.max_rate(surviving(wish, part, machines, f)) / f.keep for f in wish.situations if f.keep > 0]
    return min(most) / wish.more_for(name)


def _digits(rate: float) -> float:
    """Rounded down to a few digits."""
    if rate <= 0:
        return 0.0
    step = 10.0 ** (floor(log10(rate)) - DIGITS + 1)
    return floor(rate / step + 1e-9) * step
