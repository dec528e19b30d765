"""Solves a fleet: from the search's prices to whole machines, each part's own plan, and a draft with its bill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from hetplan.errors import InputError, Interrupted
from hetplan.planner.answer import Answer, Vouched
from hetplan.planner.choices import Choice
from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.draft import Infeasibility, Repair, Reported
from hetplan.planner.fleet_part import Cone, Part, Table
from hetplan.planner.forms.form import certify
from hetplan.problems.fleet.candidate_columns import left_of, surviving
from hetplan.problems.fleet.program import Planned, planned
from hetplan.problems.fleet.request import PLAYED, Application, FleetRequest
from hetplan.problems.fleet.rounding import FEW_PAIRS, Descent, best_fleet, descend_repeatedly, refine_fleet
from hetplan.problems.fleet.search import (
    FEW,
    MOST_PROGRAMS,
    REFINED,
    Fleet,
    Relaxation,
    Search,
    cost_of,
    cost_per_hour,
    is_over,
)
from hetplan.profiles.plan import Notice
from hetplan.profiles.plan_parts import Part as PlanPart

__all__ = [
    "AUTO",
    "BESIDE",
    "SAYS_SIZE",
    "SIZED",
    "Bound",
    "Found",
    "Planner",
    "Together",
    "excluding_factor",
    "find_prices",
    "has_formula",
    "is_quick",
    "is_small",
    "needs_on",
    "part_of",
    "parts_of",
    "plan_parts",
    "planner_of",
    "search_fleet",
    "table_of",
    "with_margins",
    "with_parts_replanned",
]

FEW_AT_ONCE = 72
"""Up to so many applications times periods times situations are one program: HiGHS takes a second of most of these."""
FEW_OF_TEXT = 16
"""Machines of text whose requests are played within seconds."""
CONES = {name: f"hetplan.problems.{name}.part" for name in ("pool", "llm", "variants")}
"""Questions of which a program may say what machines carry."""
PLANNED: Mapping[str, Mapping[str, Any]] = {
    "pool": {"sizing": "fluid"},
    "llm": {"sizing": "fluid"},
    "pipeline": {"sizing": "fluid"},
    "variants": {"sizing": "fluid"},
    "policy": {"batching": "max"},
}
ESTIMATED = {**PLANNED, "pipeline": {"sizing": "formula"}, "variants": {"sizing": "formula"}}
"""Pools get room later, by their formula (`sizing`); text has its `margins`.

Policies are looked for with whole batches, which are found ten times as soon, and are made of any where they are best.
"""
AUTO = {
    **ESTIMATED,
    "pool": {"sizing": "fluid", "derate": 1.0},
    "llm": {"sizing": "fluid", "margins": "laws"},
}
"""Pools and text that are played get the room that they turn out to need, and none before: a bound is of all machines
on which they might keep their wish."""
SAYS_SIZE = frozenset({"sizing", "derate", "margins"})
"""Who sets these of an application sizes it by nothing else."""
SIZES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"fluid": PLANNED, "formula": ESTIMATED, "simulation": AUTO}
"""What parts are asked with while machines are looked for."""
BESIDE = ("variants", "pipeline")
"""Questions that say of an instance what it takes of a machine, as their programs put several on one."""
SIZED = ("formula", "simulation")
"""With these sizes pools have room to wait, by their formula."""
MOST_OF_ONE = 64
"""Machines of each hardware with which a formula should find some plan."""
MOST_RECIPES = 400
"""Plans of one application at one rate that are compared."""
MOST_RETRIES = 12
MOST_LOOKS = 24
"""So often machines with more room are looked for, for one application in one period."""
FEW_CHANGED = 0.1
"""Where no more of all applications and periods need more room, other periods keep their machines."""
MORE = 1.001
"""Machines that are short are worth so much less than what their program needs: it then takes others."""
OVER = Infeasibility(
    why=("the time limit ended, or the solve was interrupted, before machines for all applications were found",),
    proved=False,
)


@dataclass(frozen=True)
class Together:
    """What several applications run on machines that they share in a period: their plan, and those after failures.

    A worker that the parts of two of these name alike is on the same machines: they share these too.
    """

    part: PlanPart
    after: Mapping[str, PlanPart]


@dataclass(frozen=True)
class Bound:
    """What no fleet costs less than, over the horizon, and what shows it: prices, or the one program's answer."""

    value: float = 0.0
    rounds: int = 0
    prices: tuple[Mapping[str, Any], ...] = ()
    """As a plan carries them."""
    served: Mapping[str, float] = field(default_factory=dict)
    """How much of it each application is, by these prices."""
    answer: Answer[Any] | None = None
    rows: Mapping[str, Any] = field(default_factory=dict)
    """Of which machines each application's rows in that program are."""
    search: Search | None = field(default=None, repr=False, compare=False)
    """Who asked it."""

    def without(self, names: Iterable[str]) -> Bound:
        """The same where these applications count as free."""
        free = {*names} & {app.name for app in self.search.wish.apps} if self.search is not None else {*names}
        if not free:
            return self
        if self.search is None:
            return replace(self, value=max(self.value - sum(self.served.get(name, self.value) for name in free), 0.0))
        left = tuple(app for app in self.search.wish.apps if app.name not in free)
        return bound_of_program(replace(self.search, wish=replace(self.search.wish, apps=left))) if left else Bound()


@dataclass(frozen=True)
class Found:
    """A whole fleet, its settled parts by application and period, and the bound that the search proved."""

    wish: FleetRequest
    fleet: Fleet
    parts: Mapping[tuple[str, int], PlanPart]
    shown: Bound = field(default_factory=Bound)
    goal: Reported | None = None
    """What is best in place of the least cost, where that was wished."""
    notices: tuple[Notice, ...] = ()
    room_seen: frozenset[str] = frozenset()
    """Applications of which it was looked at whether their queues have room: who has not is named in `notices`."""
    missed: str = ""
    """Who was played, and has fewer machines than its queues need."""
    repairs: tuple[Repair, ...] = ()
    together: Mapping[int, tuple[Together, ...]] = field(default_factory=dict)
    """What applications run on machines that they share, by period: of each question that may."""
    may_share: tuple[str, ...] = ()
    """Applications that may: the bound, in which nobody shares, counts them as free."""
    formula: tuple[str, ...] = ()
    """Applications of which the bound is one of fleets that leave them the room that a formula asks for."""
    bounded: FleetRequest | None = None
    """The wish that the bound is of, where it is of more fleets than were searched for these machines."""
    after: Mapping[tuple[str, int, str], PlanPart] = field(default_factory=dict)
    """What runs after a failure where it is known already: by application, period and failure."""
    search: Search | None = field(default=None, repr=False, compare=False)
    """The search over all rates that gave the bound: its prices, and the choices known."""
    unsettled: Search | None = field(default=None, repr=False, compare=False)
    """The search that found machines for which parts are still to be settled."""

    @property
    def cost_per_hour(self) -> float:
        """What its machines cost per hour."""
        return cost_per_hour(self.wish, self.fleet)


Planner = Callable[[FleetRequest, Found | None], tuple[Found, Mapping[str, Part]] | Infeasibility]
"""Plans a fleet for a wish; it is handed the fleet before it, if any."""


def parts_of(wish: FleetRequest, tools: Tools) -> dict[str, Part]:
    """Each application as a part, by its question; where a formula finds no machines at all, by simulation alone."""
    found = dict[str, Part]()
    for app in wish.apps:
        try:
            found[app.name] = part_of(wish, app, tools)
        except InputError as error:
            where = f"$.parts.{app.name}"
            faults = [replace(one, path=where + one.path[1:]) if one.file == "options" else one for one in error.faults]
            raise InputError(faults) from None
    for app in wish.apps if wish.options.sizing == "simulation" else ():
        part = found[app.name]
        if app.question not in PLAYED or part.options.get("sizing") != "formula":
            continue
        if not part.carries([MOST_OF_ONE] * len(part.hardware), max(app.rates)):
            found[app.name] = table_of(wish, app, tools).without_answers(
                options={**part.options, "sizing": "simulation"}
            )
    return found


def part_of(wish: FleetRequest, app: Application, tools: Tools) -> Part:
    """An application as a part, by its question: by its program where that says what machines carry."""
    table = table_of(wish, app, tools)
    if not _is_written(wish, app):
        return table
    module = import_module(CONES[app.question])
    played = SIZES.get(wish.options.sizing) is AUTO and not wish.options.parts.get(app.name, {}).keys() & SAYS_SIZE
    cone = module.without_margins if played and app.question == "llm" else module.cone
    how = {"simulate": tools.extra.get("simulate_plan")} if app.question == "pool" else {}
    made: Part | None = cone(Cone.of(table, needs=table.needs, alone=table.alone), tools.extra["at_capacities"], **how)
    return made or table


def table_of(wish: FleetRequest, app: Application, tools: Tools) -> Table:
    """An application as a part of which its question alone says what machines carry."""
    inputs, asked = wish.inputs, _asked(wish, app)
    solve = tools.extra.get("plan_for")
    if solve is None:
        raise InputError.one(
            file="options", path="sizing",
            why="a fleet asks the questions of its parts, and no way to ask was handed in",
            remedy='Hand in Tools(extra={"plan_for": hetplan.api.solve.plan_for}).',
        )  # fmt: skip
    sold = {offer.machine for offer in wish.offers}
    runs = wish.request.choices(app.name)
    hardware = tuple(name for name in sorted({one.hardware for one in runs}) if name in sold)
    table = Table(app.name, app.question, hardware, inputs, asked, solve, recipes=MOST_RECIPES)
    if app.question in BESIDE and asked.get("share_machines", True):
        alike = {one.hardware: one for one in runs if _takes_alike(wish, one, runs)}
        table.needs = {name: one.takes for name, one in alike.items()}
        table.alone = {name: one.per_machine for name, one in alike.items()}
    return table


def _asked(wish: FleetRequest, app: Application) -> Mapping[str, Any]:
    """The options with which the question of an application is asked while machines are looked for."""
    own, sizes = dict(wish.options.parts.get(app.name, {})), SIZES.get(wish.options.sizing, {})
    sizes = PLANNED if app.question == "llm" and own.keys() & SAYS_SIZE and sizes is AUTO else sizes
    return {**sizes.get(app.question, {}), **own}


def _is_written(wish: FleetRequest, app: Application) -> bool:
    """Whether its program says what machines carry of an application."""
    sizing = _asked(wish, app).get("sizing")
    if app.question == "variants":
        return sizing in ("fluid", "formula")
    return sizing == "fluid" and app.question in CONES and not _several(wish, app)


def with_margins(wish: FleetRequest, parts: Mapping[str, Part]) -> FleetRequest:
    """The wish, in which what nobody will play is planned with the margins of its program."""
    mine = [app for app in wish.apps if isinstance(one := parts.get(app.name), Cone) and one.firm is not None]
    return replace(wish, firm=frozenset((app.name, wish.rate(app, p)) for app in mine for p in range(wish.periods)))


def _several(wish: FleetRequest, app: Application) -> bool:
    """Whether a hardware may run more than one variant of the application."""
    seen: set[str] = set()
    for name in wish.request.apps[app.name].variants:
        own = {one.hardware for one in wish.request.choices(variants=[name])}
        if own & seen:
            return True
        seen |= own
    return False


def needs_on(wish: FleetRequest, app: Application, hardware: str) -> list[Mapping[str, float]]:
    """What an instance of an application takes of a machine, by each run that says so; policies have whole machines."""
    runs = wish.request.choices(app.name, hardware=hardware) if app.question != "policy" else ()
    return [one.takes for one in runs if one.says_all]


def _takes_alike(wish: FleetRequest, choice: Choice, runs: Sequence[Choice]) -> bool:
    """Whether an instance takes as much of a machine as one of any other run there, and no neighbour slows it down."""
    others = [one for one in runs if one.hardware == choice.hardware]
    paid = wish.request.is_sold_in_parts(choice.hardware)
    apart = any(one.run.slowdown is not None or one.own_price is not None or not one.is_timed for one in others)
    alike = all(one.takes == choice.takes for one in others)
    return alike and not (paid or apart) and bool(choice.computes) and choice.says_all


def search_fleet(
    wish: FleetRequest, parts: Mapping[str, Part], ask: Ask, *, settle: bool = True, foresee: bool = True
) -> Found | Infeasibility:
    """The cheapest fleet found, each part planned by its own problem; or why there is none.

    Without `settle` its parts are settled later (`with_parts_replanned`); without `foresee` pools get room only then.
    """
    from hetplan.problems.fleet.infeasible import conflicting_limits, explain_infeasible

    search = Search.of(wish, parts, ask)
    if (limits := search.contradictions()) is not None:
        return conflicting_limits(search, limits)
    at_once = _at_once(search, settle=settle) if is_one_program(wish) and not is_over(ask) else None
    if at_once is not None and at_once.shown.answer is not None:
        return at_once
    each = search.over(search.equal_periods)
    like = each.over(each.groups)
    if not like.begin():
        if is_over(ask):
            return OVER
        search.begin()
        return explain_infeasible(search)
    relaxed = find_prices(search, each, like)
    search.bound, search.rounds = each.bound, each.rounds
    if relaxed.missing > FEW and at_once is None:
        return OVER if is_over(ask) else explain_infeasible(search)
    prices = tuple(each.plan_prices(search.equal_periods if each is not search else [[p] for p in range(wish.periods)]))
    shown = Bound(search.bound, search.rounds, prices, each.bound_by_app() if each.best is not None else {})
    if at_once is not None:
        return replace(at_once, shown=shown)
    stated, roomy = wish, wish if not foresee or is_over(ask) else with_forecast_headroom(search, each)
    if roomy.room != wish.room:
        other = Search(roomy, ask, search.menus.roomier(roomy), limits=search.limits)
        anew = _from(other, each, like)
        if anew is not None:
            wish, search = roomy, other
            each, like, relaxed = anew
    refused: dict[tuple[str, int], str] = {}
    for _ in range(MOST_RETRIES):
        fleet = best_fleet(search, each, like, relaxed)
        if fleet is None and wish is not stated and not is_over(ask):
            return search_fleet(stated, parts, ask, settle=settle, foresee=False)
        if fleet is None:
            return OVER if is_over(ask) else explain_infeasible(search, refused)
        found = Found(wish, fleet, {}, shown, search=each, unsettled=search)
        if not settle:
            return found
        settled, refused = plan_parts(search, fleet)
        if not refused:
            return replace(found, parts=settled, unsettled=None)
        ask.note(Event("fleet", detail=f"{len(refused)} choices do not settle: {next(iter(refused.values()))}"))
        for (name, p), _ in refused.items():
            search.menus.drop(name, p, fleet.choices[name, p])
        relaxed = find_prices(search, each, like)
    why = ("machines that carry the rates by their rows do not settle into plans", *dict.fromkeys(refused.values()))
    return Infeasibility(why=why, proved=False)


def is_one_program(wish: FleetRequest) -> bool:
    """Whether one program says at once which fleet is cheapest."""
    return is_small(wish) and wish.periods * len(wish.apps) * len(wish.situations) <= FEW_AT_ONCE


def _at_once(search: Search, *, settle: bool) -> Found | None:
    """The fleet of the one program; None where it gives none whose parts settle."""
    wish = search.wish
    program = planned(search, gap=wish.options.gap)
    if program.fleet is None:
        return None
    found = Found(wish, program.fleet, {}, _shown(search, program))
    if not settle:
        return found
    settled, refused = plan_parts(search, program.fleet)
    for name, p in refused:
        search.menus.drop(name, p, program.fleet.choices[name, p])
    return None if refused else replace(found, parts=settled)


def bound_of_program(search: Search) -> Bound:
    """The lower bound of the single program of a small fleet."""
    return _shown(search, planned(search, gap=search.wish.options.gap))


def _shown(search: Search, program: Planned) -> Bound:
    """Of parts that are rows themselves, where it is proved: what a question says when it is asked is not, again."""
    parts = search.menus.parts
    rows = {name: [*part.cuts] for name, part in parts.items() if isinstance(part, Cone)}
    known = Bound(program.answer.bound or 0.0, answer=program.answer, rows=rows, search=search)
    proved = certify(program.form, program.answer).vouched is Vouched.CERTIFIED
    return known if proved and len(rows) == len(parts) else Bound()


def find_prices(search: Search, each: Search, like: Search) -> Relaxation:
    """The relaxation and dual prices of every rate; of many rates first those of groups of similar ones."""
    wish, ask = search.wish, search.ask
    near = wish.options.gap / 3 if like is each else wish.options.gap
    relaxed = like.converge(near, wish.most_rounds)
    if like is not each and not is_over(ask):
        with suppress(Interrupted):
            each.lift(like, each.groups)
            left = int((MOST_PROGRAMS - search.menus.n_programs) // len(each.pairs))
            each.converge(wish.options.gap / 3, max(REFINED, left))
    return relaxed


def _from(search: Search, each: Search, like: Search) -> tuple[Search, Search, Relaxation] | None:
    """The same searches over other choices, from the prices found; None where an application has no choice."""
    others: list[Search] = []
    for before in (each, like) if like is not each else (each,):
        other = search.over(search.equal_periods) if before is each else others[0].over(each.groups)
        other.best, other.limits = before.best, before.limits
        others.append(other)
    every, some = others[0], others[-1]
    if not some.begin():
        return None
    relaxed = find_prices(search, every, some)
    search.bound, search.rounds = every.bound, every.rounds
    return None if relaxed.missing > FEW else (every, some, relaxed)


def with_forecast_headroom(search: Search, each: Search) -> FleetRequest:
    """The request with the headroom that pools will need for queueing, by their cheapest machines at these prices."""
    wish, menus, room = search.wish, each.menus, dict(search.wish.room)
    for number, app in enumerate(wish.apps):
        part = menus.parts[app.name]
        if not isinstance(part, Cone) or not has_formula(wish, part):
            continue
        for p, prices in enumerate(each.hourly()):
            rate = each.wish.apps[number].rates[p]
            for _ in range(MOST_LOOKS if rate else 0):
                planned = replace(wish, room=room).rate(replace(app, rates=(rate,)), 0)
                if (app.name, planned) in wish.seen:
                    break  # it was played
                ((_, choice),) = menus.price(search.ask, [(app, planned, prices)])
                more = (
                    excluding_factor(wish, part, choice.machines, rate * (1.0 + wish.options.headroom))
                    if choice
                    else 0.0
                )
                if not more:
                    break
                room[app.name, rate] = max(more, MORE * room.get((app.name, rate), 1.0))
    return replace(wish, room=room)


def excluding_factor(wish: FleetRequest, part: Cone, machines: Sequence[int], rate: float) -> float:
    """The factor on a rate that excludes machines with too little headroom by the formula; 0 where they have enough."""
    found = []
    for situation in wish.situations:
        left = surviving(wish, part, machines, situation)
        if situation.keep and not part.has_room(left, rate * situation.keep):
            found.append(MORE * part.max_rate(left) / (rate * situation.keep))
    return min(found, default=0.0)


def has_formula(wish: FleetRequest, part: Part) -> bool:
    """Whether the room that queries need is a formula's, of machines: of pools that size themselves by nothing else."""
    said = wish.options.parts.get(part.app, {}).keys() & SAYS_SIZE
    return wish.options.sizing in SIZED and isinstance(part, Cone) and part.kept is not None and not said


def is_small(wish: FleetRequest) -> bool:
    """Whether it has few applications times periods: it can be searched again for each round of room."""
    return wish.periods * len(wish.apps) <= FEW_PAIRS


def is_quick(wish: FleetRequest, parts: Mapping[str, Part]) -> bool:
    """Whether what may help is tried as a fleet is planned: played, with room to wait. Much text takes too long."""
    text = [app for app in wish.apps if app.question == "llm"]
    return is_small(wish) and all(app.name in parts and _is_little(parts[app.name], max(app.rates)) for app in text)


def _is_little(part: Part, rate: float) -> bool:
    """Whether few machines of some hardware carry it."""
    few = FEW_OF_TEXT * np.eye(len(part.hardware))
    return any(part.carries(tuple(machines), rate) for machines in few)


def roomier(before: Found, wish: FleetRequest, ask: Ask) -> Found | None:
    """A fleet for more room than one before, at the prices that gave its bound; None: it has to be searched for whole.

    Only whole machines are looked for anew: what is dear is the search for prices, and those hardly change. Its parts
    are not settled yet (`with_parts_replanned`).
    """
    old = before.search
    if old is None or old.best is None or wish.request.changes is not None or is_small(wish):
        return None
    search = Search(wish, ask, old.menus.roomier(wish), limits=old.limits)
    each = search.over(search.equal_periods)
    each.best, each.bound = old.best, old.bound
    each.worth(old.best)
    changed = [(app, p) for app, p in search.pairs if _is_changed(before.wish, wish, app, p)]
    few = not wish.places and len(changed) <= FEW_CHANGED * len(search.pairs)
    fleet = (_mended(search, each, before.fleet, changed) if few else None) or _cheapest(search, each, before.fleet)
    return replace(before, wish=wish, fleet=fleet, search=each, unsettled=search) if fleet is not None else None


def planner_of(parts: Mapping[str, Part], ask: Ask) -> Planner:
    """Who plans a fleet for a wish, from the one before it where there is one."""

    def plan(wish: FleetRequest, last: Found | None) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
        near = roomier(last, wish, ask) if last is not None else None
        found = near or search_fleet(wish, parts, ask, settle=is_small(wish))
        return found if isinstance(found, Infeasibility) else (found, parts)

    return plan


def _is_changed(before: FleetRequest, wish: FleetRequest, app: Application, p: int) -> bool:
    """Whether an application needs more room in a period than it did."""
    rate = before.rate(app, p)
    key = app.name, rate
    return rate != wish.rate(app, p) or before.rooms.get(key) != wish.rooms.get(key) or key in wish.firm - before.firm


def _mended(search: Search, each: Search, before: Fleet, changed: Sequence[tuple[Application, int]]) -> Fleet | None:
    """A fleet that differs from one before only in periods in which something changed, and commits the same."""
    wish, names = search.wish, [app.name for app in search.wish.apps]
    place = {p: number for number, periods in enumerate(search.equal_periods) for p in periods}
    down, committed = Descent(each, each.hourly()), np.array(before.committed, dtype=float)
    taken = [np.array([before.choices[name, periods[0]].array for name in names]) for periods in search.equal_periods]
    others = dict.fromkeys((place[p], names.index(app.name)) for app, p in changed)
    mended = down.repair_periods(committed, taken, others)
    return None if mended is None else down.fleet(search, committed, [mended[place[p]] for p in range(wish.periods)])


def with_parts_replanned(found: Found, by: Mapping[str, Part]) -> Found | None:
    """The fleet with its parts planned by `by`, on other machines where these do not suffice; None where that fails."""
    search, fleet = found.unsettled, found.fleet
    if search is None or found.search is None:
        return found
    for _ in range(MOST_RETRIES):
        settled, refused = plan_parts(search, fleet, by)
        if not refused:
            return replace(found, fleet=fleet, parts=settled, unsettled=None)
        for name, p in refused:
            search.menus.drop(name, p, fleet.choices[name, p])
        other = _cheapest(search, found.search, fleet)
        if other is None:
            break
        fleet = other
    return None


def _cheapest(search: Search, each: Search, before: Fleet) -> Fleet | None:
    """The cheapest of the whole fleets that begin with what one before committed."""
    fleets = descend_repeatedly(search, each, np.array(before.committed, dtype=float), turns=1)
    found = min(fleets, key=lambda one: cost_of(search.wish, one), default=None)
    return None if found is None else refine_fleet(search, found)


def plan_parts(
    search: Search, fleet: Fleet, by: Mapping[str, Part] | None = None
) -> tuple[dict[tuple[str, int], PlanPart], dict[tuple[str, int], str]]:
    """Plans each application in each period by its own problem, after failures too: plans, and reasons of refusals.

    `by`: who settles it, where that is not who says what machines carry.
    """
    wish, done, refused = search.wish, {}, {}
    by = search.menus.parts if by is None else by
    for number, (app, p) in enumerate(search.pairs):
        if app is wish.apps[0]:
            search.ask.note(
                Event(
                    "fleet",
                    detail=f"plans of applications, {number // len(wish.apps)} of {wish.periods} periods",
                    bound=search.hourly_bound,
                )
            )
        choice = fleet.choices[app.name, p]
        offers = {offer.name: n for offer, n in zip(wish.offers, choice.machines, strict=True) if n}
        if not offers:
            continue
        part = by[app.name]
        planned = part is search.menus.parts[app.name]
        rate = wish.rate(app, p) if planned else wish.settled_at(app, p)
        part = wish.planned_by(part, rate) if planned and app.question != "llm" else part  # maybe seen by playing
        found = part.settle(offers, rate)
        after = [
            part.settle(left, rate * situation.keep)
            for situation in wish.situations[1:]
            if (left := left_of(wish, part, choice.machines, situation))
        ]
        if found.part is None or any(one.part is None for one in after):
            refused[app.name, p] = next(one.why for one in (found, *after) if one.part is None)
        else:
            done[app.name, p] = found.part
    return done, refused
