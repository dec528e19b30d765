"""The bounded covering knapsack: the cheapest whole counts that gain at least so much, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["cheapest_cover"]

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
    best_cost, best = math.inf, list[tuple[int, int]]()
    stack: list[tuple[int, int]] = []

    def descend(place: int, left: float, cost: float) -> None:
        nonlocal best_cost, best
        if reach[place] < left - enough:
            return
        gain, price = gains[place], costs[place]
        highest = min(most[place], max(0, math.ceil((left - enough) / gain)))
        for count in range(highest, -1, -1):
            rest, spent = left - count * gain, cost + count * price
            if rest <= enough:
                if spent < best_cost:
                    best_cost, best = spent, [*stack, (order[place], count)]
                continue
            if spent + rest * rates[place + 1] >= best_cost:
                break
            if place + 1 < len(order):
                stack.append((order[place], count))
                descend(place + 1, rest, spent)
                stack.pop()
            else:
                break

    if order:
        descend(0, need, 0.0)
    if not math.isfinite(best_cost):
        return None
    return best_cost, [(k, count) for k, count in best if count > 0]
