"""How many calls of each operator a query makes, where one call is followed by several, or by fewer than one.

An edge with the mean f is followed by floor(f) calls, and by one more with the chance f - floor(f); each call before it
draws for itself. So of n calls come n floor(f) + B of the next operator, B binomial. An operator gets f times as many
calls as the one before it (`visits`, a mean), and ceil(f) times as many at most (`widths`). Calls of one query go side
by side, and the query has its answer when the last of them is done.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.serving.fanout import along

__all__ = ["Counted", "Fans"]

Counted = tuple[tuple[int, ...], float]
"""How many calls each operator gets, and how likely that is."""


@dataclass(frozen=True)
class Fans:
    """Of each operator the one whose calls bring its own (-1: it runs once), and how many each of them brings."""

    before: tuple[int, ...]
    each: tuple[float, ...]

    @cached_property
    def visits(self) -> NDArray[np.float64]:
        """How many calls of each operator a query makes on average."""
        return np.array(along(self.before, self.each))

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        """How many calls of each operator there are at most: so many may run at once."""
        return np.array(along(self.before, map(math.ceil, self.each)), dtype=float)

    @property
    def sure(self) -> bool:
        """Whether every operator is called by every query."""
        return all(mean >= 1.0 for mean in self.each)

    def counts(self, exact: Collection[int]) -> list[Counted]:
        """All that may come; of operators that are not in `exact` it is only said whether they are called.

        >>> Fans((-1, 0, 1), (1.0, 1.5, 2.0)).counts([2])
        [((1, 1, 2), 0.5), ((1, 1, 4), 0.5)]
        """
        return _counts(self, frozenset(exact))


@lru_cache(maxsize=256)
def _counts(fans: Fans, exact: frozenset[int]) -> list[Counted]:
    last = {before: o for o, before in enumerate(fans.before)}
    states: dict[tuple[int, ...], float] = {(): 1.0}
    for o, (before, mean) in enumerate(zip(fans.before, fans.each, strict=True)):
        then: dict[tuple[int, ...], float] = defaultdict(float)
        for state, chance in states.items():
            calls = state[before] if before >= 0 else 1
            for count, likely in _brought(calls, mean if before >= 0 else 1.0):
                made = [*state, count]
                for p in (before, o):
                    # What nobody asks for any more is forgotten, so that states stay few.
                    if p >= 0 and p not in exact and last.get(p, -1) <= o:
                        made[p] = min(made[p], 1)
                then[tuple(made)] += chance * likely
        states = then
    return sorted(states.items())


def _brought(calls: int, mean: float) -> list[tuple[int, float]]:
    """How many calls come of so many."""
    whole = math.floor(mean)
    rest = mean - whole
    if rest == 0.0:
        return [(calls * whole, 1.0)]
    return [
        (calls * whole + more, math.comb(calls, more) * rest**more * (1.0 - rest) ** (calls - more))
        for more in range(calls + 1)
    ]
