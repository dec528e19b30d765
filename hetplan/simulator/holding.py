"""Queries that come, hold a share of each tier for their lifetime, and go: admission over time (Circinus).

A query brings candidate plans in order of preference, each a demand per tier. It gets the first that fits what is free
when it comes (or the one that a decision handed in names), and is refused where none does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetplan.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Choose", "HoldingRun", "first_that_fits", "simulate_holding"]

FIT = 1e-9
"""Sums of shares are rounded numbers: so much more than the capacity still fits."""

Choose = Callable[[int, "NDArray[np.float64]", "NDArray[np.float64]"], int]
"""(query, its candidates' demands, what is free per tier) -> which candidate, or -1."""


@dataclass(frozen=True)
class HoldingRun:
    """What came of it: the candidate that each query got (-1: refused), shares served, use of the tiers."""

    chosen: NDArray[np.int64]
    served: float
    served_weight: float
    utilisation: tuple[float, ...]
    most_at_once: int


def first_that_fits(query: int, demands: NDArray[np.float64], free: NDArray[np.float64]) -> int:  # noqa: ARG001
    """The first candidate that fits on every tier, or -1.

    >>> first_that_fits(0, np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0]))
    1
    """
    fits = (demands <= free + FIT).all(axis=1)
    return int(fits.argmax()) if fits.any() else -1


def simulate_holding(
    arrival_s: ArrayLike,
    lifetime_s: ArrayLike,
    demands: Sequence[ArrayLike],
    capacity: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    choose: Choose = first_that_fits,
    warm_up: int = 0,
) -> HoldingRun:
    """Admit queries one by one; `demands[i]` has a row per candidate of query i and a column per tier.

    Those that end at an instant make room before those that come at it. The first `warm_up` queries are not counted.

    >>> run = simulate_holding([0, 1, 2], [1.5, 5, 5], [[[1.0]]] * 3, [1.0])
    >>> run.chosen.tolist(), run.served
    ([0, -1, 0], 0.6666666666666666)
    """
    times, lives = np.asarray(arrival_s, dtype=float), np.asarray(lifetime_s, dtype=float)
    limits = np.asarray(capacity, dtype=float)
    worth = np.ones(len(times)) if weights is None else np.asarray(weights, dtype=float)
    if not len(times) == len(lives) == len(demands) == len(worth):
        raise InputError.one(path="queries", value=len(times), why="one lifetime, weight and list of plans per query")
    free = limits.copy()
    ending: list[tuple[float, int, NDArray[np.float64]]] = []
    chosen = np.full(len(times), -1, np.int64)
    held, last, most, started = np.zeros(len(limits)), 0.0, 0, 0.0

    def go_to(now: float) -> None:
        nonlocal last, held
        held = held + (limits - free) * (now - last)
        last = now

    for query, now in enumerate(times):
        while ending and ending[0][0] <= now:
            end, _, given_back = heapq.heappop(ending)
            go_to(end)
            free += given_back
        go_to(now)
        if query == warm_up:
            held, started = np.zeros(len(limits)), now
        offered = np.atleast_2d(np.asarray(demands[query], dtype=float))
        place = choose(query, offered, free)
        if place < 0:
            continue
        if (offered[place] > free + FIT).any():
            raise InputError.one(path=f"queries[{query}]", value=place, why="a plan was chosen that does not fit")
        chosen[query] = place
        free -= offered[place]
        heapq.heappush(ending, (now + lives[query], query, offered[place]))
        most = max(most, len(ending))
    got = chosen[warm_up:] >= 0
    span = max(last - started, 1e-300)
    use = np.divide(held / span, limits, out=np.zeros(len(limits)), where=(limits > 0) & np.isfinite(limits))
    total = worth[warm_up:].sum()
    return HoldingRun(
        chosen=chosen,
        served=float(got.mean()) if len(got) else 1.0,
        served_weight=float(worth[warm_up:][got].sum() / total) if total > 0 else 1.0,
        utilisation=tuple(use.tolist()),
        most_at_once=most,
    )
