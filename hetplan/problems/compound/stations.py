r"""Queries that come at a rate: every operator is a station, and the replicas that it needs are found.

**One station.** An operator o takes S_o of a query that runs it (what it took of each sample, on its tier and share),
a_o queries a second come to it, and k_o replicas serve them. With the load u = a_o E[S_o] < k_o a query waits

    P(W > w) = C(k_o, u) exp(-w / m),   m = E[S_o] (v_a + v_s) / (2 (k_o - u))

with C Erlang's chance that all are busy, and v_a, v_s the squared spreads of the gaps between queries and of the
service times (M/G/k by Allen and Cunneen; the tail is taken as that of M/M/k). An operator that serves batches of up to
b is another queue (`batch_queue`): a batch takes as long as its slowest member and grows as its table says, and waits
are those of one server as fast as all k, as often as all k are busy. b is where most are served per second. Calls of an
API that says how fast they may come wait for their turn: one queue, each call as long as the gap between calls.

**Calls that come together.** Where a query makes N calls of an operator at once, the load counts them all, v_a is such
that the work of queries has its spread, and the query waits for the last. Bulks of N calls come to k replicas as if
these took exponential times (M^[X]/M/k). Between j and j + 1 calls the flows up and down balance, with a bulks a second
and p_j the chance of j calls:

    a sum_{i <= j} p_i P(N > j - i) = min(j + 1, k) / E[S] p_{j+1}

A bulk that finds B calls has its last one begun after B - max(0, k - n) of them are done, one every E[S] / k. Before it
come ceil(n / k) - 1 rounds of its own n calls, k at a time. With N = 1 this is Erlang's station.

**A whole query.** Waits of different stations are taken as independent. The response is worked out query by query: a
sample that was measured, with a wait drawn at each station (the same draws always), and the longest path. By how much
waiting moves a percentile is added to what the samples bound it by.

**Least cost.** From the fewest replicas that are not overrun, one more goes where it helps most for its price, until
the limit is met; then what is not needed is taken back, and of few numbers that cost less all are tried.

**Cost against latency.** More replicas wait less, until a query that is worked out waits no more: from there on another
one brings nothing. So of each placement and share there are finitely many numbers of replicas, between the fewest and
those. Few are all tried; of many, those on the way up. No size of a placement and its shares is faster than without
waiting, nor cheaper than the fewest replicas: where another size is both, they are not looked at.

It is a first size: waits of joined shortest queues are a little longer, and those of stations in a row hang together.
So a plan is simulated before it is handed out (`sizing`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Runs, least_shares, priced, trimmed
from hetplan.planner.forms.calls import Call, Cases, quantile
from hetplan.planner.forms.space import Space
from hetplan.problems.batch_queue import FULLEST, line_of
from hetplan.problems.waiting import wait_probability, wait_probability_at
from hetplan.serving.operators import ALONE, slowest_of

__all__ = [
    "FREE",
    "MOST_REPLICAS",
    "SLIP",
    "Flows",
    "PlacedStations",
    "QueuedBox",
    "Size",
    "Stations",
    "Vector",
    "calls_ahead",
    "cheapest_replicas",
    "cheapest_sizes",
    "extra_time_of_bulk",
    "undominated_sizes",
]

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
"""Of an operator no more replicas are planned."""
MOST_STEPS, STEP = 400, 0.03
"""So many times replicas are added; of many of an operator so large a part of them each time."""
AT_ONCE = 32
"""Numbers of replicas that are judged in one go."""
MOST_SEEN = 256
"""Of so many queues that are served in batches the waits are kept."""
FREE = 1e-6
"""What a replica that costs nothing counts for, so that none is added in vain."""
SLIP = 1e-12
USES = 1.0 - np.geomspace(0.98, 1.0 - FULLEST, 48)
"""A queue that is served in batches is looked up at the next of these parts of the rate of full batches."""
DIGITS = 4
"""Times of batches over that of one query are told apart so far."""
RARE = 1e-7
"""Beyond so rare a number of calls ahead it is not counted on."""
MOST_STATES, LARGE = 20_000, 1e200
MOST_TIMES = 400_000
"""So many queries in all are worked out where all numbers of replicas are tried."""
SAME = 1e-9
"""Latencies are one where they differ by no more of themselves: sums of waits come out in either order."""


@dataclass(frozen=True)
class QueuedBox(BlackBox):
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
    def least_work(self) -> Vector:
        """Of each operator what a query takes at least, in the batch that suits it best, as a part of one call alone.

        All calls of the query are counted.
        """
        growth = self.growth or (ALONE,) * len(self.operators)
        each = np.array([min(took / n for n, took in enumerate(one, start=1)) for one in growth])
        return each if self.fans is None else each * self.fans.visits

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
        for one in cheapest_sizes(self, [found], 1, below=below) if found.passes else ():
            costs[one.placement] = one.cost
        return costs

    def least_cost(self, measured: Measured, placement: int) -> float:
        """The least cost of a measured configuration at one placement, at the rate."""
        return min((one.cost for one in cheapest_sizes(self, [measured], 1, only=[placement])), default=math.inf)

    def carried(self, seconds: Vector) -> Vector:
        """Per configuration and placement what servers that are never idle would cost: a replica is never less."""
        time = self.placed.relative_time[self.placements]
        return np.asarray(self.rate_qps * (seconds * self.least_work) @ (self.price * time).T)

    def paid_at(self, seconds: Vector, share: float) -> Vector:
        """The least that replicas of this share cost at the rate: as many as are busy, one at least."""
        by_share = np.array([operator.by_share for operator in self.operators])
        time = self.placed.relative_time[self.placements]
        cost = np.zeros((len(seconds), len(self.placements)))
        for o in range(len(self.operators)):
            busy = self.rate_qps * self.least_work[o] * seconds[:, o, None] * time[None, :, o]
            cost += self.price[None, :, o] * np.maximum(share, busy * (1.0 if by_share[o] else share))
        return cost

    def quickest(self, found: Measured, placement: int) -> tuple[Vector, Vector]:
        """What sizes of a measured configuration cost at a placement, and their latencies with waiting."""
        made = undominated_sizes(self, [found], only=[placement], fastest=self.aim.of == ("latency",))
        return np.array([one.cost for one in made]), np.array([one.judged_s for one in made])

    @cached_property
    def _latest(self) -> dict[int, Stations]:
        return {}

    def stations(self, found: Measured) -> Stations:
        """The stations of a measured configuration; made once where it is asked for several times in a row."""
        known = self._latest.get(found.configuration)
        if known is None or known.found is not found:
            self._latest.clear()
            known = self._latest[found.configuration] = Stations(self, found)
        return known

    @cached_property
    def queries(self) -> int:
        """How many queries are worked out."""
        share = max((share for share, _ in self.wishes), default=0.5)
        least, tail, most = (FINE_QUERIES, FINE_TAIL, MOST_FINE) if self.fine else (QUERIES, TAIL, MOST_QUERIES)
        return int(min(max(least, math.ceil(tail / max(1.0 - share, 1e-9))), most))


@dataclass(frozen=True)
class Size:
    """A measured configuration at a placement: a share and a number of replicas per operator, and what comes of it.

    `response_s` is, per wish, what its percentile is at most, and `judged_s` what of it is compared with the strictest
    limit; `batches` is how many of each operator's calls a replica serves at once at most.
    """

    configuration: int
    placement: int
    shares: tuple[float, ...]
    replicas: tuple[int, ...]
    cost: float
    response_s: tuple[float, ...]
    judged_s: float
    batches: tuple[int, ...]


def cheapest_sizes(
    form: QueuedBox,
    founds: Sequence[Measured],
    most: int,
    *,
    below: float = np.inf,
    only: Collection[int] | None = None,
    fits: Fits | None = None,
) -> list[Size]:
    """The cheapest sizes of these configurations, at most so many, from the lowest bound of their costs up.

    `only`: at these placements. `fits` says whether there are machines enough.
    """
    stations = {found.configuration: Stations(form, found) for found in founds}
    places = sorted(
        (float(bound), c, p)
        for c, one in stations.items()
        for p, bound in enumerate(one.cost_bounds)
        if math.isfinite(bound) and (only is None or p in only)
    )
    found: list[Size] = []
    for least, c, placement in places:
        if least >= _to_beat(found, most, below):
            break
        found = _best([*found, *stations[c].sizes(placement, found, most, below, fits)], most)
    return found


def _best(found: list[Size], most: int) -> list[Size]:
    """The cheapest of them; of equal ones those with fewer replicas, then the faster."""
    return sorted(found, key=lambda one: (one.cost, sum(one.replicas), one.response_s))[:most]


def _to_beat(found: Sequence[Size], most: int, below: float) -> float:
    """What another size has to cost less than."""
    return below if len(found) < most else min(below, found[-1].cost * (1 + 1e-9))


@lru_cache(maxsize=16)
def _exponentials(queries: int, operators: int) -> Vector:
    """-ln of a uniform draw per query and operator, spread evenly within each operator; always the same."""
    random = np.random.default_rng(0)
    even = (np.arange(queries) + 0.5) / queries
    return np.asarray(-np.log(np.stack([random.permutation(even) for _ in range(operators)], axis=1)))


_chance = lru_cache(maxsize=4096)(wait_probability)


class Stations:
    """One measured configuration: how often operators run, what they take, and queries that are worked out of it."""

    def __init__(self, form: QueuedBox, found: Measured) -> None:
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
        self.drawn = _exponentials(len(self.many), 3 * len(form.operators))
        made = [self._batch_shape(part[:, o], o) for o in range(len(form.operators))]
        self.shapes, self.loose = tuple(shape for shape, _ in made), [spread for _, spread in made]
        self.seen: dict[tuple[float, ...], Vector] = {}
        self.batches = np.array([len(shape) for shape in self.shapes])
        self.full = np.array([shape[-1] / len(shape) for shape in self.shapes])
        self.limit = min(form.limit_s, form.most_s) * form.slack * (1 + SLIP)
        self.least = least_shares(form, found)
        calls = [] if form.calls is None else form.calls.of(Space(form.levels).row(found.configuration))
        self.turns = [call for call in calls if call.gap_s > 0.0]

    def _count_calls(self, calls: Vector, part: Vector) -> None:
        """How many calls of each operator queries make that make any, and how bursts of them spread."""
        for o in range(calls.shape[1]):
            sizes = np.bincount(calls[:, o].astype(int), weights=part[:, o])[1:].astype(float)
            mean, square = _moments(sizes)
            if mean > 0.0:
                self.several[o] = tuple((sizes / sizes.sum()).tolist())
                work = square / mean**2 * (1.0 + self.spread[o]) - 1.0
                self.bulk[o] = mean * (self.form.burst + work) - self.spread[o]
                self.often[o] *= mean

    def slowdown(self, placement: int, shares: Vector) -> Vector:
        """By how much each operator is slower than on the reference, per row of shares."""
        by_share = np.array([operator.by_share for operator in self.form.operators])
        return np.asarray(
            self.form.placed.relative_time[self.form.placements[placement]]
            * np.where(by_share, 1.0 / np.maximum(shares, 1e-12), 1.0)
        )

    def flows(self, slow: Vector) -> Flows:
        """Per operator the queries that come a second, the work that they bring, and their spreads."""
        rate, mean = self.form.rate_qps * self.often, self.mean * slow
        return np.stack([rate, rate * mean, rate * mean**2 * (1.0 + self.spread), rate * self.bulk])

    def _batch_shape(self, part: Vector, o: int) -> tuple[tuple[float, ...], float]:
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
    def work_per_replica(self) -> Vector:
        """Of each operator the work that a replica does in the time of one query, where its batches are full."""
        used = self.form.slack if self.form.fluid else 1.0
        return np.asarray(used * np.where(self.batches > 1, FULLEST, 1.0) / self.full)

    def fewest_replicas(self, slow: Vector, others: Flows | None = None) -> Vector:
        """The fewest replicas that are not overrun, where flows of others may come beside."""
        load = self.form.rate_qps * self.often * self.mean * slow + (0.0 if others is None else others[1])
        return np.asarray(np.floor(load / self.work_per_replica + 1e-9) + 1.0)

    @cached_property
    def calls_per_hour(self) -> Vector:
        """Per placement what calls of APIs cost an hour; infinite where it does not run there."""
        return self.form.called(self.found.configuration)

    @cached_property
    def cost_bounds(self) -> Vector:
        """Per placement what any size of it costs at least; infinite where even without waiting it is too slow."""
        form = self.form
        cost = np.array(self.calls_per_hour, dtype=float)
        shares = np.array(form.placed.shares)[:, None] * np.ones(len(form.operators))
        for placement in np.flatnonzero(np.isfinite(self.least).all(axis=1) & np.isfinite(cost)).tolist():
            price, steps = form.price[placement], self.fewest_replicas(self.slowdown(placement, shares)) * shares
            cost[placement] += float((price * steps.min(axis=0))[price > 0].sum())
        cost[~np.isfinite(self.least).all(axis=1)] = np.inf
        return cost

    def sizes(self, placement: int, known: Sequence[Size], most: int, below: float, fits: Fits | None) -> list[Size]:
        """The cheapest sizes at one placement that are not beaten by those that are known."""
        found, made = list(known), list[Size]()
        for one in sorted(self.corners(placement), key=lambda one: (one.least_cost, one.shares.sum())):
            if one.least_cost >= _to_beat(found, most, below):
                break
            in_time = one.least_s <= self.form.limit_s * (1 + SLIP)
            if not in_time or not one.has_machines(fits, one.fewest):
                continue
            if not one.may_be_in_time(_to_beat(found, most, below) - one.least_cost):
                continue
            most_of_each = np.where(one.is_station, np.inf, one.fewest)
            replicas = cheapest_replicas(one.fewest, most_of_each, one.costs, one.judged_s, self.limit)
            if replicas is None:
                continue
            size = one.size(replicas)
            if size.cost < _to_beat(found, most, below) and one.has_machines(fits, replicas):
                made.append(size)
                found = _best([*found, size], most)
        return made

    def corners(self, placement: int) -> list[PlacedStations]:
        """The stations at a placement, with all shares that may be in time, and what no size of them comes below."""
        rows = self._share_rows(placement)
        if not len(rows):
            return []
        least_s = self.scale(self.bounds_s(placement, self.slowdown(placement, rows))).max(axis=0)
        return [PlacedStations(self, placement, *row) for row in zip(rows, least_s.tolist(), strict=True)]

    def _share_rows(self, placement: int) -> Vector:
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

    def path_s(self, placement: int, runs: Runs, slows: Vector, waits: Vector | float = 0.0) -> Vector:
        """Per query and row of `slows` the longest path."""
        where = self.form.placements[placement : placement + 1]
        return self.form.finish(runs.seconds[:, None, :] * slows[None] + waits, runs.bytes_out, runs.bytes_in, where)

    def scale(self, values: Vector) -> Vector:
        """Percentiles (per wish) as they compare with the strictest limit."""
        limits = [most for _, most in self.form.wishes]
        scaled = (
            row * self.form.limit_s / most if math.isfinite(most) else row
            for row, most in zip(values, limits, strict=True)
        )
        return np.array(list(scaled))

    def bounds_s(self, placement: int, slows: Vector) -> Vector:
        """Per wish and row what the samples bound the percentile by, where nothing waits."""
        each = self.path_s(placement, self.rows, slows)
        bounds = [self.form.bound(each, share, self.rows.cases) for share, _ in self.form.wishes]
        return np.array([each.max(axis=0) if one is None else one for one in bounds], dtype=float)

    def percentiles_s(self, each: Vector, *, surely: bool) -> Vector:
        """Per wish and column the percentile of the queries that are worked out; `surely`: no less than it is."""
        shares = [self._share_to_judge(share) if surely else share for share, _ in self.form.wishes]
        return np.array([self._quantile(each, share) for share in shares])

    def _share_to_judge(self, share: float) -> float:
        """A share that is a little higher, if it is to be promised and few of those worked out are beyond it."""
        beyond = (1.0 - share) * len(self.drawn)
        if not self.form.fine or beyond > 0.99 * FINE_TAIL or beyond <= 0.0:
            return share
        return share + (1.0 - share) * min(0.5, SURE / math.sqrt(beyond))

    def _quantile(self, each: Vector, share: float) -> Vector:
        if self.rows.cases is None:
            place = max(math.ceil(len(each) * share - 1.0), 0)  # the inverse of the empirical distribution
            return np.asarray(np.partition(each, place, axis=0)[place])
        return quantile(each, Cases(self.weight, 1), share, share)

    def wait(self, o: int, slow: float, count: int, flow: Vector) -> Vector:
        """Of each query the wait at an operator that has so many replicas, to which this flow comes."""
        rate, load, second, burst = flow
        if self.form.fluid or count >= MOST_REPLICAS:
            return np.zeros(len(self.drawn))
        if self.batches[o] > 1:
            key = o, slow, count, float(load)
            if len(self.seen) > MOST_SEEN:
                self.seen.clear()
            if key not in self.seen:
                self.seen[key] = self._wait_for_batch(o, slow, count, flow)
            return self.seen[key]
        if len(self.several[o]) > 1:
            return self._wait_for_last_call(o, slow, count, flow)
        mean = load / rate
        spread = max(second / rate / mean**2 - 1.0, 0.0)
        each = mean * (burst / rate + spread) / (2.0 * max(count - load, 1e-12))
        return np.asarray(each * np.maximum(self.drawn[:, o] + math.log(max(_chance(count, float(load)), 1e-300)), 0.0))

    def _wait_for_last_call(self, o: int, slow: float, count: int, flow: Vector) -> Vector:
        """Of each query how much longer the last of its calls of an operator takes than one alone."""
        rate, load, second, burst = flow
        if load >= count or self.calls is None:
            return np.full(len(self.drawn), np.inf)
        mean = load / rate
        calls, square = _moments(np.array(self.several[o]))
        spread = max(second / rate / mean**2 - 1.0, 0.0)
        part = (burst / rate + spread) / (square / calls + 1.0)
        # A little more load than there is, of few digits, so that few stations are worked out.
        about = count * min(math.ceil(load / count * 400.0) / 400.0, 1.0 - (1.0 - load / count) * 0.9)
        upto = calls_ahead(count, float(f"{about:.4g}"), self.several[o])
        first, then = 1.0 - self.uniforms[:, o], self.uniforms[:, len(self.shapes) + o]
        took = np.nan_to_num(self.many.seconds[:, o]) * slow
        return extra_time_of_bulk(count, upto, self.calls[:, o], took, part * mean / count, (first, then))

    def wait_for_turn(self, call: Call) -> Vector:
        """Of each query how long a call waits until its API takes it, and what it takes less than the API's gap."""
        o = call.operator
        each = call.gap_s * sum(call.failures**k for k in range(call.retries + 1))
        load = self.form.rate_qps * float(self.form.made(self.found)[o]) * each
        if load >= 1.0:
            return np.full(len(self.drawn), np.inf)
        burst = self.form.burst
        if len(self.several[o]) > 1:
            # Gaps between calls, each of which takes its own time.
            mean, square = _moments(np.array(self.several[o]))
            burst = mean * burst + square / mean - mean
        wait = 0.0 if self.form.fluid else each * (burst + call.failures) / (2.0 * (1.0 - load))
        waits = wait * np.maximum(self.drawn[:, o] + math.log(max(load, 1e-300)), 0.0)
        short = np.maximum(call.gap_s - np.nan_to_num(self.many.seconds[:, o]), 0.0)
        before = 0.0 if self.calls is None else each * (self.calls[:, o] - 1.0).clip(0.0)  # the query's other calls
        return np.asarray(waits + short + before)

    @cached_property
    def uniforms(self) -> Vector:
        """The draws as shares: of each operator three columns, one after the other operators'."""
        return np.asarray(np.exp(-self.drawn))

    def _wait_for_batch(self, o: int, slow: float, count: int, flow: Vector) -> Vector:
        """Of each query how much longer than alone it is at an operator that serves batches."""
        rate, load, _, burst = flow
        mean, shape = load / rate, self.shapes[o]
        use = int(np.searchsorted(USES, load * self.full[o] / count - 1e-12))
        if use == USES.size:
            return np.full(len(self.drawn), np.inf)
        queue = line_of(shape, float(USES[use]))
        chance = wait_probability_at(count, float(load), queue.busy)
        first, then, last = self.uniforms[:, o :: len(self.shapes)].T
        waits = np.zeros(len(first))
        size = np.ones(len(first), dtype=np.int64)
        late = first < chance
        # The longest waits are those of the smallest draws.
        waits[late], size[late] = queue.drawn(1.0 - first[late] / chance, then[late])
        own = self.many.seconds[:, o] * slow
        ran = np.sort(self.rows.seconds[:, o])[: int((~np.isnan(self.rows.seconds[:, o])).sum())] * slow
        others = ran[np.minimum((last ** (1.0 / np.maximum(size - 1, 1)) * ran.size).astype(int), ran.size - 1)]
        slowest = np.where(size > 1, np.maximum(own, others), own)
        growth = np.array(self.form.growth[o])[size - 1]
        return np.asarray(waits * mean / count * (burst / rate + self.loose[o]) + growth * slowest - own)


@dataclass(frozen=True, eq=False)
class PlacedStations:
    """The stations of a configuration at a placement, each with a share: what replicas cost, how long queries take.

    No size of them is judged faster than `least_s`, nor costs less than `least_cost`. `others` are flows of others who
    use the same stations.
    """

    stations: Stations
    placement: int
    shares: Vector
    least_s: float = 0.0
    others: Flows | None = None

    @cached_property
    def slow(self) -> Vector:
        """By how much each operator is slower than on the reference."""
        return self.stations.slowdown(self.placement, self.shares)

    @cached_property
    def is_station(self) -> NDArray[np.bool_]:
        """Which operators are stations, and no calls of an API."""
        form = self.stations.form
        where = form.placements[self.placement]
        return np.ones(where.size, dtype=bool) if form.calls is None else where < form.calls.first

    @cached_property
    def flows(self) -> Flows:
        """Per operator all that comes."""
        flows = self.stations.flows(self.slow)
        return flows if self.others is None else flows + self.others

    @cached_property
    def fewest(self) -> Vector:
        """The fewest replicas that are not overrun; 1 of what is no station."""
        return np.where(self.is_station, self.stations.fewest_replicas(self.slow, self.others), 1.0)

    @cached_property
    def price(self) -> Vector:
        """Of each operator what a replica costs an hour."""
        return np.asarray(self.stations.form.price[self.placement] * self.shares)

    @cached_property
    def costs(self) -> Vector:
        """What a replica of each station counts for, so that none is added in vain."""
        return np.where(self.is_station, np.maximum(self.price, FREE), 0.0)

    @cached_property
    def least_cost(self) -> float:
        """What the fewest replicas cost an hour."""
        return float(self.cost(self.fewest))

    def cost(self, replicas: Vector) -> Vector:
        """What so many replicas cost an hour, with calls; by row."""
        calls = float(self.stations.calls_per_hour[self.placement])
        return np.asarray(calls + (self.price * np.where(self.is_station, replicas, 0.0)).sum(axis=-1))

    def has_machines(self, fits: Fits | None, replicas: Vector) -> bool:
        """Whether there are machines for so many replicas."""
        return fits is None or fits(self.placement, self.shares, replicas * self.is_station)

    def size(self, replicas: Vector) -> Size:
        """A size, with what comes of it."""
        responses, own = self.responses_s(replicas[None, :]), self.is_station
        return Size(
            self.stations.found.configuration, self.placement, tuple(self.shares.tolist()),
            tuple(np.where(own, replicas, 0).astype(int).tolist()), float(self.cost(replicas)),
            tuple(responses[:, 0].tolist()), float(self.stations.scale(responses).max()),
            tuple(np.where(own, self.stations.batches, 1).tolist()),
        )  # fmt: skip

    @cached_property
    def _unqueued_s(self) -> tuple[Vector, Vector]:
        """Per wish, where nothing waits: what the samples bound the percentile by, and the percentile itself."""
        stations, slow = self.stations, self.slow[None, :]
        plain = stations.percentiles_s(stations.path_s(self.placement, stations.many, slow), surely=False)
        return stations.bounds_s(self.placement, slow), plain

    def responses_s(self, replicas: Vector) -> Vector:
        """Per wish and row of replicas what the percentile is at most, in seconds, waiting included."""
        stations, (least, plain) = self.stations, self._unqueued_s
        each = stations.path_s(self.placement, stations.many, self.slow[None, :], self.waits(replicas))
        moved = stations.percentiles_s(each, surely=True) - plain
        return np.where(np.isfinite(moved), least + moved, np.inf)

    def judged_s(self, replicas: Vector) -> Vector:
        """Per row of replicas what is compared with the limit."""
        return np.asarray(self.stations.scale(self.responses_s(replicas)).max(axis=0))

    @property
    def busy_operators(self) -> list[int]:
        """The operators at whose stations work comes."""
        return np.flatnonzero(self.is_station & (self.stations.flows(self.slow)[1] > 0)).tolist()

    def wait(self, o: int, count: int) -> Vector:
        """Of each query the wait at an operator that has so many replicas."""
        return self.stations.wait(o, float(self.slow[o]), count, self.flows[:, o])

    def waits(self, replicas: Vector) -> Vector:
        """Of each query, row of replicas and operator the wait."""
        waits = np.zeros((len(self.stations.drawn), *replicas.shape))
        for o in self.busy_operators:
            counts = replicas[:, o].tolist()
            known = {count: self.wait(o, int(count)) for count in dict.fromkeys(counts)}
            for row, count in enumerate(counts):
                waits[:, row, o] = known[count]
        for call in self.stations.turns:
            waits[:, :, call.operator] = self.stations.wait_for_turn(call)[:, None]
        return waits

    def may_be_in_time(self, room: float) -> bool:
        """Whether it is in time where each operator alone is given all that may be spent on more replicas."""
        if math.isinf(room):
            return True
        paid = np.where(self.costs > FREE, np.floor(room / np.maximum(self.costs, FREE)), MOST_REPLICAS)
        most = np.where(self.is_station, np.minimum(self.fewest + paid, MOST_REPLICAS), 1.0)
        return bool(self.judged_s(most[None, :])[0] <= self.stations.limit)


def _moments(chances: Vector) -> tuple[float, float]:
    """The mean and the mean square of a count that is 1, 2, ... with these chances."""
    counts = np.arange(1.0, chances.size + 1)
    return float(chances @ counts), float(chances @ counts**2)


Judge = Callable[[Vector], Vector]
"""Says of rows of replicas what is compared with the limit."""


def climb(
    fewest: Vector,
    most: Vector,
    costs: Vector,
    judge: Judge,
    *,
    limit: float = -math.inf,
    has_room: Callable[[Vector], bool] | None = None,
) -> Iterator[tuple[Vector, float]]:
    """Numbers of replicas from the fewest up, and what is judged of each: one more where it helps most for its price.

    Where none helps alone, as branches wait for each other, all get one more; where that does not help, it ends. Below
    `limit` nothing is gained.
    """
    at, now = fewest, float(judge(fewest[None, :])[0])
    yield at, now
    for _ in range(MOST_STEPS):
        step = np.minimum(np.maximum(1.0, np.floor(STEP * at)), most - at)
        tried = at + np.diag(step)[step > 0]
        tried = np.array([row for row in tried if has_room is None or has_room(row)]).reshape(-1, at.size)
        if not len(tried):
            return
        then = judge(tried)
        gains = np.subtract(now, np.maximum(then, limit), out=np.zeros_like(then), where=then < now)
        helps = gains / ((tried - at) @ costs)
        if helps.max() <= 0.0:
            tried, helps = (at + step)[None, :], np.ones(1)
            then = judge(tried)
            if then[0] >= now - SLIP or not (has_room is None or has_room(tried[0])):
                return
        best = int(helps.argmax())
        at, now = tried[best], float(then[best])
        yield at, now


def trim(at: Vector, fewest: Vector, costs: Vector, judge: Judge, limit: float) -> Vector:
    """The same replicas without those that could be missing within the limit, the dearest first."""
    for o in np.argsort(-costs, kind="stable"):
        one = np.eye(at.size)[o]
        while at[o] > fewest[o] and judge((at - one)[None, :])[0] <= limit:
            at = at - one
    return at


def cheapest_replicas(
    fewest: Vector, most: Vector, costs: Vector, judge: Judge, limit: float, *, at_once: int = AT_ONCE
) -> Vector | None:
    """The cheapest numbers of replicas that are judged to be within the limit; None where none are found."""
    if fewest.max(initial=0.0) > MOST_REPLICAS:
        return None
    enough = next((at for at, now in climb(fewest, most, costs, judge, limit=limit) if now <= limit), None)
    if enough is None:
        return None
    at = trim(enough, fewest, costs, judge, limit)
    # Of the few numbers of replicas that cost less than these, the cheapest within the limit.
    room, paid = float(costs @ (at - fewest)), np.flatnonzero(costs > FREE)
    spans = [int(room / costs[o] + 1e-9) + 1 for o in paid]
    if not paid.size or room <= 0 or math.prod(spans) > MOST_TRIED:
        return at
    more = np.array(list(product(*map(range, spans))), dtype=float)
    more = more[more @ costs[paid] < float(costs[paid] @ (at - fewest)[paid]) - 1e-9]
    more = more[np.argsort(more @ costs[paid], kind="stable")]
    for begin in range(0, len(more), at_once):
        tried = np.repeat(at[None, :], len(more[begin : begin + at_once]), axis=0)
        tried[:, paid] = fewest[paid] + more[begin : begin + at_once]
        fits = np.flatnonzero(judge(tried) <= limit)
        if fits.size:
            return np.asarray(tried[int(fits[0])])
    return at


def undominated_sizes(
    form: QueuedBox,
    founds: Sequence[Measured],
    *,
    fits: Fits | None = None,
    only: Collection[int] | None = None,
    known: Sequence[tuple[float, float]] = (),
    fastest: bool = False,
) -> list[Size]:
    """Sizes of these configurations within limit and budget, cheapest first, each faster than all that cost less.

    `known` are costs and latencies of other plans that may beat them. With `fastest` there is one at most: of the
    fastest the cheapest.
    """
    frontier = _Frontier(form, fits, fastest, costs=[cost for cost, _ in known], latency=[late for _, late in known])
    corners = [
        one
        for stations in map(form.stations, founds)
        for place in np.flatnonzero(np.isfinite(stations.cost_bounds)).tolist()
        if only is None or place in only
        for one in stations.corners(place)
        if one.least_s <= stations.limit and one.least_cost <= form.aim.budget * (1 + SLIP)
    ]

    def order(one: PlacedStations) -> tuple[float, ...]:
        return (one.least_s, one.least_cost) if fastest else ((one.least_cost + FREE) * one.least_s,)

    for corner in sorted(corners, key=order):
        if not frontier.beats(corner.least_cost, corner.least_s):
            for replicas, late in _replicas_of(corner, frontier):
                frontier.add(corner, replicas, late)
    return frontier.sizes()


@dataclass
class _Frontier:
    """The sizes so far that no other beats."""

    form: QueuedBox
    fits: Fits | None
    fastest: bool
    costs: list[float]
    latency: list[float]
    made: list[tuple[PlacedStations, Vector, float, float]] = field(default_factory=list)

    def beats(self, cost: float, latency: float) -> bool:
        """Whether one of them is as good as a size of such a cost and latency."""
        costs, lates = np.array(self.costs), np.array(self.latency)
        within = lates <= latency * (1 + SAME)
        return bool(
            (within & (costs <= cost * (1 + SAME))).any() or (self.fastest and (lates < latency * (1 - SAME)).any())
        )

    def has_room(self, corner: PlacedStations, replicas: Vector) -> bool:
        """Whether they are paid for, and there are machines enough."""
        paid = float(corner.cost(replicas)) <= self.form.aim.budget * (1 + SLIP)
        return paid and corner.has_machines(self.fits, replicas)

    def add(self, corner: PlacedStations, replicas: Vector, latency: float) -> None:
        """Take in a size, where no other is as good, and drop those that it beats."""
        cost = float(corner.cost(replicas))
        if latency > corner.stations.limit or self.beats(cost, latency) or not self.has_room(corner, replicas):
            return
        others = len(self.costs) - len(self.made)
        self.made = [
            one
            for one in self.made
            if one[3] < latency * (1 - SAME) or (not self.fastest and one[2] < cost * (1 - SAME))
        ]
        self.made.append((corner, replicas, cost, latency))
        self.costs[others:] = [one[2] for one in self.made]
        self.latency[others:] = [one[3] for one in self.made]

    def sizes(self) -> list[Size]:
        """All of them, cheapest first."""
        order = sorted(self.made, key=lambda one: one[2:])
        return [corner.size(replicas) for corner, replicas, _, _ in order]


def _replicas_of(corner: PlacedStations, frontier: _Frontier) -> Iterator[tuple[Vector, float]]:
    """Numbers of replicas with their latencies, among which is what no other of them beats."""
    fewest = corner.fewest
    if fewest.max() > MOST_REPLICAS or not frontier.has_room(corner, fewest):
        return
    most = _replicas_with_machines(corner, frontier, _replicas_without_waits(corner, frontier.form.aim.budget))
    spans = most - fewest + 1.0
    if float(spans.prod()) * len(corner.stations.drawn) > MOST_TIMES:
        if frontier.fastest and frontier.has_room(corner, most):
            path = [(most, float(corner.judged_s(most[None, :])[0]))]
        else:
            room = partial(frontier.has_room, corner)
            path = list(climb(fewest, most, corner.costs, corner.judged_s, has_room=room))
            yield from path
        at, late_s = path[-1]
        yield trim(at, fewest, corner.costs, corner.judged_s, late_s * (1 + SAME)), late_s
        return
    rows = np.array(list(product(*(range(int(low), int(high) + 1) for low, high in zip(fewest, most, strict=True)))))
    tried = rows.astype(float)
    late = corner.judged_s(tried)
    best = math.inf
    for row in np.lexsort((late, rows.sum(axis=1), corner.cost(tried))):
        if late[row] < best * (1 - SAME) and frontier.has_room(corner, tried[row]):
            best = float(late[row])
            yield tried[row], best


def _replicas_without_waits(corner: PlacedStations, budget: float) -> Vector:
    """Of each operator the replicas at which no query that is worked out waits; no more than the budget pays for."""
    fewest, most, price = corner.fewest, corner.fewest.copy(), corner.price
    for o in corner.busy_operators:
        paid = (budget - corner.least_cost) / price[o] if price[o] > 0 else math.inf
        end = int(min(fewest[o] + max(0.0, paid + 1e-9), MOST_REPLICAS))
        low, high = int(fewest[o]), int(fewest[o])

        def waits(count: int, o: int = o) -> bool:
            return bool(corner.wait(o, count).max() > 0.0)

        while high < end and waits(high):
            low, high = high + 1, min(end, high + max(1, high - int(fewest[o])) * 2)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if waits(middle) else (low, middle)
        most[o] = high
    return most


def _replicas_with_machines(corner: PlacedStations, frontier: _Frontier, most: Vector) -> Vector:
    """Of each operator the replicas for which there are machines while all others have the fewest."""
    fewest, found = corner.fewest, most.copy()
    for o in range(most.size if frontier.fits is not None else 0):
        low, high = int(fewest[o]), int(most[o])
        tried = fewest.copy()
        while low < high:
            tried[o] = (low + high + 1) // 2
            low, high = (int(tried[o]), high) if frontier.has_room(corner, tried) else (low, int(tried[o]) - 1)
        found[o] = low
    return found


@lru_cache(maxsize=1024)
def calls_ahead(servers: int, load: float, several: tuple[float, ...]) -> Vector:
    """The chance that a bulk finds at most 0, 1, ... calls; `several` are the chances of bulks of 1, 2, ... calls.

    >>> calls_ahead(1, 0.5, (1.0,))[:3].round(6).tolist()
    [0.5, 0.75, 0.875]
    """
    sizes = np.array(several)
    beyond = np.concatenate([[1.0], 1.0 - np.cumsum(sizes)[:-1]])[::-1]
    bulks = load / float(sizes @ np.arange(1, sizes.size + 1))
    chances, total = [1.0], 1.0
    while len(chances) < MOST_STATES:
        before = chances[-beyond.size :]
        then = bulks * float(np.dot(before, beyond[-len(before) :])) / min(len(chances), servers)
        chances.append(then)
        total += then
        if total > LARGE:
            chances, total = [one / LARGE for one in chances], total / LARGE
        if len(chances) > servers + sizes.size and then < RARE * (1.0 - load / servers) * total:
            break
    return np.asarray(np.cumsum(np.array(chances) / total))


def extra_time_of_bulk(
    servers: int, upto: Vector, calls: Vector, took: Vector, each: float, drawn: tuple[Vector, Vector]
) -> Vector:
    """By how much longer than one call a bulk of so many takes, for two uniform draws of each.

    `upto` is `calls_ahead`; `took` is what its own calls take, and `each` how long the queue needs for one call.
    """
    found = np.searchsorted(upto, np.minimum(drawn[0], upto[-1]))
    ahead = np.maximum(found - np.maximum(servers - calls, 0.0), 0.0)
    waits = np.zeros(len(ahead))
    late = ahead > 0
    waits[late] = each * _erlang_quantiles(ahead[late], drawn[1][late])
    return np.asarray(waits + (np.ceil(calls / servers) - 1.0).clip(0.0) * took)


def _erlang_quantiles(many: Vector, drawn: Vector) -> Vector:
    """Of uniform draws the quantile of so many exponential times in a row: by Wilson and Hilferty, exact for one.

    >>> _erlang_quantiles(np.array([1.0, 4.0]), np.array([0.5, 0.95])).round(2).tolist()  # exactly 7.75
    [0.69, 7.74]
    """
    from scipy.special import ndtri

    cubed = many * (1.0 - 1.0 / (9.0 * many) + ndtri(drawn) / (3.0 * np.sqrt(many))) ** 3
    return np.asarray(np.where(many == 1.0, -np.log1p(-drawn), cubed.clip(0.0)))
