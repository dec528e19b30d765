"""The plan of pipelines at the size that is asked for; most sizes leave queries room to wait.

`fluid` fills servers to the brim. `formula` takes a margin that is mostly enough, and simulates nothing. `simulation`
looks for the best plan that simulation confirms (`planner.sizing_search`).

What a group of alike servers needs free, so that its queries need not wait long, is nearly a constant number of
servers, whatever its size: `spare`, inside the program. On large clusters, where that is lost among many, it is a share
of all capacity (`headroom`). How long paths may be is the third part of a margin (`slo_divisor`).

- **Up** come plans of the program with ever more room, then the most that there is a plan for, and the servers that
  carry most: all on ever longer paths. Then comes what came nearest, with servers moved to where queries wait.
- **Down** come plans with less room, by halves, and with paths of other lengths; then one server less.

A program counts what servers carry, not how long queries wait. So where no room that it keeps is enough, simulation has
the say: which step queries wait at, and whether a server more there helps (`Deal`). Every deal is within the rows of
the exact program (stock, money, resources, moves, one batch size per variant and hardware), and its shares are solved
by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from typing import Any, Literal

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.sizing_search import GOOD, LATE, Counts, Refused, Search, Together, more_room
from hetplan.problems.draft_simulation import (
    Played,
    Simulations,
    check_simulator,
    plan_to_simulate,
    repairs_if_late,
    with_shown,
)
from hetplan.problems.pipeline.bounds import claims_in_parts, without_room
from hetplan.problems.pipeline.draft import draft, nothing_to_do
from hetplan.problems.pipeline.infeasible import explain, explain_steps, explain_too_few, explain_too_slow
from hetplan.problems.pipeline.latency_levels import (
    NONE,
    servers_that_carry_most,
    solve_after_first_plan,
    solve_level_choices,
    solve_levels,
)
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.scaling import (
    MOST_USED,
    Solution,
    fill_evenly,
    reroute,
    solve_among_used,
    solve_config,
    solve_paper,
    solve_steps,
)
from hetplan.problems.pipeline.tree import Places, Task, Tree
from hetplan.problems.waiting import waiting_ms
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Dispatch, Plan
from hetplan.profiles.workers import Load, Worker

__all__ = [
    "Deal",
    "can_deal",
    "deal_of",
    "deals_that_carry_most",
    "key_of",
    "key_of_load",
    "plan_pipelines",
]

Way = Callable[[Pipelines, Ask], Solution | Infeasibility]

BOUNDED_APART = ("pipeline-milp", "loki", "loki-budget")
"""Ways whose plans claim what servers in parts would reach: what their own programs say of a plan is not handed out."""

Kind = Literal["spare", "headroom"]

SPARES = (0.2, 0.34, 0.58, 0.98, 1.67, 2.84, 4.83, 8.2)
"""Servers that a group keeps free, on the way up."""

LEAST = 0.05
"""A share of capacity grows by so much at least."""

MOST: Mapping[Kind, float] = {"spare": SPARES[-1], "headroom": 0.9}
"""With more of it than this servers would do nothing."""

WIDTH: Mapping[Kind, float] = {"spare": 0.06, "headroom": 0.025}
"""Between room that is too little and room that is enough, it is not worth looking further."""

NEAR = 0.1
"""The most room that there is a plan for is found up to this part of it: less of it moves lateness by no more than a
machine does."""

ESTIMATE = (0.34, 0.2, 0.1)
"""Servers that `formula` keeps free in each group, or fewer where that is too much to ask for."""

DIVISORS = (1.8, 1.4, 1.15)
"""`slo_divisor` where none is asked for: with room to wait, paths may be a little longer than Loki's; and longer still,
with nearly idle servers, where the deadline is tight."""

SHORTER = 2.2
"""The divisor by which a plan that was found may be bettered: smaller batches take more servers, and wait less."""

ENOUGH = 0.4
"""A plan that uses up more than this part of what may be late has no room to spare: less is not looked for."""

FAR = 10.0
"""What is late so many times over is followed by twice as much room."""


HALF, LARGE = 0.5, 0.9
"""So many spare servers of each group are much: whole ones fit small groups badly. A share is tried too, this first."""

LEAST_SHARE = 1e-4
"""Waits that fewer than this exceed are not looked for by a formula."""

MOST_QUERIES = 10
"""Of several applications the busiest is simulated for no more than so many times the queries that are counted."""

CYCLES = 40.0
"""A run of arrivals that come in bursts sees so many of their cycles, if it need not be too long for that."""


LONGEST_CYCLES, LONGEST_CONFIRMED = 4, 20
"""It is never longer for that than so many times the queries of a usual run; and where it confirms a plan."""

LATE_QUERIES = 100
"""In a run, at least so many queries may be late: where fewer may be, more are run, up to `LONGEST` times."""

LONGEST = 10

FIRST = (1, 10_000)
"""Runs, and queries in each, that show what is hopeless."""


NEAREST, MOST_KNOWN = "nearest servers of pipelines", 2
"""The name under which a refused question leaves what came nearest, and of how many questions."""

MOST_DEALT = 24
"""So many moves of servers are simulated at most; never more than `max_simulations` leaves."""

DEALT = "servers dealt anew"

CONSTANT = "service times that do not vary: tables of one statistic"
"""What a promise by simulation rests on where no spread was measured."""


UNIT, NEXT = 10**9, 10**18
"""Goals are compared in billionths; and each before all that come after it."""


def plan_pipelines(p: Pipelines, ask: Ask) -> Draft | Infeasibility:
    """The plan, or why there is none; where steps may share servers, the better of that and of servers of their own.

    Places of a step on unlike servers wait apart, and so need more room than as many on alike ones.
    """
    shared, exact = _plan_at_size(p, ask), p.options.sizing == "fluid" and p.form != "loki-budget"
    if exact or not p.wish.fleet.is_shared or not p.asked_for or ask.remaining <= 0:
        return shared
    misses = not isinstance(shared, Draft) or bool(shared.target_missed)
    if isinstance(shared, Draft) and not misses:
        ask.keep(lambda: shared, simulated=True)
    whole = p.with_options(share_machines=False)
    if whole.wish.fleet.most.sum() < sum(len(tree.tasks) for tree in whole.served):
        return shared
    apart = _plan_at_size(whole, ask)
    if not isinstance(apart, Draft) or apart.target_missed:
        return shared
    is_within = isinstance(shared, Draft) and not misses and not _is_too_dear(p, shared)
    if is_within and isinstance(shared, Draft) and _price(p, shared) < _price(p, apart):
        return shared
    return replace(apart, chosen={**apart.chosen, "share_machines": False})


def _plan_at_size(p: Pipelines, ask: Ask) -> Draft | Infeasibility:
    """The plan, with what its bounds are about where steps that would fit on one server have servers of their own.

    Nor is it proved there that no plan carries the demand: only that none is in time is.
    """
    sizing = "fluid" if not p.asked_for else p.options.sizing
    made = plan_in_full(p, ask) if sizing == "fluid" else estimate(p, ask) if sizing == "formula" else search(p, ask)
    if not p.wish.fleet.apart:
        return made
    if isinstance(made, Infeasibility):
        return replace(made, proved=made.proved and explain_too_slow(p) is not None)
    note = "among plans on servers of each step's own"
    claims = (replace(one, note=one.note or note) if one.scope == "restriction" else one for one in made.reported)
    narrower = any(one.scope == "restriction" for one in made.reported[1:])
    return replace(made, reported=tuple(claims), levels_proved=made.levels_proved and not narrower)


def plan_in_full(p: Pipelines, ask: Ask, *, explained: bool = True) -> Draft | Infeasibility:
    """The plan that its formulation finds, with the room that the options state and no more."""
    if not p.asked_for:
        return nothing_to_do(p)
    p, way = _way_of(p)
    if p.wish.joins:
        steps = solve_steps(p, ask)
        if isinstance(steps, Infeasibility):
            is_brief = steps.answer is None or not (explained and p.tools.explains)
            return steps if is_brief else replace(steps, repairs=explain_steps(p, ask))
        return draft(p, steps)
    if (slow := explain_too_slow(p)) is not None:
        return slow
    brought = p.tools.formulation
    if (
        p.formulation != "pipeline-routes"
        and not (brought and brought.partial)
        and (few := explain_too_few(p, ask)) is not None
    ):
        return few
    soon = way in (solve_config, solve_paper) and ask.limits.seconds is not None and not p.fair
    found = solve_after_first_plan(p, ask, way) if soon else way(p, ask)
    if isinstance(found, Infeasibility):
        is_brief = not (explained and p.tools.explains)
        return found if found.why or is_brief else explain(p, ask, proved=found.proved)
    return draft(p, found)


def _way_of(p: Pipelines) -> tuple[Pipelines, Way]:
    """The way of the formulation, and the question with the configurations that it looks at."""
    brought = p.tools.formulation
    if brought is not None and brought.decide is not None:
        return (p if brought.narrow is None else brought.narrow(p)), brought.decide
    if p.formulation == "pipeline-routes":
        return replace(p, of=p.considered), reroute
    return p, {"loki-budget": solve_levels, "pipeline-milp": solve_config}.get(p.form, solve_paper)


def estimate(p: Pipelines, ask: Ask, *, explained: bool = True) -> Draft | Infeasibility:
    """The plan with as much room as is mostly enough, or less of it where that is too much to ask for."""
    least = Margin.stated(p)
    # After the end of a limit there is time for one plan of a large cluster.
    for spare in () if ask.remaining <= 0 and _is_large(p) else ESTIMATE:
        made = _plan_with(p, ask, replace(least, spare=max(least.spare, spare)))
        if isinstance(made, Draft):
            return _add_bounds(p, ask, made)
    made = plan_in_full(least.given_to(p), ask, explained=explained)
    return made if isinstance(made, Infeasibility) else _add_bounds(p, ask, replace(made, chosen=least.named))


def search(p: Pipelines, ask: Ask) -> Draft | Infeasibility:
    """The best plan found that simulation confirms; without one, why there is none."""
    check_simulator(p.tools, p.options.sizing)
    ask.keep(lambda: estimate(p, ask, explained=False))
    sizing = _PipelineSizing(p, ask)
    found = Search(sizing).cheapest(any_will_do=p.tools.trial)
    return found if found is not None else sizing.explain_failure()


@dataclass(frozen=True)
class Margin:
    """A margin: servers of every group in use and a share of all capacity kept free; part of the deadline for waits."""

    spare: float
    headroom: float
    divisor: float

    @staticmethod
    def stated(p: Pipelines) -> Margin:
        """What is asked for, with the first of the divisors that may be tried."""
        return Margin(p.options.spare, p.options.headroom, _divisors(p)[0])

    def __str__(self) -> str:
        if not self.spare and not self.headroom:
            return DEALT
        return f"headroom {self.headroom:g}" if not self.spare else f"spare {self.spare:g}"

    @property
    def is_none(self) -> bool:
        """Whether nothing is kept free."""
        return not self.spare and not self.headroom

    @property
    def named(self) -> dict[str, Any]:
        """The options from which the same is found again at once."""
        return {"spare": self.spare, "headroom": self.headroom, "slo_divisor": self.divisor}

    def given_to(self, p: Pipelines) -> Pipelines:
        """The same question with this room."""
        return p.with_options(**self.named)


def _is_too_dear(p: Pipelines, made: Draft) -> bool:
    """Whether whole servers cost more than they may: latency levels count them in parts."""
    cost = next((one.value for one in made.promises if one.quantity == "cost_per_hour"), 0.0)
    budget = p.wish.fleet.request.budget
    return budget is not None and cost * NANO > budget * (1.0 + 1e-9)


def _plan_with(p: Pipelines, ask: Ask, room: Margin) -> Draft | Infeasibility:
    """The plan that keeps this room: of one latency level per step, where choices of these are few; else, or where none
    of them has one, among the configurations that are worth most where servers may be in parts.

    On the shipped cameras the second alone is worse by 1.2% of accuracy, on random trees the first by .4%; of all
    configurations programs take ten times as long. Plans are compared by simulation, so no engine proves them.
    """
    roomy, quick = room.given_to(p), ask.without_infeasibility_checks()
    if roomy.form == "loki-budget":
        roomy = replace(roomy, passes=1)
    if (
        p.formulation == "pipeline-milp"
        and roomy.form != "loki-budget"
        and roomy.levels[0] in MOST_USED
        and not roomy.wish.joins
    ):
        found = solve_level_choices(roomy, quick) or solve_among_used(roomy, quick) or NONE
        bare = found if isinstance(found, Infeasibility) else replace(found, reported=(), levels_proved=True)
        made = bare if isinstance(bare, Infeasibility) else draft(roomy, bare)
    else:
        made = plan_in_full(roomy, ask.without_proofs() if p.formulation in BOUNDED_APART else ask, explained=False)
    if isinstance(made, Draft) and made.target_missed:
        return Infeasibility(why=(made.target_missed,), proved=False)
    return made if isinstance(made, Infeasibility) else replace(made, chosen=room.named)


@dataclass(frozen=True)
class _Candidate:
    """A plan, the room that it keeps, its price, and what a look showed of it."""

    room: Margin
    draft: Draft
    price: int
    carries: float
    """Of what is asked for, as a formula of waits has it."""
    shown: Played | None = None
    waiting: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Queries that wait, by application and step."""

    @property
    def late(self) -> float:
        """How late a look showed it to be; what was not looked at is taken to be late."""
        return inf if self.shown is None else self.shown.worst


@dataclass
class _PipelineSizing(Together):
    """Pipelines as the sizing search asks for them.

    Counts are the servers of each configuration, and last which of the routes that were made for them.
    """

    p: Pipelines
    ask: Ask
    known: dict[Counts, _Candidate] = field(default_factory=dict)
    planned: dict[Margin, Counts | None] = field(default_factory=dict)
    """By room, the plan that keeps it."""
    refused: set[Counts] = field(default_factory=set)
    last: Played | None = None
    """What was shown of the last that was put to the test."""
    never: Infeasibility | None = None
    """Why there is no plan at all."""

    def __post_init__(self) -> None:
        options = self.p.options
        self.wanted, self.divisors = Margin.stated(self.p), _divisors(self.p)
        self.widest = Margin(0.0, 0.0, self.divisors[-1])
        self.kind: Kind = "headroom" if _is_large(self.p) else "spare"
        self.queries = 30_000
        assert self.p.tools.simulate is not None
        self.simulations = Simulations(
            self.p.tools.simulate, self.p.inputs, self.ask, options.max_simulations, self.ask.limits.seed
        )
        self.apps = [tree.app for tree in self.p.asked_for]
        self.floors = {tree.app: tree.floor for tree in self.p.asked_for if tree.floor is not None}
        self.place = dict[tuple[object, ...], tuple[int, int]]()
        """By configuration which of the counts is its own, and how many instances are counted as one."""
        every = [(tree, task, c) for tree in self.p.considered for task in tree.tasks for c in range(task.size)]
        for at, (tree, task, c) in enumerate(every):
            key = key_of(self.p, tree, task, c)
            self.place[key] = at, int(task.k[c])
            self.place.setdefault(key[:-1], self.place[key])
        self.size = len(every)
        self.routes: dict[Counts, list[tuple[Any, Any, Any]]] = {}

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and another plan may be simulated."""
        return self.simulations.may_go_on

    # Up

    def candidates(self) -> Generator[Counts, float, None]:
        """What is stated; more and more room, and the servers that carry most, on longer and longer paths; moves."""
        if not self.wanted.is_none and (counts := self._plan(self.wanted)) is not None:
            yield counts
        if self.p.tools.trial:
            yield from self._deals_of_others()
        for divisor in self.divisors:
            yield from self._more_room(divisor)
            yield from self._deals_that_carry_most(divisor)
        if not self.known:
            # Is it what is asked for that has no plan, or only what we keep free?
            fluid = plan_in_full(self.wanted.given_to(self.p), self.ask)
            if isinstance(fluid, Infeasibility) or fluid.target_missed:
                self.never = fluid if isinstance(fluid, Infeasibility) else Infeasibility(why=(fluid.target_missed,))
                return
            yield self._new(self.wanted, replace(fluid, chosen=self.wanted.named))
        if can_deal(self.p):
            yield from self._moves()

    def _more_room(self, divisor: float) -> Generator[Counts, float, None]:
        """More and more room, until there is no plan; then the most that there is a plan for, if that may be enough."""
        kind, late = self.kind, inf
        last = getattr(self.wanted, kind)
        amount = max(last + LEAST, SPARES[0]) if kind == "spare" else last + LEAST
        while amount <= MOST[kind] and (counts := self._plan(self._room(kind, amount, divisor))) is not None:
            last, late = amount, (yield counts)
            amount = _next_amount(kind, amount, late)
        if late > FAR or self.p.tools.trial:
            return
        yield from self._roomiest(kind, divisor, last, min(amount, MOST[kind]))
        if kind == "spare":  # whole servers fit small groups badly
            yield from self._roomiest("headroom", divisor, self.wanted.headroom, MOST["headroom"])

    def _roomiest(self, kind: Kind, divisor: float, low: float, high: float) -> Iterator[Counts]:
        """The plan with the most room between these, found by programs alone."""
        made: Counts | None = None
        while high - low > max(WIDTH[kind], NEAR * high) and self.ask.remaining > 0:
            middle = round((low + high) / 2.0, 4)
            found = self._plan(self._room(kind, middle, divisor))
            low, high, made = (low, middle, made) if found is None else (middle, high, found)
        if made is not None:
            yield made

    def _deals_that_carry_most(self, divisor: float) -> Iterator[Counts]:
        """The servers that carry most."""
        room = Margin(0.0, 0.0, divisor)
        for deal in deals_that_carry_most(room.given_to(self.p), self.ask) if can_deal(self.p) else ():
            if (made := self._deal(room, deal)) is not None:
                yield made

    def _moves(self, above: float = inf) -> Generator[Counts, float, None]:
        """Of what came nearest, at less than this price, servers moved and batches changed, as long as that helps."""
        tried, start = 0, self._nearest(above)
        while start is not None and start.late > GOOD:
            best, deal, start = start, self._deal_of(start), None
            for move in deal.moves(best.waiting) if deal is not None else ():
                if tried == MOST_DEALT or not self.may_go_on:
                    return
                made = self._deal(self.widest, move, above)
                if made is not None and self.known[made].shown is None and self.known[made].price < above:
                    tried += 1
                    yield made
                    if self.known[made].late < best.late:
                        start = self.known[made]
                        break

    def _deals_of_others(self) -> Generator[Counts, float, None]:
        """The servers that came nearest before a repair was tried: they may meet the SLO with it."""
        for room, workers in self.p.tools.known.get(NEAREST, ()) if can_deal(self.p) else ():
            deal = deal_of(room.given_to(self.p), workers)
            if deal is not None and (made := self._deal(room, deal)) is not None:
                yield made

    # Down

    def neighbours(self, counts: Counts, station: Hashable) -> Iterator[Counts]:
        """Better plans: with less room, with paths of other lengths, with another kind of room; with a server less."""
        del station
        best = self.known[counts]
        if best.room == self.wanted and not self.wanted.is_none:
            return
        kind: Kind = "headroom" if best.room.headroom > self.wanted.headroom else self.kind
        own, others = best.room.divisor, [SHORTER] if "slo_divisor" not in self.p.options.model_fields_set else []
        if best.late <= ENOUGH:
            yield from self._less_room(kind, own, best)
        is_much = best.room.is_none or best.room.spare >= LARGE
        if kind == "spare" and is_much:
            yield from self._less_room("headroom", own, best)
        # On a large cluster a program of whole servers takes seconds.
        for divisor in () if _is_large(self.p) else (*self.divisors, *others):
            if divisor != own:
                yield from self._less_room(kind, divisor, best)
                if kind == "spare" and is_much:
                    yield from self._less_room("headroom", divisor, best)
        if can_deal(self.p):
            yield from self._fewer(best)
            yield from self._moves(best.price)

    def _fewer(self, best: _Candidate) -> Iterator[Counts]:
        """A server less."""
        deal = self._deal_of(best)
        for fewer in deal.fewer(best.waiting) if deal is not None else ():
            if (made := self._deal(self.widest, fewer, best.price)) is not None and self._is_better(made, best):
                yield made

    def _less_room(self, kind: Kind, divisor: float, best: _Candidate) -> Iterator[Counts]:
        """Between room that is too little and room that leaves no better plan, by halves."""
        least, width = getattr(self.wanted, kind), WIDTH[kind]
        first = getattr(best.room, kind) or (SPARES[0] if kind == "spare" else HALF)
        while self.may_go_on:
            low, high = least, inf
            for room, counts in self.planned.items():
                if room != self._room(kind, amount := getattr(room, kind), divisor):
                    continue
                if counts is None or self.known[counts].price >= best.price:
                    high = min(high, amount)
                elif self.known[counts].late > GOOD or counts in self.refused:
                    low = max(low, amount)
            if high <= low + width + 1e-9:
                return
            up = first if first > low else _next_amount(kind, low, LATE)
            amount = round((low + high) / 2, 4) if high < inf else up
            room = self._room(kind, amount, divisor)
            if amount > MOST[kind] or room in self.planned:
                return
            made = self._plan(room)
            if made is not None and self._is_better(made, best):
                yield made

    def _is_better(self, counts: Counts, best: _Candidate) -> bool:
        """Whether it would be, and was not looked at."""
        return self.known[counts].price < best.price and self.known[counts].shown is None

    # Each

    def _room(self, kind: Kind, amount: float, divisor: float) -> Margin:
        return replace(self.wanted, **{kind: amount}, divisor=divisor)

    def _plan(self, room: Margin) -> Counts | None:
        """The plan that keeps this room."""
        if room not in self.planned:
            made = _plan_with(self.p, self.ask, room)
            self.planned[room] = self._new(room, made) if isinstance(made, Draft) else None
        return self.planned[room]

    def _deal(self, room: Margin, deal: Deal, below: float = inf) -> Counts | None:
        """The plan of these servers, where they carry the demand, and its price may be `below` this."""
        made = deal.planned(self.ask, below)
        return None if made is None else self._new(room, replace(made, chosen=room.named))

    def _deal_of(self, one: _Candidate) -> Deal | None:
        """Its servers, to be dealt one by one; simulation says which paths are too long."""
        return deal_of(self.widest.given_to(self.p), one.draft.workers)

    def _new(self, room: Margin, made: Draft) -> Counts:
        """The counts of a plan."""
        made, servers = replace(made, searched=True), [0] * self.size
        for worker in made.workers:
            for load in worker.loads:
                key = key_of_load(worker, load)
                at, each = self.place.get(key) or self.place[key[:-1]]
                servers[at] += worker.count * load.instances // each
        routes = self.routes.setdefault(tuple(servers), [])
        played = made.workers, made.routing, {app: _heeded_dispatch(one) for app, one in made.dispatch.items()}
        if played not in routes:
            routes.append(played)
        counts = (*servers, routes.index(played))
        if not self.known:
            self.ask.keep(lambda: _add_bounds(self.p, self.ask, made), rank=(0, -inf))
        self.known.setdefault(counts, _Candidate(room, made, _price(self.p, made), self._rate_factor(made)))
        return counts

    def _rate_factor(self, made: Draft) -> float:
        """By how much all rates may grow until some way through takes all of its deadline, as a formula has it."""
        return min((_rate_factor(self.p, tree, made) for tree in self.p.asked_for), default=inf)

    def price(self, counts: Counts) -> int:
        """How good it is by the objective, less is better."""
        return self.known[counts].price

    def room(self, station: Hashable, counts: Counts) -> float:
        """How many times the rate comes before the longest way through, with its waits, takes all of the deadline."""
        del station
        return self.known[counts].carries

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How late a few queries are, over what may be."""
        one = self.known[counts]
        runs = [(count, _length_s(self.p, queries)) for count, queries in (FIRST, (2, self.queries))]
        plan = self._plan_of(one.draft)
        shown, report = self.simulations.look(plan, self.apps, *runs, about=str(one.room), floors=self.floors)
        waiting = Counter[tuple[str, str]]()
        for worker in one.draft.workers:
            for load in worker.loads:
                waiting[load.app or "", load.node or ""] += report.groups[worker.id].waiting.value
        self.known[counts] = one = replace(one, shown=shown, waiting=waiting)
        self._keep(counts, one)
        return dict.fromkeys(stations, shown.worst)

    def _keep(self, counts: Counts, one: _Candidate) -> None:
        """Keep a plan that was looked at: those that meet the SLO by their objective, others by how near they come."""

        def made() -> Draft | Infeasibility:
            if counts in self.refused:
                return Infeasibility(why=("fresh seeds did not confirm it",), proved=False)
            return _add_bounds(self.p, self.ask, one.draft)

        worth = _worth(self.p, one.draft)
        rank = (1, *(-value for value in worth)) if one.late <= LATE else (0, -one.late)
        self.ask.keep(made, rank=rank, value=abs(worth[0]) if worth else None)

    def confirm(self, counts: Counts) -> Draft | Refused:
        """The plan, if fresh seeds show that it meets the SLO."""
        made = self.known[counts].draft
        length_s = _length_s(self.p, FIRST[1], LONGEST_CONFIRMED)
        bases = {tree.app: CONSTANT for tree in self.p.asked_for if _has_constant_times(self.p, tree)}
        self.last = self.simulations.test(self._plan_of(made), self.apps, length_s, floors=self.floors, bases=bases)
        if not self.last.late:
            return _add_bounds(self.p, self.ask, with_shown(made, self.last))
        if self.ask.remaining > 0:
            self.refused.add(counts)
        return Refused(self.stations(counts))

    def _plan_of(self, made: Draft) -> Plan:
        return plan_to_simulate("pipeline", self.p.formulation, made, made.chosen)

    def _nearest(self, above: float = inf) -> _Candidate | None:
        """Of what was looked at, at less than this price, the least late."""
        seen = [one for one in self.known.values() if one.shown is not None and one.price < above]
        return min(seen, key=lambda one: one.late, default=None)

    def explain_failure(self) -> Draft | Infeasibility:
        """The plan that came nearest, with why it is not enough: never one that is late in silence."""
        nearest = self._nearest()
        if nearest is None or nearest.shown is None:
            return self.never or Infeasibility(
                why=("the time limit ended before any plan was simulated",), proved=False
            )
        late = (self.last.late if self.last is not None else ()) or nearest.shown.late or tuple(self.p.request.apps)
        if self.ask.remaining <= 0:
            why = "not confirmed: the time limit ended before fresh seeds decided whether the plan meets the SLO"
        else:
            ended = (
                "more headroom was not tried" if not self.may_go_on else "more headroom is infeasible, or does not help"
            )
            unsure = ", and fresh seeds do not confirm that" if nearest.late <= LATE else ""
            why = (
                f"not met: in simulation the violation rate of {', '.join(late[:5])} is {nearest.late:.2g} times its "
                f"limit{unsure}, even with {nearest.room}; {ended}"
            )
        apps, rates = self.p.request.apps, {tree.app: tree.demand for tree in self.p.asked_for}
        over = nearest.shown.over
        repairs = [one for a in late[:2] for one in repairs_if_late(apps[a], rates.get(a), over.get(a, 1.0))]
        known, room = self.p.tools.known, replace(nearest.room, spare=0.0, headroom=0.0)
        if not self.p.tools.trial:
            known.pop(NEAREST, None)
        known[NEAREST] = [*known.get(NEAREST, ())[: MOST_KNOWN - 1], (room, nearest.draft.workers)]
        return replace(_add_bounds(self.p, self.ask, nearest.draft), target_missed=why, repairs=tuple(repairs))


def _next_amount(kind: Kind, amount: float, late: float) -> float:
    """How much room comes after this, which was so late.

    >>> _next_amount("spare", 0.2, 5.0), _next_amount("spare", 0.2, 50.0), round(_next_amount("headroom", 0.5, 3.0), 3)
    (0.34, 0.58, 0.568)
    """
    if kind == "headroom":
        return round(max(amount + LEAST, 1.0 - (1.0 - amount) / more_room(late)), 4)
    left = [step for step in SPARES if step > amount]
    return inf if not left else left[1] if late > FAR and len(left) > 2 else left[0]


def _divisors(p: Pipelines) -> tuple[float, ...]:
    """How much of the deadline paths may take, in turn; or as stated."""
    return (p.options.slo_divisor,) if "slo_divisor" in p.options.model_fields_set else DIVISORS


def _add_bounds(p: Pipelines, ask: Ask, made: Draft) -> Draft:
    """The draft with its claims: what it reaches, beside what servers in parts would, filled to the brim."""
    if made.reported and p.formulation not in BOUNDED_APART:
        return made
    return replace(made, reported=claims_in_parts(without_room(p, float(made.chosen["slo_divisor"])), ask, made))


def _is_large(p: Pipelines) -> bool:
    """Whether the program is one of latency levels on a large cluster, where spare servers are lost among many."""
    return p.form == "loki-budget" or bool(p.wish.joins)


def _worth(p: Pipelines, made: Draft) -> tuple[float, ...]:
    """How good a plan is by the objective, first things first; less is better."""
    of_plan = {one.quantity: one.value for one in made.promises if one.app is None}
    quality = {one.app: one.value for one in made.promises if one.quantity == "quality"}
    found = {
        "quality": -sum(tree.weight * quality.get(tree.app, 0.0) for tree in p.asked_for),
        "fairest": -min(quality.values(), default=0.0),
        "cost": of_plan.get("cost_per_hour", 0.0),
        **{name: of_plan.get(name, 0.0) for name in ("servers", "changes")},
    }
    return tuple(found[goal] for goal in p.levels if goal in found)


def _price(p: Pipelines, made: Draft) -> int:
    """How good a plan is by the objective, as one number; less is better."""
    price = 0
    for value in _worth(p, made):
        price = price * NEXT + round(value * UNIT)
    return price


def _heeded_dispatch(dispatch: Dispatch) -> Dispatch:
    """What a run heeds of a dispatch: where no late query is dropped before its last step, or sent elsewhere, neither
    budgets nor backups."""
    heeded = getattr(dispatch, "late", None) not in ("serve", "drop-last-task")
    return dispatch if heeded else dispatch.model_copy(update={"budget_ms": {}, "backup": ()})


def _rate_factor(p: Pipelines, tree: Tree, made: Draft) -> float:
    """By how much the rate may grow until the longest way through takes all of its deadline.

    At each step it takes the slowest servers, and waits `waiting_ms` times as long as few exceed.
    """
    left = {entry.to: entry.left_qps for entry in getattr(made.dispatch[tree.app], "backup", ())}
    few = log(1.0 / max(p.request.apps[tree.app].late_share, LEAST_SHARE))
    ms = dict[tuple[object, ...], float]()
    for task in tree.tasks:
        for c in range(task.size):
            key = key_of(p, tree, task, c)
            ms[key] = ms[key[:-1]] = float(task.ms[c])
    at = dict[str, list[tuple[float, float, float]]]()
    for worker in made.workers:
        for load in worker.loads:
            key = key_of_load(worker, load)
            own = ms.get(key) or ms.get(key[:-1])
            if own is not None:
                servers, batch = float(worker.count * load.instances), load.serve.max_batch if load.serve else None
                use = 1.0 - left.get(load.id, 0.0) * own / (1000.0 * float(batch or 1) * servers)
                at.setdefault(load.node or "", []).append((own, max(use, 0.0), servers))

    def is_in_time(times: float) -> bool:
        longest = [
            max((own + few * waiting_ms(own, times * use, n) for own, use, n in at.get(task.id, ())), default=0.0)
            for task in tree.tasks
        ]
        return all(
            sum(longest[t] for t in tree.path(sink)) <= tree.limit_ms[sink] * p.options.slo_divisor
            for sink in tree.sinks
        )

    low, high = 0.0, 1.0 / max((use for loads in at.values() for _, use, _ in loads), default=1.0)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if is_in_time(middle) else (low, middle)
    return low


def _length_s(p: Pipelines, queries: int, longest: float = LONGEST_CYCLES) -> float:
    """How long a run of so many queries of each application is; of more of them, where few may be late."""
    rates = [tree.demand for tree in p.asked_for]
    strictest = min(p.request.apps[tree.app].late_share for tree in p.asked_for)
    queries = round(queries * min(max(1.0, LATE_QUERIES / (10_000 * max(strictest, 1e-9))), LONGEST))
    # A burst that comes seldom is seen, too.
    cycle_s = max(sum(p.request.apps[tree.app].arrivals.stay_s or ()) for tree in p.asked_for)
    cycles_s = min(CYCLES * cycle_s, longest * queries / sum(rates))
    return max(cycles_s, min(queries / min(rates), MOST_QUERIES * queries / sum(rates)))


def _has_constant_times(p: Pipelines, tree: Tree) -> bool:
    """Whether simulation plays some step's times as constants, because their table says no more of them."""
    runs = p.request.choices(variants=(name for task in tree.tasks for name in task.variants))
    return any(one.is_timed and not one.law.has_spread for one in runs)


@dataclass(frozen=True)
class _Step:
    """A step of an application, and where its configurations are in the counts of its tree."""

    i: int
    task: Task
    own: slice


@dataclass(frozen=True)
class Deal:
    """Servers of each configuration of these trees."""

    problem: Pipelines
    trees: tuple[Tree, ...]
    counts: tuple[Places, ...]

    def planned(self, ask: Ask, below: float = inf) -> Draft | None:
        """The plan of these servers, all equally full; None where they break a limit, or do not carry the demand.

        Nor is one made whose price is seen not to be `below` this.
        """
        p, fleet = self.problem, self.problem.wish.fleet

        def is_worth(found: Solution) -> bool:
            return below == inf or _price(p, draft(p, found)) < below

        found = fill_evenly(ask, self.trees, self.counts, fleet, p.aim("rate"), is_worth)
        return None if found is None else draft(p, found)

    def moves(self, waiting: Mapping[tuple[str, str], float]) -> Iterator[Deal]:
        """A server more, first where queries wait longest; one there from where they wait least; exchanges; batches.

        `waiting` is how long, by application and step.
        """
        steps = sorted(self._steps(), key=lambda step: waiting.get((self.trees[step.i].app, step.task.id), 0.0))
        to, givers = steps[-1], steps[:-1]
        free = self._free()
        yield from (self._with((step, c, 1)) for step in reversed(steps) for g in free for c in self._seats(step, g))
        for giver in givers:
            for c in self._used(giver):
                for seat in self._seats(to, int(giver.task.hardware[c])):
                    yield self._with((giver, c, -1), (to, seat, 1))
        for giver in givers:
            for c in self._used(giver):
                for mine in self._used(to):
                    g, h = int(giver.task.hardware[c]), int(to.task.hardware[mine])
                    if g != h:
                        for there, here in zip(self._seats(giver, h), self._seats(to, g), strict=False):
                            yield self._with((giver, c, -1), (giver, there, 1), (to, mine, -1), (to, here, 1))
        for step in reversed(steps):
            yield from self._other_batches(step)

    def fewer(self, waiting: Mapping[tuple[str, str], float]) -> Iterator[Deal]:
        """A server fewer in one group, first where queries wait least."""
        for step in sorted(self._steps(), key=lambda step: waiting.get((self.trees[step.i].app, step.task.id), 0.0)):
            yield from (self._with((step, c, -1)) for c in self._used(step))

    def _steps(self) -> list[_Step]:
        ends = [np.cumsum([task.size for task in tree.tasks]) for tree in self.trees]
        return [
            _Step(i, task, slice(int(end) - task.size, int(end)))
            for i, tree in enumerate(self.trees)
            for task, end in zip(tree.tasks, ends[i], strict=True)
        ]

    def _used(self, step: _Step) -> list[int]:
        return [int(c) for c in np.flatnonzero(self.counts[step.i][step.own])]

    def _free(self) -> list[int]:
        """Hardware of which a server is not in use."""
        used = np.zeros(len(self.problem.wish.fleet.hardware))
        for tree, counts in zip(self.trees, self.counts, strict=True):
            np.add.at(used, np.concatenate([task.hardware for task in tree.tasks]), counts)
        return [int(g) for g in np.flatnonzero(self.problem.wish.fleet.most - used >= 1)]

    def _seats(self, step: _Step, g: int) -> list[int]:
        """The configuration that a server of this hardware takes at a step: one in use there; else one of a variant
        that is, with the largest batch that takes no longer than what is in use."""
        task, used = step.task, self._used(step)
        same = [c for c in used if task.hardware[c] == g]
        if same or not used:
            return same[:1]
        most = max(used, key=lambda c: int(self.counts[step.i][step.own][c]))
        alike = np.flatnonzero((task.hardware == g) & (task.variant == task.variant[most]))
        in_time = [int(c) for c in alike if task.ms[c] <= task.ms[used].max()]
        fastest = sorted((int(c) for c in alike), key=lambda c: float(task.ms[c]))
        return [max(in_time, key=lambda c: float(task.qps[c]))] if in_time else fastest[:1]

    def _other_batches(self, step: _Step) -> Iterator[Deal]:
        """The next smaller and the next larger batch of one group of a step."""
        task = step.task
        for c in self._used(step):
            alike = (task.variant == task.variant[c]) & (task.hardware == task.hardware[c]) & (task.run == task.run[c])
            sizes = sorted((int(y) for y in np.flatnonzero(alike)), key=lambda y: int(task.batch[y]))
            at = sizes.index(c)
            count = int(self.counts[step.i][step.own][c])
            for other in (*sizes[max(0, at - 1) : at], *sizes[at + 1 : at + 2]):
                yield self._with((step, c, -count), (step, other, count))

    def _with(self, *changes: tuple[_Step, int, int]) -> Deal:
        counts = [own.copy() for own in self.counts]
        for step, c, more in changes:
            counts[step.i][step.own.start + c] += more
        return replace(self, counts=tuple(counts))


def can_deal(problem: Pipelines) -> bool:
    """Whether servers can be dealt one by one: each is one step's, and paths do not join."""
    free = problem.formulation in ("pipeline-milp", "loki") and problem.levels[0] == "quality"
    return free and not problem.wish.fleet.is_shared and not problem.wish.joins


def deals_that_carry_most(problem: Pipelines, ask: Ask) -> Iterator[Deal]:
    """The deals that carry most, over all configurations that are in time."""
    for trees, counts in servers_that_carry_most(problem, ask):
        yield Deal(problem, trees, tuple(counts))


def deal_of(problem: Pipelines, workers: Sequence[Worker]) -> Deal | None:
    """What workers of a plan are, among all configurations; None where one of them is none of these."""
    trees = problem.considered
    counts = [np.zeros(sum(task.size for task in tree.tasks), np.int64) for tree in trees]
    deal = Deal(problem, trees, tuple(counts))
    at = {
        key_of(problem, trees[step.i], step.task, c): (step.i, step.own.start + c)
        for step in deal._steps()
        for c in range(step.task.size)
    }
    for worker in workers:
        for load in worker.loads:
            place = at.get(key_of_load(worker, load))
            if place is None or len(worker.loads) > 1:
                return None
            counts[place[0]][place[1]] += worker.count
    return deal


def key_of(problem: Pipelines, tree: Tree, task: Task, c: int) -> tuple[object, ...]:
    """Application, step, variant, hardware, batch and instances: what a worker says of its configuration."""
    variant, hardware = task.variants[task.variant[c]], problem.wish.fleet.hardware[task.hardware[c]]
    return tree.app, task.id, variant, hardware, int(task.batch[c]), int(task.k[c])


def key_of_load(worker: Worker, load: Load) -> tuple[object, ...]:
    """What `key_of` says, of a load; where steps share servers, it may have more instances than its configuration."""
    batch = load.serve.max_batch if load.serve is not None else None
    return load.app, load.node, load.variant, worker.hardware, batch, load.instances
