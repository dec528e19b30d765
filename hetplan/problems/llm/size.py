"""The cheapest fleet that keeps every limit in simulation: searched upward in price from the program's bound.

First each type alone: which chunk and how many sequences let one instance carry most (`tuned`). Then fleets in the
order of their price. A fleet that rows (1) to (4) exclude is not simulated: prices of those rows, gathered from a few
linear programs, exclude most at once (`Cuts`). A fleet that is far from the limits on a few hundred requests is
dropped; others are played longer, with several limits of the router and chunks. The first that fresh draws confirm
(`planner.sizing`) is the plan. Where that takes too many simulations (limits that only fleets several times the bound
keep), a few mixes of types are scaled up until one keeps them, and made smaller again as far as that goes: a plan, but
not every fleet below it was looked at. With size `simulated` that alone is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.request import MachineType
from hetplan.problems.llm.form import Program, Rows, program
from hetplan.problems.llm.judge import Judge, Shown
from hetplan.problems.llm.wish import Kind, Wish
from hetplan.profiles.fields import NANO
from hetplan.profiles.slo import Arrivals
from hetplan.serving.tokens import Group, TokenDemand, TokenFleet, TokenLaw

__all__ = [
    "GIVE_UP",
    "MOST_CONFIRMED",
    "Cuts",
    "Sized",
    "Tried",
    "can_be_had",
    "dearest",
    "fleet_of",
    "judge_of",
    "planned",
    "price_of",
    "room_at_once",
    "sized",
    "tried_fleet",
    "tuned",
]

CHUNKS = (256, 512, 1024, 2048, 4096, 8192)
SEQUENCES = (16, 32, 64, 128, 256, 512)
THETAS = (1.0, 0.5, 0.25)
HOPELESS, NEAR = 4.0, 2.0
DRAWS = (0, 1, 2)
"""The draws on which ways to run a fleet are compared: one may be lucky for one of them, and unlucky for another."""
MOST_CONFIRMED = 3
MOST_LARGER = 4
"""A fleet that is scaled up is tried in so many sizes, from the first that one draw does not rule out."""
STEP = 1.04
"""Fleets are listed in stretches of the price, each so many times the one before."""
MOST_LISTED = 3_000_000
MOST_IN_VAIN = 60
"""So many fleets after another that rows do not exclude: the rest are simulated at once."""
WALKED, WALKED_BRIEFLY = 0.6, 0.1
"""After this part of the simulations the walk upward in price ends: briefly where any fleet will do."""
NO_BOUND = 1e-9
GIVE_UP = 5.0
"""Times the bound: a fleet dearer than this has limits that more machines do not mend."""

MOST_THERE_MS, SUREST = 60_000.0, 0.9999
"""Where limits say less, a request is taken to be there for so long; percentiles beyond are taken as this one."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Sized:
    """A fleet: machines of each type, the law of each with its chunk and sequences, and the router's limit."""

    counts: tuple[int, ...]
    laws: tuple[TokenLaw, ...]
    theta: float
    cost_nanos: int
    shown: Shown | None = None


@dataclass
class Tried:
    """What a search did: fleets listed below the answer, excluded by rows, simulated, and whether none was left out."""

    listed: int = 0
    excluded: int = 0
    simulated: int = 0
    unconfirmed: int = 0
    complete: bool = True
    parts: int = 1
    """So many fleets side by side were sized as one of them."""
    nearest: tuple[float, Sized] | None = None
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

    def learn(self, counts: Sequence[int] | NDArray[np.float64]) -> float:
        """Add the prices of one fleet; what it carries at most."""
        found = self.rows.carried(counts)
        self.prices.append(found.prices)
        return found.rate_qps

    def carried(self, counts: Integers) -> NDArray[np.float64]:
        """Of each row of counts, what it carries at most as far as these prices say."""
        return np.asarray(np.min(np.stack([counts @ price for price in self.prices]), axis=0))


def judge_of(wish: Wish, tools: Tools, seed: int, may_go_on: Callable[[], bool] = lambda: True) -> Judge:
    """The judge, with the simulator that was handed in."""
    return Judge(wish, tools.extra["play_tokens"], tools.extra["draw_tokens"], seed, tools.repairs, may_go_on)


def fleet_of(wish: Wish, counts: Sequence[int], laws: Sequence[TokenLaw], theta: float) -> TokenFleet:
    """What the simulator plays and the router acts by."""
    groups = [
        Group(law, int(count) * kind.instances, theta, 1.0, kind.name)
        for kind, count, law in zip(wish.kinds, counts, laws, strict=True)
        if count
    ]
    link = wish.link_ms_per_token
    return TokenFleet(tuple(groups), wish.demand.output_tokens, wish.limit_ms("ttft"), wish.options.rule, link)


def tuned(wish: Wish, judge: Judge, number: int) -> list[TokenLaw]:
    """The law of a type with the chunk and the sequences by which one instance carries most, the best first.

    It is tried with the requests that it can serve in time alone. Engines of one role are taken as they are.
    """
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


def sized(
    wish: Wish, judge: Judge, ask: Ask, bound: float, *, cheapest: bool = True
) -> tuple[Sized | None, Tried]:  # fmt: skip
    """The cheapest fleet that keeps every limit, above a bound on the price, or any; and what was done to find it."""
    tried = Tried()
    ask.note(Event("simulate", "each type alone: chunk and sequences"))
    best = [tuned(wish, judge, number) for number in range(len(wish.kinds))]
    cuts = Cuts(program(wish, mean_tpot=False, sacrifice=True, laws=wish.laws))
    for number in range(len(wish.kinds)):
        cuts.learn(np.eye(len(wish.kinds))[number] + 0.02)
    cuts.learn(np.ones(len(wish.kinds)))
    low, budget = bound * (1.0 - 1e-9) if bound > NO_BOUND else 0.0, wish.request.budget
    prices = [wish.supply(kind).cost(1) / NANO for kind in wish.kinds]
    # Where next to nothing is asked for, the bound is, too: one machine of each type is looked at all the same.
    end = max(GIVE_UP * bound, sum(prices) + 0.5 / NANO) if budget is None else budget / NANO + 0.5 / NANO
    if wish.options.size == "simulated":
        tried.complete = False
        return _scaled(wish, judge, ask, (max(low, NO_BOUND), end), best, tried, cheapest=cheapest), tried
    while low < end:
        high = min(max(low * STEP, min((price for price in prices if price), default=end)), end)
        counts, cost, whole = _listed(wish, low, high)
        tried.complete &= whole
        if not whole:
            return _scaled(wish, judge, ask, (low, end), best, tried, cheapest=cheapest), tried
        tried.listed += len(counts)
        for row, price in _in_turn(wish, cuts, counts, cost, tried):
            if ask.remaining <= 0:
                tried.complete = False
                return None, tried
            if judge.played > wish.options.simulations * (WALKED if cheapest else WALKED_BRIEFLY):
                tried.complete = False
                return _scaled(wish, judge, ask, (low, end), best, tried, cheapest=cheapest), tried
            made = tried_fleet(wish, judge, row, price, best, tried)
            if made is not None:
                return made, tried
        low = high
    return None, tried


def _in_turn(
    wish: Wish, cuts: Cuts, counts: Integers, cost: NDArray[np.int64], tried: Tried
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Fleets of a stretch by price, then by what they carry; those that rows exclude are left out, and learnt from."""
    free = counts[:, [not wish.supply(kind).cost(1) for kind in wish.kinds]].sum(axis=1)
    order = np.lexsort((-cuts.carried(counts), free, cost)) if len(counts) else np.zeros(0, dtype=np.int64)
    for place in order:
        row = counts[place]
        if float(cuts.carried(row[None, :])[0]) < wish.rate_qps:
            tried.excluded += 1
            continue
        if cuts.in_vain < MOST_IN_VAIN:
            if cuts.learn([int(n) for n in row]) < wish.rate_qps * (1.0 - 1e-9):
                tried.excluded += 1
                cuts.in_vain = 0
                continue
            cuts.in_vain += 1
        yield tuple(int(n) for n in row), int(cost[place])


def tried_fleet(
    wish: Wish, judge: Judge, counts: tuple[int, ...], price: int, best: Sequence[Sequence[TokenLaw]], tried: Tried
) -> Sized | None:
    """A fleet with several chunks and limits of the router: the first way that surely keeps every limit."""
    tried.simulated += 1
    for excess, way in _ways(wish, judge, counts, price, best)[:MOST_CONFIRMED]:
        if tried.nearest is None or excess < tried.nearest[0]:
            tried.nearest = (excess, way)
        # Of limits of minutes a run may see nothing, while more comes than can ever be served.
        if excess <= NEAR and _carries(wish, counts, way.laws):
            shown = judge.surely(fleet_of(wish, counts, way.laws, way.theta))
            if shown.kept:
                return replace(way, shown=shown)
            tried.unconfirmed += 1
    return None


def _carries(wish: Wish, counts: Sequence[int], laws: Sequence[TokenLaw]) -> bool:
    """Whether machines with these chunks and sequences serve the rate by rows (1) to (4), whatever the schedule."""
    rows = Rows.of(program(wish, mean_tpot=False, sacrifice=True, laws=laws))
    return rows.carried(counts).rate_qps >= wish.rate_qps * (1.0 - 1e-9)


def _ways(
    wish: Wish, judge: Judge, counts: tuple[int, ...], price: int, best: Sequence[Sequence[TokenLaw]]
) -> list[tuple[float, Sized]]:
    """Ways to run a fleet, the best first, each with how far it is from the limits on the mean of all `DRAWS`.

    First the router's limits with each type's own best chunk, on few requests. Unless all are hopeless, on many: one
    type's chunk after the other, and the router's limit, are changed, and what is better is kept, until nothing is.

    One draw favours one way by luck, so all are compared on the same several. No draw takes away from what the others
    add up to: a way is given up as soon as its first draws exceed the sum of the best so far.
    """
    thetas = THETAS if math.isfinite(wish.limit_ms("ttft")) and sum(1 for n in counts if n) > 1 else THETAS[:1]
    found = dict[tuple[tuple[int, ...], float], list[float]]()

    def laws_of(places: tuple[int, ...]) -> tuple[TokenLaw, ...]:
        return tuple(mine[place] for mine, place in zip(best, places, strict=True))

    def tries(way: tuple[tuple[int, ...], float], least: float) -> float:
        """How far a way is from the limits, over all draws; infinite where that is not below `least`."""
        shown = found.setdefault(way, [])
        fleet = fleet_of(wish, counts, laws_of(way[0]), way[1])
        while len(shown) < len(DRAWS) and sum(shown) < least:
            shown.append(judge.excess(judge.once(fleet, seed=DRAWS[len(shown)])))
        return sum(shown) if sum(shown) < least else math.inf

    now = tuple(0 for _ in counts)
    rough = [judge.excess(judge.briefly(fleet_of(wish, counts, laws_of(now), one))) for one in thetas[-1:]]
    if rough[0] <= 3.0 * HOPELESS:
        rough += [judge.excess(judge.briefly(fleet_of(wish, counts, laws_of(now), one))) for one in thetas[:-1]]
    if min(rough) > HOPELESS:
        return []
    # From one chunk for all, too: what is best alone need not be best together.
    starts = [now]
    for size in CHUNKS:
        alike = [next((k for k, law in enumerate(mine) if law.most_tokens == size), 0) for mine in best]
        starts.append(tuple(place if count else 0 for place, count in zip(alike, counts, strict=True)))
    way, least = (now, thetas[0]), len(DRAWS) * HOPELESS
    for other in ((start, one) for start in dict.fromkeys(starts) for one in thetas):
        if (excess := tries(other, least)) < least:
            way, least = other, excess
    better = least < len(DRAWS) * HOPELESS
    while better:
        better = False
        for number, count in enumerate(counts):
            for place in range(len(best[number]) if count else 0):
                other = ((*way[0][:number], place, *way[0][number + 1 :]), way[1])
                if (excess := tries(other, least)) < least:
                    way, least, better = other, excess, True
        for one in thetas:
            if (excess := tries((way[0], one), least)) < least:
                way, least, better = (way[0], one), excess, True
    # Ways that act alike show the same on every draw: of each, one is enough.
    whole = {tuple(shown): way for way, shown in reversed(found.items()) if len(shown) == len(DRAWS)}
    return [
        (sum(shown) / len(DRAWS), Sized(counts, laws_of(places), theta, price))
        for shown, (places, theta) in sorted(whole.items(), key=lambda one: sum(one[0]))
    ]


def _scaled(
    wish: Wish, judge: Judge, ask: Ask, between: tuple[float, float], best: Sequence[Sequence[TokenLaw]],
    tried: Tried, *, cheapest: bool,
) -> Sized | None:  # fmt: skip
    """Each type alone, pairs at equal cost and the nearest fleet so far, as large as they have to be: the cheapest.

    How large is found by halving, on one draw; the cheapest are confirmed, each a little larger where it has to be.
    Then machines are taken out, or replaced by cheaper ones, one by one, as long as everything is kept.
    """
    ask.note(Event("simulate", "mixes of types, scaled up"))
    best_laws = [mine[0] for mine in best]
    units = np.eye(len(wish.kinds), dtype=np.int64)
    each = np.array([max(price_of(wish, unit) / NANO, 1e-9) for unit in units.tolist()])
    alone = [k for k, kind in enumerate(wish.kinds) if wish.supply(kind).available]
    mixes = [units[one] / each[one] + units[two] / each[two] for one in alone for two in alone if one <= two]
    if tried.nearest is not None:
        mixes.append(np.array(tried.nearest[1].counts, dtype=np.float64))
    hoped = list[tuple[int, tuple[int, ...], list[tuple[int, ...]]]]()
    for mix in mixes:
        ladder = _ladder(wish, mix / float(mix @ each), *between)
        if (first := _first_kept(wish, judge, ladder, best_laws)) is not None:
            hoped.append((price_of(wish, ladder[first]), ladder[first], ladder[first : first + MOST_LARGER]))
    for _, _, larger in sorted(hoped)[:MOST_CONFIRMED]:
        for counts in larger:
            if ask.remaining > 0 and (made := tried_fleet(wish, judge, counts, price_of(wish, counts), best, tried)):
                return _smaller(wish, judge, ask, made, best, tried) if cheapest else made
    return None


def _ladder(wish: Wish, mix: NDArray[np.float64], low: float, high: float) -> list[tuple[int, ...]]:
    """A mix that costs 1 in larger and larger amounts from one price to another, as far as machines can be had."""
    found = dict[tuple[int, ...], None]()
    while low <= high:
        counts = tuple(int(n) for n in np.ceil(mix * low - 1e-6))
        spent = _spent(wish, counts)
        if any(count > min(one.available, wish.largest) for one, count in spent):
            break
        if all(count >= one.least for one, count in spent):
            found[counts] = None
        low *= STEP
    return list(found)


def _first_kept(wish: Wish, judge: Judge, ladder: list[tuple[int, ...]], laws: Sequence[TokenLaw]) -> int | None:
    """The first of fleets, each larger than the one before, that keeps all limits on one draw; None where none does."""

    def keeps(place: int) -> bool:
        fleets = (fleet_of(wish, ladder[place], laws, theta) for theta in THETAS)
        return any(judge.excess(judge.once(one, seed=0)) <= 1.0 for one in fleets)

    if not ladder or not keeps(len(ladder) - 1):
        return None
    low, high = -1, len(ladder) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _smaller(
    wish: Wish, judge: Judge, ask: Ask, made: Sized, best: Sequence[Sequence[TokenLaw]], tried: Tried
) -> Sized:  # fmt: skip
    """The fleet with fewer or cheaper machines, by the step that saves most, as long as everything is kept."""
    kinds = range(len(wish.kinds))
    while True:
        steps = list[tuple[int, tuple[int, ...]]]()
        for out in (kind for kind in kinds if made.counts[kind]):
            for new in (None, *(kind for kind in kinds if kind != out)):
                counts = tuple(n - (k == out) + (k == new) for k, n in enumerate(made.counts))
                price = price_of(wish, counts)
                if any(counts) and can_be_had(wish, counts) and price < made.cost_nanos:
                    steps.append((price, counts))
        for price, counts in sorted(steps):
            if ask.remaining <= 0 or judge.played > wish.options.simulations:
                return made
            one = None
            with suppress(Interrupted):
                one = tried_fleet(wish, judge, counts, price, best, tried)
            if one is not None:
                made = one
                break
        else:
            return made


def _spent(wish: Wish, counts: Sequence[int]) -> list[tuple[MachineType, int]]:
    """What there is of each hardware, and how many machines of it a fleet takes."""
    of = [kind.hardware for kind in wish.kinds]
    return [
        (one, sum(n for name, n in zip(of, counts, strict=True) if name == one.id)) for one in wish.request.machines
    ]


def can_be_had(wish: Wish, counts: Sequence[int]) -> bool:
    """Whether there are so many machines of each hardware, and as many as there have to be."""
    return all(one.least <= n <= min(one.available, wish.largest) for one, n in _spent(wish, counts))


def price_of(wish: Wish, counts: Sequence[int]) -> int:
    """What a fleet costs."""
    return sum(one.cost(count) for one, count in _spent(wish, counts))


def planned(wish: Wish, point: NDArray[np.float64], laws: Sequence[TokenLaw]) -> Sized:
    """The fleet that the program says, with the chunks of `_chunk`, or the next longer ones that serve enough."""
    counts = [int(n) for n in np.rint(point[: len(wish.kinds)])]
    tried = ([law.limited(_chunk(wish, law, longer), law.most_seqs) for law in laws] for longer in range(len(CHUNKS)))
    chosen = tuple(next((one for one in tried if _carries(wish, counts, one)), laws))
    return Sized(tuple(counts), chosen, THETAS[1], price_of(wish, counts))


def room_at_once(wish: Wish) -> float:
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


def _chunk(wish: Wish, law: TokenLaw, longer: int) -> int:
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


def dearest(wish: Wish, bound: float) -> list[Sized]:
    """Of each type alone, as many machines as a search ends at, with each chunk."""
    top = wish.request.budget if wish.request.budget is not None else round(GIVE_UP * bound * NANO)
    found = []
    for kind, one in zip(wish.kinds, np.eye(len(wish.kinds), dtype=np.int64), strict=True):
        counts = one * _most_of(wish, kind, top)
        for size in CHUNKS if counts.any() and kind.engine.role == "mixed" else ():
            laws = [law.limited(min(size, law.most_tokens), law.most_seqs) for law in wish.laws]
            found.append(Sized(tuple(int(n) for n in counts), tuple(laws), THETAS[0], top))
    return found


def _listed(wish: Wish, low: float, high: float) -> tuple[Integers, NDArray[np.int64], bool]:
    """Every fleet with low <= price < high: machines of each type, its price; and whether none was left out.

    Where there are too many, none is listed.
    """
    kinds, top = wish.kinds, math.ceil(high * NANO) - 1
    hardwares = [one.id for one in wish.request.machines]
    rows, spent = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(hardwares)), dtype=np.int64)
    for kind in kinds:
        place, supply = hardwares.index(kind.hardware), wish.supply(kind)
        made = np.arange(_most_of(wish, kind, top) + 1)
        if len(rows) * len(made) > MOST_LISTED:
            return np.zeros((0, len(kinds)), dtype=np.int64), np.zeros(0, dtype=np.int64), False
        rows = np.concatenate([np.repeat(rows, len(made), axis=0), np.tile(made, len(rows))[:, None]], axis=1)
        spent = np.repeat(spent, len(made), axis=0)
        spent[:, place] += rows[:, -1]
        kept = (_cost(wish, spent) <= top) & (spent[:, place] <= supply.available)
        rows, spent = rows[kept], spent[kept]
    cost = _cost(wish, spent)
    least = np.array([one.least for one in wish.request.machines])
    kept = (cost >= low * NANO) & (spent >= least).all(axis=1)
    return rows[kept], cost[kept], True


def _most_of(wish: Wish, kind: Kind, top: int) -> int:
    """The most machines of a type that so much money buys; of those that cost nothing, several times what is needed."""
    supply = wish.supply(kind)
    most = min(supply.available, wish.largest, supply.affordable(top))
    if supply.cost(1) or not most:
        return most
    return min(most, math.ceil(GIVE_UP * wish.busy(kind)) + 1)


def _cost(wish: Wish, spent: Integers) -> NDArray[np.int64]:
    """The price of so many machines of each hardware."""
    total = np.zeros(len(spent), dtype=np.int64)
    for place, supply in enumerate(wish.request.machines):
        counts = spent[:, place]
        known = np.array([supply.cost(n) for n in range(int(counts.max(initial=0)) + 1)], dtype=np.int64)
        total += known[counts]
    return total
