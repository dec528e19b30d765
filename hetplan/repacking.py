"""What a re-pack of live queries could gain at most, and steps towards it, each worth more than its moves cost.

The bound is that of prices (`hetplan.planner.forms.packing`): whatever the prices are, it holds, and no engine's word
is needed for it. To the weight of every option that runs already the price of a move is added::

    gain of any other state  =  weight then - weight now - price x (queries that change their option, or are sent away)
                            <=  bound(prices)  -  (weight now + price x queries that run)

The prices are found beside the work (`prices_of`, in a thread). The steps are decisions like any other, one at a time.

>>> import numpy as np
>>> from hetplan.dispatch.live_packing import LivePacking
>>> from hetplan.planner.forms.packing import Packing
>>> kinds = Packing("max", np.array([0, 1]), np.ones(1), np.array([[1.0]]), np.array([2.0]), groups=("camera",))
>>> live = LivePacking(kinds)
>>> _ = [live.arrive(f"q{n}", "camera") for n in range(3)]
>>> found = repack(live)
>>> found.gain, round(found.most_gain, 6)
(0.0, 0.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.dispatch.live_packing import Decision, LivePacking, Moved
from hetplan.planner.answer import Limits
from hetplan.planner.forms.packing import Items, Packing
from hetplan.solvers.packing import best_prices

__all__ = ["Bounded", "Repacked", "form_of", "prices_of", "repack", "steps"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_RETRIED = 600
BATCHES = 10
AT_ONCE = 10


@dataclass(frozen=True)
class Bounded:
    """Prices of what is scarce, and what they prove: no re-pack gains more."""

    prices: Vector
    most_gain: float


@dataclass(frozen=True)
class Repacked:
    """What a re-pack came to: weights before and after, its gain with moves paid, and the most that it could gain."""

    weight_before: float
    weight: float
    gain: float
    most_gain: float
    moves: tuple[Moved, ...]


def form_of(live: LivePacking) -> tuple[Packing, float]:
    """All queries that are here as one form, the price of a move as a bonus for staying; and what runs now in it."""
    kinds, here = live.kinds, list(live.queries.values())
    kind = np.array([one.kind for one in here], dtype=np.int64)
    counts = np.diff(kinds.first)[kind] if kind.size else np.zeros(0, dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    option = _ranges(kinds.first[kind] if kind.size else kind, counts)
    worth = np.repeat([one.weight for one in here], counts).astype(float)
    running = [(n, one) for n, one in enumerate(here) if one.placed is not None]
    for n, one in running:
        assert one.placed is not None
        worth[first[n] + one.placed.option - kinds.first[one.kind]] += live.move_price
    items = kinds.items
    if items is not None:
        sizes = np.diff(items.first)[option]
        which = _ranges(items.first[option], sizes)
        begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        items = Items(begins, items.tier[which], items.size[which], items.machines, items.room, items.price)
    form = Packing("max", first, worth, kinds.demand[option], kinds.capacity, items)
    return form, live.weight + live.move_price * len(running)


def _ranges(begin: Integers, count: Integers) -> Integers:
    """The numbers from each beginning on, so many of each, one after the other."""
    if not count.size:
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(count)
    return np.asarray(np.arange(ends[-1]) - np.repeat(ends - count - begin, count), dtype=np.int64)


def prices_of(form: Packing, now: float, *, seconds: float | None = 1.0) -> Bounded:
    """The best prices that are found in time, and the bound on any gain that they prove."""
    prices = form.prices(best_prices(form, Limits(seconds=seconds)))
    return Bounded(prices, max(0.0, form.bound(prices) - now))


def steps(live: LivePacking, bounded: Bounded) -> Iterator[Decision | None]:
    """Towards a better packing, a little work at a time; each decision is made, and worth more than its moves.

    None says that a piece of work changed nothing: waiting queries may be served in between.
    """
    live.prices = bounded.prices
    for name in _by_worth(live)[:MOST_RETRIED]:
        yield from live.retry([name]) or (None,)
    for _ in range(BATCHES):
        found = _switched(live) if live.waiting else []
        yield from found or (None,)
        if not found:
            return


def repack(live: LivePacking, *, seconds: float | None = 1.0) -> Repacked:
    """All of it at once: prices, bound, and every step."""
    before = live.weight
    bounded = prices_of(*form_of(live), seconds=seconds)
    made = [one for one in steps(live, bounded) if one is not None]
    moves = tuple(move for one in made for move in one.moved)
    gain = live.weight - before - live.move_price * len(moves)
    return Repacked(before, live.weight, gain, bounded.most_gain, moves)


def _by_worth(live: LivePacking) -> list[str]:
    """Waiting queries, those first that bring most for what they take at least."""
    kinds = live.kinds
    paid = kinds.taken @ live.prices
    least = [float(paid[a:b].min(initial=np.inf)) for a, b in zip(kinds.first[:-1], kinds.first[1:], strict=True)]
    return sorted(live.waiting, key=lambda name: least[live.queries[name].kind] - live.queries[name].weight)


def _switched(live: LivePacking) -> list[Decision]:
    """A few queries on cheaper options, where that lets enough others in; else all stays as it was."""
    paid = live.kinds.taken @ live.prices
    least = [
        float(paid[a:b].min(initial=np.inf))
        for a, b in zip(live.kinds.first[:-1], live.kinds.first[1:], strict=True)
    ]  # fmt: skip
    dear = [
        (float(paid[one.placed.option]) - least[one.kind], name)
        for name, one in live.queries.items()
        if one.placed is not None and not one.pinned
    ]
    dear = sorted((saved, name) for saved, name in dear if saved > live.move_price)[::-1][:AT_ONCE]
    before, weight = live.state(), live.weight
    moved = [move for _, name in dear if (move := live.switch(name)) is not None]
    if not moved:
        return []
    let_in = live.retry(_by_worth(live)[: 2 * AT_ONCE])
    paid_moves = live.move_price * (len(moved) + sum(len(one.moved) for one in let_in))
    if live.weight - weight <= paid_moves:
        live.restore(before)
        return []
    first, *others = let_in
    return [Decision(first.query, first.kind, first.placed, (*moved, *first.moved)), *others]
