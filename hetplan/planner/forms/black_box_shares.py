r"""GPU shares cut down as far as the latency target allows (the paper's ParetoOptimize, here exact).

A plan leaves an operator on a priced tier the shares of the grid; all combinations are tried (5^operators). Of those
within the target, the minimal ones (no other is nowhere larger) are the antichain from which a packing may choose, and
the cheapest one is the plan's cost. `trimmed` is the greedy way for many operators; `continuous` is a bound without a
grid.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured

__all__ = ["antichain", "cheapest", "continuous", "priced", "trimmed"]

Vector = NDArray[np.float64]

MOST_COMBINATIONS = 20_000
SLIP = 1e-12


def priced(form: BlackBox, placement: int) -> NDArray[np.int64]:
    """The operators whose share is paid for."""
    return np.flatnonzero(form.price[placement] > 0)


@lru_cache(maxsize=64)
def _grid(shares: tuple[float, ...], count: int) -> Vector:
    return np.array(list(product(sorted(shares, reverse=True), repeat=count))).reshape(len(shares) ** count, count)


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


def _within(form: BlackBox, measured: Measured, placement: int) -> tuple[Vector, Vector]:
    """All share combinations within the limit, with their costs; trimmed greedily where there are too many."""
    free = priced(form, placement)
    if len(form.placed.shares) ** free.size > MOST_COMBINATIONS:
        shares = trimmed(form, measured, placement)
        grid = np.zeros((0, free.size)) if shares is None else shares[None, :]
    else:
        grid = _grid(tuple(form.placed.shares), int(free.size))
    inside = grid[_latency(form, measured, placement, grid) <= form.limit_s * (1 + SLIP)] if len(grid) else grid
    return inside, inside @ form.price[placement][free]


def cheapest(form: BlackBox, measured: Measured, placement: int) -> tuple[float, Vector]:
    """The least cost per hour within the limit, and its shares (infinite where even whole devices are too slow)."""
    inside, dollars = _within(form, measured, placement)
    if not len(inside):
        return float("inf"), np.zeros(0)
    best = int(np.lexsort((inside.sum(axis=1), dollars))[0])
    return float(dollars[best]), inside[best]


def antichain(form: BlackBox, measured: Measured, placement: int) -> tuple[Vector, Vector]:
    """The minimal share combinations within the limit, cheapest first, with their costs.

    A placement without priced operators has one, empty.
    """
    inside, dollars = _within(form, measured, placement)
    if len(inside) > 1:
        below = (inside[None, :, :] <= inside[:, None, :]).all(axis=2)
        minimal = below.sum(axis=1) == 1
        inside, dollars = inside[minimal], dollars[minimal]
    order = np.argsort(dollars, kind="stable")
    return inside[order], dollars[order]


def trimmed(form: BlackBox, measured: Measured, placement: int) -> Vector | None:
    """From whole devices, the step down the grid that saves most per added second, while the limit holds."""
    free = priced(form, placement)
    price = form.price[placement][free]
    steps = sorted(form.placed.shares, reverse=True)
    at = np.zeros(free.size, dtype=np.int64)
    shares = np.array([steps[k] for k in at], dtype=float)
    now = float(_latency(form, measured, placement, shares[None, :])[0])
    if now > form.limit_s * (1 + SLIP):
        return None
    while True:
        best, best_rate = -1, -1.0
        for o in range(free.size):
            if at[o] + 1 >= len(steps):
                continue
            tried = shares.copy()
            tried[o] = steps[at[o] + 1]
            then = float(_latency(form, measured, placement, tried[None, :])[0])
            rate = price[o] * (shares[o] - tried[o]) / max(then - now, 1e-12)
            if then <= form.limit_s * (1 + SLIP) and rate > best_rate:
                best, best_rate = o, rate
        if best < 0:
            return shares
        at[best] += 1
        shares[best] = steps[at[best]]
        now = float(_latency(form, measured, placement, shares[None, :])[0])


def continuous(price: Vector, seconds: Vector, left_s: Vector | float) -> Vector | float:
    """(sum sqrt(price c))^2 / S: the least cost of shares without a grid, for operators in a chain with S seconds left.

    >>> round(float(continuous(np.array([3.67, 3.67]), np.array([0.1, 0.2]), 0.51)), 5)
    4.19418
    """
    root = np.sqrt(np.asarray(price) * np.asarray(seconds)).sum(axis=-1)
    return np.asarray(root**2 / left_s)
