"""The cheapest fleet that keeps every limit in simulation: `planner.sizing_search` over machines of each type.

How a fleet runs is chosen in each look (`_best_way`): which chunk each type has, and what the load balancer is told
(`balancing`). Which chunks and how many sequences are best of a type alone is found first (`_laws_to_try`).

- **Up** come the program's fleets for more and more of the rate, then for shorter limits, where queues take the rest.
  Where money or stock leave no more room, all fleets come that can be had, those that carry most first.
- **Down** come all cheaper fleets that rows (1) to (4) do not exclude, by price. Prices of those rows, gathered from a
  few linear programs, exclude most at once (`Cuts`). So the plan is the cheapest, as far as looks tell. Of fleets that
  are too many to be listed come those with fewer machines of a type, then those with others in their place.

**A large fleet** (`size_fleet`): one part is sized, several such parts are simulated together, then machines are taken
out. Among thousands of machines one more or less is no news, and a search that takes them one by one takes hours. So
the search is for a part of the requests. Its fleet, so many times over, serves all of them at least as well: the router
has more machines to choose from. The same search, with fewer machines of a type, then finds how much smaller that lets
it be. Where one play of all requests would be too long, as many parts are played as it allows, and the others are like
them.

Without simulation `planned_fleet` is what the program says, with `room_at_once` for what may come at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.request import MachineType
from hetplan.planner.sizing_search import (
    LATE,
    Counts,
    Refused,
    Search,
    Together,
    counts_of,
    is_less,
    more_room,
    neighbours,
)
from hetplan.problems.llm.balancing import THETAS, Steering, fleet_of, steered_otherwise, steerings_to_try, with_caps
from hetplan.problems.llm.judge import CONFIRMED, PLAYED, Judge, Shown
from hetplan.problems.llm.program import Program, Rows, program
from hetplan.problems.llm.request import Kind, TextRequest
from hetplan.profiles.fields import NANO
from hetplan.profiles.slo import Arrivals
from hetplan.serving.tokens import Group, TokenDemand, TokenFleet, TokenLaw

__all__ = [
    "Cuts",
    "Fleets",
    "SearchRecord",
    "SizedFleet",
    "capped",
    "judge_of",
    "machines_taken",
    "planned_fleet",
    "room_at_once",
    "size_fleet",
]

CHUNKS = (256, 512, 1024, 2048, 4096, 8192)
SEQUENCES = (16, 32, 64, 128, 256, 512)
PARTS = (1.0, 0.6, 0.35, 0.2)
"""So much of each limit but that per token may be taken by a request that waits for nothing."""
HOPELESS = 4.0
"""A look that finds so many times over what may be late goes no further."""
DRAWS, SEVERAL, MORE_DRAWS, NEAR = 3, 3, 12, 2.0
"""On so many draws all ways to run a fleet are compared, and so many of them on more, if the best is as near as this:
one may be lucky on one draw, and unlucky on another."""
MOST_LISTED, MOST_LEFT = 3_000_000, 200
"""Of more fleets, or of more that rows do not exclude, only those nearby are looked at."""
MOST_IN_VAIN = 60
"""So many fleets after another that rows do not exclude: the rest are simulated at once."""
GAP = 1e-3
"""Of the programs that only say what to look at."""
HELPED = 0.95
"""More of the rate is asked for as long as that leaves less than this part of what was late."""
GIVE_UP = 5.0
"""Times the bound: a fleet dearer than this has limits that more machines do not mend."""
MOST_FREE = 2**32
"""More machines that cost nothing than any fleet has."""

MOST_BUSY = 30.0
"""Machines that are busy all the time: up to so many are searched one by one."""
MOST_SENT = 300_000
"""Requests of a play that confirms."""
MOST_SEARCHED_WHOLE = 3
"""Where no part finds a fleet within budget and stock, the whole may: up to so many parts it is tried."""
LARGER = (1.0, 1.02, 1.04)
"""Times as many machines as its parts have: a fleet that is as good may be a little too small on other draws."""
MOST_THERE_MS, SUREST = 60_000.0, 0.9999
"""Where limits say less, a request is taken to be there for so long; percentiles beyond are taken as this one."""

Integers = NDArray[np.int64]
Way = tuple[tuple[int, ...], Steering]
"""Which law each type has, and what the load balancer is told."""


@dataclass(frozen=True)
class SizedFleet:
    """A fleet: machines of each type, the law of each with its chunk and sequences, and what its balancer is told.

    `shares`: what part of the requests each type got; `played`: the machines that were simulated, of which there are
    `times` as many.
    """

    counts: Counts
    laws: tuple[TokenLaw, ...]
    steering: Steering
    cost_nanos: int
    shown: Shown | None = None
    shares: tuple[float, ...] = ()
    played: Counts = ()
    times: float = 1.0


@dataclass
class SearchRecord:
    """What a search did: fleets listed below the answer, excluded by rows, simulated, and whether none was left out."""

    listed: int = 0
    excluded: int = 0
    simulated: int = 0
    unconfirmed: int = 0
    complete: bool = True
    parts: int = 1
    """So many fleets side by side were sized as one of them."""
    nearest: tuple[float, SizedFleet] | None = None
    """The fleet that came nearest to the limits, and by how much it misses them."""


@dataclass
class Cuts:
    """Prices of rows (1): no fleet n carries more than the least of prices @ n."""

    what: Program
    prices: list[NDArray[np.float64]] = field(default_factory=list)
    in_vain: int = 0
    """Fleets since the last that a program of its own excluded."""

    def __post_init__(self) -> None:
        self.rows = Rows.of(self.what)
        kinds = len(self.what.wish.kinds)
        for some in (*(np.eye(kinds) + 0.02), np.ones(kinds)):
            self.learn(some)

    def learn(self, counts: Sequence[int] | NDArray[np.float64]) -> float:
        """Add the prices of one fleet; what it carries at most."""
        found = self.rows.capacity_of(counts)
        self.prices.append(found.prices)
        return found.rate_qps

    def capacity_of(self, counts: Integers) -> NDArray[np.float64]:
        """Of each row of counts, what it carries at most as far as these prices say."""
        return np.asarray(np.min(np.stack([counts @ price for price in self.prices]), axis=0))

    def exclude(self, counts: Counts) -> bool:
        """Whether rows exclude one fleet; by a program of its own, unless many of these were in vain."""
        rate_qps = self.what.wish.rate_qps
        if float(self.capacity_of(np.array([counts]))[0]) < rate_qps:
            return True
        if self.in_vain >= MOST_IN_VAIN:
            return False
        self.in_vain = 0 if self.learn(counts) < rate_qps * (1.0 - 1e-9) else self.in_vain + 1
        return self.in_vain == 0


def judge_of(wish: TextRequest, tools: Tools, seed: int, may_go_on: Callable[[], bool] = lambda: True) -> Judge:
    """The judge, with the simulator that was handed in."""
    return Judge(wish, tools.extra["play_tokens"], tools.extra["draw_tokens"], seed, tools.repairs, may_go_on)


def size_fleet(
    judge: Judge, ask: Ask, bound: float, *, any_will_do: bool = False
) -> tuple[SizedFleet | None, SearchRecord]:
    """The cheapest fleet that keeps every limit, or any: a large one as several alike; and what was done to find it."""
    wish, parts = judge.wish, _parts_of(judge.wish)
    if parts == 1:
        return _size_one(judge, ask, bound, any_will_do=any_will_do)
    one = judge.for_wish(wish.part(parts))
    found, tried = _size_one(one, ask, bound / parts, any_will_do=any_will_do)
    if found is None and parts <= MOST_SEARCHED_WHOLE:
        return _size_one(judge, ask, bound, any_will_do=any_will_do)
    tried.parts, tried.complete = parts, False
    if found is None:
        return None, tried
    sent = CONFIRMED * PLAYED * one.settles_s * one.wish.rate_qps
    played = int(min(parts, max(1, MOST_SENT // sent)))
    ask.note(Event("simulate", f"{played} of {parts} fleets alike, together"))
    fleets = Fleets(
        judge.for_wish(wish.with_rate(wish.rate_qps * played / parts)), ask, [[law] for law in found.laws],
        steering=found.steering, times=parts / played,
        starts=[counts_of(math.ceil(n * played * factor) for n in found.counts) for factor in LARGER],
    )  # fmt: skip
    made = Search(fleets).cheapest(any_will_do=any_will_do)
    tried.unconfirmed += fleets.refused
    return made, tried


def capped(judge: Judge, ask: Ask, found: SizedFleet) -> SizedFleet:
    """The fleet with caps, if fresh draws show that it keeps every limit with them, too."""
    if found.times > 1.0:
        judge = judge.for_wish(judge.wish.with_rate(judge.wish.rate_qps / found.times))
    ask.note(Event("simulate", "caps: twice the rate for a minute"))
    steering = with_caps(judge, found.played, found.laws, found.steering, lambda: ask.remaining > 0)
    if steering == found.steering or ask.remaining <= 0:
        return found
    shown = judge.confirm_fleet(fleet_of(judge.wish, found.played, found.laws, steering))
    if not shown.kept:
        return found
    return replace(found, steering=steering, shown=shown, shares=tuple(judge.shares(found.played)))


def _parts_of(wish: TextRequest) -> int:
    """How many fleets side by side a wish is sized as."""
    busy = (wish.busy(kind) for kind in wish.kinds if kind.engine.role == "mixed")
    least = min((one for one in busy if math.isfinite(one)), default=0.0)
    return max(1, math.ceil(least / MOST_BUSY))


def _size_one(
    judge: Judge, ask: Ask, bound: float, *, any_will_do: bool = False
) -> tuple[SizedFleet | None, SearchRecord]:
    """The same for a fleet that is searched machine by machine, above a bound on the price."""
    ask.note(Event("simulate", "each type alone: chunk and sequences"))
    best = [_laws_to_try(judge, number) for number in range(len(judge.wish.kinds))]
    fleets = Fleets(judge, ask, best, math.floor(bound * (1.0 - 1e-9) * NANO))
    found = Search(fleets).cheapest(any_will_do=any_will_do)
    return found, fleets.record(found)


def _laws_to_try(judge: Judge, number: int) -> list[TokenLaw]:
    """The law of a type with the chunk and the sequences by which one instance carries most, the best first.

    It is tried with the requests that it can serve in time alone. Engines of one role are taken as they are.
    """
    wish = judge.wish
    law = wish.laws[number]
    if law.role != "mixed":
        return [law]
    in_time = wish.first_token_ms([law], wish.demand.requests)[0] <= wish.limit_ms("ttft")
    if not in_time.any():
        return [law]
    demand = wish.demand
    usual = Arrivals() if demand.arrivals.cycle_s else demand.arrivals
    part = TokenDemand(demand.requests.taken(in_time), demand.weight[in_time], demand.kind[in_time], 1.0, usual)
    coming = judge.draw(part, seed=judge.seed, count=1000)
    ceiling = 1000.0 / float(np.average(law.busy_ms(law.work(part.requests)), weights=part.weight))

    def carries(tried: TokenLaw) -> float:
        fleet = TokenFleet((Group(tried, 1),), wish.demand.output_tokens)
        low, high = 0.0, ceiling
        for _ in range(6):
            rate = (low + high) / 2.0
            judge.played += 1
            kept = judge.excess(judge.play(fleet, coming.at_rate(rate))) <= 1.0
            low, high = (rate, high) if kept else (low, rate)
        return low

    chunks = sorted({min(size, law.most_tokens) for size in (*CHUNKS, law.most_tokens)})
    best = sorted(((carries(law.limited(chunk, law.most_seqs)), chunk) for chunk in chunks), reverse=True)
    found = [(rate, law.limited(chunk, law.most_seqs)) for rate, chunk in best]
    fewer = [size for size in SEQUENCES if size < found[0][1].most_seqs]
    for size in fewer[-2:]:
        tried = law.limited(best[0][1], size)
        found.append((carries(tried), tried))
    order = sorted(range(len(found)), key=lambda place: (-found[place][0], place))
    return [found[place][1] for place in order]


@dataclass
class Fleets(Together):
    """Fleets as the sizing search asks for them: machines of each type, the laws to try of each, the best first.

    With `starts` there is a fleet already, and what it has too much is found: so many times as many machines are bought
    as are simulated.
    """

    judge: Judge
    ask: Ask
    best: Sequence[Sequence[TokenLaw]]
    bound_nanos: int = 0
    steering: Steering | None = None
    """What the balancer is told, where that is known."""
    starts: Sequence[Counts] = ()
    times: float = 1.0
    ways: dict[Counts, tuple[float, SizedFleet] | None] = field(default_factory=dict)
    """Of each fleet that was looked at how late it is, and how to run it; None where it is hopeless."""
    late: set[Counts] = field(default_factory=set)
    listed: tuple[Integers, Integers] | None = None
    """All fleets from the bound up, and their prices; None where they are too many."""
    listed_to: int = -1
    is_whole: bool = False
    """Whether all cheaper ones that rows do not exclude were looked at."""
    refused: int = 0
    """Fleets that looked in time, and were not confirmed."""

    def __post_init__(self) -> None:
        self.wish = self.judge.wish
        self.each = [self.wish.supply(kind).cost(1) for kind in self.wish.kinds]
        self.cuts = Cuts(program(self.wish, mean_tpot=False, allow_late=1.0, laws=self.wish.laws))

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and another simulation may be made."""
        return self.judge.played < self.wish.options.max_simulations and self.ask.remaining > 0

    def machines_bought(self, counts: Counts) -> Counts:
        """The machines that are bought for those that are simulated."""
        return counts_of(math.ceil(count * self.times - 1e-9) for count in counts)

    def price(self, counts: Counts) -> int:
        """What they cost; where that is the same, the fewer machines for nothing the better."""
        free = sum(n for n, each in zip(counts, self.each, strict=True) if not each)
        return _price_of(self.wish, self.machines_bought(counts)) * MOST_FREE + free

    # Up

    def candidates(self) -> Generator[Counts, float, None]:
        """The program's fleets for more of the rate, and for shorter limits; else all that can be had."""
        is_scarce, budget = False, self.wish.request.budget
        most = max(round(GIVE_UP * self.bound_nanos), sum(self.each)) if budget is None else budget
        for part in () if self.starts else PARTS:
            room, in_turn, before, late, last = 1.0, 0, math.inf, math.inf, (0,) * len(self.each)
            while _price_of(self.wish, last) <= most and (late < HELPED * before or math.isinf(late)):
                counts = self._program_fleet(room, part)
                if counts is None:
                    is_scarce = is_scarce or part == 1.0
                    break
                if counts != last:
                    last, before, late = counts, late, (yield counts)
                room, in_turn = room * more_room(late, in_turn), in_turn + 1
        if is_scarce:
            self._list(most)
        if is_scarce and self.listed is not None:
            rows, _ = self.listed
            yield from self._not_excluded(rows[np.argsort(-self.cuts.capacity_of(rows), kind="stable")])
        yield from filter(self._is_to_be_had, self.starts)

    def _program_fleet(self, room: float, part: float) -> Counts | None:
        """The program's fleet for so much more of the rate, where service may take this part of each limit."""
        limits = tuple(one if one.of == "tpot" else replace(one, max_ms=part * one.max_ms) for one in self.wish.limits)
        wish = replace(self.wish.with_rate(room * self.wish.rate_qps), limits=limits)
        what = program(wish, mean_tpot=True, allow_late=1.0, laws=wish.laws).build()
        answer = self.ask.without_infeasibility_checks()(
            what, gap=GAP, about=f"least cost of {room:.3g} of the rate, {part:g} of limits"
        )
        return None if answer.point is None else counts_of(np.rint(answer.point[: len(wish.kinds)]))

    # Down

    def neighbours(self, counts: Counts, station: Hashable) -> Iterator[Counts]:
        """All cheaper fleets by price; of too many, those with fewer machines of a type, and with others instead."""
        del station
        price = self.price(counts)
        if not self.starts and self.listed_to < price // MOST_FREE:
            self._list(price // MOST_FREE)
        near: Iterable[Counts | Integers] = (one for one in self._nearby(counts) if self._is_to_be_had(one))
        if self.listed is not None:
            rows, costs = self.listed
            carried = self.cuts.capacity_of(rows)
            left = np.flatnonzero((costs <= price // MOST_FREE) & (carried >= self.wish.rate_qps))
            free = rows[:, [not each for each in self.each]].sum(axis=1)
            self.is_whole = len(left) <= MOST_LEFT
            near = rows[left[np.lexsort((-carried[left], free[left], costs[left]))]] if self.is_whole else near
        yield from (one for one in self._not_excluded(near) if self.price(one) < price)

    def _is_to_be_had(self, counts: Counts) -> bool:
        return _can_be_had(self.wish, self.machines_bought(counts))

    def _not_excluded(self, fleets: Iterable[Counts | Integers]) -> Iterator[Counts]:
        """Those that are not known to be late: by a late one with no fewer machines, or by rows."""
        for one in map(counts_of, fleets):
            is_known = one in self.ways or any(is_less(one, late) for late in self.late)
            if not is_known and not self.cuts.exclude(one):
                yield one

    def _nearby(self, counts: Counts) -> Iterator[Counts]:
        """Half the machines of a type less, a quarter, ...; of a fleet that is searched whole, up to two others too."""
        for kind in sorted(range(len(counts)), key=lambda kind: -self.each[kind]):
            for fewer in dict.fromkeys(math.ceil(counts[kind] / 2**k) for k in range(1, counts[kind].bit_length() + 1)):
                yield (*counts[:kind], counts[kind] - fewer, *counts[kind + 1 :])
        if not self.starts:
            yield from neighbours(counts, self.each)

    def _list(self, top: int) -> None:
        """List every fleet from the bound up to a price."""
        self.listed_to, self.listed = top, _fleets_up_to(self.wish, self.bound_nanos, top)

    # Each

    def room(self, station: Hashable, counts: Counts) -> float:
        """No formula says what is in time."""
        del station, counts
        return math.inf

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """How late the best way to run it is on a few draws, over what may be."""
        self.ways[counts] = found = _best_way(self.judge, counts, self.best, self.steering)
        late = found[0] if found else math.inf
        if late > LATE:
            self.late.add(counts)
        self.ask.note(Event("simulated", f"{counts}: {late:.2g} of what may be late"))
        return dict.fromkeys(stations, late)

    def confirm(self, counts: Counts) -> SizedFleet | Refused:
        """The fleet, if fresh draws show that it keeps every limit."""
        found = self.ways[counts]
        if found is not None and self.ask.remaining > 0:
            _, way = found
            shown = self.judge.confirm_fleet(fleet_of(self.wish, counts, way.laws, way.steering))
            if shown.kept:
                bought, shares = self.machines_bought(counts), tuple(self.judge.shares(counts))
                return replace(
                    way, counts=bought, cost_nanos=_price_of(self.wish, bought), shown=shown, shares=shares,
                    played=counts, times=self.times,
                )  # fmt: skip
        self.refused += 1
        return Refused(self.stations(counts))

    def record(self, found: SizedFleet | None) -> SearchRecord:
        """What was done."""
        top, listed, excluded = found.cost_nanos if found is not None else self.listed_to, 0, 0
        if self.listed is not None:
            rows = self.listed[0][self.listed[1] <= top]
            listed, excluded = len(rows), int((self.cuts.capacity_of(rows) < self.wish.rate_qps).sum())
        nearest = min(filter(None, self.ways.values()), key=lambda one: one[0], default=None)
        is_whole = self.is_whole and self.may_go_on
        return SearchRecord(listed, excluded, len(self.ways), self.refused, is_whole, nearest=nearest)


def _carries(wish: TextRequest, counts: Sequence[int], laws: Sequence[TokenLaw]) -> bool:
    """Whether machines with these chunks and sequences serve the rate by rows (1) to (4), whatever the schedule."""
    rows = Rows.of(program(wish, mean_tpot=False, allow_late=1.0, laws=laws))
    return rows.capacity_of(counts).rate_qps >= wish.rate_qps * (1.0 - 1e-9)


def _best_way(
    judge: Judge, counts: Counts, best: Sequence[Sequence[TokenLaw]], steering: Steering | None
) -> tuple[float, SizedFleet] | None:
    """The best way to run a fleet, and how late it is on the mean of draws; None where all are hopeless.

    First what its balancer may be told, with each type's own best chunk, on few requests. Unless all are hopeless, on
    many: one type's chunk after the other, and what the balancer is told, are changed, and what is better is kept,
    until nothing is. The best of these are compared on more draws, as the best of many on a few was lucky there.

    One draw favours one way by luck, so all are compared on the same several. No draw takes away from what the others
    add up to: a way is given up as soon as its first draws exceed the sum of the best so far.
    """
    wish = judge.wish
    several = [steering] if steering else steerings_to_try(wish, counts, [mine[0] for mine in best])
    found = dict[Way, list[float]]()

    def laws_of(places: tuple[int, ...]) -> tuple[TokenLaw, ...]:
        return tuple(mine[place] for mine, place in zip(best, places, strict=True))

    def tries(way: Way, least: float, draws: int = DRAWS) -> float:
        """How late a way is, over all draws; infinite where that is not below `least`."""
        shown = found.setdefault(way, [])
        fleet = fleet_of(wish, counts, laws_of(way[0]), way[1])
        while len(shown) < draws and sum(shown) < least:
            shown.append(judge.excess(judge.play_once(fleet, seed=len(shown))))
        return sum(shown) if sum(shown) < least else math.inf

    now = tuple(0 for _ in counts)

    def is_far(excess: float) -> bool:
        """Whether this is too late for any other telling of the balancer to help."""
        return excess > 3.0 * HOPELESS and wish.rule == "least-work/1"

    rough = [judge.excess(judge.play_briefly(fleet_of(wish, counts, laws_of(now), one))) for one in several[-1:]]
    if not is_far(rough[0]):
        rough += [judge.excess(judge.play_briefly(fleet_of(wish, counts, laws_of(now), one))) for one in several[:-1]]
    if min(rough) > HOPELESS:
        return None
    # From one chunk for all, too: what is best alone need not be best together.
    starts = [now]
    for size in CHUNKS:
        alike = [next((k for k, law in enumerate(mine) if law.most_tokens == size), 0) for mine in best]
        starts.append(tuple(place if count else 0 for place, count in zip(alike, counts, strict=True)))
    way, least = (now, several[0]), DRAWS * HOPELESS
    for start in dict.fromkeys(starts):
        for one in several:
            if (excess := tries((start, one), least)) < least:
                way, least = (start, one), excess
            elif is_far(sum(found[start, one][:1])):
                break  # machines this late are so whatever the balancer is told
    if least == DRAWS * HOPELESS:
        return None
    better = least <= DRAWS * NEAR
    while better:
        better = False
        for number, count in enumerate(counts):
            for place in range(len(best[number]) if count else 0):
                other = ((*way[0][:number], place, *way[0][number + 1 :]), way[1])
                if (excess := tries(other, least)) < least:
                    way, least, better = other, excess, True
        for one in () if steering else steered_otherwise(wish, counts, way[1]):
            if (excess := tries((way[0], one), least)) < least:
                way, least, better = (way[0], one), excess, True
    # Ways that act alike show the same on every draw: of each, one is enough.
    whole = {tuple(shown): way for way, shown in reversed(found.items()) if len(shown) == DRAWS}
    ordered, draws = (way for _, way in sorted(whole.items(), key=lambda one: sum(one[0]))), DRAWS
    if whole and min(sum(shown) for shown in whole) <= NEAR * DRAWS:
        # Of limits of minutes a run may see nothing, while more comes than can ever be served.
        ordered, draws = (way for way in ordered if _carries(wish, counts, laws_of(way[0]))), MORE_DRAWS
    few = list(islice(ordered, SEVERAL))
    least = math.inf
    for other in few:
        if (excess := tries(other, least, draws)) < least:
            way, least = other, excess
    return (least / draws, SizedFleet(counts, laws_of(way[0]), way[1], _price_of(wish, counts))) if few else None


def machines_taken(wish: TextRequest, counts: Sequence[int]) -> list[tuple[MachineType, int]]:
    """What there is of each hardware, and how many machines of it a fleet takes."""
    of = [kind.hardware for kind in wish.kinds]
    return [
        (one, sum(n for name, n in zip(of, counts, strict=True) if name == one.id)) for one in wish.request.machines
    ]


def _can_be_had(wish: TextRequest, counts: Counts) -> bool:
    """Whether there are so many machines of each hardware, as many as there have to be, and the money for them."""
    budget = wish.request.budget
    is_there = all(one.least <= n <= min(one.available, wish.largest) for one, n in machines_taken(wish, counts))
    return is_there and any(counts) and (budget is None or _price_of(wish, counts) <= budget)


def _price_of(wish: TextRequest, counts: Sequence[int]) -> int:
    """What a fleet costs."""
    return sum(one.cost(count) for one, count in machines_taken(wish, counts))


def planned_fleet(wish: TextRequest, point: NDArray[np.float64], laws: Sequence[TokenLaw]) -> SizedFleet:
    """The fleet that the program says, with the chunks of `_chunk`, or the next longer ones that serve enough."""
    counts = [int(n) for n in np.rint(point[: len(wish.kinds)])]
    tried = ([law.limited(_chunk(wish, law, longer), law.most_seqs) for law in laws] for longer in range(len(CHUNKS)))
    chosen = tuple(next((one for one in tried if _carries(wish, counts, one)), laws))
    return SizedFleet(tuple(counts), chosen, Steering(THETAS[1]), _price_of(wish, counts))


def room_at_once(wish: TextRequest) -> float:
    """By how much more than the rate a fleet is asked for, so that what happens to come at once is served in time.

    A request is there for as long as its limits allow, T; then f rate T are there on the mean, where f is the highest
    part of the rate in bursts. Their work varies by sqrt((a + s) f rate T), with a and s the squared spreads of gaps
    between requests and of their tokens: square-root staffing, at the strictest percentile.
    """
    demand, arrivals = wish.demand, wish.demand.arrivals
    tokens = (demand.requests.input + demand.requests.output).astype(np.float64)
    mean = float(np.average(tokens, weights=demand.weight))
    spread = float(np.average((tokens / mean) ** 2, weights=demand.weight)) - 1.0
    gaps = 0.0 if arrivals.process == "deterministic" else 1.0 / (arrivals.shape or 1.0)
    highest = max(arrivals.relative_rates or (arrivals.peak or 1.0,))
    stays = [wish.limit_ms("response"), wish.limit_ms("ttft") + wish.limit_ms("tpot") * demand.output_tokens]
    there_ms = min([*(one for one in stays if math.isfinite(one)), MOST_THERE_MS])
    share = max([wish.goodput or 0.5, *(1.0 - one.left for one in wish.limits)])
    there = highest * wish.rate_qps * max(there_ms, 1.0) / 1000.0
    sigmas = NormalDist().inv_cdf(min(share, SUREST))
    return highest * (1.0 + sigmas * math.sqrt((gaps + spread) / there)) - 1.0


def _chunk(wish: TextRequest, law: TokenLaw, longer: int) -> int:
    """As long as an iteration may take within the limit per token; longer where prompts would else be late alone.

    Or so many sizes longer.
    """
    sizes, tpot = [*(size for size in CHUNKS if size < law.most_tokens), law.most_tokens], wish.limit_ms("tpot")
    usual = max((size for size in sizes if law.iteration_ms(size) <= tpot), default=sizes[0])
    limit = wish.limit_ms("ttft")

    def late(size: int) -> int:
        return int(np.sum(wish.first_token_ms([law.limited(size, law.most_seqs)], wish.demand.requests)[0] > limit))

    least = min(late(size) for size in sizes)
    enough = next((size for size in sizes if size >= usual and late(size) <= least), usual)
    return sizes[min(sizes.index(enough) + longer, len(sizes) - 1)]


def _fleets_up_to(wish: TextRequest, low: int, top: int) -> tuple[Integers, Integers] | None:
    """Every fleet with a price from one to another: machines of each type, its price; None where there are too many."""
    hardwares = [one.id for one in wish.request.machines]
    rows, spent = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(hardwares)), dtype=np.int64)
    for kind in wish.kinds:
        place, supply = hardwares.index(kind.hardware), wish.supply(kind)
        made = np.arange(_most_of(wish, kind, top) + 1)
        if len(rows) * len(made) > MOST_LISTED:
            return None
        rows = np.concatenate([np.repeat(rows, len(made), axis=0), np.tile(made, len(rows))[:, None]], axis=1)
        spent = np.repeat(spent, len(made), axis=0)
        spent[:, place] += rows[:, -1]
        kept = (_cost(wish, spent) <= top) & (spent[:, place] <= supply.available)
        rows, spent = rows[kept], spent[kept]
    cost = _cost(wish, spent)
    kept = (cost >= low) & rows.any(axis=1) & (spent >= [one.least for one in wish.request.machines]).all(axis=1)
    return rows[kept], cost[kept]


def _most_of(wish: TextRequest, kind: Kind, top: int) -> int:
    """The most machines of a type that so much money buys; of those that cost nothing, several times what is needed."""
    supply = wish.supply(kind)
    most = min(supply.available, wish.largest, supply.affordable(top))
    if supply.cost(1) or not most:
        return most
    return min(most, math.ceil(GIVE_UP * wish.busy(kind)) + 1)


def _cost(wish: TextRequest, spent: Integers) -> NDArray[np.int64]:
    """The price of so many machines of each hardware."""
    total = np.zeros(len(spent), dtype=np.int64)
    for place, supply in enumerate(wish.request.machines):
        counts = spent[:, place]
        known = np.array([supply.cost(n) for n in range(int(counts.max(initial=0)) + 1)], dtype=np.int64)
        total += known[counts]
    return total
