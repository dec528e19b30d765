r"""Prices of a packing: every resource gets one, each group takes what is worth most after paying.

Whatever the prices are, they prove a bound.

The best prices minimise the bound, a convex piecewise linear function L of them (Kelley's cutting planes): each point
tried gives a cut, the cuts' minimum the next point, drawn back towards the best so far. In units of what there is of
each resource, mu = pi C, a program of as many columns as resources.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Limits
from hetplan.planner.forms.packing import Packing

__all__ = ["best_prices", "choose_by"]

Vector = NDArray[np.float64]

TOLERANCE = 1e-4
MOST_CUTS = 200
START = 0.15
TOWARDS = 0.6


class _Cuts:
    """The least of a convex function above its cuts, over a box and over rows of what prices may come to."""

    def __init__(self, upper: Vector, rows: list[tuple[NDArray[np.int32], Vector, float]]) -> None:
        import highspy

        self.highs: Any = highspy.Highs()
        self.highs.setOptionValue("output_flag", False)
        self.size = upper.size
        self.infinity = highspy.kHighsInf
        for most in upper:
            self.highs.addVar(0.0, float(most))
        self.highs.addVar(-self.infinity, self.infinity)
        self.highs.changeColCost(self.size, 1.0)
        for where, amounts, most in rows:
            self.highs.addRow(-self.infinity, most, len(where), where, amounts)

    def add(self, at: Vector, value: float, slope: Vector) -> None:
        """The function is at least value + slope (x - at)."""
        columns = np.arange(self.size + 1, dtype=np.int32)
        self.highs.addRow(float(value - slope @ at), self.infinity, columns.size, columns, np.append(-slope, 1.0))

    def least(self) -> tuple[Vector, float]:
        """Where the cuts are least, and how low."""
        self.highs.run()
        x = np.array(self.highs.getSolution().col_value)
        return x[:-1], float(x[-1])


def best_prices(form: Packing, limits: Limits) -> Vector:
    """Prices under which the bound is as good as prices make it, to within the tolerance."""
    scale, upper, rows = _box(form)
    tried = np.flatnonzero(upper > 0)
    prices = np.zeros(upper.size)
    if not tried.size:
        return prices
    place = np.full(upper.size, -1)
    place[tried] = np.arange(tried.size)
    cuts = _Cuts(upper[tried], [(place[at].astype(np.int32), amounts, most) for at, amounts, most in rows])
    sign = 1.0 if form.sense == "max" else -1.0
    began = time.monotonic()
    best, best_value = np.zeros(tried.size), np.inf
    at = np.minimum(START * _total(form), upper[tried])
    for where, amounts, most in rows:
        at[place[where]] = np.minimum(at[place[where]], most / amounts / len(amounts))
    for _ in range(MOST_CUTS):
        prices[tried] = at / scale[tried]
        value, slope = _lagrangian(form, prices)
        if sign * value < best_value:
            best, best_value = at, sign * value
        cuts.add(at, sign * value, sign * slope[tried] / scale[tried])
        lowest, floor = cuts.least()
        spent = limits.seconds is not None and time.monotonic() - began > limits.seconds / 2
        if best_value - floor <= TOLERANCE * max(1.0, abs(best_value)) or spent:
            break
        at = TOWARDS * lowest + (1 - TOWARDS) * best
    prices[tried] = best / scale[tried]
    return prices


def _total(form: Packing) -> float:
    """All that options could bring: the scale of prices."""
    most = np.zeros(form.first.size - 1)
    np.maximum.at(most, form.group[form.fits], np.abs(form.worth[form.fits]))
    return float(most.sum()) + float(form.opening.sum()) or 1.0


def _box(form: Packing) -> tuple[Vector, Vector, list[tuple[NDArray[np.int64], Vector, float]]]:
    """Per price: its unit, the most that it may be in it; rows for tiers without end, whose opening they may cost."""
    limit = form.limit
    scale = np.where(np.isfinite(limit) & (limit > 0), limit, 1.0)
    top = (1.0 if form.sense == "max" else 10.0) * _total(form)
    upper = np.where(np.isfinite(limit) & (limit > 0), top, 0.0)
    rows: list[tuple[NDArray[np.int64], Vector, float]] = []
    if form.items is not None and form.sense == "min":
        kinds = form.items.room.shape[1]
        for tier in np.flatnonzero(~np.isfinite(form.items.machines)):
            room = np.where(np.isfinite(form.items.room[tier]), form.items.room[tier], 0.0)
            where = form.capacity.size + tier * kinds + np.flatnonzero(room > 0)
            if where.size and form.opening[tier] > 0:
                scale[where] = room[room > 0]
                upper[where] = form.opening[tier]
                rows.append((where, np.ones(where.size), float(form.opening[tier])))
    return scale, upper, rows


def _lagrangian(form: Packing, prices: Vector) -> tuple[float, Vector]:
    """The bound and its slope in the prices."""
    sign = 1.0 if form.sense == "max" else -1.0
    paid = form.worth - sign * (form.taken @ prices)
    best = choose_by(form, paid)
    chosen = best[best >= 0]
    value = float(paid[chosen].sum())
    slope = -sign * form.taken[chosen].sum(axis=0)
    end = form.capacity.size
    finite = np.isfinite(form.capacity)
    value += sign * float(prices[:end][finite] @ form.capacity[finite])
    slope[:end][finite] += sign * form.capacity[finite]
    if form.items is not None:
        room = np.where(np.isfinite(form.items.room), form.items.room, 0.0)
        left = form.opening - (prices[end:].reshape(room.shape) * room).sum(axis=1)
        over = (left < 0) & np.isfinite(form.items.machines)
        value -= sign * float((form.items.machines[over] * left[over]).sum())
        slope[end:] += (
            sign * np.where(over[:, None], np.where(over, form.items.machines, 0.0)[:, None] * room, 0.0).ravel()
        )
    return value, slope


def choose_by(form: Packing, score: Vector) -> NDArray[np.int64]:
    """Per group the option of the best score: for benefit the highest if above 0 (else -1), for cost the lowest."""
    sign = 1.0 if form.sense == "max" else -1.0
    signed = np.where(form.fits, sign * score, -np.inf)
    has = np.diff(form.first) > 0
    best = np.full(form.first.size - 1, -np.inf)
    best[has] = np.maximum.reduceat(signed, form.first[:-1][has])
    hit = np.flatnonzero(signed == best[form.group])
    chosen = np.full(best.size, -1, dtype=np.int64)
    chosen[form.group[hit[::-1]]] = hit[::-1]
    chosen[(best <= 0) if form.sense == "max" else ~np.isfinite(best)] = -1
    return chosen
