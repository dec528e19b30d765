"""Plans that keep the wish while queries wait: the sizes `auto`, `simulated` and `estimated`.

What a group of alike servers needs free, so that its queries need not wait long, is nearly a constant number of
servers, whatever its size: `spare`, inside the program. `estimated` takes a number that is mostly enough, and simulates
nothing. `auto` looks for the least that is: each is planned and played for a counted number of queries. A plan is good
when it uses no more than `CHOSEN_AT` of what may be late: a choice is biased towards luck. The best plan seen is
confirmed by fresh seeds; more room is not always better, so none is thrown away that was good. Where no such number
does, or where it is nearly a server, an equal share of all capacity (`headroom`) is tried. Where no room that was tried
is good, the most that there is a plan for is looked for, by programs alone, and played. `simulated` looks closer, at
more queries, and tries both. Before it refuses, a search deals the servers anew (`dealt`): what carries most, and what
came nearest with servers moved to where queries wait in simulation. Nothing is timed: the same inputs give the same
plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible
from hetplan.problems.pipeline.dealt import Deal, deal_of, may_deal, of_most
from hetplan.problems.pipeline.draft import draft
from hetplan.problems.pipeline.exact import among_used
from hetplan.problems.pipeline.few import NONE, by_few_levels, few_levels_answer, in_parts
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.tree import Tree
from hetplan.problems.pipeline.wish import read_wish
from hetplan.problems.simulated import (
    HOPELESS,
    Played,
    Simulations,
    check_simulator,
    plan_to_simulate,
    where_late,
    with_shown,
)
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Plan

__all__ = ["better_apart", "estimated", "kept", "without_room"]

Way = Callable[..., Draft | Infeasible]

SPARES = (0.2, 0.34, 0.58, 0.98, 1.67, 2.84, 4.83, 8.2)
"""Servers that a group keeps free, tried in turn."""
HEADROOMS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of capacity kept free, tried in turn."""
ESTIMATE = (0.34, 0.2, 0.1)
"""Servers that `estimated` keeps free in each group, or fewer where that is too much to ask for."""
DIVISORS = (1.8, 1.4, 1.15)
"""`slo_divisor` where none is asked for: with room to wait, paths may be a little longer than Loki's; and longer still,
with nearly idle servers, where the deadline is tight."""
SHORTER = 2.2
"""The divisor by which a plan that was found so may be bettered: smaller batches take more servers, and wait less."""
MOST_QUERIES = 10
"""Of several applications the busiest is played for no more than so many times the queries that are counted."""
CYCLES = 40.0
"""A play of arrivals that come in bursts sees so many of their cycles, if it need not be too long for that."""
LONGEST_CYCLES, LONGEST_CONFIRMED = 4, 20
"""It is never longer for that than so many times the queries of a usual play; and where it confirms a plan."""
CHOSEN_AT = 0.75
"""Of the share that may be late, the part that a chosen plan may use up."""
SAFE = 0.4
"""A plan that uses no more than this is sure enough to be confirmed that no worse one is looked at."""
FAR = 10.0
"""What loses so many times over what may be late is followed by twice as much room."""
LATE = 100
"""In a play, at least so many queries may be late: where fewer may be, more are played, up to `LONGEST` times."""
LONGEST = 10
HALF = 0.5
"""Where spare servers are enough, this share of capacity is tried in their place, then less of it by halves."""
LARGE = 0.9
"""So many spare servers of each group are much: whole ones fit small groups badly, and a share is tried too."""
ANY = 0.1
"""The gap within which a trial of a repair asks whether there is a plan."""
NEAREST = 0.05
"""The most room that there is a plan for is found up to this part of it, without a play."""
DEALT_DIVISORS = (2.2, 1.8, 1.4, 1.15)
"""What paths of servers that are dealt anew take of the deadline, in turn, where it is not stated."""
MOST_DEALT = 24
"""So many deals are played at most; never more than `evaluations` leaves."""
DEALT = "servers dealt anew"
"""How a plan is named whose servers were dealt so."""
NEAREST_DEALS, MOST_KNOWN = "nearest servers of pipelines", 2
"""The name under which a refused question leaves what came nearest, and of how many questions."""
MOST_NEAR = 3
"""Of plans that barely keep the wish, so many are confirmed by fresh seeds before it is refused."""
CONSTANT = "service times that do not vary: tables of one statistic"
"""What a promise by simulation rests on where no spread was measured."""


@dataclass(frozen=True)
class _Effort:
    """How closely a search looks: (runs, queries in each) of a first look and of a choice; queries to confirm."""

    first: tuple[int, int]
    chosen: tuple[int, int]
    confirmed: int
    """Of each application, in each of the runs that confirm a plan."""
    spare: float
    """Between a number of spare servers that is too little and one that is enough, it is not worth looking further."""
    headroom: float
    enough: float
    """A plan that is good and uses up more than this part of what may be late has no room to spare: the search ends."""
    both: bool
    """Whether shares of capacity are tried even where spare servers do."""


EFFORTS = {
    "auto": _Effort((1, 10_000), (2, 30_000), 10_000, 0.06, 0.025, enough=0.4, both=False),
    "simulated": _Effort((1, 10_000), (2, 60_000), 60_000, 0.02, 0.01, enough=1.0, both=True),
}

Kind = Literal["spare", "headroom"]


@dataclass(frozen=True)
class _Room:
    """What is kept free: servers of every group in use, and a share of all capacity."""

    spare: float
    headroom: float
    divisor: float

    @staticmethod
    def stated(p: Pipelines) -> _Room:
        """What is asked for, with the first of the divisors that may be tried."""
        return _Room(p.options.spare, p.options.headroom, _divisors(p)[0])

    def __str__(self) -> str:
        return f"headroom {self.headroom:g}" if self.headroom > 0 and not self.spare else f"spare {self.spare:g}"

    def of(self, kind: Kind) -> float:
        """How much of one kind."""
        return self.spare if kind == "spare" else self.headroom

    @property
    def named(self) -> dict[str, Any]:
        """The options from which the same is found again at once."""
        return {"spare": self.spare, "headroom": self.headroom, "slo_divisor": self.divisor}

    def given_to(self, p: Pipelines) -> Pipelines:
        """The same question with this room."""
        options = p.options.model_copy(update=self.named)
        return Pipelines(p.inputs, read_wish(p.inputs, options), options, p.formulation, p.start, p.tools)


@dataclass(frozen=True)
class _Seen:
    """How much room was kept, the plan, how good it is by the objective, and how it did."""

    room: _Room
    draft: Draft
    worth: tuple[float, ...]
    played: Played
    waiting: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Queries that wait, by application and step."""
    is_dealt: bool = False
    """Whether its servers were dealt anew: the room is where that began."""

    def __str__(self) -> str:
        return DEALT if self.is_dealt else str(self.room)

    @property
    def good(self) -> bool:
        """Whether it may be chosen."""
        return self.played.worst <= CHOSEN_AT

    @property
    def rank(self) -> tuple[Any, ...]:
        """Less is better."""
        return self.worth, self.played.worst


def estimated(p: Pipelines, ask: Ask, way: Way) -> Draft | Infeasible:
    """The plan with as much room as is mostly enough, or less of it where that is too much to ask for."""
    least = _Room.stated(p)
    for spare in ESTIMATE:
        room = replace(least, spare=max(least.spare, spare))
        made = _made(p, ask, way, room)
        if isinstance(made, Draft):
            return _bounded(p, ask, made)
    made = way(least.given_to(p), ask, explained=True)
    return made if isinstance(made, Infeasible) else _bounded(p, ask, replace(made, chosen=least.named))


def kept(p: Pipelines, ask: Ask, way: Way) -> Draft | Infeasible:
    """The best plan seen that simulation shows to keep the wish; without one, why there is none."""
    check_simulator(p.tools, p.options.size)
    ask.keep(lambda: _found_soon(p, ask, way))
    return _Search(p, ask, way).found()


def _found_soon(p: Pipelines, ask: Ask, way: Way) -> Draft | Infeasible:
    """The plan with as much room as is mostly enough, or less of it, however good."""
    least = _Room.stated(p)
    made: Draft | Infeasible = Infeasible(why=("the time was over before any plan was found",), proved=False)
    for spare in (ESTIMATE[0], least.spare):
        made = _made(p, ask, way, replace(least, spare=max(least.spare, spare)), tight=True)
        if isinstance(made, Draft):
            return _bounded(p, ask, made)
    return made


def better_apart(
    p: Pipelines, shared: Draft | Infeasible, answered: Callable[[Pipelines], Draft | Infeasible]
) -> Draft | Infeasible:
    """The plan on shared servers, if it is better than one with servers of each step's own; else that one.

    Places of a step on unlike servers wait apart, and so need more room than as many on alike ones.
    """
    options = p.options.model_copy(update={"machines": "whole"})
    whole = Pipelines(p.inputs, read_wish(p.inputs, options), options, p.formulation, p.start, p.tools)
    if whole.wish.fleet.most.sum() < sum(len(tree.tasks) for tree in whole.served):
        return shared
    apart = answered(whole)
    if not isinstance(apart, Draft) or apart.target_missed:
        return shared
    missed = not isinstance(shared, Draft) or bool(shared.target_missed) or _is_too_dear(p, shared)
    if not missed and isinstance(shared, Draft) and _worth(p, shared) < _worth(p, apart):
        return shared
    return replace(apart, chosen={**apart.chosen, "machines": "whole"})


def _is_too_dear(p: Pipelines, made: Draft) -> bool:
    """Whether whole servers cost more than they may: latency levels count them in parts."""
    cost = next((one.value for one in made.promises if one.quantity == "cost_per_hour"), 0.0)
    budget = p.wish.fleet.request.budget
    return budget is not None and cost * NANO > budget * (1.0 + 1e-9)


def _made(p: Pipelines, ask: Ask, way: Way, room: _Room, *, tight: bool = False) -> Draft | Infeasible:
    """The plan that keeps this room: by few latency levels where these answer, else by the formulation.

    `tight` asks no more than whether there is a plan; in a trial, however good. Where the program `is_slow`, those
    configurations say so that are worth most with servers in parts.
    """
    roomy, quick = room.given_to(p), ask.untested(gap=ANY if tight and p.tools.trial else None)
    if tight and roomy.form == "budget":
        roomy = replace(roomy, options=roomy.options.model_copy(update={"passes": 1}))
    found = None
    if tight and _is_slow(roomy):
        found = among_used(roomy, quick) or NONE
    elif p.formulation in ("config", "paper") and not roomy.wish.joins:
        found = by_few_levels(roomy, quick, tight=tight)
    if isinstance(found, Infeasible):
        return found
    made = draft(roomy, found) if found is not None else way(roomy, quick if tight else ask, explained=False)
    if isinstance(made, Draft) and made.target_missed:
        return Infeasible(why=(made.target_missed,), proved=False)
    return made if isinstance(made, Infeasible) else replace(made, chosen=room.named)


def _is_slow(p: Pipelines) -> bool:
    """Whether a plan is found by an exact program with many latency levels to choose from, which takes long."""
    return p.form == "config" and p.levels[0] == "quality" and not p.wish.joins and not few_levels_answer(p)


@dataclass
class _Search:
    """The rooms tried so far: `seen` have plans, from `beyond` on there is none, or only worse ones than a safe one."""

    p: Pipelines
    ask: Ask
    way: Way
    seen: list[_Seen] = field(default_factory=list)
    beyond: dict[Kind, float] = field(default_factory=lambda: {"spare": inf, "headroom": 1.0})
    before: dict[Kind, float] = field(default_factory=dict)
    """The most room that there was a plan for where paths had to be shorter."""
    only_betters: bool = False
    """Whether what is tried is of use only where it is better than the best."""
    refused: list[_Seen] = field(default_factory=list)
    """Those that fresh seeds did not confirm, and what these showed of the last."""
    last: Played | None = None

    def __post_init__(self) -> None:
        options = self.p.options
        self.effort = EFFORTS["simulated" if options.size == "simulated" else "auto"]
        self.least = _Room.stated(self.p)
        assert self.p.tools.simulate is not None
        self.simulations = Simulations(
            self.p.tools.simulate, self.p.inputs, self.ask, options.evaluations, self.ask.limits.seed
        )
        self.apps = [tree.app for tree in self.p.asked_for]
        self.floors = {tree.app: tree.floor for tree in self.p.asked_for if tree.floor is not None}

    def found(self) -> Draft | Infeasible:
        """What is stated, where something is; else up until a plan is good, and back by halves.

        A trial of a repair asks no more than whether there is a plan: the first that is confirmed will do.
        """
        if (self.least.spare or self.least.headroom) and (first := self._tried(self.least)) is not None:
            if first.good:
                return self._confirmed()
            # A plan that barely keeps the wish may have been confirmed: from the options that it names it comes again.
            if first.played.worst <= 1.0 and (made := self._shown_again(first)) is not None:
                return made
        if self.p.tools.trial and (made := self._as_known()) is not None:
            return made
        if not self.p.tools.trial:
            self.p.tools.known.pop(NEAREST_DEALS, None)
        kinds: list[Kind] = ["headroom"] if _in_large(self.p) else ["spare", "headroom"]
        for divisor in self._divisors():
            self.least = replace(self.least, divisor=divisor)
            self.beyond = {"spare": inf, "headroom": 1.0}
            for kind in kinds:
                good = (one.room.spare for one in self.seen if one.good and one.room.divisor == divisor)
                spare = min(good, default=0.0 if self.only_betters else inf)
                if kind == kinds[0] or self.effort.both or spare >= LARGE:
                    self._along(kind)
                if self.p.tools.trial and self.best is not None and (made := self._shown_again(self.best)) is not None:
                    return made
            if self.best is not None and _in_large(self.p):
                break
        if not self.seen:
            # Is it what is asked for that has no plan, or only what we keep free?
            room = _Room.stated(self.p)
            fluid = self.way(room.given_to(self.p), self.ask, explained=True)
            if isinstance(fluid, Infeasible) or fluid.target_missed:
                return fluid
            self._played(room, replace(fluid, chosen=room.named))
        if not self.p.tools.trial:
            self._deal_fewer()
        return self._confirmed()

    def _divisors(self) -> Iterator[float]:
        yield from _divisors(self.p)
        self.only_betters = self.best is not None and "slo_divisor" not in self.p.options.model_fields_set
        if self.only_betters:
            yield SHORTER
        self.only_betters = False

    @property
    def best(self) -> _Seen | None:
        """Of the plans that are good, the best by the objective, then the one with most to spare."""
        return min(self._good, key=lambda one: one.rank, default=None)

    @property
    def _good(self) -> list[_Seen]:
        return [one for one in self.seen if one.good and one not in self.refused]

    def _along(self, kind: Kind) -> None:
        """More and more room of one kind until a plan is good, then halves between too little and enough.

        Where no plan is good so far, the most room that there is a plan for says whether a smaller step is worth it.
        """
        steps, width = (SPARES, self.effort.spare) if kind == "spare" else (HEADROOMS, self.effort.headroom)
        least = self.least.of(kind)
        of_kind: list[_Seen] = []
        if not self.seen or (self.best is not None and kind == "spare") or self.effort.both:
            left = [step for step in steps if step > least]
        else:
            left = [HALF] if self.best is not None and least < HALF < self.beyond[kind] else []
        while (
            left and self.simulations.may_go_on and left[0] < self.beyond[kind] and not any(one.good for one in of_kind)
        ):
            of_kind += self._of_kind(kind, left[0])
            # Far from enough, every other step is passed over: halves come back to it.
            far = bool(of_kind) and of_kind[-1].played.worst > FAR
            left = left[2:] if far and len(left) > 2 else left[1:]
        if self.best is None and self.simulations.may_go_on:
            of_kind += self._roomiest(kind)
        while self.simulations.may_go_on and not self.p.tools.trial:
            good = [one for one in of_kind if one.good]
            if (self.best is None) or (good and self.effort.enough < min(good, key=lambda one: one.rank).played.worst):
                return
            high = min([one.room.of(kind) for one in good], default=self.beyond[kind])
            low = max((one.room.of(kind) for one in of_kind if one.room.of(kind) < high), default=least)
            if not low + width + 1e-9 < high < inf:
                return
            more = self._of_kind(kind, round((low + high) / 2, 4))
            if good and not more:
                return  # less than what is enough has no plan at all: asked again, it would have none either
            of_kind += more

    def _roomiest(self, kind: Kind) -> list[_Seen]:
        """The plan with the most room of one kind, found without a play; nothing where it was played already.

        What is kept free on shorter paths can be on longer ones, and mostly not much more: so that is asked first, then
        a little more, then twice as much more.
        """
        steps, least = (SPARES if kind == "spare" else HEADROOMS), self.least.of(kind)
        tried = (one.room.of(kind) for one in self.seen if one.room.divisor == self.least.divisor)
        low, high, made = max(tried, default=least), min(self.beyond[kind], self._most(kind)), None
        before = self.before.get(kind, 0.0)
        hint, stride = before, max(NEAREST * before, self.effort.headroom)
        while high - low > max(NEAREST * high, self.effort.headroom) + 1e-9 and self.ask.remaining > 0:
            is_hint = low < hint < high
            middle = hint if is_hint else round((low * high) ** 0.5 if low >= steps[0] else (low + high) / 2, 4)
            room = replace(self.least, **{kind: middle})
            found = _made(self.p, self.ask, self.way, room, tight=True)
            if isinstance(found, Draft):
                low, made = middle, found
                hint, stride = (round(middle + stride, 4), 2 * stride) if is_hint else (0.0, stride)
            else:
                high = self.beyond[kind] = middle
        self.before[kind] = low
        return [] if made is None else [self._played(replace(self.least, **{kind: low}), made)]

    def _most(self, kind: Kind) -> float:
        """More than this no plan can keep free: of spare servers an equal part for each step."""
        steps = sum(len(tree.tasks) for tree in self.p.asked_for)
        return min(float(self.p.wish.fleet.most.sum()) / steps, 2.0 * SPARES[-1]) if kind == "spare" else 1.0

    def _of_kind(self, kind: Kind, amount: float) -> list[_Seen]:
        seen = self._tried(replace(self.least, **{kind: amount}))
        if seen is None:
            self.beyond[kind] = min(self.beyond[kind], amount)
        return [] if seen is None else [seen]

    def _tried(self, room: _Room) -> _Seen | None:
        """The plan that keeps this free, played; None where there is no plan, or a better one is safe.

        Where the best one takes long to find, one that is found soon is played before: it may be hopeless.
        """
        if _is_slow(room.given_to(self.p)):
            soon = _made(self.p, self.ask, self.way, room, tight=True)
            if isinstance(soon, Infeasible):
                return None
            if (seen := self._played(room, soon)).played.worst > HOPELESS:
                return seen
        made = _made(self.p, self.ask, self.way, room)
        at_hand = (one.worth for one in self._good if one.played.worst <= SAFE or self.only_betters)
        beaten = isinstance(made, Draft) and _worth(self.p, made) > min(at_hand, default=(inf,))
        return self._played(room, made) if isinstance(made, Draft) and not beaten else None

    def _played(self, room: _Room, made: Draft, *, is_dealt: bool = False) -> _Seen:
        made = replace(made, searched=True)
        if not self.seen:
            self.ask.keep(lambda: _bounded(self.p, self.ask, made), rank=(0, -inf))
        alike = next((one for one in self.seen if _runs_alike(one.draft, made)), None)
        played, waiting = (alike.played, alike.waiting) if alike is not None else self._looked_at(made, room, is_dealt)
        one = _Seen(room, made, _worth(self.p, made), played, waiting, is_dealt)
        self.seen.append(one)
        self._keep(one)
        return one

    def _looked_at(self, made: Draft, room: _Room, is_dealt: bool) -> tuple[Played, Mapping[tuple[str, str], float]]:
        """What a look shows, and how many queries wait where."""
        runs = [(count, _length_s(self.p, queries)) for count, queries in (self.effort.first, self.effort.chosen)]
        about = DEALT if is_dealt else str(room)
        shown, report = self.simulations.look(self._plan(made), self.apps, *runs, about=about, floors=self.floors)
        waiting = Counter[tuple[str, str]]()
        for worker in made.workers:
            for load in worker.loads:
                waiting[load.app or "", load.node or ""] += report.groups[worker.id].waiting.value
        return shown, waiting

    def _plan(self, made: Draft) -> Plan:
        return plan_to_simulate("pipeline", self.p.formulation, made, made.chosen)

    def _keep(self, one: _Seen) -> None:
        """Keep a plan that was played: those that meet the SLO by their objective, the others by how near they come."""

        def made() -> Draft | Infeasible:
            if one in self.refused:
                return Infeasible(why=("fresh seeds did not confirm it",), proved=False)
            return _bounded(self.p, self.ask, one.draft)

        meets, objective = one.played.worst <= 1.0, [-value for value in one.worth]
        rank = (1, *objective) if meets else (0, -one.played.worst)
        self.ask.keep(made, rank=rank, value=abs(one.worth[0]) if one.worth else None)

    def _as_known(self) -> Draft | None:
        """A plan with the servers that came nearest before a repair was tried, if they keep the wish with it."""
        for room, workers in self.p.tools.known.get(NEAREST_DEALS, ()) if may_deal(self.p) else ():
            deal = deal_of(room.given_to(self.p), workers)
            for one in self._deals_played([(room, deal)] if deal is not None else []):
                if one.played.worst <= 1.0 and (made := self._shown_again(one)) is not None:
                    return made
        return None

    def _deal_fewer(self) -> None:
        """Plays the best plan with a server fewer in one group, while such a plan is good: rooms go by large steps."""
        while (best := self.best) is not None and may_deal(self.p):
            room = replace(best.room, spare=0.0, headroom=0.0)
            deal = deal_of(room.given_to(self.p), best.draft.workers)
            fewer = iter(()) if deal is None else deal.fewer(best.waiting)
            if not any(one.good for one in self._deals_played(((room, one) for one in fewer), better_than=best)):
                return

    def _deal_anew(self) -> None:
        """Plays plans of servers dealt anew until one is good."""
        for n, one in enumerate(self._climbed() if may_deal(self.p) else (), 1):
            if one.good or n == MOST_DEALT:
                return

    def _climbed(self) -> Iterator[_Seen]:
        """What came nearest, with its servers filled evenly; what carries most; then, from the best, move by move."""
        best = min(self.seen, key=lambda one: one.played.worst)
        full = replace(best.room, spare=0.0, headroom=0.0)
        begun = [(full, deal) for deal in [deal_of(full.given_to(self.p), best.draft.workers)] if deal is not None]
        for one in self._deals_played(begun):
            best = min(best, one, key=lambda one: one.played.worst)
            yield one
        stated = "slo_divisor" in self.p.options.model_fields_set
        for divisor in _divisors(self.p) if stated else DEALT_DIVISORS:
            room = replace(full, divisor=divisor)
            for one in self._deals_played((room, deal) for deal in of_most(room.given_to(self.p), self.ask)):
                best = min(best, one, key=lambda one: one.played.worst)
                yield one
        while True:
            for one in self._deals_played(self._moved(best, [] if stated else [DEALT_DIVISORS[-1]])):
                yield one
                if one.played.worst < best.played.worst:
                    best = one
                    break
            else:
                return

    def _moved(self, best: _Seen, longer: Sequence[float]) -> Iterator[tuple[_Room, Deal]]:
        """Moves of its servers, whose paths are as long as its own; then longer ones."""
        for divisor in dict.fromkeys([best.room.divisor, *longer]):
            room = replace(best.room, spare=0.0, headroom=0.0, divisor=divisor)
            deal = deal_of(room.given_to(self.p), best.draft.workers)
            yield from ((room, move) for move in (deal.moves(best.waiting) if deal is not None else ()))

    def _deals_played(self, deals: Iterable[tuple[_Room, Deal]], better_than: _Seen | None = None) -> Iterator[_Seen]:
        """Those that make a plan, where it is not one that was played, nor one that is too dear to be looked at."""
        for room, deal in deals:
            if not self.simulations.may_go_on:
                return
            made = deal.planned(self.ask)
            if made is None or (better_than is not None and _worth(self.p, made) >= better_than.worth):
                continue
            if not any(_runs_alike(one.draft, made) for one in self.seen):
                yield self._played(room, replace(made, chosen=room.named), is_dealt=True)

    def _confirmed(self) -> Draft:
        """The best plan that fresh seeds confirm; where they do not, the next best, more room, then other deals.

        A plan that is good gives way to a better one that barely keeps the wish, if fresh seeds confirm that.
        """
        if (best := self.best) is not None and (made := self._nearly_good(best)) is not None:
            return made
        while self.ask.remaining > 0:
            good = sorted(self._good, key=lambda one: one.rank)
            one = good[0] if good else self._with_more(self.refused[-1].room if self.refused else self.least)
            if one is None:
                break
            if not one.good:
                continue
            if (made := self._shown_again(one)) is not None:
                return made
            if len(good) > 1:
                self._with_more(one.room)  # It may be better than the next best with room of another kind.
        made = self._nearly_good()
        if made is None and self.ask.remaining > 0:
            self._deal_anew()
            made = self._nearly_good()
        return made if made is not None else self._not_kept()

    def _shown_again(self, one: _Seen) -> Draft | None:
        """The plan, if fresh seeds show that it keeps the wish."""
        p, length_s = self.p, _length_s(self.p, self.effort.confirmed, LONGEST_CONFIRMED)
        bases = {tree.app: CONSTANT for tree in p.asked_for if _has_constant_times(p, tree)}
        self.last = self.simulations.test(self._plan(one.draft), self.apps, length_s, floors=self.floors, bases=bases)
        if not self.last.late:
            return self._with_promises(one.draft, self.last)
        if self.ask.remaining > 0:
            self.refused.append(one)
        return None

    def _nearly_good(self, best: _Seen | None = None) -> Draft | None:
        """Of the plans that may keep the wish, though barely, the first that fresh seeds confirm.

        Those that are better than the best, the best of them first; where there is none, what is nearest.
        """
        near: list[_Seen] = []
        for one in sorted(self.seen, key=lambda one: one.played.worst if best is None else one.rank):
            known = (*self.refused, *near)
            may_do = one.played.worst <= 1.0 and (best is None or one.worth < best.worth)
            if may_do and not any(_runs_alike(one.draft, old.draft) for old in known):
                near.append(one)
        shown = (self._shown_again(one) for one in near[:MOST_NEAR] if self.ask.remaining > 0)
        return next((made for made in shown if made is not None), None)

    def _with_more(self, than: _Room) -> _Seen | None:
        """A plan with more room than all that were tried whose paths may be as long, where there is one."""
        if than.divisor != self.least.divisor:
            self.least = replace(self.least, divisor=than.divisor)
            self.beyond = {"spare": inf, "headroom": 1.0}
        kind: Kind = "headroom" if _in_large(self.p) else "spare"
        same = (one.room.of(kind) for one in self.seen if one.room.divisor == than.divisor)
        above = max(same, default=self.least.of(kind))
        steps = (step for step in (SPARES if kind == "spare" else HEADROOMS) if above < step < self.beyond[kind])
        more = next(steps, None)
        if more is None or not self.simulations.may_go_on:
            return None
        return next(iter(self._of_kind(kind, more)), None)

    def _with_promises(self, made: Draft, shown: Played) -> Draft:
        """The draft with what fresh seeds showed, and what bounds it."""
        return _bounded(self.p, self.ask, with_shown(made, shown))

    def _not_kept(self) -> Draft:
        """The plan that came nearest, with why it is not enough: never one that is late in silence."""
        nearest = min(self.seen, key=lambda one: one.played.worst)
        late = (self.last.late if self.last is not None else ()) or nearest.played.late or tuple(self.p.request.apps)
        if self.ask.remaining <= 0:
            why = "not confirmed: time ended before fresh seeds could say whether the plan keeps the wish"
        else:
            ended = (
                "more room was not tried"
                if not self.simulations.may_go_on
                else "more room leaves no plan, or does not help"
            )
            unsure = ", and fresh seeds do not confirm that" if nearest.played.worst <= 1.0 else ""
            why = (
                f"not kept: in simulation {', '.join(late[:5])} lose {nearest.played.worst:.2g} times what is "
                f"allowed{unsure}, even with {nearest}; {ended}"
            )
        apps, rates = self.p.request.apps, {tree.app: tree.demand for tree in self.p.asked_for}
        over = nearest.played.over
        repairs = [one for a in late[:2] for one in where_late(apps[a], rates.get(a), over.get(a, 1.0))]
        known, room = self.p.tools.known, replace(nearest.room, spare=0.0, headroom=0.0)
        known[NEAREST_DEALS] = [*known.get(NEAREST_DEALS, ())[: MOST_KNOWN - 1], (room, nearest.draft.workers)]
        return replace(_bounded(self.p, self.ask, nearest.draft), target_missed=why, repairs=tuple(repairs))


def _divisors(p: Pipelines) -> tuple[float, ...]:
    """How much of the deadline paths may take, in turn; or as stated."""
    return (p.options.slo_divisor,) if "slo_divisor" in p.options.model_fields_set else DIVISORS


def _bounded(p: Pipelines, ask: Ask, made: Draft) -> Draft:
    """The draft with its claims: what it reaches, beside what servers in parts would, filled to the brim."""
    if made.reported and p.formulation not in ("config", "paper", "budget"):
        return made
    return replace(made, reported=in_parts(without_room(p, float(made.chosen["slo_divisor"])), ask, made))


def without_room(p: Pipelines, divisor: float | None = None) -> Pipelines:
    """The question whose bounds hold however much is kept free: all of each server, and this part of the deadline."""
    return _Room(0.0, 0.0, p.options.slo_divisor if divisor is None else divisor).given_to(p)


def _in_large(p: Pipelines) -> bool:
    """Whether the program is one of latency levels on a large cluster, where spare servers are lost among many."""
    return p.form == "budget" or bool(p.wish.joins)


def _runs_alike(one: Draft, other: Draft) -> bool:
    """Whether two plans differ in nothing that a simulation plays."""
    return (one.workers, one.routing, one.dispatch) == (other.workers, other.routing, other.dispatch)


def _worth(p: Pipelines, made: Draft) -> tuple[float, ...]:
    """How good a plan is by the objective, first things first; less is better."""
    of_plan = {one.quantity: one.value for one in made.promises if one.app is None}
    quality = {one.app: one.value for one in made.promises if one.quantity == "quality"}
    found = {
        "quality": -round(sum(tree.weight * quality.get(tree.app, 0.0) for tree in p.asked_for), 9),
        "fairest": -round(min(quality.values(), default=0.0), 9),
        "cost": round(of_plan.get("cost_per_hour", 0.0), 9),
        **{name: of_plan.get(name, 0.0) for name in ("servers", "moves")},
    }
    return tuple(found[goal] for goal in p.levels if goal in found)


def _length_s(p: Pipelines, queries: int, longest: float = LONGEST_CYCLES) -> float:
    """How long a run of so many queries of each application is; of more of them, where few may be late."""
    rates = [tree.demand for tree in p.asked_for]
    strictest = min(p.request.apps[tree.app].late_share for tree in p.asked_for)
    queries = round(queries * min(max(1.0, LATE / (10_000 * max(strictest, 1e-9))), LONGEST))
    # A burst that comes seldom is seen, too.
    cycle_s = max(sum(p.request.apps[tree.app].demand.arrivals.stay_s or ()) for tree in p.asked_for)
    cycles_s = min(CYCLES * cycle_s, longest * queries / sum(rates))
    return max(cycles_s, min(queries / min(rates), MOST_QUERIES * queries / sum(rates)))


def _has_constant_times(p: Pipelines, tree: Tree) -> bool:
    """Whether simulation plays some step's times as constants, because their table says no more of them."""
    runs = p.request.choices(variants=(name for task in tree.tasks for name in task.variants))
    return any(one.is_timed and not one.law.has_spread for one in runs)
