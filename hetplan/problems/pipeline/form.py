r"""The programs over pipelines, one function each; their mathematics is in its docstring.

`config_form` is exact; `variant_form` has shares of paths of variants, whose servers carry a variant's load together,
and `paper_form` adds Loki's indicators to it; `levels_form` chooses one latency level per task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.rows import (
    Asked,
    Forest,
    Servers,
    Written,
    add_flows,
    add_groups,
    add_qualities,
    add_servers,
    bound_of_servers,
    flow_unit,
    largest_gains,
)
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Places, Task, Tree, Vector, best_at

__all__ = ["Levels", "config_form", "levels_form", "paper_form", "variant_form"]


def config_form(
    forest: Forest, fleet: Fleet, asked: Asked, *, more: Callable[[Builder, Sequence[Places]], None] | None = None
) -> Written:
    r"""The exact program over shares of prefixes of configurations (formulation `config`, the default).

    ==========  ==========================================================================================
    letter      meaning
    ==========  ==========================================================================================
    p           prefix: configurations (k, g, b) of the tasks from the entrance down to some task
    n_p         share of the queries at the entrance whose path begins with p
    gain_p      queries that reach the end of p per query at the entrance
    x_y         servers of configuration y; q_y what one carries
    D           demand; S_g servers of hardware g
    ==========  ==========================================================================================

    ::

        max (1/sinks) sum_{p at a sink} A_p n_p
        (1) sum_{p at a root} n_p = 1                      per root
        (1) sum_{c child of p at task t} n_c = n_p         per prefix p and child task t
        (2) D sum_{p ends in y} gain_p n_p <= q_y x_y      per configuration y (Eq. 2)
        (3) sum_y x_y <= S_g                               (Eq. 3)
        (4) x_y <= S_g z_y, sum_b z <= 1                   one batch per (k, g) (Eq. 4-7), unless `multibatch`

    Prefixes that end too late are not made, so no row speaks of latency. For the goal "rate", n holds absolute flows
    and (1) reads sum n = D with D a column. `more` adds rows over the columns x of each pipeline.
    """
    trees = [tree for tree, _ in forest]
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate", "room") else "min", name=f"config {asked.goal}")
    uppers = [
        [bound_of_servers(tree, largest_gains(levels), t, fleet, asked) for t in range(len(tree.tasks))]
        for tree, levels in forest
    ]
    servers = add_servers(m, trees, uppers, fleet, asked)
    flows, rate = add_flows(m, forest, fleet, asked)
    loads = [_config_loads(m, i, forest, fleet, asked, flows[i], servers) for i in range(len(forest))]
    if asked.counts is None:
        add_groups(m, trees, uppers, servers, fleet, asked, loads)
    if asked.goal == "room":
        _leave_room(m, trees, loads)
    if more is not None:
        more(m, servers.x)
    add_qualities(m, forest, flows, asked, rate)
    return Written(m.build(), servers.x, flows, rate)


def _leave_room(m: Builder, trees: Sequence[Tree], loads: Sequence[Places]) -> None:
    """Servers of each group that are left over, up to one, count."""
    for tree, rows in zip(trees, loads, strict=True):
        room = m.columns(f"room {tree.app}", str, size=rows.size, upper=1.0, cost=1.0, unit="servers")
        m.add(rows, room, np.concatenate([task.qps for task in tree.tasks]))


def _config_loads(
    m: Builder, i: int, forest: Forest, fleet: Fleet, asked: Asked, flows: list[Places], servers: Servers
) -> Places:
    """(2): no configuration gets more than its servers carry."""
    tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    unit, start, rows = flow_unit(tree, i, asked), 0, list[Places]()
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        capacity = task.qps * (1.0 - asked.slip)
        own = slice(start, start + task.size)
        upper: Vector | float = 0.0
        if asked.counts is not None:
            upper = capacity * np.maximum(asked.counts[i][own] - tree.spare / task.k, 0.0)
        load = m.rows(
            f"load {name}{task.id}",
            lambda c, task=task: task.label(c, fleet.hardware),  # type: ignore[misc]
            size=task.size,
            upper=upper,
            unit="qps",
            equation="(2)",
        )
        m.add(load[level.config], flows[t], unit * level.gain)
        if asked.counts is None:
            m.add(load, servers.x[i][own], -capacity)
        rows.append(load)
        start += task.size
    return np.concatenate(rows)


@dataclass(frozen=True)
class _Parts:
    """A program over variants that is being written: its columns, and bounds on servers per tree and task."""

    m: Builder
    trees: Sequence[Tree]
    forest: Forest
    flows: list[list[Places]]
    servers: Servers
    uppers: list[list[Vector]]


def variant_form(
    name: str,
    forest: Forest,
    trees: Sequence[Tree],
    fleet: Fleet,
    asked: Asked,
    *,
    more: Callable[[_Parts], None] | None = None,
) -> Written:
    """Flows of variants; `forest` is of merged trees, `trees` hold the configurations that servers may run.

    Nothing here keeps paths in time: `more` adds the rows that do.
    """
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate") else "min", name=f"{name} {asked.goal}")
    uppers = [
        [bound_of_servers(tree, largest_gains(levels), t, fleet, asked) for t in range(len(tree.tasks))]
        for tree, (_, levels) in zip(trees, forest, strict=True)
    ]
    servers = add_servers(m, trees, uppers, fleet, asked)
    flows, rate = add_flows(m, forest, fleet, asked)
    loads = [_variant_loads(m, i, forest, tree, asked, flows[i], servers) for i, tree in enumerate(trees)]
    add_groups(m, trees, uppers, servers, fleet, asked, loads)
    if more is not None:
        more(_Parts(m, trees, forest, flows, servers, uppers))
    add_qualities(m, forest, flows, asked, rate)
    return Written(m.build(), servers.x, flows, rate)


def _variant_loads(
    m: Builder, i: int, forest: Forest, tree: Tree, asked: Asked, flows: list[Places], servers: Servers
) -> Places:
    """No variant gets more than its servers, of all types and batches, carry together."""
    merged_tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    unit, start, rows = flow_unit(tree, i, asked), 0, list[Places]()
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        mine = merged_tree.tasks[t].variant
        label = _names(task, mine)
        load = m.rows(f"load {name}{task.id}", label, size=mine.size, upper=0.0, unit="qps", equation="(2)")
        m.add(load[level.config], flows[t], unit * level.gain)
        row_of = np.searchsorted(mine, task.variant)
        m.add(load[row_of], servers.x[i][start : start + task.size], -task.qps * (1.0 - asked.slip))
        rows.append(load[row_of])
        start += task.size
    return np.concatenate(rows)


def _names(task: Task, mine: Places) -> Callable[[int], str]:
    return lambda row: task.variants[mine[row]]


def paper_form(forest: Forest, trees: Sequence[Tree], fleet: Fleet, asked: Asked) -> Written:
    r"""Loki's own program (formulation `paper`), linear and with its errors mended.

    ::

        max (1/sinks) sum_p A_p c_p                        (12); min sum x at the best accuracy (8-11)
        (2) D sum_{p through k} m_p c_p <= sum_{g,b} q x(k,g,b)
        (3) sum x <= S_g
        (4) x(k,g,b) <= S_g z(k,g,b),  sum_b z <= 1
        (5) l_k >= z(k,g,b) latency(k,g,b)
        (6) c_p <= I_p
        (7) sum_{k on p} l_k + M_p I_p <= H + M_p,  M_p = sum of the largest latencies - H

    c_p are shares of paths of variants, written through their prefixes, so that the last tasks agree on what came
    before. Paths that no choice of servers can bring in time are left out; paths that none can make late need no I.
    With one hardware this equals `config`; with several, l_k is the slowest of the hardware in use, so it may find
    less.
    """

    def in_time(parts: _Parts) -> None:
        for i, tree in enumerate(trees):
            _in_time(parts, i)
            if asked.whole:
                _count_servers(parts.m, tree, parts.servers.x[i])

    return variant_form("paper", forest, trees, fleet, asked, more=in_time)


def _count_servers(m: Builder, tree: Tree, x: Places) -> None:
    """The servers of each task and of the pipeline as columns: branching on those saves a third of the work."""
    ends = np.cumsum([task.size for task in tree.tasks])
    counted = dict(zip((f"{tree.app}/{task.id}" for task in tree.tasks), np.split(x, ends[:-1]), strict=True))
    for name, columns in (counted | {tree.app: x}).items():
        least = len(tree.tasks) if name == tree.app else 1
        count = m.columns(f"servers of {name}", ["all"], lower=least, whole=True, unit="servers")
        row = m.rows(f"servers of {name}", ["all"], lower=0.0, upper=0.0)
        m.add(row, columns, 1.0)
        m.add(row, count, -1.0)


def _in_time(parts: _Parts, i: int) -> None:
    """(4) to (7): the latency of a variant, and which paths may be used."""
    m, tree, (merged_tree, levels) = parts.m, parts.trees[i], parts.forest[i]
    flows, x, uppers = parts.flows[i], parts.servers.x[i], parts.uppers[i]
    latency: list[Places] = []
    longest: list[np.ndarray] = []
    start = 0
    for t, task in enumerate(tree.tasks):
        mine = merged_tree.tasks[t].variant
        row_of = np.searchsorted(mine, task.variant)
        most = np.zeros(mine.size)
        np.maximum.at(most, row_of, task.ms)
        longest.append(most)
        column = m.columns(f"l {task.id}", str, size=mine.size, upper=most, unit="ms")
        used = m.columns(f"used {task.id}", str, size=task.size, upper=1.0, whole=True)
        rows = m.rows(f"used {task.id}", str, size=task.size, upper=0.0, equation="(4)")
        m.add(rows, x[start : start + task.size], 1.0)
        m.add(rows, used, -uppers[t])
        slow = m.rows(f"latency {task.id}", str, size=task.size, lower=0.0, equation="(5)")
        m.add(slow, column[row_of], 1.0)
        m.add(slow, used, -task.ms)
        latency.append(column)
        start += task.size
    for sink in tree.sinks:
        path = tree.path(sink)
        chosen = [
            np.searchsorted(merged_tree.tasks[t].variant, levels[sink].variants[:, at]) for at, t in enumerate(path)
        ]
        slowest = np.array([longest[t][k] for t, k in zip(path, chosen, strict=True)]).sum(axis=0)
        spare = slowest - tree.limit_ms[sink]
        late = np.flatnonzero(spare > 0)
        allowed = m.columns(f"I {tree.tasks[sink].id}", str, size=late.size, upper=1.0, whole=True)
        rows = m.rows(f"only if in time {tree.tasks[sink].id}", str, size=late.size, upper=0.0, equation="(6)")
        m.add(rows, flows[sink][late], 1.0)
        m.add(rows, allowed, -1.0)
        limit = tree.limit_ms[sink] + spare[late]
        rows = m.rows(f"in time {tree.tasks[sink].id}", str, size=late.size, upper=limit, unit="ms", equation="(7)")
        for t, k in zip(path, chosen, strict=True):
            m.add(rows, latency[t][k[late]], 1.0)
        m.add(rows, allowed, spare[late])


@dataclass(frozen=True)
class Levels:
    """The program of stage 1 and where its columns are: per tree and task, w and its levels."""

    form: Milp
    w: list[list[Places]]
    ms: list[list[np.ndarray]]
    flows: list[list[Places]]

    def chosen(self, point: np.ndarray) -> list[list[float]]:
        """The level of each task."""
        return [
            [float(ms[int(np.argmax(point[w]))]) for w, ms in zip(own_w, own_ms, strict=True)]
            for own_w, own_ms in zip(self.w, self.ms, strict=True)
        ]


@dataclass(frozen=True)
class _Leveled:
    """A program over latency levels that is being written."""

    m: Builder
    trees: Sequence[Tree]
    forest: Forest
    levels: list[list[Vector]]
    flows: list[list[Places]]
    w: list[list[Places]]
    servers: list[tuple[Places, Places, Places, Vector]] = field(default_factory=list)
    """Columns of servers, their hardware, how many places one takes, and its fee."""


def levels_form(
    trees: Sequence[Tree], forest: Forest, levels: list[list[Vector]], fleet: Fleet, asked: Asked
) -> Levels:
    r"""One latency level per task (formulation `budget`): safe under any router, and the way to large clusters.

    ==========  ==========================================================================
    letter      meaning
    ==========  ==========================================================================
    T_tl        latency level l of task t, one of its measured latencies
    w_tl        1 where task t may take up to T_tl
    n_p         share of the queries on paths of variants that begin with p
    y_tkl       load of variant k at level l, queries per query at the entrance
    x_tgkl      servers; at a level every (k, g) runs its best batch that takes no longer
    ==========  ==========================================================================

    ::

        max (1/sinks) sum_{p at a sink} A_p n_p
        (1) sum_l w_tl = 1
        (2) sum_{t on the path} sum_l T_tl w_tl <= H                per last task
        (3) sum_l y_tkl = sum_{p ends in k} gain_p n_p              per t, k
        (4) sum_k y_tkl <= largest gain of t x w_tl                 per t, l
        (5) D y_tkl <= sum_g q_tgkl x_tgkl
        (6) sum x <= S_g

    Stage 1 keeps only w whole: its bound is the bound of this model. Stage 2 fixes w and makes x whole. (4) in place of
    x <= S w is what keeps the relaxation tight on clusters of thousands. Levels are thinned; `passes` looks again with
    finer levels around the last choice. The bound is one of the first pass's levels, and no bound of the exact program.
    """
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate") else "min", name=f"budget {asked.goal}")
    flows, rate = add_flows(m, forest, fleet, asked)
    w = [
        [
            m.columns(f"w {tree.app}/{task.id}", str, size=ms.size, upper=1.0, whole=True)
            for task, ms in zip(tree.tasks, own, strict=True)
        ]
        for tree, own in zip(trees, levels, strict=True)
    ]
    parts = _Leveled(m, trees, forest, levels, flows, w)
    for i, tree in enumerate(trees):
        for t in range(len(tree.tasks)):
            m.add(m.rows(f"one level {tree.app}/{tree.tasks[t].id}", ["all"], lower=1.0, upper=1.0), w[i][t], 1.0)
            _add_leveled_task(parts, i, t)
        for sink in tree.sinks:
            limit = tree.limit_ms[sink] + ON_LIMIT_MS
            row = m.rows(f"in time {tree.app}/{tree.tasks[sink].id}", ["all"], upper=limit, equation="(2)")
            for t in tree.path(sink):
                m.add(row, w[i][t], levels[i][t])
    servers = Servers([])
    x, hardware, places, fee = (np.concatenate(side) for side in zip(*parts.servers, strict=True))
    servers.rent(m, fleet, x, hardware, places, fee, replace(asked, whole=False))
    add_qualities(m, forest, flows, asked, rate)
    return Levels(m.build(), w, levels, flows)


def _add_leveled_task(parts: _Leveled, i: int, t: int) -> None:
    """(3) to (5) of one task."""
    m, levels, w, flows = parts.m, parts.levels[i][t], parts.w[i][t], parts.flows[i][t]
    tree, task, (merged_tree, prefix) = parts.trees[i], parts.trees[i].tasks[t], parts.forest[i]
    mine, name = merged_tree.tasks[t].variant, f"{tree.app}/{task.id}"
    gain = max(largest_gains([prefix[t]])[0], 1e-12)
    total = m.rows(f"load {name}", str, size=mine.size, lower=0.0, upper=0.0, equation="(3)")
    m.add(total[prefix[t].config], flows, prefix[t].gain / gain)
    for place, ms in enumerate(levels):
        best = best_at(tree, t, float(ms))
        row_of = np.searchsorted(mine, task.variant[best])
        y = m.columns(f"y {name} {place}", str, size=mine.size)
        m.add(total, y, -1.0)
        row = m.rows(f"level {name} {place}", ["all"], upper=0.0, equation="(4)")
        m.add(row, y, 1.0)
        m.add(row, w[place], -1.0)
        x = m.columns(f"x {name} {place}", str, size=best.size, unit="servers")
        rows = m.rows(f"carried {name} {place}", str, size=mine.size, upper=0.0, equation="(5)")
        m.add(rows, y, 1.0)
        m.add(rows[row_of], x, -task.qps[best] / (tree.demand * gain))
        parts.servers.append((x, task.hardware[best], task.places[best], task.fee[best]))
