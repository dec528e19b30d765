"""Whole servers of several pipelines on a small cluster: a table of qualities per pipeline, then the best division.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
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

Servers = tuple[int, ...]

Table = Any
"""Qualities by load (first axis) and servers per hardware; -inf where they do not do."""


@dataclass(frozen=True)
class _Effect:
    """What a mix does at given loads."""

    quality: Vector
    passes: Vector
    """What it sends on, of what the most sending variant would."""


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
    size = tuple(int(n) for n in problem.wish.fleet.most)
    tables = [_Tables(tree, size) for tree in problem.served]
    every = [tree.weight * one.whole() for tree, one in zip(problem.served, tables, strict=True)]
    parts = _divide(every, size)
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


def _shift(size: Servers, by: Servers) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where so many servers more are, and where they come from."""
    to = tuple(slice(n, None) for n in by)
    return to, tuple(slice(0, most + 1 - n) for most, n in zip(size, by, strict=True))


def _combine(first: Table, second: Table, size: Servers) -> Table:
    """The best sum over all divisions of servers."""
    found: Table = np.full(np.broadcast_shapes(first.shape, second.shape), NONE)
    for by in np.ndindex(*(n + 1 for n in size)):
        to, of = _shift(size, by)
        mine = first[(..., *by)]
        if (mine >= 0).any():
            place = (..., *to)
            own = mine[(..., *(None,) * len(size))]
            np.maximum(found[place], own + second[(..., *of)], out=found[place])
    return found


def _divide(tables: Sequence[Table], size: Servers) -> list[Servers] | None:
    """The servers of each table in the best division; None where there is none."""
    sums = [tables[0]]
    for one in tables[1:]:
        sums.append(_combine(sums[-1], one, size))
    left, parts = size, list[Servers]()
    if sums[-1][size] < 0:
        return None
    for before, one in zip(sums[-2::-1], tables[:0:-1], strict=True):
        values = [(before[tuple(np.subtract(left, by))] + one[by], by) for by in np.ndindex(*(n + 1 for n in left))]
        by = max(values)[1]
        parts.append(by)
        left = tuple(int(n) for n in np.subtract(left, by))
    return [left, *parts[::-1]]


@dataclass
class _Tables:
    """The tables of one pipeline."""

    tree: Tree
    size: Servers
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
        return reduce(lambda a, b: _combine(a, b, self.size), roots)[0] / len(self.tree.sinks)

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
        loads = self.grids[t]
        found = np.full((loads.size, *(n + 1 for n in self.size)), NONE)
        for level in levels:
            below = self.below(t, spent + level)
            for mix, does in self.mixes(t, level, loads):
                to, of = _shift(self.size, mix)
                rest = does.quality.reshape(-1, *(1,) * len(self.size))
                if below is not None:
                    after = self._at(t, loads * does.passes, below[(slice(None), *of)])
                    rest = np.maximum(rest, 0.0) * after + np.minimum(rest, 0.0)
                place = (slice(None), *to)
                np.maximum(found[place], rest, out=found[place])
        return found

    def below(self, t: int, spent: float) -> Table | None:
        """The sum of the children, by what is sent on and the servers for all of them."""
        if not self.tree.children[t]:
            return None
        if (t, spent) not in self.known:
            every = [self.table(c, spent) for c in self.tree.children[t]]
            self.known[t, spent] = reduce(lambda a, b: _combine(a, b, self.size), every)
        return self.known[t, spent]

    def _at(self, t: int, sent: Vector, table: Table) -> Table:
        """A table over what step t sends on, at these loads."""
        grid = self.on[t]
        if grid.size == 1:
            return np.repeat(table, sent.size, axis=0)
        above = np.minimum(np.maximum(np.searchsorted(grid, sent - 1e-9), 1), grid.size - 1)
        part = np.minimum(np.maximum((sent - grid[above - 1]) / (grid[above] - grid[above - 1]), 0.0), 1.0)
        part = part.reshape(-1, *(1,) * len(self.size))
        low, high = table[above - 1], table[above]
        mixed = part * high
        mixed += (1.0 - part) * low
        return mixed

    def mixes(self, t: int, level: float, loads: Vector) -> list[tuple[Servers, _Effect]]:
        """Per number of servers the mixes worth trying, by load."""
        key = ("mixes", t, level, loads.tobytes())
        if key not in self.known:
            self.known[key] = [(one, found) for one, found, _ in self._mixes(t, level, loads)]
        kept: list[tuple[Servers, _Effect]] = self.known[key]
        return kept

    def _mixes(self, t: int, level: float, loads: Vector) -> Iterator[tuple[Servers, _Effect, tuple[Any, Any, Any]]]:
        task = self.tree.tasks[t]
        rate = np.zeros((len(task.variants), len(self.size)))
        for c in best_at(self.tree, t, level):
            rate[task.variant[c], task.hardware[c]] = task.qps[c]
        passes = self._passes(t)
        order = [int(k) for k in np.argsort(-task.quality, kind="stable") if rate[k].any()]
        for servers, splits in _vectors(self.size).items():
            first, second = splits
            one = np.array([(k, j) for n, k in enumerate(order) for j in order[n:]])
            if not one.size:
                return
            best, other = one[:, 0], one[:, 1]
            carries = (first @ rate.T)[:, best].ravel()[:, None]
            rest = (second @ rate.T)[:, other].ravel()[:, None]
            part = np.minimum(carries / loads, 1.0)
            ok = (carries + rest >= loads * (1 - 1e-9)) & (part > 0)
            a, b = (np.tile(side, first.shape[0])[:, None] for side in (best, other))
            quality = np.where(ok, part * task.quality[a] + (1 - part) * task.quality[b], NONE)
            sends = part * passes[a] + (1 - part) * passes[b]
            places, lowest = np.arange(loads.size), np.full(loads.size, np.inf)
            for _ in range(MIXES if self.tree.children[t] else 1):
                worth = np.where(sends <= lowest - LESS, quality, NONE)
                at = worth.argmax(axis=0)
                if (worth[at, places] < 0).all():
                    break
                lowest = sends[at, places]
                mix = one[at % len(one)], first[at // len(one)], second[at // len(one)]
                yield servers, _Effect(worth[at, places], lowest), mix

    def back(self, servers: Servers) -> tuple[Tree, Places]:
        """The levels and servers behind the quality of the whole pipeline."""
        chosen: dict[int, tuple[float, list[tuple[int, Places]]]] = {}
        tables = [self.table(root, 0.0)[0] for root in self.tree.roots]
        for root, own in zip(self.tree.roots, _divide(tables, servers) or [], strict=True):
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

    def _back(self, t: int, spent: float, load: float, servers: Servers, chosen: dict[int, Any]) -> None:
        best: tuple[float, float, tuple[Any, Any, Any], Servers, float] | None = None
        for level in self.fitting(t, spent):
            below = self.below(t, spent + level)
            for used, does, mix in self._mixes(t, level, np.array([load])):
                left = tuple(int(n) for n in np.subtract(servers, used))
                if min(left) < 0:
                    continue
                value = float(does.quality[0])
                if below is not None and value >= 0:
                    value *= float(self._at(t, load * does.passes, below[(slice(None), *left)][:, *(None,) * len(left)])
                                   .ravel()[0])  # fmt: skip
                if value >= 0 and (best is None or value > best[0]):
                    best = value, level, mix, used, float(does.passes[0])
        assert best is not None
        _, level, (variants, first, second), used, passes = best
        chosen[t] = level, [(variants[0, 0], first[0]), (variants[0, 1], second[0])]
        if not self.tree.children[t]:
            return
        left = tuple(int(n) for n in np.subtract(servers, used))
        cut = tuple(slice(0, n + 1) for n in left)
        sent = np.array([load * passes])
        tables = [self._at(t, sent, self.table(c, spent + level))[0][cut] for c in self.tree.children[t]]
        for c, own in zip(self.tree.children[t], _divide(tables, left) or [], strict=True):
            self._back(c, spent + level, load * passes * self._top(t, c), own, chosen)


_SPLITS: dict[Servers, dict[Servers, tuple[Any, Any]]] = {}


def _vectors(size: Servers) -> dict[Servers, tuple[Any, Any]]:
    """Servers of one step, with all ways to divide them between two variants (the first gets some)."""
    if size not in _SPLITS:
        _SPLITS.clear()
        found = {}
        for servers in product(*(range(min(n, LARGEST) + 1) for n in size)):
            if 0 < sum(servers) <= LARGEST:
                first = np.array([one for one in product(*(range(n + 1) for n in servers)) if sum(one)])
                found[servers] = first, np.array(servers) - first
        _SPLITS[size] = found
    return _SPLITS[size]
