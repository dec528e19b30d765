"""All counts of instances within a budget, listed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility
from hetplan.planner.elastic import explain
from hetplan.planner.request import PLENTY
from hetplan.problems.pool.infeasible import too_slow
from hetplan.problems.pool.letters import Counts, Pool, Vector
from hetplan.problems.pool.program import fluid, rates_of
from hetplan.problems.pool.rates import Rated, holds, rated_by

__all__ = [
    "MOST_CONFIGURATIONS",
    "Configurations",
    "best_rated",
    "cheapest_enough",
    "configurations",
    "enumerate_counts",
    "ladder",
    "list_affordable",
    "serves_all_classes",
]

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


def serves_all_classes(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations have an instance for every class: the others carry nothing."""
    keep = np.ones(len(found), dtype=bool)
    for pattern in np.unique(pool.usable, axis=0):
        keep &= np.logical_or.reduce(
            [found.counts[t] > 0 for t in np.flatnonzero(pattern)] or [np.zeros(len(found), bool)]
        )
    return keep


# -- the best of a list ----------------------------------------------------------------------------------------------
#
# With a budget the highest rate is wanted; with a rate, the cheapest configuration that carries it. Ties: the cheaper
# first, then the lexicographically first.

TIES = 1e-12
"""Rates that differ by less than this share are the same number, rounded along different ways."""

BATCH = 512
"""Programs asked for together while the cheapest that is enough is looked for."""


def list_affordable(
    pool: Pool, ask: Ask, *, with_base: bool = False, room: float = 1.0
) -> Configurations | Infeasibility:
    """All configurations that may be the answer; for a rate, those no dearer than a pool that surely carries it.

    That pool is the program's without whole numbers, each count rounded up. `room` asks for more than the rate, where
    the choice is made by something that may say less than the truth.
    """
    if pool.request.budget is not None:
        return configurations(pool, pool.request.budget, with_base=with_base)
    form = fluid(pool, pool.fluid_target)
    answer = ask(replace(form, whole=np.zeros_like(form.whole)), about="least cost without whole numbers")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    if answer.point is None:
        return Infeasibility(why=(f"no pool was found: {answer.stop}",), proved=False)
    counts = np.ceil(room * answer.point[-len(pool.offers) :] - 1e-6).astype(np.int64)
    cost = pool.cost(counts) + (int(pool.c[pool.of == pool.base].max()) if with_base else 0)
    return configurations(pool, cost, with_base=with_base)


def cheapest_enough(pool: Pool, ask: Ask, found: Configurations, at: Counts) -> Rated | Infeasibility:
    """The first configuration, in order of cost, whose fluid rate reaches the target."""
    best: Rated | None = None
    for start in range(0, at.size, BATCH):
        part = at[start : start + BATCH]
        answers = rates_of(pool, ask, found.rows(part), about="fluid rate of each configuration, cheapest first")
        for i, answer in zip(part, answers, strict=True):
            rated = rated_by(pool, pool.by_offer(found.row(int(i))), answer)
            if holds(pool, rated):
                return rated
            best = rated if best is None or rated.lam > best.lam else best
    if best is None or best.lam <= 0:
        return Infeasibility(why=("no configuration looked at reaches the rate; fluid-milp finds why",), proved=False)
    return too_slow(pool, best.counts, best.lam, proved=False)


def best_rated(rates: Vector, cost: Counts, k: int) -> Counts:
    """The k best configurations in order: highest rate, then cheapest, then lexicographic (their order in the list)."""
    k = min(k, rates.size)
    if k == 0:
        return np.zeros(0, dtype=np.int64)
    kth = rates[np.argpartition(-rates, k - 1)[:k]].min()
    near = np.flatnonzero(rates >= kth - TIES * abs(kth))
    order = near[np.argsort(-rates[near], kind="stable")]
    # Runs of equal rates are put into order of cost; the list's own order settles the rest.
    falls = rates[order[:-1]] - rates[order[1:]] > TIES * np.abs(rates[order[:-1]])
    group = np.concatenate([[0], np.cumsum(falls)])
    return order[np.lexsort((order, cost[order], group))][:k]
