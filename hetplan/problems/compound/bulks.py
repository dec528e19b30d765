r"""Queries whose calls come to a station several at once: how many calls are there before them, and how long they wait.

Bulks of N calls come at random to k replicas that take exponential times (M^[X]/M/k). Between j and j + 1 calls the
flows up and down balance, with a bulks a second and p_j the chance of j calls:

    a sum_{i <= j} p_i P(N > j - i) = min(j + 1, k) / E[S] p_{j+1}

A bulk that finds B calls has its last one begun after B - max(0, k - n) of them are done, one every E[S] / k. Before it
come ceil(n / k) - 1 rounds of its own n calls, k at a time. With N = 1 this is Erlang's station.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["found_there", "longer"]

Vector = NDArray[np.float64]

RARE = 1e-7
"""Beyond so rare a number of calls it is not counted on."""
MOST_STATES = 20_000
LARGE = 1e200


@lru_cache(maxsize=1024)
def found_there(servers: int, load: float, several: tuple[float, ...]) -> Vector:
    """The chance that a bulk finds at most 0, 1, ... calls; `several` are the chances of bulks of 1, 2, ... calls.

    >>> found_there(1, 0.5, (1.0,))[:3].round(6).tolist()
    [0.5, 0.75, 0.875]
    """
    sizes = np.array(several)
    beyond = np.concatenate([[1.0], 1.0 - np.cumsum(sizes)[:-1]])[::-1]
    bulks = load / float(sizes @ np.arange(1, sizes.size + 1))
    chances, total = [1.0], 1.0
    while len(chances) < MOST_STATES:
        before = chances[-beyond.size :]
        then = bulks * float(np.dot(before, beyond[-len(before) :])) / min(len(chances), servers)
        chances.append(then)
        total += then
        if total > LARGE:
            chances, total = [one / LARGE for one in chances], total / LARGE
        if len(chances) > servers + sizes.size and then < RARE * (1.0 - load / servers) * total:
            break
    return np.asarray(np.cumsum(np.array(chances) / total))


def longer(
    servers: int, upto: Vector, calls: Vector, took: Vector, each: float, drawn: tuple[Vector, Vector]
) -> Vector:
    """By how much longer than one call a bulk of so many takes, for two uniform draws of each.

    `upto` is `found_there`; `took` is what its own calls take, and `each` how long the queue needs for one call.
    """
    found = np.searchsorted(upto, np.minimum(drawn[0], upto[-1]))
    ahead = np.maximum(found - np.maximum(servers - calls, 0.0), 0.0)
    waits = np.zeros(len(ahead))
    late = ahead > 0
    waits[late] = each * _sum_of(ahead[late], drawn[1][late])
    return np.asarray(waits + (np.ceil(calls / servers) - 1.0).clip(0.0) * took)


def _sum_of(many: Vector, drawn: Vector) -> Vector:
    """Of uniform draws the quantile of so many exponential times in a row: by Wilson and Hilferty, exact for one.

    >>> _sum_of(np.array([1.0, 4.0]), np.array([0.5, 0.95])).round(2).tolist()  # exactly 7.75
    [0.69, 7.74]
    """
    from scipy.special import ndtri

    cubed = many * (1.0 - 1.0 / (9.0 * many) + ndtri(drawn) / (3.0 * np.sqrt(many))) ** 3
    return np.asarray(np.where(many == 1.0, -np.log1p(-drawn), cubed.clip(0.0)))
