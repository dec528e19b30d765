"""Which column each block takes: among a few cheap ones, so that all fit, at least cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.columns import Columns
from hetplan.planner.forms.columns_listed import Listed
from hetplan.planner.forms.milp import Builder

if TYPE_CHECKING:
    from hetplan.planner.answer import Limits
    from hetplan.solvers.columns_pairs import Pairs

__all__ = ["cheap_columns", "chosen_by_program", "fitted"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

SLIP = 1e-9
MOST_STEPS = 4000


def cheap_columns(form: Columns, pairs: Pairs, exact: list[Vector], prices: Vector, *, keep: int) -> Listed:
    """The `keep` cheapest pairs of every block at these prices, and whatever exact pricing found."""
    worth = pairs.reduced(prices)
    order = np.lexsort((worth, pairs.block))
    rank = np.arange(order.size) - np.repeat(pairs.starts, np.diff(np.append(pairs.starts, order.size)))
    # Beside the cheapest by price, the cheapest by cost and the most frugal of each row.
    kept = [order[rank < keep]]
    for measure in (pairs.cost, *pairs.use):
        by = np.lexsort((worth, measure, pairs.block))
        kept.append(by[rank < 2])
    chosen = np.unique(np.concatenate(kept))
    number, size = np.arange(chosen.size), chosen.size
    blocks = [pairs.block[chosen]]
    entries, items = [number, number], [pairs.first[chosen], pairs.second[chosen]]
    counts = [pairs.k[chosen], pairs.m[chosen]]
    for x in exact:
        # A full choice: a column of every block.
        used = np.flatnonzero(x)
        blocks.append(np.arange(form.need.size))
        entries.append(size + form.block[used])
        items.append(used)
        counts.append(x[used])
        size += form.need.size
    return Listed.of(
        form, np.concatenate(blocks), np.concatenate(entries), np.concatenate(items), np.concatenate(counts)
    )


def fitted(form: Columns, choices: Listed, prices: Vector) -> Vector | None:
    """A choice that fits: from the cheapest at these prices, exchanges that cost least per violation undone."""
    worth = choices.cost + prices @ choices.use
    order = np.lexsort((worth, choices.block))
    _, lead = np.unique(choices.block[order], return_index=True)
    taken = np.full(form.need.size, -1, dtype=np.int64)
    taken[choices.block[order[lead]]] = order[lead]
    if (taken < 0)[form.need > 0].any():
        return None
    taken = taken[choices.block[order[lead]]] if (taken < 0).any() else taken
    position = np.full(form.need.size, -1, dtype=np.int64)
    position[choices.block[taken]] = np.arange(taken.size)
    scale = np.where(form.capacity > 0, form.capacity, 1.0)
    use = choices.use / scale[:, None]
    room = form.capacity / scale
    total = use[:, taken].sum(axis=1)
    for _ in range(MOST_STEPS):
        over = np.maximum(total - room - SLIP, 0.0)
        if not over.any():
            break
        now = taken[position[choices.block]]
        step = use - use[:, now]
        undone = over.sum() - np.maximum(total[:, None] + step - room[:, None] - SLIP, 0.0).sum(axis=0)
        dearer = np.maximum(worth - worth[now], 0.0) + 1e-12
        ratio = np.divide(dearer, undone, out=np.full(undone.size, np.inf), where=undone > 1e-12)
        best = int(np.argmin(ratio))
        if not np.isfinite(ratio[best]):
            return None
        total = total + step[:, best]
        taken[position[choices.block[best]]] = best
    else:
        return None
    _improve(choices, use, room, total, taken, position)
    return choices.counts(taken)


def _improve(choices: Listed, use: Vector, room: Vector, total: Vector, taken: Integers, position: Integers) -> None:
    """Exchanges that make it cheaper and still fit, the largest saving first."""
    for _ in range(MOST_STEPS):
        now = taken[position[choices.block]]
        saved = choices.cost[now] - choices.cost
        candidates = np.flatnonzero(saved > 1e-9)
        fits = (total[:, None] + use[:, candidates] - use[:, now[candidates]] <= room[:, None] + SLIP).all(axis=0)
        candidates = candidates[fits]
        if not candidates.size:
            return
        best = int(candidates[np.argmax(saved[candidates])])
        total = total + use[:, best] - use[:, now[best]]
        taken[position[choices.block[best]]] = best


def chosen_by_program(form: Columns, choices: Listed, limits: Limits, gap: float) -> Vector | None:
    """The best choice among these columns, by a mixed-integer program."""
    from dataclasses import replace

    from hetplan.solvers.highs import Highs

    m = Builder("min", name="columns chosen")
    scale = np.where(form.capacity > 0, form.capacity, 1.0)
    take = m.columns("take", lambda k: str(k), size=choices.block.size, cost=choices.cost, upper=1.0, whole=True)
    blocks = np.unique(choices.block)
    one = m.rows("one", lambda k: f"block {blocks[k]}", size=blocks.size, lower=1.0, upper=1.0)
    m.add(one[np.searchsorted(blocks, choices.block)], take, 1.0)
    for r in range(form.capacity.size):
        row = m.rows(f"row {r}", ["fits"], upper=form.capacity[r] / scale[r])
        m.add(row, take, choices.use[r] / scale[r])
    answer = Highs().solve(m.build(), replace(limits, gap=max(gap / 4, 1e-6), work=None))
    if answer.point is None:
        return None
    return choices.counts(np.flatnonzero(answer.point > 0.5))
