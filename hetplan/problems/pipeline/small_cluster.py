"""Divides few whole servers among several pipelines: a table of qualities per pipeline, then dynamic programming.

Every pipeline says how good it is on every number of servers that it may be given; the best division of the cluster
over these tables is found exactly, one pipeline after the other. A table is made from the last steps to the first::

    V_t(L, s) = max over latency levels and mixes m of step t on servers s_m <= s of
                    quality_m(L) x  max over divisions of s - s_m of  sum_c V_c(L factor_m(L) top_c, s_c)

L is what arrives at the step, on a grid and interpolated between. A mix is one or two variants with whole servers,
filled from the more accurate one. Two things are simpler than they are: a query's variants do not depend on one
another, and the children of a step get their queries in one proportion. So the tables bound nothing, and the shares are
solved again as a linear program. The work depends on the question alone, never on a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Reported
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.scaling import KEPT, Solution, best_of, polish, tidy
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Places,
    Tree,
    Vector,
    all_levels,
    at_levels,
    best_at,
    forest_of_variants,
    thin_out,
)

__all__ = ["is_crowded", "solve_by_tables"]

MOST_STATES = 1_000
"""Numbers of servers by hardware that a table may have."""

LOADS = 8
"""Grid points of what arrives at a step."""

LEVELS = 8
"""Latency levels per step that is not a last one."""

LARGEST = 5
"""Servers of one step at most, where two variants share it."""

MIXES = 2
"""Mixes that are kept per servers and load: the most accurate one, and ones that send less on."""

NONE = -1e9
"""The quality where servers do not do: finite, so that tables can be mixed."""

LESS = 0.02
"""How much less the next of them sends on at least."""

PER_STEP = 3
"""Up to so many servers per step tables are made."""

Table = Any
"""Qualities by load (first axis) and servers per hardware (second axis, a cell each); negative where they do not do."""


@dataclass(frozen=True)
class _Mixes:
    """Mixes of a step that are worth trying at some loads: a row for each, and the load that it is for."""

    load: Places
    servers: Places
    """Which of the servers of one step."""
    quality: Vector
    passes: Vector
    """What it sends on, of what the most sending variant would."""
    variants: Places
    split: Places
    """Which division of these servers."""


class _Space:
    """All servers per hardware that there may be, a cell each, and those of one step divided between two variants."""

    def __init__(self, size: tuple[int, ...]) -> None:
        self.shape = tuple(n + 1 for n in size)
        cells = np.array(list(np.ndindex(*self.shape)))
        self.count = len(cells)
        # Of all pairs of cells those with a sum, by the sum.
        one, other = np.nonzero((cells[:, None] + cells <= size).all(axis=2))
        total = self._cell(cells[one] + cells[other])
        order = np.argsort(total, kind="stable")
        self.one, self.other = one[order], other[order]
        self.starts = np.searchsorted(total[order], np.arange(self.count + 1))
        steps = cells[(cells.sum(axis=1) > 0) & (cells.sum(axis=1) <= LARGEST)]
        splits = [[part for part in np.ndindex(*(step + 1)) if any(part)] for step in steps]
        self.step = np.repeat(np.arange(len(steps)), [len(own) for own in splits])
        self.first = np.array([part for own in splits for part in own])
        self.second = steps[self.step] - self.first
        self.step_starts = np.searchsorted(self.step, np.arange(len(steps)))
        left = cells - steps[:, None]
        self.left = np.where((left >= 0).all(axis=2), self._cell(np.maximum(left, 0)), self.count)
        """By servers of one step and cell, what is left of the cell; one more than there are where they are more."""
        self.cell_of_step = self._cell(steps)

    def _cell(self, servers: Places) -> Places:
        found: Places = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(servers, -1, 0)), self.shape))
        return found

    def combine(self, first: Table, second: Table) -> Table:
        """The best sum over all divisions of servers."""
        sums = np.take(first, self.one, axis=-1) + np.take(second, self.other, axis=-1)
        return np.maximum.reduceat(sums, self.starts[:-1], axis=-1)

    def divide(self, tables: Sequence[Table], cell: int) -> list[int] | None:
        """The servers of each table in the best division; None where there is none."""
        sums = list(accumulate(tables, self.combine))
        if sums[-1][cell] < 0:
            return None
        parts = list[int]()
        for before, table in zip(sums[-2::-1], tables[:0:-1], strict=True):
            pairs = slice(self.starts[cell], self.starts[cell + 1])
            values = (table[self.one[pairs]] + before[self.other[pairs]])[::-1]
            at = self.starts[cell + 1] - 1 - int(values.argmax())
            parts.append(int(self.one[at]))
            cell = int(self.other[at])
        return [cell, *parts[::-1]]

    def or_fewer(self, table: Table) -> Table:
        """The best on these servers or fewer."""
        found = table.reshape(-1, *self.shape)
        for axis in range(1, found.ndim):
            found = np.maximum.accumulate(found, axis=axis)
        return found.reshape(table.shape)


_space = lru_cache(maxsize=1)(_Space)


def is_crowded(problem: Pipelines, trees: Sequence[Tree]) -> bool:
    """Whether there are more configurations than servers."""
    return bool(sum(task.size for tree in trees for task in tree.tasks) > problem.wish.fleet.most.sum())


def solve_by_tables(problem: Pipelines, ask: Ask) -> tuple[Solution, list[Tree]] | None:
    """Whole servers by tables of qualities, their shares solved again, and the configurations at the levels
    that they chose; None where tables do not fit.

    Nor where the best accuracy is kept: the fewest servers are then another search. Nor for one chain, or with more
    servers per step: programs found better plans there.
    """
    trees = problem.served
    bushy = len(trees) > 1 or any(len(below) > 1 for tree in trees for below in tree.children)
    steps = sum(len(tree.tasks) for tree in trees)
    if problem.fair or not bushy or problem.wish.fleet.most.sum() > PER_STEP * steps or not is_crowded(problem, trees):
        return None
    chosen = _make_servers_whole(problem)
    shares = polish(ask, *chosen, problem.wish.fleet) if chosen is not None else None
    if chosen is None or shares is None:
        return None
    found = Solution(*shares, mode="accuracy", reported=())
    best = best_of(forest_of_variants(problem.served))
    if found.quality >= best - KEPT:
        return None
    found = tidy(problem, ask, found, problem.levels[1:])
    claim = found.valued(Reported("quality", "max", "restriction", value=0.0))
    return replace(found, reported=(claim, *found.reported)), chosen[0]


def _make_servers_whole(problem: Pipelines) -> tuple[list[Tree], list[Places]] | None:
    """Trees at the levels chosen, and whole servers of their configurations; None where tables do not fit."""
    if not _has_tables(problem):
        return None
    space = _space(tuple(int(n) for n in problem.wish.fleet.most))
    tables = [_Tables(tree, space) for tree in problem.served]
    every = [tree.weight * one.whole() for tree, one in zip(problem.served, tables, strict=True)]
    parts = space.divide(every, space.count - 1)
    if parts is None:
        return None
    trees, counts = [], []
    for one, own in zip(tables, parts, strict=True):
        tree, servers = one.back(own)
        trees.append(tree)
        counts.append(servers)
    return trees, counts


def _has_tables(problem: Pipelines) -> bool:
    fleet = problem.wish.fleet
    return (
        problem.counts_servers_alone
        and bool(fleet.most.any())
        and not fleet.least.any()
        and float(np.prod(fleet.most + 1)) <= MOST_STATES
        and all(map(_is_plain, problem.served))
    )


def _is_plain(tree: Tree) -> bool:
    """Whether tables say all there is: products of qualities, no floor, and inner steps no deeper than the second."""
    return (
        tree.rule == "product" and not tree.paths and tree.floor is None and tree.spare == 0
        and all((task.places == 1).all() for task in tree.tasks)
        and all(task.size and task.quality.min() > 0 for task in tree.tasks)
        and all(len(tree.path(t)) <= 2 for t in range(len(tree.tasks)) if tree.children[t])
    )  # fmt: skip


@dataclass
class _Tables:
    """The tables of one pipeline."""

    tree: Tree
    space: _Space
    known: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels = [own if not self.tree.children[t] else thin_out(own, LEVELS)
                       for t, own in enumerate(all_levels(self.tree))]  # fmt: skip
        self.grids = [np.zeros(0)] * len(self.tree.tasks)
        self.on = [np.zeros(0)] * len(self.tree.tasks)
        for t, task in enumerate(self.tree.tasks):
            if task.parent < 0:
                self.grids[t] = np.array([self.tree.demand])
            else:
                self.grids[t] = self.on[task.parent] * self._top(task.parent, t)
            least, most = float(self.grids[t][0]), float(self.grids[t][-1])
            passes = self._passes(t)
            low = max(least * float(passes.min(initial=1.0)), most / 50.0)
            self.on[t] = np.geomspace(low, most, LOADS) if low < most else np.array([most])

    def _top(self, t: int, child: int) -> float:
        return max(float(self.tree.tasks[t].factor[child].max()), 1e-9)

    def _passes(self, t: int) -> Vector:
        """What each variant sends on, of what the most sending one does; the mean over the children."""
        below = self.tree.children[t]
        if not below:
            return np.ones(len(self.tree.tasks[t].variants))
        found: Vector = np.mean([self.tree.tasks[t].factor[c] / self._top(t, c) for c in below], axis=0)
        return found

    def whole(self) -> Table:
        """The quality of the pipeline by servers."""
        roots = [self.table(root, 0.0) for root in self.tree.roots]
        return reduce(self.space.combine, roots)[0] / len(self.tree.sinks)

    def fitting(self, t: int, spent: float) -> list[float]:
        """The levels that a step may take; of a last one the longest."""
        own: list[float] = self.levels[t][self.levels[t] + spent <= self.tree.room_ms[t] + ON_LIMIT_MS].tolist()
        return own if self.tree.children[t] else own[-1:]

    def table(self, t: int, spent: float) -> Table:
        """V_t after so much time."""
        levels = self.fitting(t, spent)
        key = ("table", t, spent if self.tree.children[t] else levels[0])
        if key not in self.known:
            self.known[key] = self._table(t, spent, levels)
        return self.known[key]

    def _table(self, t: int, spent: float, levels: list[float]) -> Table:
        loads, space = self.grids[t], self.space
        found = np.full((loads.size, space.count), NONE)
        for level in levels:
            below, mixes = self.below(t, spent + level), self.mixes(t, level, loads)
            if not mixes.load.size:
                continue
            if below is None:
                found[mixes.load, space.cell_of_step[mixes.servers]] = mixes.quality
                continue
            after = np.full((mixes.load.size, space.count + 1), NONE)
            after[:, :-1] = self._at(t, loads[mixes.load] * mixes.passes, below)
            worth = mixes.quality[:, None] * np.take_along_axis(after, space.left[mixes.servers], axis=1)
            these, starts = np.unique(mixes.load, return_index=True)
            found[these] = np.maximum(found[these], np.maximum.reduceat(worth, starts, axis=0))
        return space.or_fewer(np.where(found < 0, NONE, found))

    def below(self, t: int, spent: float) -> Table | None:
        """The sum of the children, by what is sent on and the servers for all of them."""
        if not self.tree.children[t]:
            return None
        if (t, spent) not in self.known:
            every = [self.table(c, spent) for c in self.tree.children[t]]
            self.known[t, spent] = reduce(self.space.combine, every)
        return self.known[t, spent]

    def _at(self, t: int, sent: Vector, table: Table) -> Table:
        """A table over what step t sends on, at these loads."""
        grid = self.on[t]
        if grid.size == 1:
            return np.repeat(table, sent.size, axis=0)
        above = np.minimum(np.maximum(np.searchsorted(grid, sent - 1e-9), 1), grid.size - 1)
        part = np.minimum(np.maximum((sent - grid[above - 1]) / (grid[above] - grid[above - 1]), 0.0), 1.0)
        mixed = part[:, None] * table[above]
        mixed += (1.0 - part)[:, None] * table[above - 1]
        return mixed

    def mixes(self, t: int, level: float, loads: Vector) -> _Mixes:
        """Per load and number of servers the mixes worth trying: by load, then by servers."""
        task, space = self.tree.tasks[t], self.space
        rate = np.zeros((len(task.variants), len(space.shape)))
        for c in best_at(self.tree, t, level):
            rate[task.variant[c], task.hardware[c]] = task.qps[c]
        key = ("mixes", t, rate.tobytes(), loads.tobytes())
        if key not in self.known:
            self.known[key] = self._mixes(t, rate, loads)
        kept: _Mixes = self.known[key]
        return kept

    def _mixes(self, t: int, rate: Table, loads: Vector) -> _Mixes:
        task, space, passes = self.tree.tasks[t], self.space, self._passes(t)
        order = [int(k) for k in np.argsort(-task.quality, kind="stable") if rate[k].any()] or [0]
        pairs = np.array([(k, j) for n, k in enumerate(order) for j in order[n:]])
        first, second = pairs.T
        # By division of servers, load and pair of variants.
        carries, rest = (space.first @ rate.T)[:, None, first], (space.second @ rate.T)[:, None, second]
        part = np.minimum(carries / loads[:, None], 1.0)
        left, is_last = 1 - part, not self.tree.children[t]
        worth = part * task.quality[first] + left * task.quality[second]
        worth[(carries + rest < loads[:, None] * (1 - 1e-9)) | (carries <= 0)] = NONE
        sends = np.broadcast_to(1.0, part.shape) if is_last else part * passes[first] + left * passes[second]
        found = []
        for _ in range(1 if is_last else MIXES):
            pair = worth.argmax(axis=2)
            best = np.take_along_axis(worth, pair[:, :, None], axis=2)[:, :, 0]
            top = np.maximum.reduceat(best, space.step_starts, axis=0)
            same = np.where(best == top[space.step], np.arange(len(best))[:, None], len(best))
            split = np.minimum.reduceat(same, space.step_starts, axis=0)
            pair = np.take_along_axis(pair, split, axis=0)
            lowest = sends[split, np.arange(loads.size), pair]
            found.append((top, lowest, pair, split))
            if not is_last:
                worth[sends > lowest[space.step][:, :, None] - LESS] = NONE
        # By servers and place among the mixes of these, then by load.
        top, lowest, pair, split = (np.stack(one, axis=1).reshape(-1, loads.size) for one in zip(*found, strict=True))
        servers = np.repeat(np.arange(space.cell_of_step.size), len(found))
        fewer = space.left[servers][:, space.cell_of_step[servers]] < space.count
        np.fill_diagonal(fewer, val=False)
        # Others do as well on no more servers, and send no more on.
        needless = (fewer[:, :, None] & (top[:, None] >= top) & (lowest[:, None] <= lowest)).any(axis=0)
        load, row = np.nonzero(((top >= 0) & ~needless).T)
        at = row, load
        return _Mixes(load, servers[row], top[at], lowest[at], pairs[pair[at]], split[at])

    def back(self, cell: int) -> tuple[Tree, Places]:
        """The levels and servers behind the quality of the whole pipeline."""
        chosen: dict[int, tuple[float, list[tuple[int, Places]]]] = {}
        tables = [self.table(root, 0.0)[0] for root in self.tree.roots]
        for root, own in zip(self.tree.roots, self.space.divide(tables, cell) or [], strict=True):
            self._back(root, 0.0, self.tree.demand, own, chosen)
        tree = at_levels(self.tree, [chosen[t][0] for t in range(len(self.tree.tasks))])
        counts = []
        for t, task in enumerate(tree.tasks):
            mine = np.zeros(task.size, dtype=np.int64)
            for k, per in chosen[t][1]:
                for g, n in enumerate(per):
                    mine[(task.variant == k) & (task.hardware == g)] += n
            counts.append(mine)
        return tree, np.concatenate(counts)

    def _back(self, t: int, spent: float, load: float, cell: int, chosen: dict[int, Any]) -> None:
        space = self.space
        best: tuple[float, float, _Mixes, int] | None = None
        for level in self.fitting(t, spent):
            below, mixes = self.below(t, spent + level), self.mixes(t, level, np.array([load]))
            left = space.left[mixes.servers, cell]
            worth = np.where(left < space.count, mixes.quality, NONE)
            if below is not None and worth.size:
                after = self._at(t, load * mixes.passes, below)[np.arange(left.size), np.minimum(left, space.count - 1)]
                worth = np.where(worth >= 0, worth * after, NONE)
            if worth.size and worth.max() >= 0 and (best is None or worth.max() > best[0]):
                best = float(worth.max()), level, mixes, int(worth.argmax())
        assert best is not None
        _, level, mixes, at = best
        first, second = (int(k) for k in mixes.variants[at])
        split, left = mixes.split[at], int(space.left[mixes.servers[at], cell])
        chosen[t] = level, [(first, space.first[split]), (second, space.second[split])]
        if not self.tree.children[t]:
            return
        sent = load * float(mixes.passes[at])
        tables = [self._at(t, np.array([sent]), self.table(c, spent + level))[0] for c in self.tree.children[t]]
        for c, own in zip(self.tree.children[t], space.divide(tables, left) or [], strict=True):
            self._back(c, spent + level, sent * self._top(t, c), own, chosen)
