"""Pools and flows found without any engine: the cheapest pool at all, a first pool for the program, flows at counts.

What stands here needs no time limit: so a limit that stops an engine early still leaves a plan, and "no pool can do it
for this money" is said by exact sums of whole prices, never because an engine stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Vector
from hetplan.problems.pool.configurations import columns_of
from hetplan.problems.pool.fluid import read_shares

if TYPE_CHECKING:
    from hetplan.problems.pool.question import Counts, Matrix, Pool

__all__ = ["Start", "cheapest_cover", "flows", "least_per_type", "point_of", "rentable", "shares_there", "start"]

MOST_LISTED = 16
"""Up to so many types all their subsets are looked at (65 536)."""

AT_ONCE = 4096
"""Subsets looked at in one array."""

ROUNDS = 40
"""Rounds in which flows are moved from busy types to idle ones; each costs a few passes over classes times types."""

STEP = 0.7
"""How far a round moves: the logarithm of a share changes by so much per unit of price above the cheapest."""

KEPT = 0.5
"""A class of which less than this is left stood on types that are not there."""

SHARPNESS = 12.0
"""How much dearer a type is that is busier; higher comes nearer to the optimum in the end, and slower."""


@dataclass(frozen=True)
class Start:
    """Counts per column, a rate that they carry, and the shares of each class over types that carry it."""

    counts: Counts
    lam: float
    share: Matrix


def rentable(pool: Pool) -> list[int]:
    """Types of which at least one instance may be had."""
    having = {column.type for column in pool.columns if column.stock != 0}
    return [t for t, kind in enumerate(pool.types) if t in having and kind.most != 0]


def least_per_type(pool: Pool) -> Counts:
    """The instances that the limits demand."""
    return np.array([kind.least for kind in pool.types], dtype=np.int64)


def _within_resources(pool: Pool, per_type: Counts | Vector) -> bool:
    """Whether the totals of resources allow these instances."""
    limits = pool.inputs.slo.limits.resources
    return all(float(pool.takes(resource) @ per_type) <= total * (1 + 1e-12) for resource, total in limits.items())


def cheapest_cover(pool: Pool) -> Counts | None:
    """Counts per column of the cheapest pool that carries any rate: the minima, and one more of each of some types.

    Late shares are least where each class goes to its fastest type, so a subset of types either keeps all targets
    that way or never. None where no subset does, or where there are too many types to look at all.
    """
    least = least_per_type(pool)
    free = [t for t in rentable(pool) if least[t] == 0]
    if len(free) > MOST_LISTED:
        return None
    subsets = np.arange(1 << len(free), dtype=np.int64)
    cost, mask = np.zeros(subsets.size), np.zeros(subsets.size, dtype=np.int64)
    mask += sum(1 << t for t in range(len(least)) if least[t] > 0)
    for i, t in enumerate(free):
        there = (subsets >> i) & 1
        cost += there * float(min(c.price for c in pool.columns if c.type == t and c.stock != 0))
        mask |= there << t
    order = np.argsort(cost, kind="stable")
    for start_at in range(0, order.size, AT_ONCE):
        part = order[start_at : start_at + AT_ONCE]
        for i in part[_keeps_targets(pool, mask[part])]:
            per_type = np.maximum(least, [(int(mask[i]) >> t) & 1 for t in range(len(least))])
            if _within_resources(pool, per_type):
                return columns_of(pool, per_type)
    return None


def _bits(matrix: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.asarray(matrix @ (1 << np.arange(matrix.shape[1], dtype=np.int64)), dtype=np.int64)


def _keeps_targets(pool: Pool, masks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which sets of types (bit t stands for type t) serve every class and keep every target at some rate."""
    keep = np.ones(masks.size, dtype=bool)
    for pattern in np.unique(_bits(pool.usable)):
        keep &= (masks & pattern) != 0
    for limit, allowed in pool.limits:
        if allowed > 0:
            patterns, which = np.unique(_bits(pool.usable & (limit >= pool.M)), return_inverse=True)
            share = np.bincount(which.ravel(), weights=pool.p)
            late = np.zeros(masks.size)
            for pattern, part in zip(patterns, share, strict=True):
                late += np.where((masks & pattern) == 0, part, 0.0)
            keep &= late <= allowed * (1 + 1e-9)
    return keep


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


def shares_there(pool: Pool, point: Vector, per_type: Counts) -> Matrix | None:
    """The shares of a program's point on the types that are there; None where that serves nobody.

    Within a tolerance a class of next to no work may stand on a type of which there is none: it goes where `flows`
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
    for t in rentable(pool):
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
    for t in rentable(pool):
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
    counts = columns_of(pool, np.minimum(per_type, most).astype(np.int64))
    if pool.wish.budget is not None and pool.cost(counts) > pool.wish.budget:
        return None
    return counts if _within_resources(pool, pool.of_type(counts)) else None


def point_of(pool: Pool, found: Start, *, lam: float, scale: float) -> Vector:
    """A pool as a point of `pool_fluid.fluid` with this scale, at a rate that it carries."""
    s, t = np.nonzero(pool.usable)
    rate = lam / scale
    return np.concatenate([[rate], rate * found.share[s, t], found.counts.astype(np.float64)])
