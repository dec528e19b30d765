"""Counts of instances and their flows, found without any engine: a first pool for the program, all configurations.

Nothing here needs a time limit: so a limit that stops an engine early still leaves a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.problems.pool.letters import Counts, Matrix, Pool, Vector

__all__ = [
    "MOST_CONFIGURATIONS",
    "Configurations",
    "Start",
    "configurations",
    "covers",
    "enumerate_counts",
    "flows",
    "ladder",
    "point_of",
    "start",
]

ROUNDS = 40
"""Rounds in which flows are moved from busy types to idle ones; each costs a few passes over classes times types."""

STEP = 0.7
"""How far a round moves: the logarithm of a share changes by so much per unit of price above the cheapest."""

SHARPNESS = 12.0
"""How much dearer a type is that is busier; higher comes nearer to the optimum in the end, and slower."""


MOST_CONFIGURATIONS = 10_000_000
"""Above this many, listing them is the wrong tool: the program finds the best without listing any."""


@dataclass(frozen=True)
class Start:
    """Counts per column, a rate that they carry, and the shares of each class over types that carry it."""

    counts: Counts
    lam: float
    share: Matrix


def flows(pool: Pool, per_type: Counts | Vector, *, rounds: int = ROUNDS) -> tuple[float, Matrix]:
    """A rate that these instances carry, and the shares of each class over types; 0 where they carry none.

    Every class starts in proportion to what each type could do of it; then, round by round, shares move from types
    that are busy to those that are not. The best round counts. It is a rate that can be kept, not the highest.
    """
    n = np.asarray(per_type, dtype=np.float64)
    allowed = _in_time(pool, n > 0)
    nothing = np.zeros_like(pool.L)
    if allowed is None:
        return 0.0, nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        # Instances of type t that class s would keep busy, per query/s of the whole pool and per instance there is.
        work = np.where(allowed, pool.p[:, None] * pool.L / 1000.0 / n, np.inf)
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
    if not allowed.any(axis=1).all():
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
    cover = pool.cover
    if cover is None:
        return None
    best: Start | None = None
    for money in _splits(pool):
        counts = _spent(pool, cover, money) if target is None else _needed(pool, cover, money, target)
        if counts is None:
            continue
        lam, share = flows(pool, pool.of_type(counts))
        if target is not None and lam < target:
            continue
        found = Start(counts, lam, share)
        if best is None or _better(pool, found, best, target):
            best = found
    return best


def _better(pool: Pool, one: Start, other: Start, target: float | None) -> bool:
    return one.lam > other.lam if target is None else pool.cost(one.counts) < pool.cost(other.counts)


def _price(pool: Pool) -> Vector:
    """The least price of each type, per hour and not 0; infinite where none is to be had."""
    price = np.full(len(pool.types), np.inf)
    for t in pool.rentable:
        price[t] = max(1.0, float(min(c.price for c in pool.columns if c.type == t and c.stock != 0)))
    return price


def _splits(pool: Pool) -> Iterator[Vector]:
    """Ways to spend money: per query/s of the pool, what goes to each type."""
    price = _price(pool)
    busy = np.where(pool.usable, pool.p[:, None] * pool.L / 1000.0, np.inf)
    with np.errstate(invalid="ignore"):
        money = np.where(np.isfinite(busy * price), busy * price, np.inf)
    cheapest = money.argmin(axis=1)
    yield np.bincount(cheapest, weights=money.min(axis=1), minlength=len(price)).astype(np.float64)
    for t in pool.rentable:
        if np.isfinite(money[:, t]).all():
            yield np.where(np.arange(len(price)) == t, money[:, t].sum(), 0.0)


def _spent(pool: Pool, cover: Counts, money: Vector) -> Counts | None:
    """The cover, and for what is left of the budget more of each type in this proportion."""
    assert pool.wish.budget is not None
    room = pool.wish.budget - pool.cost(cover)
    more = np.floor(room * money / money.sum() / _price(pool))
    found = _had(pool, pool.of_type(cover) + more)
    return cover if found is None else found


def _needed(pool: Pool, cover: Counts, money: Vector, target: float) -> Counts | None:
    """As many as the target keeps busy, and the cover."""
    work = np.where(money > 0, money / _price(pool), 0.0) * target
    return _had(pool, np.maximum(pool.of_type(cover), np.ceil(work * (1 + 1e-9))))


def _had(pool: Pool, per_type: Vector) -> Counts | None:
    """Counts per column of as many of these as may be had; None where they break the budget or a total."""
    most = np.array([np.inf if kind.most is None else kind.most for kind in pool.types])
    counts = pool.columns_of(np.minimum(per_type, most).astype(np.int64))
    if pool.wish.budget is not None and pool.cost(counts) > pool.wish.budget:
        return None
    return counts if pool.within_resources(pool.of_type(counts)) else None


def point_of(pool: Pool, found: Start, *, lam: float, scale: float) -> Vector:
    """A pool as a point of `form.fluid` with this scale, at a rate that it carries."""
    s, t = np.nonzero(pool.usable)
    rate = lam / scale
    return np.concatenate([[rate], rate * found.share[s, t], found.counts.astype(np.float64)])


@dataclass(frozen=True)
class Configurations:
    """`counts[t]` is the count of type t in each configuration; `cost` counts 1e-9 per hour."""

    counts: tuple[NDArray[np.int32], ...]
    cost: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.cost.size)

    def row(self, i: int) -> Counts:
        """The counts per type of one configuration."""
        return np.array([int(column[i]) for column in self.counts], dtype=np.int64)

    def rows(self, chosen: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts per type of some configurations, a row each."""
        at = np.asarray(chosen, dtype=np.int64)
        return np.stack([column[at].astype(np.int64) for column in self.counts], axis=1)

    def where(self, keep: NDArray[np.bool_]) -> Configurations:
        """Only those."""
        return Configurations(tuple(column[keep] for column in self.counts), self.cost[keep])


def enumerate_counts(ladders: Sequence[NDArray[np.int64]], least: Sequence[int], budget: int) -> Configurations:
    """All counts whose cost is within the budget; `ladders[t][k]` is the cost of least[t] + k instances of type t.

    >>> found = enumerate_counts([np.array([0, 2, 4]), np.array([0, 1])], [0, 0], 3)
    >>> found.rows(range(len(found))).tolist(), found.cost.tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 2, 3])
    """
    # What the later types cost at their least can not be spent before.
    reserved = [int(sum(int(later[0]) for later in ladders[t + 1 :])) for t in range(len(ladders))]
    counts: list[NDArray[np.int32]] = []
    cost = np.zeros(1, dtype=np.int64)
    for t, ladder_t in enumerate(ladders):
        room = budget - reserved[t] - cost
        steps = _affordable(ladder_t, room)
        total = int(steps.sum())
        if total > MOST_CONFIGURATIONS:
            raise InputError.one(
                path="method.formulation",
                value=f"more than {MOST_CONFIGURATIONS:,} configurations",
                why="so many are not listed one by one",
                remedy="Use formulation fluid-milp, which lists none, or lower the budget or limits.instances.",
            )
        ends = np.cumsum(steps)
        step = np.arange(total, dtype=np.int64) - np.repeat(ends - steps, steps)
        counts = [np.repeat(column, steps) for column in counts]
        counts.append((step + least[t]).astype(np.int32))
        cost = np.repeat(cost, steps) + ladder_t[step]
    return Configurations(tuple(counts), cost)


def _affordable(costs: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many steps of a ladder fit into each room."""
    if costs.size > 2 and costs[1] > costs[0] and bool((np.diff(costs) == costs[1] - costs[0]).all()):
        # One price: a division is far faster than a search.
        return np.asarray(np.clip((room - costs[0]) // (costs[1] - costs[0]) + 1, 0, costs.size), dtype=np.int64)
    return np.asarray(np.searchsorted(costs, room, side="right"), dtype=np.int64)


def ladder(pool: Pool, t: int, least: int, budget: int) -> NDArray[np.int64]:
    """Cost of least, least + 1, ... instances of type t, as far as its offers, max_t and the budget reach."""
    kind = pool.types[t]
    costs = [0]
    for o in pool.offers_of(t):
        column = pool.columns[o]
        more = column.stock if column.stock is not None else MOST_CONFIGURATIONS
        if kind.most is not None:
            more = min(more, kind.most - len(costs) + 1)
        if column.price > 0:
            more = min(more, (budget - costs[-1]) // column.price)
        if more > 0:
            costs += [costs[-1] + column.price * (k + 1) for k in range(int(more))]
        if column.stock is None or (column.price > 0 and budget - costs[-1] < column.price):
            break
    return np.array(costs[least:], dtype=np.int64)


def configurations(pool: Pool, budget: int, *, with_base: bool = False) -> Configurations:
    """All configurations of the pool that cost at most `budget`; `with_base` asks for at least one base instance."""
    least = [max(kind.least, int(with_base and t == pool.base)) for t, kind in enumerate(pool.types)]
    ladders = [ladder(pool, t, least[t], budget) for t in range(len(pool.types))]
    if any(one.size == 0 for one in ladders):
        return Configurations(tuple(np.zeros(0, np.int32) for _ in ladders), np.zeros(0, np.int64))
    found = enumerate_counts(ladders, least, budget)
    for resource, total in pool.inputs.slo.limits.resources.items():
        used = sum(column * amount for column, amount in zip(found.counts, pool.takes(resource), strict=True))
        found = found.where(np.asarray(used <= total * (1 + 1e-12)))
    return found


def covers(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations have an instance for every class: the others carry nothing."""
    keep = np.ones(len(found), dtype=bool)
    for pattern in np.unique(pool.usable, axis=0):
        keep &= np.logical_or.reduce(
            [found.counts[t] > 0 for t in np.flatnonzero(pattern)] or [np.zeros(len(found), bool)]
        )
    return keep
