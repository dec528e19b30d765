"""Counts of instances and their flows, found without any engine: a first pool for the program.

Nothing here needs a time limit: so a limit that stops an engine early still leaves a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.pool.letters import Counts, Matrix, Pool, Vector

__all__ = ["Start", "flows", "point_of", "start"]

ROUNDS = 40
"""Rounds in which flows are moved from busy types to idle ones; each costs a few passes over classes times types."""

STEP = 0.7
"""How far a round moves: the logarithm of a share changes by so much per unit of price above the cheapest."""

SHARPNESS = 12.0
"""How much dearer a type is that is busier; higher comes nearer to the optimum in the end, and slower."""


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
    busy = np.where(pool.usable, pool.p[:, None] * pool.W / 1000.0, np.inf)
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
