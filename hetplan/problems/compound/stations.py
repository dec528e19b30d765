r"""Queries that come at a rate: every operator is a station, and the replicas that it needs are found.

An operator o takes S_o of a query that runs it (what it took of each sample, on its tier and share), a_o queries a
second come to it, and k_o replicas serve them. With the load u = a_o E[S_o] < k_o a query waits

    P(W > w) = C(k_o, u) exp(-w / m),   m = E[S_o] (v_a + v_s) / (2 (k_o - u))

with C Erlang's chance that all are busy, and v_a, v_s the squared spreads of the gaps between queries and of the
service times (M/G/k by Allen and Cunneen; the tail is taken as that of M/M/k). Waits of different stations are taken as
independent. The response is worked out query by query: a sample that was measured, with a wait drawn at each station
(the same draws always), and the longest path. By how much waiting moves a percentile is added to what the samples
bound it by.

An operator that serves batches of up to b is a line of its own kind (`batch_queue`): a batch takes as long as its
slowest member and grows as its table says, and waits are those of one server as fast as all k, as often as all k are
busy. b is where most are served per second.

Where a query makes several calls of an operator at once, the station's load counts them all, and the query waits for
the last (`bulks`): v_a is such that the work of queries has its spread, as all calls of one take the same.

Calls of an API that says how fast they may come wait for their turn: one line, each as long as the gap between calls.

It is a first size: waits of joined shortest queues are a little longer, and those of stations in a row hang together.
So a plan is played before it is handed out (`rated`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Runs, least_shares, priced, trimmed
from hetplan.planner.forms.calls import Call, Cases, quantile
from hetplan.planner.forms.space import Space
from hetplan.problems.batch_queue import FULLEST, line_of
from hetplan.problems.compound.bulks import found_there, longer
from hetplan.problems.waiting import all_busy, all_busy_with
from hetplan.serving.operators import ALONE, slowest_of

__all__ = ["FREE", "MOST_REPLICAS", "MOST_TRIED", "SLIP", "Flows", "Rated", "Sized", "Stations", "Vector", "sizes"]

Vector = NDArray[np.float64]
Flows = NDArray[np.float64]
"""Of each operator's station: queries a second, their work, its second moment, the spread of gaps; all are sums."""

Fits = Callable[[int, Vector, Vector], bool]
"""Whether there are machines enough for a placement with these shares and replicas."""

QUERIES, TAIL = 800, 20.0
"""Queries that are worked out at least, and how many of them are beyond the highest percentile."""
MOST_QUERIES = 20_000
FINE_QUERIES, FINE_TAIL, MOST_FINE = 10_000, 1000.0, 100_000
"""The same where what comes out is promised, and not only compared: the share beyond is known to a thirtieth."""
SURE = 2.0
"""Where fewer are beyond what is promised, so many standard errors of their number are promised beside it."""
MOST_ROWS = 700
"""So many combinations of shares of a placement are weighed; of more, those in which all shares are cut alike."""
MOST_TRIED = 96
"""So many numbers of replicas that cost less than those found are tried."""
MOST_REPLICAS = 10_000
MOST_STEPS = 400
AT_ONCE = 32
MOST_SEEN = 256
"""Of so many lines in batches the waits are kept."""
FREE = 1e-6
"""What a replica that costs nothing counts for, so that none is added in vain."""
SLIP = 1e-12
USES = 1.0 - np.geomspace(0.98, 1.0 - FULLEST, 48)
"""A line in batches is looked up at the next of these parts of the rate of full batches."""
DIGITS = 4
"""Times of batches over that of one query are told apart so far."""


@dataclass(frozen=True)
class Rated(BlackBox):
    """Settings whose operators serve `rate_qps` queries a second: what a setting costs is what carries this rate.

    `burst` is the squared spread of the gaps between queries (1: Poisson), `slack` the part of the limit that the
    formula may use up, and of `most_s`, where less than the limit is wanted. Batches of n take
    `growth[operator][n - 1]` times as long as one query.
    """

    queued: ClassVar[bool] = True

    rate_qps: float = 0.0
    burst: float = 1.0
    slack: float = 1.0
    growth: tuple[tuple[float, ...], ...] = ()
    most_s: float = math.inf
    fine: bool = False
    """Whether what comes out is promised, and not only compared: then more queries are worked out."""
    fluid: bool = False
    """Whether nothing waits: replicas are those of the load alone, each busy for `slack` of the time at most."""
    unplayed: bool = False
    """Whether plans are handed out by the formula alone."""
    sizes: int = 8
    """So many of its cheapest sizes the packing may choose from."""

    @cached_property
    def each(self) -> Vector:
        """Of each operator what a query takes at least, in the batch that suits it best, as a part of one alone."""
        growth = self.growth or (ALONE,) * len(self.operators)
        return np.array([min(took / n for n, took in enumerate(one, start=1)) for one in growth])

    @property
    def at_once(self) -> float:
        """A replica serves whichever call comes."""
        return 1.0

    @property
    def exact(self) -> frozenset[int]:
        """Replicas are shared by calls: it matters how many there are."""
        return frozenset(range(len(self.operators)))

    def costs(self, configuration: int, *, below: float = np.inf) -> Vector:
        """Per placement the least cost of a measured configuration at the rate, where that may be the least."""
        costs = np.full(len(self.placements), np.inf)
        found = self.journal[configuration]
        if found.passes:
            for one in sizes(self, [found], 1, below=below):
                costs[one.placement] = min(costs[one.placement], one.cost)
        return costs

    def least_cost(self, measured: Measured, placement: int) -> float:
        """The least cost of a measured configuration at one placement, at the rate."""
        return min((one.cost for one in sizes(self, [measured], 1, only=[placement])), default=math.inf)

    def carried(self, seconds: Vector) -> Vector:
        """Per configuration and placement what servers that are never idle would cost: a replica is never less."""
        time = self.placed.relative_time[self.placements]
        each = self.each if self.fans is None else self.each * self.fans.visits
        return np.asarray(self.rate_qps * (seconds * each) @ (self.price * time).T)

    def paid_at(self, seconds: Vector, share: float) -> Vector:
        """The least that replicas of this share cost at the rate: as many as are busy, one at least."""
        by_share = np.array([operator.by_share for operator in self.operators])
        time = self.placed.relative_time[self.placements]
        calls = self.each if self.fans is None else self.each * self.fans.visits
        cost = np.zeros((len(seconds), len(self.placements)))
        for o in range(len(self.operators)):
            busy = self.rate_qps * calls[o] * seconds[:, o, None] * time[None, :, o]
            cost += self.price[None, :, o] * np.maximum(share, busy * (1.0 if by_share[o] else share))
        return cost

    @cached_property
    def last(self) -> dict[int, Stations]:
        """The stations that were asked for last, by their configuration."""
        return {}

    def stations(self, found: Measured) -> Stations:
        """The stations of a measured configuration; made once where it is asked for several times in a row."""
        known = self.last.get(found.configuration)
        if known is None or known.found is not found:
            self.last.clear()
            known = self.last[found.configuration] = Stations(self, found)
        return known

    @cached_property
    def queries(self) -> int:
        """How many queries are worked out."""
        share = max((share for share, _ in self.wishes), default=0.5)
        least, tail, most = (FINE_QUERIES, FINE_TAIL, MOST_FINE) if self.fine else (QUERIES, TAIL, MOST_QUERIES)
        return int(min(max(least, math.ceil(tail / max(1.0 - share, 1e-9))), most))


@dataclass(frozen=True)
class Sized:
    """A measured configuration at a placement: a share and a number of replicas per operator, and what comes of it.

    `response_s` is, per wish, what its percentile is at most, and `judged_s` what of it is compared with the strictest
    limit; `busy` is the part of what its replicas can serve that they do, and `batches` how many they serve at once at
    most, by operator.
    """

    configuration: int
    placement: int
    shares: tuple[float, ...]
    replicas: tuple[int, ...]
    cost: float
    response_s: tuple[float, ...]
    judged_s: float
    busy: tuple[float, ...]
    batches: tuple[int, ...]


def sizes(
    form: Rated,
    founds: Sequence[Measured],
    most: int,
    *,
    below: float = np.inf,
    only: Collection[int] | None = None,
    fits: Fits | None = None,
) -> list[Sized]:
    """The cheapest sizes of these configurations, at most so many, from the lowest bound of their costs up.

    `only`: at these placements. `fits` says whether there are machines enough.
    """
    stations = {found.configuration: Stations(form, found) for found in founds}
    places = sorted(
        (float(bound), c, p)
        for c, one in stations.items()
        for p, bound in enumerate(one.bounds)
        if math.isfinite(bound) and (only is None or p in only)
    )
    found: list[Sized] = []
    for least, c, placement in places:
        if least >= _beaten(found, most, below):
            break
        found = _best([*found, *stations[c].sized(placement, found, most, below, fits)], most)
    return found


def _best(found: list[Sized], most: int) -> list[Sized]:
    return sorted(found, key=lambda one: (one.cost, sum(one.replicas), one.response_s))[:most]


def _beaten(found: Sequence[Sized], most: int, below: float) -> float:
    """What another size has to cost less than."""
    return below if len(found) < most else min(below, found[-1].cost * (1 + 1e-9))


@lru_cache(maxsize=16)
def _drawn(queries: int, operators: int) -> Vector:
    """-ln of a uniform draw per query and operator, spread evenly within each operator; always the same."""
    random = np.random.default_rng(0)
    even = (np.arange(queries) + 0.5) / queries
    return np.asarray(-np.log(np.stack([random.permutation(even) for _ in range(operators)], axis=1)))


_chance = lru_cache(maxsize=4096)(all_busy)


class Stations:
    """One measured configuration: how often operators run, what they take, and queries that are worked out of it."""

    def __init__(self, form: Rated, found: Measured) -> None:
        self.form, self.found, self.rows = form, found, form.rows(found)
        rows = self.rows
        weight = np.full(len(rows), 1.0 / len(rows)) if rows.cases is None else rows.cases.weight
        part = (weight / weight.sum())[:, None] * ~np.isnan(rows.seconds)
        took = np.nan_to_num(rows.seconds)
        self.often = part.sum(axis=0)
        part = part / np.maximum(self.often, 1e-300)
        self.mean = (part * took).sum(axis=0)
        second = (part * took**2).sum(axis=0)
        self.spread = np.where(self.mean > 0, second / np.maximum(self.mean**2, 1e-300) - 1.0, 0.0).clip(0.0)
        self.bulk = self.spread * 0.0 + form.burst
        self.several: list[tuple[float, ...]] = [(1.0,)] * len(self.often)
        if rows.calls is not None:
            self._count_calls(rows.calls, part)
        copies = -(-form.queries // len(rows))
        self.calls = None if rows.calls is None else np.tile(rows.calls, (copies, 1))
        self.weight = np.tile(weight / copies, copies)
        self.many = Runs(
            np.tile(rows.seconds, (copies, 1)), np.tile(rows.bytes_out, (copies, 1)), np.tile(rows.bytes_in, copies)
        )
        self.drawn = _drawn(len(self.many), 3 * len(form.operators))
        made = [self._shape(part[:, o], o) for o in range(len(form.operators))]
        self.shapes, self.loose = tuple(shape for shape, _ in made), [spread for _, spread in made]
        self.seen: dict[tuple[float, ...], Vector] = {}
        self.batches = np.array([len(shape) for shape in self.shapes])
        self.full = np.array([shape[-1] / len(shape) for shape in self.shapes])
        self.limit = min(form.limit_s, form.most_s) * form.slack * (1 + SLIP)
        self.least = least_shares(form, found)
        self.beside: Flows = np.zeros((4, len(form.operators)))
        calls = [] if form.calls is None else form.calls.of(Space(form.levels).row(found.configuration))
        self.turns = [call for call in calls if call.gap_s > 0.0]
        self.still: tuple[Any, tuple[Vector, Vector]] = (None, (np.zeros(0), np.zeros(0)))

    def _count_calls(self, calls: Vector, part: Vector) -> None:
        """How many calls of each operator queries make that make any, and how bursts of them spread."""
        for o in range(calls.shape[1]):
            sizes = np.bincount(calls[:, o].astype(int), weights=part[:, o])[1:]
            many = np.arange(1.0, sizes.size + 1)
            mean, square = float(sizes @ many), float(sizes @ many**2)
            if mean > 0.0:
                self.several[o] = tuple((sizes / sizes.sum()).tolist())
                work = square / mean**2 * (1.0 + self.spread[o]) - 1.0
                self.bulk[o] = mean * (self.form.burst + work) - self.spread[o]
                self.often[o] *= mean

    def slow(self, placement: int, shares: Vector) -> Vector:
        """By how much each operator is slower than on the reference, per row of shares."""
        by_share = np.array([operator.by_share for operator in self.form.operators])
        return np.asarray(
            self.form.placed.relative_time[self.form.placements[placement]]
            * np.where(by_share, 1.0 / np.maximum(shares, 1e-12), 1.0)
        )

    def own(self, placement: int) -> NDArray[np.bool_]:
        """Which operators are stations: those that are no calls of an API."""
        calls = self.form.calls
        where = self.form.placements[placement]
        return np.ones(where.size, dtype=bool) if calls is None else where < calls.first

    def flows(self, slow: Vector) -> Flows:
        """Per operator the queries that come a second, the work that they bring, and their spreads."""
        rate, mean = self.form.rate_qps * self.often, self.mean * slow
        return np.stack([rate, rate * mean, rate * mean**2 * (1.0 + self.spread), rate * self.bulk])

    def _shape(self, part: Vector, o: int) -> tuple[tuple[float, ...], float]:
        """How many times as long as one query batches of 1, 2, ... take, up to that in which most are served.

        And the squared spread of the times of the last.
        """
        growth = self.form.growth[o] if self.form.growth else ALONE
        ran = part > 0
        if len(growth) == 1 or self.mean[o] <= 0.0:
            return ALONE, float(self.spread[o])
        longest, square = slowest_of(self.rows.seconds[ran, o], part[ran], len(growth))
        times = longest * growth / self.mean[o]
        best = int(np.argmax(np.arange(1, times.size + 1) / times))
        loose = max(float(square[best] / longest[best] ** 2) - 1.0, 0.0)
        return tuple(np.round(times[: best + 1], DIGITS).tolist()), loose

    @property
    def room(self) -> Vector:
        """Of each operator the work that a replica does in the time of one query, where its batches are full."""
        used = self.form.slack if self.form.fluid else 1.0
        return np.asarray(used * np.where(self.batches > 1, FULLEST, 1.0) / self.full)

    def fewest(self, slow: Vector) -> Vector:
        """The fewest replicas that are not overrun."""
        load = self.form.rate_qps * self.often * self.mean * slow + self.beside[1]
        return np.asarray(np.floor(load / self.room + 1e-9) + 1.0)

    @cached_property
    def bounds(self) -> Vector:
        """Per placement what any size of it costs at least; infinite where even without waiting it is too slow."""
        form = self.form
        cost = np.array(form.called(self.found.configuration), dtype=float)
        ones = np.ones(len(form.operators))
        for placement in np.flatnonzero(np.isfinite(self.least).all(axis=1) & np.isfinite(cost)):
            price, place = form.price[placement], int(placement)
            steps = np.array([self.fewest(self.slow(place, share * ones)) * share for share in form.placed.shares])
            cost[placement] += float((price * steps.min(axis=0))[price > 0].sum())
        cost[~np.isfinite(self.least).all(axis=1)] = np.inf
        return cost

    def sized(self, placement: int, known: Sequence[Sized], most: int, below: float, fits: Fits | None) -> list[Sized]:
        """The cheapest sizes at one placement that are not beaten by those that are known."""
        form, found = self.form, list(known)
        own, price = self.own(placement), form.price[placement]
        made: list[Sized] = []
        rows, slows, whole, bound = self.corners(placement)
        for row in np.lexsort((rows.sum(axis=1), bound)):
            if bound[row] >= _beaten(found, most, below):
                break
            fewest = np.where(own, self.fewest(slows[row]), 0.0)
            if whole[row] > form.limit_s * (1 + SLIP) or not (fits is None or fits(placement, rows[row], fewest)):
                continue
            costs = np.where(own, np.maximum(price * rows[row], FREE), 0.0)
            room = _beaten(found, most, below) - float(bound[row])
            if not self._may_fit(placement, slows[row], costs, own, room):
                continue
            replicas = self._replicas(placement, slows[row], costs, own)
            if replicas is None:
                continue
            one = self.of(placement, rows[row], replicas)
            if one.cost < _beaten(found, most, below) and (fits is None or fits(placement, rows[row], replicas * own)):
                made.append(one)
                found = _best([*found, one], most)
        return made

    def corners(self, placement: int) -> tuple[Vector, Vector, Vector, Vector]:
        """Rows of shares, how slow they are, and what no size of them comes below: its judged latency, and its cost."""
        own = self.own(placement)
        rows = self._shares(placement)
        slows = self.slow(placement, rows)
        whole = self._without_waiting(placement, slows).max(axis=0) if len(rows) else np.zeros(0)
        fewest = np.array([self.fewest(slow) for slow in slows]).reshape(rows.shape)
        return rows, slows, whole, self.cost(placement, rows, np.where(own, fewest, 0.0))

    def cost(self, placement: int, shares: Vector, replicas: Vector) -> Vector:
        """What so many replicas of these shares cost an hour, with calls; by row."""
        own, price = self.own(placement), self.form.price[placement]
        calls = float(self.form.called(self.found.configuration)[placement])
        return np.asarray(calls + (price * shares * np.where(own, replicas, 0.0)).sum(axis=-1))

    def of(self, placement: int, shares: Vector, replicas: Vector) -> Sized:
        """A size, with what comes of it."""
        own, slow = self.own(placement), self.slow(placement, shares)
        responses = self.responses(placement, slow, replicas[None, :])
        load = self.form.rate_qps * self.often * self.mean * slow
        return Sized(
            self.found.configuration, placement, tuple(shares.tolist()),
            tuple(np.where(own, replicas, 0).astype(int).tolist()), float(self.cost(placement, shares, replicas)),
            tuple(responses[:, 0].tolist()), float(self._scaled(responses).max()),
            tuple(np.where(own, load * self.full / np.maximum(replicas, 1.0), 0.0).tolist()),
            tuple(np.where(own, self.batches, 1).tolist()),
        )  # fmt: skip

    def _shares(self, placement: int) -> Vector:
        """Rows of shares (of all operators) that may be in time: every combination, or the same for all of many."""
        form = self.form
        free = priced(form, placement)
        steps = sorted(set(form.placed.shares), reverse=True)
        choices = [[share for share in steps if share >= self.least[placement, o]] for o in free]
        count = math.prod(map(len, choices))
        if count <= min(MOST_ROWS, 2_000_000 // len(self.rows)):
            picked = np.array(list(product(*choices)), dtype=float).reshape(count, len(free))
        else:
            alike = [[max(share, min(choice)) for choice in choices] for share in steps]
            cut = trimmed(form, self.found, placement)
            picked = np.unique(np.array([*alike, *([] if cut is None else [cut.tolist()])]), axis=0)
        rows = np.ones((len(picked), len(form.operators)))
        rows[:, free] = picked
        return rows

    def _finish(self, placement: int, runs: Runs, slows: Vector, waits: Vector | float = 0.0) -> Vector:
        """Per query and row of `slows` the longest path."""
        where = self.form.placements[placement : placement + 1]
        return self.form.finish(runs.seconds[:, None, :] * slows[None] + waits, runs.bytes_out, runs.bytes_in, where)

    def _scaled(self, values: Vector) -> Vector:
        """Percentiles (per wish) as they compare with the strictest limit."""
        limit = self.form.limit_s
        scale = [limit / most if math.isfinite(most) else 1.0 for _, most in self.form.wishes]
        return np.asarray(values * np.array(scale)[:, None])

    def _without_waiting(self, placement: int, slows: Vector) -> Vector:
        """Per wish and row what the samples bound the percentile by."""
        each = self._finish(placement, self.rows, slows)
        bounds = [self.form.bound(each, share, self.rows.cases) for share, _ in self.form.wishes]
        return self._scaled(np.array([each.max(axis=0) if one is None else one for one in bounds]))

    def responses(self, placement: int, slow: Vector, replicas: Vector) -> Vector:
        """Per wish and row of replicas what the percentile is at most, in seconds, waiting included."""
        least, plain = self._still(placement, slow)
        waits = self._finish(placement, self.many, slow[None, :], self._waits(placement, slow, replicas))
        moved = np.array([self._at(waits, self._surely(share)) for share, _ in self.form.wishes]) - plain[:, None]
        return np.where(np.isfinite(moved), least[:, None] + moved, np.inf)

    def _still(self, placement: int, slow: Vector) -> tuple[Vector, Vector]:
        """Per wish what the samples bound the percentile by without waiting, and the percentile itself."""
        key = placement, slow.tobytes()
        if self.still[0] != key:
            rows, many = (self._finish(placement, runs, slow[None, :]) for runs in (self.rows, self.many))
            bounds = [self.form.bound(rows, share, self.rows.cases) for share, _ in self.form.wishes]
            least = np.array([rows.max() if one is None else one[0] for one in bounds], dtype=float)
            plain = np.array([self._at(many, share)[0] for share, _ in self.form.wishes])
            self.still = key, (least, plain)
        return self.still[1]

    def _surely(self, share: float) -> float:
        """A share that is a little higher, if it is to be promised and few of those worked out are beyond it."""
        beyond = (1.0 - share) * len(self.drawn)
        if not self.form.fine or beyond > 0.99 * FINE_TAIL or beyond <= 0.0:
            return share
        return share + (1.0 - share) * min(0.5, SURE / math.sqrt(beyond))

    def _at(self, each: Vector, share: float) -> Vector:
        if self.rows.cases is None:
            place = max(math.ceil(len(each) * share - 1.0), 0)  # the inverse of the empirical distribution
            return np.asarray(np.partition(each, place, axis=0)[place])
        return quantile(each, Cases(self.weight, 1), share, share)

    def _waits(self, placement: int, slow: Vector, replicas: Vector) -> Vector:
        """Of each query, row of replicas and operator the wait."""
        waits, flows = np.zeros((len(self.drawn), *replicas.shape)), self.flows(slow) + self.beside
        for o in self.busy(placement, slow):
            counts = replicas[:, o].tolist()
            own = {count: self.wait(o, slow, int(count), flows[:, o]) for count in dict.fromkeys(counts)}
            for row, count in enumerate(counts):
                waits[:, row, o] = own[count]
        for call in self.turns:
            waits[:, :, call.operator] = self._in_turn(call)[:, None]
        return waits

    def busy(self, placement: int, slow: Vector) -> list[int]:
        """The operators at whose stations work comes."""
        return np.flatnonzero(self.own(placement) & (self.flows(slow)[1] > 0)).tolist()

    def wait(self, o: int, slow: Vector, count: int, flow: Vector) -> Vector:
        """Of each query the wait at an operator that has so many replicas, to which this flow comes."""
        rate, load, second, burst = flow
        if self.form.fluid or count >= MOST_REPLICAS:
            return np.zeros(len(self.drawn))
        if self.batches[o] > 1:
            key = o, float(slow[o]), count, float(load)
            if len(self.seen) > MOST_SEEN:
                self.seen.clear()
            if key not in self.seen:
                self.seen[key] = self._in_batches(o, float(slow[o]), count, flow)
            return self.seen[key]
        if len(self.several[o]) > 1:
            return self._for_the_last(o, float(slow[o]), count, flow)
        mean = load / rate
        spread = max(second / rate / mean**2 - 1.0, 0.0)
        each = mean * (burst / rate + spread) / (2.0 * max(count - load, 1e-12))
        return np.asarray(each * np.maximum(self.drawn[:, o] + math.log(max(_chance(count, float(load)), 1e-300)), 0.0))

    def _for_the_last(self, o: int, slow: float, count: int, flow: Vector) -> Vector:
        """Of each query how much longer the last of its calls of an operator takes than one alone."""
        rate, load, second, burst = flow
        if load >= count or self.calls is None:
            return np.full(len(self.drawn), np.inf)
        mean, sizes = load / rate, np.array(self.several[o])
        many = np.arange(1.0, sizes.size + 1)
        spread = max(second / rate / mean**2 - 1.0, 0.0)
        part = (burst / rate + spread) / (float(sizes @ many**2) / float(sizes @ many) + 1.0)
        # A little more load than there is, of few digits, so that few stations are worked out.
        about = count * min(math.ceil(load / count * 400.0) / 400.0, 1.0 - (1.0 - load / count) * 0.9)
        upto = found_there(count, float(f"{about:.4g}"), self.several[o])
        first, then = 1.0 - self.shares[:, o], self.shares[:, len(self.shapes) + o]
        took = np.nan_to_num(self.many.seconds[:, o]) * slow
        return longer(count, upto, self.calls[:, o], took, part * mean / count, (first, then))

    def _in_turn(self, call: Call) -> Vector:
        """Of each query how long a call waits until its API takes it, and what it takes less than the API's gap."""
        o = call.operator
        each = call.gap_s * sum(call.failures**k for k in range(call.retries + 1))
        load = self.form.rate_qps * float(self.form.made(self.found)[o]) * each
        if load >= 1.0:
            return np.full(len(self.drawn), np.inf)
        wait = 0.0 if self.form.fluid else each * (self._come(o) + call.failures) / (2.0 * (1.0 - load))
        short = np.maximum(call.gap_s - np.nan_to_num(self.many.seconds[:, o]), 0.0)
        return np.asarray(
            wait * np.maximum(self.drawn[:, o] + math.log(max(load, 1e-300)), 0.0) + short + self._own(o, each)
        )

    def _come(self, o: int) -> float:
        """The squared spread of gaps between calls that each take their own time."""
        sizes = np.array(self.several[o])
        many = np.arange(1.0, sizes.size + 1)
        mean, square = float(sizes @ many), float(sizes @ many**2)
        return self.form.burst if sizes.size == 1 else mean * self.form.burst + square / mean - mean

    def _own(self, o: int, each: float) -> Vector | float:
        """How long the last call of a query waits for its others."""
        return 0.0 if self.calls is None else each * (self.calls[:, o] - 1.0).clip(0.0)

    @cached_property
    def shares(self) -> Vector:
        """The draws as shares: of each operator three columns, one after the other operators'."""
        return np.asarray(np.exp(-self.drawn))

    def _in_batches(self, o: int, slow: float, count: int, flow: Vector) -> Vector:
        """Of each query how much longer than alone it is at an operator that serves batches."""
        rate, load, _, burst = flow
        mean, shape = load / rate, self.shapes[o]
        use = int(np.searchsorted(USES, load * self.full[o] / count - 1e-12))
        if use == USES.size:
            return np.full(len(self.drawn), np.inf)
        line = line_of(shape, float(USES[use]))
        chance = all_busy_with(count, float(load), line.busy)
        first, then, last = self.shares[:, o :: len(self.shapes)].T
        waits = np.zeros(len(first))
        size = np.ones(len(first), dtype=np.int64)
        late = first < chance
        # The longest waits are those of the smallest draws.
        waits[late], size[late] = line.drawn(1.0 - first[late] / chance, then[late])
        own = self.many.seconds[:, o] * slow
        ran = np.sort(self.rows.seconds[:, o])[: int((~np.isnan(self.rows.seconds[:, o])).sum())] * slow
        others = ran[np.minimum((last ** (1.0 / np.maximum(size - 1, 1)) * ran.size).astype(int), ran.size - 1)]
        slowest = np.where(size > 1, np.maximum(own, others), own)
        growth = np.array(self.form.growth[o])[size - 1]
        return np.asarray(waits * mean / count * (burst / rate + self.loose[o]) + growth * slowest - own)

    def worst(self, placement: int, slow: Vector, replicas: Vector) -> Vector:
        """Per row of replicas what is compared with the limit."""
        return np.asarray(self._scaled(self.responses(placement, slow, replicas)).max(axis=0))

    def _may_fit(self, placement: int, slow: Vector, costs: Vector, own: NDArray[np.bool_], room: float) -> bool:
        """Whether it is in time where each operator alone is given all that may be spent on more replicas."""
        if math.isinf(room):
            return True
        most = self.fewest(slow) + np.where(costs > FREE, np.floor(room / np.maximum(costs, FREE)), MOST_REPLICAS)
        most = np.where(own, np.minimum(most, MOST_REPLICAS), 1.0)
        return bool(self.worst(placement, slow, most[None, :])[0] <= self.limit)

    def _replicas(self, placement: int, slow: Vector, costs: Vector, own: NDArray[np.bool_]) -> Vector | None:
        """The replicas of every operator: from the fewest up by what helps most for its price, then back."""
        fewest = np.where(own, self.fewest(slow), 1.0)
        if fewest.max() > MOST_REPLICAS:
            return None
        at, now = fewest.copy(), float(self.worst(placement, slow, fewest[None, :])[0])
        for _ in range(MOST_STEPS):
            if now <= self.limit:
                break
            step = np.maximum(1.0, np.floor(0.03 * at))
            tried = at + np.diag(step)[own]
            then = self.worst(placement, slow, tried)
            gains = np.subtract(now, np.maximum(then, self.limit), out=np.zeros_like(then), where=then < now)
            help_ = gains / (costs * step)[own]
            if help_.max(initial=0.0) <= 0.0:
                tried, then, help_ = (at + np.where(own, step, 0.0))[None, :], np.zeros(1), np.ones(1)
                then = self.worst(placement, slow, tried)
                if then[0] >= now - SLIP:
                    return None
            best = int(help_.argmax())
            at, now = tried[best], float(then[best])
        if now > self.limit:
            return None
        for o in np.argsort(-costs, kind="stable"):
            while (
                own[o]
                and at[o] > fewest[o]
                and self.worst(placement, slow, (at - np.eye(at.size)[o])[None])[0] <= self.limit
            ):
                at = at - np.eye(at.size)[o]
        return self._cheaper(placement, slow, (fewest, at), costs)

    def _cheaper(self, placement: int, slow: Vector, ends: tuple[Vector, Vector], costs: Vector) -> Vector:
        """Of the few numbers of replicas that cost less than those at hand, the cheapest in time."""
        fewest, at = ends
        room = float(costs @ (at - fewest))
        paid = np.flatnonzero(costs > FREE)
        spans = [int(room / costs[o] + 1e-9) + 1 for o in paid]
        if not paid.size or room <= 0 or math.prod(spans) > MOST_TRIED:
            return at
        more = np.array(list(product(*map(range, spans))), dtype=float)
        more = more[more @ costs[paid] < float(costs[paid] @ (at - fewest)[paid]) - 1e-9]
        more = more[np.argsort(more @ costs[paid], kind="stable")]
        for begin in range(0, len(more), AT_ONCE):
            tried = np.repeat(at[None, :], len(more[begin : begin + AT_ONCE]), axis=0)
            tried[:, paid] = fewest[paid] + more[begin : begin + AT_ONCE]
            fits = np.flatnonzero(self.worst(placement, slow, tried) <= self.limit)
            if fits.size:
                return np.asarray(tried[int(fits[0])])
        return at
