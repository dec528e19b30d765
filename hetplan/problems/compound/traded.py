"""Sizes that trade cost against latency: of a setting, shares and replicas of which none is beaten in both.

More replicas wait less, until a query that is worked out waits no more: from there on another one brings nothing. So
of each placement and share there are finitely many numbers of replicas to look at, between the fewest that are not
overrun and those. Few are all tried. Of many, one more goes where it helps most for its price, step by step, and what
the last of them does not need is taken back.

No size of a placement and its shares is faster than without waiting, nor cheaper than the fewest replicas: where
another size is both, they are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from hetplan.planner.forms.black_box import Measured
from hetplan.problems.compound.stations import FREE, MOST_REPLICAS, SLIP, Fits, Rated, Sized, Stations, Vector

__all__ = ["Point", "Traded", "traded_sizes"]

Point = tuple[float, float]
"""A cost and a latency in seconds."""

MOST_TIMES = 400_000
"""So many queries in all are worked out where all numbers of replicas are tried."""
MOST_STEPS = 400
SAME = 1e-9
"""Latencies are one where they differ by no more of themselves: sums of waits come out in either order."""


class Traded(Rated):
    """Settings of which latency is sought, at a rate: how soon a query is answered includes its waiting."""

    def quickest(self, found: Measured, placement: int) -> tuple[Vector, Vector]:
        """What sizes of a measured configuration cost at a placement, and their latencies with waiting."""
        made = traded_sizes(self, [found], only=[placement], fastest=self.aim.of == ("latency",))
        return np.array([one.cost for one in made]), np.array([one.judged_s for one in made])


def traded_sizes(
    form: Rated,
    founds: Sequence[Measured],
    *,
    fits: Fits | None = None,
    only: Collection[int] | None = None,
    known: Sequence[Point] = (),
    fastest: bool = False,
) -> list[Sized]:
    """Sizes of these configurations within limit and budget, cheapest first, each faster than all that cost less.

    `known` are other plans that may beat them. With `fastest` there is one at most: of the fastest the cheapest.
    """
    at = _At(form, fits, fastest, costs=[cost for cost, _ in known], latency=[late for _, late in known])
    corners = [
        _Corner(stations, place, shares, slow, float(late), float(cost))
        for stations in map(form.stations, founds)
        for place in np.flatnonzero(np.isfinite(stations.bounds)).tolist()
        if only is None or place in only
        for shares, slow, late, cost in zip(*stations.corners(place), strict=True)
        if late <= stations.limit and cost <= form.aim.budget * (1 + SLIP)
    ]
    order = (lambda one: (one.latency, one.cost)) if fastest else (lambda one: (one.cost + FREE) * one.latency)
    for corner in sorted(corners, key=order):
        if not at.beats(corner.cost, corner.latency):
            for replicas, late in _path(corner, at):
                at.add(corner, replicas, late)
    return at.sizes()


@dataclass(frozen=True)
class _Corner:
    """A placement with shares, and what no size of it comes below."""

    stations: Stations
    placement: int
    shares: Vector
    slow: Vector
    latency: float
    cost: float

    def costs(self, replicas: Vector) -> Vector:
        """What so many replicas cost; by row."""
        return self.stations.cost(self.placement, self.shares, replicas)

    def late(self, replicas: Vector) -> Vector:
        """Their latencies; by row."""
        return self.stations.worst(self.placement, self.slow, replicas)


@dataclass
class _At:
    """The sizes so far that no other beats."""

    form: Rated
    fits: Fits | None
    fastest: bool
    costs: list[float]
    latency: list[float]
    made: list[tuple[_Corner, Vector, float, float]] = field(default_factory=list)

    def beats(self, cost: float, latency: float) -> bool:
        """Whether one of them is as good as a size of such a cost and latency."""
        costs, lates = np.array(self.costs), np.array(self.latency)
        within = lates <= latency * (1 + SAME)
        return bool(
            (within & (costs <= cost * (1 + SAME))).any() or (self.fastest and (lates < latency * (1 - SAME)).any())
        )

    def room_for(self, corner: _Corner, replicas: Vector) -> bool:
        """Whether they are paid for, and there are machines enough."""
        if float(corner.costs(replicas)) > self.form.aim.budget * (1 + SLIP):
            return False
        own = replicas * corner.stations.own(corner.placement)
        return self.fits is None or self.fits(corner.placement, corner.shares, own)

    def add(self, corner: _Corner, replicas: Vector, latency: float) -> None:
        """Take in a size, where no other is as good, and drop those that it beats."""
        cost = float(corner.costs(replicas))
        if latency > corner.stations.limit or self.beats(cost, latency) or not self.room_for(corner, replicas):
            return
        left = [
            one
            for one in self.made
            if one[3] < latency * (1 - SAME) or (not self.fastest and one[2] < cost * (1 - SAME))
        ]
        others = len(self.costs) - len(self.made)
        self.made = [*left, (corner, replicas, cost, latency)]
        self.costs[others:] = [one[2] for one in self.made]
        self.latency[others:] = [one[3] for one in self.made]

    def sizes(self) -> list[Sized]:
        """All of them, cheapest first."""
        order = sorted(self.made, key=lambda one: one[2:])
        return [corner.stations.of(corner.placement, corner.shares, replicas) for corner, replicas, _, _ in order]


def _path(corner: _Corner, at: _At) -> Iterator[tuple[Vector, float]]:
    """Numbers of replicas with their latencies, among which is what no other of them beats."""
    stations, own = corner.stations, corner.stations.own(corner.placement)
    fewest = np.where(own, stations.fewest(corner.slow), 1.0)
    if fewest.max() > MOST_REPLICAS or not at.room_for(corner, fewest):
        return
    most = _that_fit(corner, at, fewest, np.where(own, _calm(corner, fewest, at.form.aim.budget), 1.0))
    spans = most - fewest + 1.0
    if float(spans.prod()) * len(stations.drawn) > MOST_TIMES:
        if at.fastest and at.room_for(corner, most):
            late_s = float(corner.late(most[None, :])[0])
            yield _needed(corner, most, late_s, fewest), late_s
        else:
            yield from _steps(corner, at, fewest, most)
        return
    rows = np.array(list(product(*(range(int(low), int(high) + 1) for low, high in zip(fewest, most, strict=True)))))
    tried = rows.astype(float)
    late = corner.late(tried)
    best = math.inf
    for row in np.lexsort((late, rows.sum(axis=1), corner.costs(tried))):
        if late[row] < best * (1 - SAME) and at.room_for(corner, tried[row]):
            best = float(late[row])
            yield tried[row], best


def _calm(corner: _Corner, fewest: Vector, budget: float) -> Vector:
    """Of each operator the replicas at which no query that is worked out waits; no more than the budget pays for."""
    stations, most = corner.stations, fewest.copy()
    flows = stations.flows(corner.slow) + stations.beside
    price = stations.form.price[corner.placement] * corner.shares
    for o in stations.busy(corner.placement, corner.slow):
        paid = (budget - corner.cost) / price[o] if price[o] > 0 else math.inf
        end = int(min(fewest[o] + max(0.0, paid + 1e-9), MOST_REPLICAS))
        low, high = int(fewest[o]), int(fewest[o])

        def waits(count: int, o: int = o) -> bool:
            return bool(stations.wait(o, corner.slow, count, flows[:, o]).max() > 0.0)

        while high < end and waits(high):
            low, high = high + 1, min(end, high + max(1, high - int(fewest[o])) * 2)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if waits(middle) else (low, middle)
        most[o] = high
    return most


def _that_fit(corner: _Corner, at: _At, fewest: Vector, most: Vector) -> Vector:
    """Of each operator the replicas for which there are machines while all others have the fewest."""
    found = most.copy()
    for o in range(most.size if at.fits is not None else 0):
        low, high = int(fewest[o]), int(most[o])
        tried = fewest.copy()
        while low < high:
            tried[o] = (low + high + 1) // 2
            low, high = (int(tried[o]), high) if at.room_for(corner, tried) else (low, int(tried[o]) - 1)
        found[o] = low
    return found


def _steps(corner: _Corner, at: _At, fewest: Vector, most: Vector) -> Iterator[tuple[Vector, float]]:
    """From the fewest up, each time by what helps most for its price; what the last does not need is taken back."""
    stations = corner.stations
    costs = np.maximum(stations.form.price[corner.placement] * corner.shares, FREE)
    now, late = fewest.copy(), float(corner.late(fewest[None, :])[0])
    yield now.copy(), late
    for _ in range(MOST_STEPS):
        step = np.minimum(np.maximum(1.0, np.floor(0.03 * now)), most - now)
        tried = now + np.diag(step)[step > 0]
        tried = np.array([row for row in tried if at.room_for(corner, row)]).reshape(-1, now.size)
        if not len(tried):
            break
        then = corner.late(tried)
        helps = (late - then) / ((tried - now) @ costs)
        if helps.max() <= 0.0 and at.room_for(corner, now + step):
            # None of them helps alone: branches that wait for each other.
            tried, helps = (now + step)[None, :], np.ones(1)
            then = corner.late(tried)
        best = int(helps.argmax())
        now, late = tried[best], float(then[best])
        yield now.copy(), late
    yield _needed(corner, now, late, fewest), late


def _needed(corner: _Corner, now: Vector, late: float, fewest: Vector) -> Vector:
    """Without the replicas that could be missing and it would be as fast."""
    price = corner.stations.form.price[corner.placement] * corner.shares
    for o in np.argsort(-price, kind="stable"):
        less = now.copy()
        while now[o] > fewest[o]:
            less[o] -= 1.0
            if float(corner.late(less[None, :])[0]) > late * (1 + SAME):
                break
            now = less.copy()
    return now
