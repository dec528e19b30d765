"""What a pool of given counts carries: by flows that no engine is needed for, by the program, and in simulation.

`flows` moves shares of each class from busy types to idle ones: a rate that can be kept, found in microseconds, and
`starting_pool` spends money by it. `rate_at` asks the fluid program at given counts (`program`): the highest rate if
nothing waits. `simulate` asks Kairos' simulator for the allowable rate, with queues. The simulator is handed in
(`Tools.simulate`); nothing here imports it. It is called as ::

    simulate(latency_ms, counts, pmf, qos_ms, rule=..., seeds=..., lp_qps=..., base=..., sizes=..., most_late=...)

with a row per type and a column per class, classes in growing size where there is one axis; and, where option
`noise` is not "mean", also ``noise=..., std_ms=..., max_ms=...`` (arrays like latency_ms). It returns an object with
`per_seed`: of each seed the highest rate (queries/s) at which no more than `most_late` of the queries were late, 0
where none was found. A search hands in ``above=`` besides, the best median so far: a pool that does not beat it may get
any rates that do not either, so that its simulation can end early. Where the SLO states "threshold" the rule is the
name ``threshold/1``, with ``threshold="climb"`` or ``"sweep"`` for how to look for it, and the object has the best
`threshold` too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.dispatch.matching import Matching
from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Status
from hetplan.planner.draft import Reported
from hetplan.problems.draft_simulation import check_simulator
from hetplan.problems.pool.program import MOST_LISTED, Counts, Pool, fluid_program_at, read_shares
from hetplan.problems.pool.request import Matrix, Vector
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice, Promise

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = [
    "GAP",
    "SAME_RATE",
    "ChosenPool",
    "RatedPool",
    "SimulatedRate",
    "StartingPool",
    "check_can_simulate",
    "flows",
    "meets_request",
    "program_claim",
    "rate_at",
    "rate_by_answer",
    "rate_of_shares",
    "simulate",
    "starting_pool",
    "value_of",
]

ROUNDS = 40
"""Rounds in which flows are moved from busy types to idle ones; each costs a few passes over classes times types."""
STEP = 0.7
"""How far a round moves: the logarithm of a share changes by so much per unit of price above the cheapest."""
SHARPNESS = 12.0
"""How much dearer a type is that is busier; higher comes nearer to the optimum in the end, and slower."""
About = Literal["cost_per_hour", "rate_qps"]

GAP = 1e-4
"""The default gap of the whole-number program."""
SAME_RATE = 1e-6
"""Rates nearer than this (relative) are the same rate: engines stop at 1e-7 per row."""
LEAST_THERE = 0.5
"""A class of which less than this is left was on types that are not there."""
SPREADS = 3.0
"""A promise is so many standard deviations of the seeds below their mean, so that new seeds keep it."""


@dataclass(frozen=True)
class StartingPool:
    """Counts per offer, a rate that they carry, and the shares of each class over types that carry it."""

    counts: Counts
    lam: float
    share: Matrix

    def point(self, pool: Pool, *, lam: float, scale: float) -> Vector:
        """The pool as a point of `fluid_program` with this scale, at a rate that it carries."""
        s, t = np.nonzero(pool.usable)
        rate = lam / scale
        return np.concatenate([[rate], rate * self.share[s, t], self.counts.astype(np.float64)])


def flows(pool: Pool, per_type: Counts | Vector, *, rounds: int = ROUNDS) -> tuple[float, Matrix]:
    """A rate that these instances carry, and the shares of each class over types; 0 where they carry none.

    Every class starts in proportion to what each type could do of it; then, round by round, shares move from types
    that are busy to those that are not. The best round counts. It is a rate that can be kept, not the highest. No
    engine is needed: so a limit that stops an engine early still leaves a plan.
    """
    n = np.asarray(per_type, dtype=np.float64)
    allowed = _allowed_pairs(pool, n > 0)
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


def _allowed_pairs(pool: Pool, there: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Where classes may go: no later than on the fastest type that is there. None where even that breaks a target."""
    allowed = pool.usable & there
    if pool.unserved_classes(there).size:
        return None
    fastest = np.where(allowed, pool.M, np.inf).min(axis=1)
    for limit, share in pool.limits:
        if share > 0:
            in_time = fastest <= limit
            if float(pool.p[~in_time].sum()) > share * (1 + 1e-9):
                return None
            allowed = allowed & ((limit >= pool.M) | ~in_time[:, None])
    return allowed


def starting_pool(pool: Pool, target: float | None) -> StartingPool | None:
    """A pool for the program to begin at: within the budget, or carrying the target; None where none is seen at once.

    The money beyond the cheapest cover is spent as each class on its cheapest type would have it, or all on one type.
    """
    cover = pool.cover if pool.cover is not None else _cover_of_many(pool)
    if cover is None:
        return None
    best: StartingPool | None = None
    for money in _money_splits(pool):
        counts = (
            _counts_for_budget(pool, cover, money) if target is None else _counts_for_rate(pool, cover, money, target)
        )
        if counts is None:
            continue
        if target is not None and best is not None and pool.cost(counts) >= pool.cost(best.counts):
            continue  # no better, whatever it carries
        lam, share = flows(pool, pool.of_type(counts))
        if lam <= 0 or (target is not None and lam < target):
            continue
        if best is None or target is not None or lam > best.lam:
            best = StartingPool(counts, lam, share)
    return best


def _cover_of_many(pool: Pool) -> Counts | None:
    """Where there are too many types to look at all their sets: the least, and one of the cheapest for each class."""
    if sum(pool.least[t] == 0 for t in pool.rentable) <= MOST_LISTED:
        return None  # all sets were looked at: there is no cover
    money = _cost_per_query(pool)
    per_type = np.maximum(pool.least, np.bincount(money.argmin(axis=1), minlength=money.shape[1]) > 0)
    counts = _counts_in_stock(pool, per_type.astype(np.float64))
    return counts if counts is not None and np.isfinite(money.min(axis=1)).all() else None


def _cost_per_query(pool: Pool) -> Matrix:
    """What a query/s of the pool costs on each type, by class."""
    busy = np.where(pool.usable, pool.p[:, None] * pool.W / 1000.0, np.inf)
    with np.errstate(invalid="ignore"):
        cost = busy * pool.prices
    return np.where(np.isfinite(cost), cost, np.inf)


def _money_splits(pool: Pool) -> Iterator[Vector]:
    """Ways to spend money: per query/s of the pool, what goes to each type."""
    money = _cost_per_query(pool)
    cheapest = money.argmin(axis=1)
    yield np.bincount(cheapest, weights=money.min(axis=1), minlength=money.shape[1]).astype(np.float64)
    alone = money.sum(axis=0)
    cheap = set(np.argsort(alone, kind="stable")[:MOST_LISTED].tolist())
    for t in pool.rentable:
        if np.isfinite(alone[t]) and t in cheap:
            yield np.where(np.arange(alone.size) == t, alone[t], 0.0)


def _counts_for_budget(pool: Pool, cover: Counts, money: Vector) -> Counts | None:
    """The cover, and for what is left of the budget more of each type in this proportion."""
    assert pool.request.budget is not None
    room = pool.request.budget - pool.cost(cover)
    more = np.floor(room * money / money.sum() / pool.prices)
    found = _counts_in_stock(pool, pool.of_type(cover) + more)
    return cover if found is None else found


def _counts_for_rate(pool: Pool, cover: Counts, money: Vector, target: float) -> Counts | None:
    """As many as the target keeps busy, and the cover."""
    work = np.where(money > 0, money / pool.prices, 0.0) * target
    return _counts_in_stock(pool, np.maximum(pool.of_type(cover), np.ceil(work * (1 + 1e-9))))


def _counts_in_stock(pool: Pool, per_type: Vector) -> Counts | None:
    """Counts per offer of as many of these as may be had; None where they break the budget or a total."""
    most = np.array([kind.most for kind in pool.request.machines])
    counts = pool.by_offer(np.minimum(per_type, most).astype(np.int64))
    if pool.request.budget is not None and pool.cost(counts) > pool.request.budget:
        return None
    return counts if pool.within_resources(pool.of_type(counts)) else None


# -- by the program --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatedPool:
    """Counts per offer with the rate lam that they carry, the share of each class per type, and who says so."""

    counts: Counts
    lam: float
    share: Matrix
    answer: Answer[Any]


@dataclass(frozen=True)
class ChosenPool:
    """What a way of choosing found: a pool, what answers back of it, and what else its plan says."""

    rated: RatedPool
    backed: tuple[Reported, ...] = ()
    simulated: SimulatedRate | None = None
    alternatives: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    searched: bool = False


def meets_request(pool: Pool, rated: RatedPool) -> bool:
    """Whether whole counts keep, exactly, what an engine keeps to within its tolerance."""
    if pool.request.budget is not None:
        return pool.cost(rated.counts) <= pool.request.budget
    return rated.lam >= (pool.fluid_target or 0.0) * (1 - SAME_RATE)


def rate_at(pool: Pool, ask: Ask, counts: Counts, *, known: Vector | None = None) -> RatedPool:
    """The fluid program at these counts: a verdict is taken on whole counts with the flows solved again.

    `known` is a point of a program that has these counts.
    """
    answer = ask(fluid_program_at(pool, pool.of_type(counts)), about="rate of the chosen pool")
    return rate_by_answer(pool, counts, answer, known=known)


def rate_by_answer(pool: Pool, counts: Counts, answer: Answer[Any], *, known: Vector | None = None) -> RatedPool:
    """Counts with what an answer to their fluid program says.

    An engine that was stopped early has said nothing about the rate: then what is known of it counts, or flows
    that need no engine.
    """
    per_type = pool.of_type(counts)
    found = [RatedPool(counts, 0.0, np.zeros_like(pool.L), answer)]
    # A class that nobody serves makes the rate 0, not the hair that an engine's tolerance leaves.
    if pool.unserved_classes(per_type > 0).size:
        return found[0]
    points = [] if answer.point is None else [answer.point]
    if answer.status is not Status.OPTIMAL:
        points += [] if known is None else [known]
        lam, share = flows(pool, per_type)
        found += [rate_of_shares(pool, counts, share, answer)] if lam > 0 else []
    for point in points:
        shares = _shares_there(pool, point, per_type)
        found += [rate_of_shares(pool, counts, shares, answer)] if shares is not None else []
    return max(found, key=lambda one: one.lam)


def rate_of_shares(pool: Pool, counts: Counts, share: Matrix, answer: Answer[Any]) -> RatedPool:
    """What these shares of each class carry, to the last digit."""
    work = (pool.p[:, None] * share * np.where(pool.served, pool.W, 0.0)).sum(axis=0) / 1000.0
    busy = work > 0
    lam = float((pool.of_type(counts)[busy] / work[busy]).min())
    return RatedPool(counts, lam, share, answer)


def _shares_there(pool: Pool, point: Vector, per_type: Counts) -> Matrix | None:
    """The shares of a program's point on the types that are there; None where that serves nobody.

    Within a tolerance a class of next to no work may be sent to a type of which there is none: it goes where `flows`
    sends it.
    """
    share = np.where(per_type > 0, read_shares(pool, point), 0.0)
    lost = share.sum(axis=1) < LEAST_THERE
    if lost.any():
        lam, other = flows(pool, per_type)
        if lam <= 0:
            return None
        share[lost] = other[lost]
    return np.asarray(share / share.sum(axis=1, keepdims=True), dtype=np.float64)


def program_claim(pool: Pool, about: About, answer: Answer[Any], rated: RatedPool) -> Reported:
    """What an answer to the program proves of a pool's cost or planned rate."""
    value, derate = value_of(pool, about, rated), pool.options.derate
    if about == "cost_per_hour":
        return Reported(about, "min", "problem", answer, value=value)
    return Reported(about, "max", "problem", answer, value=value, scale=derate)


def value_of(pool: Pool, about: str, rated: RatedPool) -> float:
    """The cost of a pool per hour, or the rate that is planned of it."""
    return pool.cost(rated.counts) / NANO if about == "cost_per_hour" else pool.options.derate * rated.lam


# -- in simulation ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimulatedRate:
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
            interval=(min(self.per_seed), max(self.per_seed)),
            model=self.model,
            basis=self.basis if len(self.per_seed) > 1 else None,
            seeds=len(self.per_seed) if self.model != "measured" else None,
            extrapolated=extrapolated,
        )


def check_can_simulate(pool: Pool) -> None:
    """Raise where a pool cannot be simulated: nobody to do it, rates instead of times, noise without its numbers."""
    file = pool.inputs.files.get("profile", "profile.json")
    check_simulator(pool.tools)
    if not pool.served.all() or not all(kind.is_timed for kind in pool.types):
        raise InputError.one(
            file=file,
            path=f"$.variants.{pool.wish.variant}.runs",
            why="a pool of one query at a time is simulated from tables of latency, not of rates",
            remedy="Leave option kairos-plus out, and simulate the plan.",
        )
    if pool.options.service_times != "mean" and (pool.times.std_ms is None or pool.times.max_ms is None):
        raise InputError.one(
            file=file,
            path="$.tables",
            why="lognormal noise needs std and max",
            remedy='Add them, or service_times "mean".',
        )


def simulate(
    pool: Pool,
    per_type: Counts | Sequence[int],
    lam: float,
    *,
    first_seed: int,
    look: Literal["climb", "sweep"] = "climb",
    above: float = 0.0,
) -> SimulatedRate:
    """The allowable rate of a pool whose fluid rate is `lam`, per seed; `look` is how a threshold is looked for.

    Where its median is not more than `above`, the rates are only known not to be.
    """
    assert pool.tools.simulate is not None
    order = np.arange(pool.p.size) if pool.sizes is None else np.argsort(pool.sizes)
    more: dict[str, Any] = {}
    if pool.options.service_times != "mean" and pool.times.std_ms is not None and pool.times.max_ms is not None:
        more = {
            "noise": pool.options.service_times,
            "std_ms": pool.times.std_ms[order].T,
            "max_ms": pool.times.max_ms[order].T,
        }
    if pool.wish.dispatch == "threshold":
        more["threshold"] = look
    if above > 0:
        more["above"] = above
    found = pool.tools.simulate(
        pool.L[order].T,
        tuple(int(count) for count in pool.k * per_type),
        pool.p[order],
        pool.qos,
        rule=_rule(pool, per_type),
        seeds=tuple(range(first_seed, first_seed + pool.options.seeds)),
        lp_qps=lam,
        base=pool.base if pool.wish.dispatch == "matching" else pool.base_among(per_type),
        sizes=None if pool.sizes is None else pool.sizes[order].tolist(),
        most_late=pool.wish.app.targets[-1].left,
        **more,
    )
    threshold = getattr(found, "threshold", None) if pool.wish.dispatch == "threshold" else None
    return SimulatedRate(tuple(float(rate) for rate in found.per_seed), threshold=threshold)


def _rule(pool: Pool, per_type: Counts | Sequence[int]) -> Matching | str:
    """The rule that the plan will state; a threshold is not known before it was looked for.

    A plan names the weights of the types that it uses, and of the base: those of others, which may scale what late
    pairs cost, are left at the base's.
    """
    if pool.wish.dispatch != "matching":
        return f"{pool.wish.dispatch}/1"
    weight = tuple(np.where(np.asarray(per_type) > 0, pool.weights, 1.0).tolist())
    return Matching(slo_ms=pool.qos, weight=weight, xi=pool.options.xi, penalty=pool.options.matching_cost)
