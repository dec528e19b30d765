"""Branch and bound over near columns: the bound that no prices give, where few large blocks leave a gap.

Every node is a linear program over the columns that its splits keep, solved from where the last one stopped; its
prices bound the node, by arithmetic that a certificate repeats, and drop the columns that no better choice takes. Of
the splits that the program leaves open each is tried, and that is made which raises both sides most. Rows may be
exceeded at a price beyond all costs, so that a node in which nothing fits has prices as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import relative_gap
from hetplan.planner.forms.columns import Near
from hetplan.planner.safe_bound import attach_node
from hetplan.solvers.highs_model import quiet_highs

__all__ = ["CLOSED", "Searched", "search"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Kept = NDArray[np.bool_]

WHOLE = 1e-7
BEYOND = 1e4
"""What exceeding a row by all of its capacity costs, in multiples of the best value."""
CLOSED = 1e-6
"""The gap at which nothing is left to find: what is sought while it is cheap."""
SAFE = 0.999
"""Of that: rounding shall not leave it a hair open."""
CHEAP, MOST = 30_000, 500_000
"""Programs solved times columns: some 50 ms to close a gap that is good enough, half a second for one that is not."""
NO_GAIN = 1e-6
"""What a side that gains nothing counts for, against one that gains all."""


@dataclass(frozen=True)
class Searched:
    """The best counts found (None: none better), and what proves how good they are."""

    x: Vector | None
    bound: float
    proof: dict[str, Any]
    programs: int


@dataclass(order=True)
class _Node:
    """What is bounded together; `place` is the split that it comes from, and which of its sides it is."""

    bound: float
    number: int
    kept: Kept = field(compare=False)
    prices: Vector = field(compare=False)
    shares: Vector = field(compare=False)
    fits: bool = field(compare=False)
    place: tuple[int, int] | None = field(compare=False, default=None)

    @property
    def live(self) -> Integers:
        """Columns taken in part."""
        return np.flatnonzero((self.shares > WHOLE) & (self.shares < 1.0 - WHOLE))


def search(near: Near, best: float, target: float, over: Callable[[], bool]) -> Searched:
    """The best choice of near columns: to the end where that is cheap, else until the gap is at most `target`."""
    return _Search(near, best, target, over).run()


class _Search:
    def __init__(self, near: Near, best: float, target: float, over: Callable[[], bool]) -> None:
        self.near, self.best, self.target, self.over = near, best, target, over
        self.found: Integers | None = None
        self.program = _Program(near, BEYOND * max(best, 1.0))
        _, self.block = np.unique(near.block, return_inverse=True)
        self.open: list[_Node] = []
        self.splits: list[list[int]] = []
        self.prices: list[Vector] = []
        self.leaves: list[Vector] = []
        self.low, self.solved = near.ceiling, 0

    @property
    def limit(self) -> float:
        """What a choice must stay below to be worth finding."""
        return self.best * (1.0 - SAFE * CLOSED)

    def run(self) -> Searched:
        near = self.near
        self._enter(self._node(near.all))
        while self.open and self.open[0].bound < self.limit and not self._is_spent() and not self.over():
            self._split(heapq.heappop(self.open))
        for node in self.open:
            self._close(node)
        shape = (-1, near.form.capacity.size)
        proof = {
            "limit": self.limit,
            "splits": np.array(self.splits, np.int64).reshape(-1, 4),
            "prices_of_splits": np.array(self.prices).reshape(shape),
            "leaves": np.array(self.leaves).reshape(shape),
        }
        x = None if self.found is None else near.counts(self.found)
        return Searched(x, min(self.low, self.limit), proof, self.solved)

    def _is_spent(self) -> bool:
        open_ = relative_gap(self.best, min(self.low, self.open[0].bound)) > self.target
        return self.solved * self.near.block.size > (MOST if open_ else CHEAP)

    def _node(self, kept: Kept) -> _Node:
        shares, prices, fits = self.program.solved(kept)
        self.solved += 1
        return _Node(self.near.bound(kept, prices), self.solved, kept, prices, shares, fits)

    def _enter(self, node: _Node) -> None:
        """A node of the tree: closed where there is nothing to gain in it, and else to be split."""
        whole = not node.live.size
        if whole and node.fits:
            self._improve(np.flatnonzero(node.shares > 0.5))
        if whole or node.bound >= self.limit:
            self._close(node)
        else:
            heapq.heappush(self.open, node)

    def _improve(self, taken: Integers) -> None:
        """A better choice, where it fits to the last digit."""
        near, form = self.near, self.near.form
        value = float(near.cost[taken].sum())
        over = near.use[:, taken].sum(axis=1) - form.capacity
        if value < self.best and (over <= 1e-7 * np.maximum(np.abs(form.capacity), 1.0)).all():
            self.best, self.found = value, taken

    def _close(self, node: _Node) -> None:
        """A leaf, with the prices that bound it."""
        self.low = min(self.low, node.bound)
        self.leaves.append(node.prices)
        attach_node(self.splits, node.place, -len(self.leaves))

    def _split(self, node: _Node) -> None:
        """The split that raises both sides most."""
        kept = self.near.within(node.kept, node.prices, self.limit)
        best: tuple[float, int, int, list[_Node]] | None = None
        room = max(self.limit - node.bound, 1e-12)
        for item, least in self._partings(node):
            sides = [self._node(kept & columns) for columns in self.near.parted(item, least)]
            more, fewer = (max(min(side.bound - node.bound, room) / room, NO_GAIN) for side in sides)
            if best is None or more * fewer > best[0]:
                best = (more * fewer, item, least, sides)
        if best is None:
            # What is taken in part is so by rounding only: there is nothing to part.
            self._close(node)
            return
        _, item, least, sides = best
        number = len(self.splits)
        attach_node(self.splits, node.place, number)
        self.splits.append([item, least, 0, 0])
        self.prices.append(node.prices)
        for side, child in enumerate(sides):
            child.place = (number, side)
            self._enter(child)

    def _partings(self, node: _Node) -> list[tuple[int, int]]:
        """Items and counts that part columns taken in part, of each parting one."""
        near, live = self.near, node.live
        found: dict[tuple[int, bytes], tuple[int, int]] = {}
        for b in np.unique(self.block[live]).tolist():
            some = live[self.block[live] == b]
            mine = np.flatnonzero(node.kept & (self.block == b))
            for item in np.unique(near.item[np.isin(near.entry, some)]).tolist():
                counts = near.counts_of(item)
                for least in np.unique(counts[some])[1:].astype(int).tolist():
                    found.setdefault((b, (counts[mine] >= least).tobytes()), (item, least))
        return list(found.values())


class _Program:
    """The linear program over near columns, warm from one node to the next."""

    def __init__(self, near: Near, beyond: float) -> None:
        import highspy

        form = near.form
        self.size, self.rows = near.block.size, form.capacity.size
        blocks, place = np.unique(near.block, return_inverse=True)
        self.blocks, self.scale = blocks.size, np.where(form.capacity > 0, form.capacity, 1.0)
        use = near.use / self.scale[:, None]
        infinity, total = highspy.kHighsInf, self.size + self.rows
        # Column by column: 1 in the row of its block, what it takes of every shared row; then what exceeds each.
        index = np.vstack([place, *np.repeat(self.blocks + np.arange(self.rows), self.size).reshape(self.rows, -1)])
        value = np.vstack([np.ones(self.size), use])
        filled = self.size * (1 + self.rows)
        start = np.append(np.arange(self.size) * (1 + self.rows), filled + np.arange(self.rows + 1))
        highs = quiet_highs()
        for option, setting in (("threads", 1), ("presolve", "off")):
            highs.setOptionValue(option, setting)
        highs.passModel(
            total, self.blocks + self.rows, int(start[-1]), int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize), 0.0, np.append(near.cost, np.full(self.rows, beyond)),
            np.zeros(total), np.full(total, infinity),
            np.append(np.ones(self.blocks), np.full(self.rows, -infinity)),
            np.append(np.ones(self.blocks), form.capacity / self.scale), start.astype(np.int32),
            np.append(index.T.ravel(), self.blocks + np.arange(self.rows)).astype(np.int32),
            np.append(value.T.ravel(), -np.ones(self.rows)), np.zeros(total, dtype=np.int32),
        )  # fmt: skip
        self.highs, self.infinity = highs, infinity
        self.columns, self.floor = np.arange(self.size, dtype=np.int32), np.zeros(self.size)

    def solved(self, kept: Kept) -> tuple[Vector, Vector, bool]:
        """Shares of the columns, prices of the rows, and whether no row is exceeded."""
        self.highs.changeColsBounds(self.size, self.columns, self.floor, np.where(kept, self.infinity, 0.0))
        self.highs.run()
        solution = self.highs.getSolution()
        point = np.asarray(solution.col_value, dtype=np.float64)
        duals = np.asarray(solution.row_dual, dtype=np.float64)[self.blocks :]
        if point.size < self.size or duals.size < self.rows:
            # A block keeps no column, or the engine stopped on its own numbers: a bound needs no best prices.
            return np.zeros(self.size), np.zeros(self.rows), False
        prices = np.clip(np.nan_to_num(-duals), 0.0, None) / self.scale
        return point[: self.size], prices, bool((point[self.size :] < WHOLE).all())
