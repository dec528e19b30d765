r"""GPU shares cut down as far as the latency target allows (the paper's ParetoOptimize, here exact).

A plan leaves an operator on a priced tier the shares of the grid. All combinations (5^operators) are tried, but for
shares that are too low however much the other operators have. Of those within the target, the minimal ones (no other is
nowhere larger) are the antichain from which a packing may choose, and the cheapest one is the plan's cost. `trimmed` is
the greedy way for many operators; `continuous` is a bound without a grid.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured

__all__ = ["antichain", "cheapest", "continuous", "least_shares", "priced", "trimmed"]

Vector = NDArray[np.float64]

MOST_COMBINATIONS = 20_000
SLIP = 1e-12
ALL = slice(None)


def priced(form: BlackBox, placement: int) -> NDArray[np.int64]:
    """The operators whose share is paid for."""
    return np.flatnonzero(form.price[placement] > 0)


@lru_cache(maxsize=64)
def _grid(shares: tuple[tuple[float, ...], ...]) -> Vector:
    """Every combination of the shares of each operator, the largest first."""
    return np.array(list(product(*shares))).reshape(math.prod(map(len, shares)), len(shares))


def least_shares(form: BlackBox, measured: Measured, which: NDArray[np.int64] | slice = ALL) -> Vector:
    """Per placement and operator the least share within the limit while all others have whole devices.

    No combination within the limit has a lower one. It is infinite where even whole devices are too slow.
    """
    where, price = form.placements[which], form.price[which]
    base = (np.array(measured.seconds) * form.placed.relative_time[where])[None, :, :]
    bytes_out, bytes_in = np.array([measured.bytes_out]), np.array([measured.bytes_in])
    limit = form.limit_s * (1 + SLIP)
    least = np.ones(where.shape)
    for o, operator in enumerate(form.operators):
        for share in sorted(set(form.placed.shares) - {1.0}, reverse=True):
            slower = base.copy()
            slower[:, :, o] /= share if operator.by_share else 1.0
            in_time = form.finish(slower, bytes_out, bytes_in, where)[0] <= limit
            least[(price[:, o] > 0) & in_time, o] = share
    least[form.finish(base, bytes_out, bytes_in, where)[0] > limit] = np.inf
    return least


def _latency(form: BlackBox, measured: Measured, placement: int, shares: Vector) -> Vector:
    """End to end under each row of shares (of the priced operators)."""
    where = form.placements[placement : placement + 1]
    base = np.array(measured.seconds) * form.placed.relative_time[where[0]]
    slow = np.ones((len(shares), base.size))
    for column, o in enumerate(priced(form, placement)):
        if form.operators[o].by_share:
            slow[:, o] = 1.0 / shares[:, column]
    compute = (base[None, :] * slow)[:, None, :]
    bytes_out = np.tile(np.array(measured.bytes_out), (len(shares), 1))
    return form.finish(compute, bytes_out, np.full(len(shares), measured.bytes_in), where)[:, 0]


def _choices(form: BlackBox, measured: Measured, placement: int, least: Vector | None) -> tuple[tuple[float, ...], ...]:
    """The shares that each priced operator may have, largest first; of all others at whole devices, none is too low."""
    steps = sorted(set(form.placed.shares), reverse=True)
    lowest = least_shares(form, measured, np.array([placement]))[0] if least is None else least
    return tuple(tuple(share for share in steps if share >= lowest[o]) for o in priced(form, placement))


def _within(
    form: BlackBox, measured: Measured, placement: int, least: Vector | None
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """All share combinations within the limit, with their costs, and which of them are minimal.

    Latency only grows as a share falls: one is minimal where a step down of any single operator is too slow. Where
    there are too many to be tried, the only one is trimmed greedily.
    """
    price = form.price[placement][priced(form, placement)]
    choices = _choices(form, measured, placement, least)
    if math.prod(map(len, choices)) > MOST_COMBINATIONS:
        shares = trimmed(form, measured, placement)
        only = np.zeros((0, price.size)) if shares is None else shares[None, :]
        return only, only @ price, np.ones(len(only), dtype=bool)
    grid = _grid(choices)
    fits = _latency(form, measured, placement, grid) <= form.limit_s * (1 + SLIP) if len(grid) else np.zeros(0, bool)
    cube = fits.reshape([len(shares) for shares in choices])
    minimal = cube.copy()
    for axis in range(cube.ndim):
        upper = [slice(None)] * cube.ndim
        lower = list(upper)
        upper[axis], lower[axis] = slice(None, -1), slice(1, None)
        minimal[tuple(upper)] &= ~cube[tuple(lower)]
    return grid[fits], grid[fits] @ price, minimal.ravel()[fits]


def cheapest(form: BlackBox, measured: Measured, placement: int, least: Vector | None = None) -> tuple[float, Vector]:
    """The least cost per hour within the limit, and its shares (infinite where even whole devices are too slow).

    `least` are the placement's `least_shares`, where they are known already.
    """
    inside, dollars, _ = _within(form, measured, placement, least)
    if not len(inside):
        return float("inf"), np.zeros(0)
    best = int(np.lexsort((inside.sum(axis=1), dollars))[0])
    return float(dollars[best]), inside[best]


def antichain(form: BlackBox, measured: Measured, placement: int, least: Vector | None = None) -> tuple[Vector, Vector]:
    """The minimal share combinations within the limit, cheapest first, with their costs.

    A placement without priced operators has one, empty.
    """
    inside, dollars, minimal = _within(form, measured, placement, least)
    inside, dollars = inside[minimal], dollars[minimal]
    order = np.argsort(dollars, kind="stable")
    return inside[order], dollars[order]


def trimmed(form: BlackBox, measured: Measured, placement: int) -> Vector | None:
    """From whole devices, the step down the grid that saves most per added second, while the limit holds."""
    free = priced(form, placement)
    price = form.price[placement][free]
    steps = np.array(sorted(set(form.placed.shares), reverse=True))
    limit = form.limit_s * (1 + SLIP)
    at = np.zeros(free.size, dtype=np.int64)
    now = float(_latency(form, measured, placement, steps[at][None, :])[0])
    if now > limit:
        return None
    while (lower := np.flatnonzero(at + 1 < steps.size)).size:
        tried = at + np.eye(free.size, dtype=np.int64)[lower]
        then = _latency(form, measured, placement, steps[tried])
        rate = price[lower] * (steps[at[lower]] - steps[at[lower] + 1]) / np.maximum(then - now, 1e-12)
        rate[then > limit] = -np.inf
        best = int(rate.argmax())
        if np.isinf(rate[best]):
            break
        at, now = tried[best], float(then[best])
    return np.asarray(steps[at])


def continuous(price: Vector, seconds: Vector, left_s: Vector | float) -> Vector | float:
    """(sum sqrt(price c))^2 / S: the least cost of shares without a grid, for operators in a chain with S seconds left.

    >>> round(float(continuous(np.array([3.67, 3.67]), np.array([0.1, 0.2]), 0.51)), 5)
    4.19418
    """
    root = np.sqrt(np.asarray(price) * np.asarray(seconds)).sum(axis=-1)
    return np.asarray(root**2 / left_s)
