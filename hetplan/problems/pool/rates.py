"""What a pool of given counts carries: its rate, the share of each class per type, and who says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.draft import Reported
from hetplan.problems.pool.letters import MOST_LISTED, Counts, Matrix, Pool, Vector
from hetplan.problems.pool.program import fluid_at, read_shares
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice, Promise

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = [
    "GAP",
    "SAME_RATE",
    "Chosen",
    "Rated",
    "RatedPools",
    "Simulated",
    "Start",
    "backed",
    "carried",
    "flows",
    "holds",
    "point_of",
    "rate_at",
    "rated_by",
    "start",
]


ROUNDS = 40
"""Rounds in which flows are moved from busy types to idle ones; each costs a few passes over classes times types."""

STEP = 0.7
"""How far a round moves: the logarithm of a share changes by so much per unit of price above the cheapest."""

SHARPNESS = 12.0
"""How much dearer a type is that is busier; higher comes nearer to the optimum in the end, and slower."""


@dataclass(frozen=True)
class Start:
    """Counts per offer, a rate that they carry, and the shares of each class over types that carry it."""

    counts: Counts
    lam: float
    share: Matrix


def flows(pool: Pool, per_type: Counts | Vector, *, rounds: int = ROUNDS) -> tuple[float, Matrix]:
    """A rate that these instances carry, and the shares of each class over types; 0 where they carry none.

    Every class starts in proportion to what each type could do of it; then, round by round, shares move from types
    that are busy to those that are not. The best round counts. It is a rate that can be kept, not the highest. No
    engine is needed: so a limit that stops an engine early still leaves a plan.
    """
    n = np.asarray(per_type, dtype=np.float64)
    allowed = _in_time(pool, n > 0)
    nothing = np.zeros_like(pool.L)
    if allowed is None:
        return 0.0, nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        # Instances of type t that class s would keep busy, per query/s of the whole pool and per instance there is.
        work = np.where(allowed, pool.p[:, None] * pool.W / 1000.0 / n, np.inf)
        share = np.where(allowed, 1.0 / work, 0.0)
    share /= share.sum(axis=1, keepdims=True)
    cost = np.where(allowed, work, 0.0)
    best, chosen = 0.0, share
    for _ in range(rounds):
        busy = (share * cost).sum(axis=0)
        worst = float(busy.max())
        if 1.0 / worst > best:
            best, chosen = 1.0 / worst, share
        price = np.where(allowed, cost * np.exp(SHARPNESS * (busy / worst - 1.0)), np.inf)
        price /= price.min(axis=1, keepdims=True)
        share = share * np.exp(-STEP * np.minimum(price - 1.0, 40.0))
        share /= share.sum(axis=1, keepdims=True)
    return best, chosen


def _in_time(pool: Pool, there: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Where classes may go: no later than on the fastest type that is there. None where even that breaks a target."""
    allowed = pool.usable & there
    if pool.missed(there).size:
        return None
    fastest = np.where(allowed, pool.M, np.inf).min(axis=1)
    for limit, share in pool.limits:
        if share > 0:
            in_time = fastest <= limit
            if float(pool.p[~in_time].sum()) > share * (1 + 1e-9):
                return None
            allowed = allowed & ((limit >= pool.M) | ~in_time[:, None])
    return allowed


def start(pool: Pool, target: float | None) -> Start | None:
    """A pool for the program to begin at: within the budget, or carrying the target; None where none is seen at once.

    The money beyond the cheapest cover is spent as each class on its cheapest type would have it, or all on one type.
    """
    cover = pool.cover if pool.cover is not None else _cover_of_many(pool)
    if cover is None:
        return None
    best: Start | None = None
    for money in _splits(pool):
        counts = _spent(pool, cover, money) if target is None else _needed(pool, cover, money, target)
        if counts is None:
            continue
        if target is not None and best is not None and pool.cost(counts) >= pool.cost(best.counts):
            continue  # no better, whatever it carries
        lam, share = flows(pool, pool.of_type(counts))
        if lam <= 0 or (target is not None and lam < target):
            continue
        if best is None or target is not None or lam > best.lam:
            best = Start(counts, lam, share)
    return best


def _cover_of_many(pool: Pool) -> Counts | None:
    """Where there are too many types to look at all their sets: the least, and one of the cheapest for each class."""
    if sum(pool.least[t] == 0 for t in pool.rentable) <= MOST_LISTED:
        return None  # all sets were looked at: there is no cover
    money = _money(pool)
    per_type = np.maximum(pool.least, np.bincount(money.argmin(axis=1), minlength=money.shape[1]) > 0)
    counts = _had(pool, per_type.astype(np.float64))
    return counts if counts is not None and np.isfinite(money.min(axis=1)).all() else None


def _money(pool: Pool) -> Matrix:
    """What a query/s of the pool costs on each type, by class."""
    busy = np.where(pool.usable, pool.p[:, None] * pool.W / 1000.0, np.inf)
    with np.errstate(invalid="ignore"):
        cost = busy * pool.prices
    return np.where(np.isfinite(cost), cost, np.inf)


def _splits(pool: Pool) -> Iterator[Vector]:
    """Ways to spend money: per query/s of the pool, what goes to each type."""
    money = _money(pool)
    cheapest = money.argmin(axis=1)
    yield np.bincount(cheapest, weights=money.min(axis=1), minlength=money.shape[1]).astype(np.float64)
    alone = money.sum(axis=0)
    cheap = set(np.argsort(alone, kind="stable")[:MOST_LISTED].tolist())
    for t in pool.rentable:
        if np.isfinite(alone[t]) and t in cheap:
            yield np.where(np.arange(alone.size) == t, alone[t], 0.0)


def _spent(pool: Pool, cover: Counts, money: Vector) -> Counts | None:
    """The cover, and for what is left of the budget more of each type in this proportion."""
    assert pool.request.budget is not None
    room = pool.request.budget - pool.cost(cover)
    more = np.floor(room * money / money.sum() / pool.prices)
    found = _had(pool, pool.of_type(cover) + more)
    return cover if found is None else found


def _needed(pool: Pool, cover: Counts, money: Vector, target: float) -> Counts | None:
    """As many as the target keeps busy, and the cover."""
    work = np.where(money > 0, money / pool.prices, 0.0) * target
    return _had(pool, np.maximum(pool.of_type(cover), np.ceil(work * (1 + 1e-9))))


def _had(pool: Pool, per_type: Vector) -> Counts | None:
    """Counts per offer of as many of these as may be had; None where they break the budget or a total."""
    most = np.array([kind.most for kind in pool.request.machines])
    counts = pool.by_offer(np.minimum(per_type, most).astype(np.int64))
    if pool.request.budget is not None and pool.cost(counts) > pool.request.budget:
        return None
    return counts if pool.within_resources(pool.of_type(counts)) else None


def point_of(pool: Pool, found: Start, *, lam: float, scale: float) -> Vector:
    """A pool as a point of `program.fluid` with this scale, at a rate that it carries."""
    s, t = np.nonzero(pool.usable)
    rate = lam / scale
    return np.concatenate([[rate], rate * found.share[s, t], found.counts.astype(np.float64)])


GAP = 1e-4
"""The default gap of the whole-number program."""

SAME_RATE = 1e-6
"""Rates nearer than this (relative) are the same rate: engines stop at 1e-7 per row."""


KEPT = 0.5
"""A class of which less than this is left was on types that are not there."""


@dataclass(frozen=True)
class Rated:
    """Counts per offer with the rate lam that they carry, the share of each class per type, and who says so."""

    counts: Counts
    lam: float
    share: Matrix
    answer: Answer[Any]


@dataclass(frozen=True)
class Chosen:
    """What a way of choosing found: a pool, what answers back of it, and what else its plan says."""

    rated: Rated
    backed: tuple[Reported, ...] = ()
    simulated: Simulated | None = None
    alternatives: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    searched: bool = False


def holds(pool: Pool, rated: Rated) -> bool:
    """Whether whole counts keep, exactly, what an engine keeps to within its tolerance."""
    if pool.request.budget is not None:
        return pool.cost(rated.counts) <= pool.request.budget
    return rated.lam >= (pool.fluid_target or 0.0) * (1 - SAME_RATE)


def rate_at(pool: Pool, ask: Ask, counts: Counts, *, known: Vector | None = None) -> Rated:
    """The fluid program at these counts: a verdict is taken on whole counts with the flows solved again.

    `known` is a point of a program that has these counts.
    """
    answer = ask(fluid_at(pool, pool.of_type(counts)), about="rate of the chosen pool")
    return rated_by(pool, counts, answer, known=known)


@dataclass
class RatedPools:
    """What pools carry, each asked once, and what they cost: the part that every search for a rate has."""

    pool: Pool
    ask: Ask
    known: dict[tuple[int, ...], Rated] = field(default_factory=dict, init=False)

    @property
    def rate(self) -> float:
        """The stated rate."""
        return self.pool.wish.rate_qps or 0.0

    def rated(self, counts: tuple[int, ...]) -> Rated:
        """What a pool carries if nothing waits."""
        if counts not in self.known:
            self.known[counts] = rate_at(self.pool, self.ask, np.array(counts))
        return self.known[counts]

    def price(self, counts: tuple[int, ...]) -> int:
        """What the machines cost per hour."""
        return self.pool.cost(np.array(counts))


def rated_by(pool: Pool, counts: Counts, answer: Answer[Any], *, known: Vector | None = None) -> Rated:
    """Counts with what an answer to their fluid program says.

    An engine that was stopped early has said nothing about the rate: then what is known of it counts, or flows
    that need no engine.
    """
    per_type = pool.of_type(counts)
    found = [Rated(counts, 0.0, np.zeros_like(pool.L), answer)]
    # A class that nobody serves makes the rate 0, not the hair that an engine's tolerance leaves.
    if pool.missed(per_type > 0).size:
        return found[0]
    points = [] if answer.point is None else [answer.point]
    if answer.status is not Status.OPTIMAL:
        points += [] if known is None else [known]
        lam, share = flows(pool, per_type)
        found += [carried(pool, counts, share, answer)] if lam > 0 else []
    for point in points:
        shares = _shares_there(pool, point, per_type)
        found += [carried(pool, counts, shares, answer)] if shares is not None else []
    return max(found, key=lambda one: one.lam)


def carried(pool: Pool, counts: Counts, share: Matrix, answer: Answer[Any]) -> Rated:
    """What these shares of each class carry, to the last digit."""
    work = (pool.p[:, None] * share * np.where(pool.served, pool.W, 0.0)).sum(axis=0) / 1000.0
    busy = work > 0
    lam = float((pool.of_type(counts)[busy] / work[busy]).min())
    return Rated(counts, lam, share, answer)


def _shares_there(pool: Pool, point: Vector, per_type: Counts) -> Matrix | None:
    """The shares of a program's point on the types that are there; None where that serves nobody.

    Within a tolerance a class of next to no work may be sent to a type of which there is none: it goes where `flows`
    sends it.
    """
    share = np.where(per_type > 0, read_shares(pool, point), 0.0)
    lost = share.sum(axis=1) < KEPT
    if lost.any():
        lam, other = flows(pool, per_type)
        if lam <= 0:
            return None
        share[lost] = other[lost]
    return np.asarray(share / share.sum(axis=1, keepdims=True), dtype=np.float64)


def backed(pool: Pool, about: Literal["cost_per_hour", "rate_qps"], answer: Answer[Any], rated: Rated) -> Reported:
    """What an answer to the program proves of a pool's cost or planned rate."""
    if about == "cost_per_hour":
        return Reported(about, "min", "problem", answer, value=pool.cost(rated.counts) / NANO)
    derate = pool.options.derate
    return Reported(about, "max", "problem", answer, value=derate * rated.lam, scale=derate)


# -- in simulation ---------------------------------------------------------------------------------------------------
#
# What a pool carried in simulations or in one measurement, and the rate that may be promised.

SPREADS = 3.0
"""A promise is so many standard deviations of the seeds below their mean, so that new seeds keep it."""


@dataclass(frozen=True)
class Simulated:
    """What valuing a pool gave: a rate per seed (or one measurement), and by which model.

    No more is promised than `at_most`, the fluid rate that the plan's own shares carry: with all the lateness that a
    target leaves, a pool may be seen to carry a little more.
    """

    per_seed: tuple[float, ...]
    model: Literal["simulation/1", "measured"] = "simulation/1"
    at_most: float = math.inf
    threshold: float | None = None
    basis: str = "allowable rate, below that of every seed by their spread"

    @property
    def median(self) -> float:
        """The middle of the seeds."""
        return float(median(self.per_seed))

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most of the seeds."""
        return min(self.per_seed), max(self.per_seed)

    @property
    def promised(self) -> float:
        """The rate that also other seeds may be expected to reach."""
        if len(self.per_seed) == 1:
            return min(self.per_seed[0], self.at_most)
        spread_below = fmean(self.per_seed) - SPREADS * stdev(self.per_seed)
        return max(0.0, min(*self.per_seed, spread_below, self.at_most))

    def promise(self, app: str, extrapolated: bool | None) -> Promise:
        """The promise of that rate."""
        return Promise(
            app=app,
            quantity="rate_qps",
            relation=">=",
            value=self.promised,
            interval=self.interval,
            model=self.model,
            basis=self.basis if len(self.per_seed) > 1 else None,
            seeds=len(self.per_seed) if self.model != "measured" else None,
            extrapolated=extrapolated,
        )
