"""All counts of instances within a budget, listed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.request import PLENTY
from hetplan.problems.pool.letters import Counts, Pool

__all__ = ["MOST_CONFIGURATIONS", "Configurations", "configurations", "covers", "enumerate_counts", "ladder"]

MOST_CONFIGURATIONS = 10_000_000
"""Above this many, listing them is the wrong tool: the program finds the best without listing any."""


@dataclass(frozen=True)
class Configurations:
    """`counts[t]` is the count of type t in each configuration; `cost` counts 1e-9 per hour."""

    counts: tuple[NDArray[np.int32], ...]
    cost: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.cost.size)

    def row(self, i: int) -> Counts:
        """The counts per type of one configuration."""
        return np.array([int(column[i]) for column in self.counts], dtype=np.int64)

    def rows(self, chosen: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts per type of some configurations, a row each."""
        at = np.asarray(chosen, dtype=np.int64)
        return np.stack([column[at].astype(np.int64) for column in self.counts], axis=1)

    def where(self, keep: NDArray[np.bool_]) -> Configurations:
        """Only those."""
        return Configurations(tuple(column[keep] for column in self.counts), self.cost[keep])


def enumerate_counts(ladders: Sequence[NDArray[np.int64]], least: Sequence[int], budget: int) -> Configurations:
    """All counts whose cost is within the budget; `ladders[t][k]` is the cost of least[t] + k instances of type t.

    >>> found = enumerate_counts([np.array([0, 2, 4]), np.array([0, 1])], [0, 0], 3)
    >>> found.rows(range(len(found))).tolist(), found.cost.tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 2, 3])
    """
    # What the later types cost at their least can not be spent before.
    reserved = [int(sum(int(later[0]) for later in ladders[t + 1 :])) for t in range(len(ladders))]
    counts: list[NDArray[np.int32]] = []
    cost = np.zeros(1, dtype=np.int64)
    for t, ladder_t in enumerate(ladders):
        room = budget - reserved[t] - cost
        steps = _affordable(ladder_t, room)
        total = int(steps.sum())
        if total > MOST_CONFIGURATIONS:
            raise InputError.one(
                path="method.formulation",
                value=f"more than {MOST_CONFIGURATIONS:,} configurations",
                why="so many are not listed one by one",
                remedy="Use formulation fluid-milp, which lists none, or lower the budget or limits.instances.",
            )
        ends = np.cumsum(steps)
        step = np.arange(total, dtype=np.int64) - np.repeat(ends - steps, steps)
        counts = [np.repeat(column, steps) for column in counts]
        counts.append((step + least[t]).astype(np.int32))
        cost = np.repeat(cost, steps) + ladder_t[step]
    return Configurations(tuple(counts), cost)


def _affordable(costs: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many steps of a ladder fit into each room."""
    if costs.size > 2 and costs[1] > costs[0] and bool((np.diff(costs) == costs[1] - costs[0]).all()):
        # One price: a division is far faster than a search.
        return np.asarray(np.clip((room - costs[0]) // (costs[1] - costs[0]) + 1, 0, costs.size), dtype=np.int64)
    return np.asarray(np.searchsorted(costs, room, side="right"), dtype=np.int64)


def ladder(pool: Pool, t: int, least: int, budget: int) -> NDArray[np.int64]:
    """Cost of least, least + 1, ... instances of type t, as far as its offers, max_t and the budget reach."""
    kind = pool.request.machines[t]
    costs = [0]
    for offer in kind.offers:
        more = min(offer.stock, MOST_CONFIGURATIONS, kind.most - len(costs) + 1)
        if offer.nanos > 0:
            more = min(more, (budget - costs[-1]) // offer.nanos)
        if more > 0:
            costs += [costs[-1] + offer.nanos * (k + 1) for k in range(int(more))]
        if offer.stock >= PLENTY or (offer.nanos > 0 and budget - costs[-1] < offer.nanos):
            break
    return np.array(costs[least:], dtype=np.int64)


def configurations(pool: Pool, budget: int, *, with_base: bool = False) -> Configurations:
    """All configurations of the pool that cost at most `budget`; `with_base` asks for at least one base instance."""
    least = [max(kind.least, int(with_base and t == pool.base)) for t, kind in enumerate(pool.request.machines)]
    ladders = [ladder(pool, t, least[t], budget) for t in range(len(pool.types))]
    if any(one.size == 0 for one in ladders):
        return Configurations(tuple(np.zeros(0, np.int32) for _ in ladders), np.zeros(0, np.int64))
    found = enumerate_counts(ladders, least, budget)
    for resource, total in pool.request.resources.items():
        used = sum(column * amount for column, amount in zip(found.counts, pool.takes(resource), strict=True))
        found = found.where(np.asarray(used <= total * (1 + 1e-12)))
    return found


def covers(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations have an instance for every class: the others carry nothing."""
    keep = np.ones(len(found), dtype=bool)
    for pattern in np.unique(pool.usable, axis=0):
        keep &= np.logical_or.reduce(
            [found.counts[t] > 0 for t in np.flatnonzero(pattern)] or [np.zeros(len(found), bool)]
        )
    return keep
