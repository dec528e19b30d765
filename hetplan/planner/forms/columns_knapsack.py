"""The bounded covering knapsack: the cheapest whole counts that gain at least so much, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["cheapest_cover", "covers_within"]

SLIP = 1e-9
"""A need is covered when no more than this share of it is missing: a quotient that is whole but for rounding."""


def cheapest_cover(
    segments: Sequence[tuple[float, float, float]], need: float
) -> tuple[float, list[tuple[int, int]]] | None:
    """Least cost of covering `need` by segments (gain, cost, most); the cost and (segment, count), or None.

    Depth first over the segments by cost per gain, from the most useful count down. What is left costs at least its
    share at the next segment's rate; as counts fall that only grows, so the first count too dear ends the row.

    >>> cheapest_cover([(5.0, 1.0, 9), (100.0, 3.0, 9), (800.0, 16.0, 9)], 1000.0)
    (22.0, [(2, 1), (1, 2)])
    >>> cheapest_cover([(5.0, 1.0, 1)], 10.0) is None
    True
    """
    order = sorted(range(len(segments)), key=lambda k: (segments[k][1] / segments[k][0], -segments[k][0], k))
    gains = [segments[k][0] for k in order]
    costs = [segments[k][1] for k in order]
    most = [int(segments[k][2]) for k in order]
    rates = [cost / gain for cost, gain in zip(costs, gains, strict=True)] + [math.inf]
    reach = [0.0] * (len(order) + 1)
    for place in range(len(order) - 1, -1, -1):
        reach[place] = reach[place + 1] + gains[place] * most[place]
    enough = need * SLIP
    best_cost, best, last = math.inf, list[tuple[int, int]](), len(order) - 1

    # What is tried at each place: left to cover and spent before it, and the next count. A stack of our own, for there
    # may be more segments than calls can be nested.
    path: list[tuple[float, float, int]] = []

    def enter(left: float, cost: float) -> None:
        place = len(path)
        if reach[place] >= left - enough:
            path.append((left, cost, min(most[place], max(0, math.ceil((left - enough) / gains[place])))))

    if order:
        enter(need, 0.0)
    while path:
        left, cost, count = path[-1]
        place = len(path) - 1
        rest, spent = left - count * gains[place], cost + count * costs[place]
        if count < 0 or (rest > enough and (place == last or spent + rest * rates[place + 1] >= best_cost)):
            path.pop()
            continue
        path[-1] = (left, cost, count - 1)
        if rest > enough:
            enter(rest, spent)
        elif spent < best_cost:
            best_cost, best = spent, [(order[k], tried + 1) for k, (_, _, tried) in enumerate(path)]
    if not math.isfinite(best_cost):
        return None
    return best_cost, [(k, count) for k, count in best if count > 0]


def covers_within(
    segments: Sequence[tuple[float, float, float]], need: float, limit: float, most_steps: int
) -> list[list[tuple[int, int]]] | None:
    """Every cover that costs at most `limit`, as (segment, count); None where finding them takes too many steps.

    Covers in which a segment that came before could do with one less may be left out, or not: where nothing costs
    less than nothing, nobody needs them.

    >>> segments = [(5.0, 1.0, 9), (100.0, 3.0, 9), (800.0, 16.0, 9)]
    >>> covers_within(segments, 1000.0, 23.0, 1000)
    [[(2, 1), (1, 2)]]
    >>> covers_within(segments, 1000.0, 32.0, 1000)
    [[(2, 2)], [(2, 1), (1, 2)]]
    """
    order = sorted(range(len(segments)), key=lambda k: (segments[k][1] / segments[k][0], -segments[k][0], k))
    gains = [segments[k][0] for k in order]
    costs = [segments[k][1] for k in order]
    most = [int(segments[k][2]) for k in order]
    rates = [cost / gain for cost, gain in zip(costs, gains, strict=True)] + [math.inf]
    last, enough, steps = len(order) - 1, need * SLIP, 0
    found: list[list[tuple[int, int]]] = []
    path: list[tuple[float, float, int]] = []

    def enter(left: float, cost: float) -> None:
        nonlocal steps
        steps += 1
        place = len(path)
        path.append((left, cost, min(most[place], max(0, math.ceil((left - enough) / gains[place])))))

    if order:
        enter(need, 0.0)
    while path and steps <= most_steps:
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
    return found if steps <= most_steps else None
