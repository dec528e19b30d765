"""The bounded covering knapsack: the cheapest whole counts that gain at least so much, exactly or within a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Cover", "cheapest_cover", "covers_within"]

SLIP = 1e-9
"""A need is covered when no more than this share of it is missing: a quotient that is whole but for rounding."""
TIE = 1e-12
"""Covers cheaper by less than this share are not sought: sums of as many terms round by more."""
MOST_STEPS = 100_000
"""Some 50 ms; beyond them a bound is given that the best cover may not reach."""

Segments = Sequence[tuple[float, float, float]]


class Cover(NamedTuple):
    """A cover by (segment, count), what it costs, and what every cover costs at least (`cost`, where it is exact)."""

    cost: float
    counts: list[tuple[int, int]]
    bound: float


def cheapest_cover(segments: Segments, need: float, most_steps: int = MOST_STEPS) -> Cover | None:
    """Least cost of covering `need` by segments (gain, cost, most), none of which costs less than nothing.

    Depth first over the segments by cost per gain, from the most useful count down. What is left costs at least its
    share at the next segment's rate; as counts fall that only grows, so the first count too dear ends the row. Where
    many segments have nearly one rate that prunes little: after `most_steps` the best cover so far is returned, with
    the least that any cover costs among those not looked at.

    >>> cheapest_cover([(5.0, 1.0, 9), (100.0, 3.0, 9), (800.0, 16.0, 9)], 1000.0)
    Cover(cost=22.0, counts=[(2, 1), (1, 2)], bound=22.0)
    >>> cheapest_cover([(5.0, 1.0, 1)], 10.0) is None
    True
    """
    order, gains, costs, most, rates = _by_rate(segments)
    reach = [0.0] * (len(order) + 1)
    for place in range(len(order) - 1, -1, -1):
        reach[place] = reach[place + 1] + gains[place] * most[place]
    enough, last, steps = need * SLIP, len(order) - 1, 0
    best_cost, limit, best = math.inf, math.inf, list[tuple[int, int]]()

    # What is tried at each place: left to cover and spent before it, and the next count. A stack of our own, for there
    # may be more segments than calls can be nested.
    path: list[tuple[float, float, int]] = []

    def enter(left: float, cost: float) -> None:
        place = len(path)
        if reach[place] >= left - enough:
            path.append((left, cost, min(most[place], max(0, math.ceil((left - enough) / gains[place])))))

    if order:
        enter(need, 0.0)
    # The first way down ends in a cover, however many segments that takes.
    while path and (steps < most_steps or best_cost == math.inf):
        steps += 1
        left, cost, count = path[-1]
        place = len(path) - 1
        rest, spent = left - count * gains[place], cost + count * costs[place]
        if count < 0 or (rest > enough and (place == last or spent + rest * rates[place + 1] >= limit)):
            path.pop()
            continue
        path[-1] = (left, cost, count - 1)
        if rest > enough:
            enter(rest, spent)
        elif spent < limit:
            best_cost, limit = spent, spent * (1.0 - TIE)
            best = [(order[k], tried + 1) for k, (_, _, tried) in enumerate(path)]
    if best_cost == math.inf:
        return None
    bound = best_cost
    for place, (left, cost, count) in enumerate(path):
        # With fewer at this place more is left to the next, dearer ones; a count that covers all is bounded by its
        # share only, for one fewer may do nearly as much.
        rest = left - enough - count * gains[place]
        if count >= 0 and rest > 0:
            bound = min(bound, cost + count * costs[place] + rest * rates[place + 1])
        elif count >= 0:
            bound = min(bound, cost + max(left - enough, 0.0) * rates[place])
    return Cover(best_cost, [(k, count) for k, count in best if count > 0], bound)


def covers_within(
    segments: Segments, need: float, limit: float, most_steps: int
) -> tuple[list[list[tuple[int, int]]], int] | None:
    """Every cover that costs at most `limit`, as (segment, count), and the steps taken; None where they are too many.

    Covers in which a segment that came before could do with one less may be left out, or not: where nothing costs
    less than nothing, nobody needs them.

    >>> segments = [(5.0, 1.0, 9), (100.0, 3.0, 9), (800.0, 16.0, 9)]
    >>> covers_within(segments, 1000.0, 23.0, 1000)
    ([[(2, 1), (1, 2)]], 5)
    >>> covers_within(segments, 1000.0, 32.0, 1000)
    ([[(2, 2)], [(2, 1), (1, 2)]], 7)
    """
    order, gains, costs, most, rates = _by_rate(segments)
    last, enough, steps = len(order) - 1, need * SLIP, 0
    found: list[list[tuple[int, int]]] = []
    path: list[tuple[float, float, int]] = []

    def enter(left: float, cost: float) -> None:
        place = len(path)
        path.append((left, cost, min(most[place], max(0, math.ceil((left - enough) / gains[place])))))

    if order:
        enter(need, 0.0)
    while path and steps <= most_steps:
        steps += 1
        left, cost, count = path[-1]
        place = len(path) - 1
        rest, spent = left - count * gains[place], cost + count * costs[place]
        if count < 0 or (rest > enough and (place == last or spent + rest * rates[place + 1] > limit)):
            path.pop()
            continue
        path[-1] = (left, cost, count - 1)
        if rest > enough:
            enter(rest, spent)
        elif spent <= limit:
            found.append([(order[k], tried + 1) for k, (_, _, tried) in enumerate(path) if tried >= 0])
    return (found, steps) if steps <= most_steps else None


def _by_rate(segments: Segments) -> tuple[list[int], list[float], list[float], list[int], list[float]]:
    """The segments in the order of their rates: which, gains, costs, limits, rates (the last of them infinite)."""
    order = sorted(range(len(segments)), key=lambda k: (segments[k][1] / segments[k][0], -segments[k][0], k))
    gains = [segments[k][0] for k in order]
    costs = [segments[k][1] for k in order]
    most = [int(segments[k][2]) for k in order]
    rates = [cost / gain for cost, gain in zip(costs, gains, strict=True)] + [math.inf]
    return order, gains, costs, most, rates
