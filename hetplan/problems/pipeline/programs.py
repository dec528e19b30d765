"""The programs over pipelines, one function each; their mathematics is in its docstring.

`config_form` is exact; `variant_form` has shares of paths of variants, whose servers carry a variant's load together,
and `paper_form` adds Loki's indicators to it; `levels_form` chooses one latency level per task; `steps_form` is of
steps whose branches meet again. They differ in what flows are shares of. Alike are the columns x (servers per
configuration) and n (shares of prefixes), money and machines, accuracy, and what a goal may not lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import NOTHING, Expression, Uses, bill, limit_moves, machines_rented, rent, weighted_sum
from hetplan.problems.pipeline.request import Fleet, Goal
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Level, Places, Task, Tree, Vector, best_at

__all__ = [
    "ONE_MORE",
    "Aim",
    "Forest",
    "LevelProgram",
    "Program",
    "Servers",
    "add_flows",
    "add_groups",
    "add_qualities",
    "add_servers",
    "bound_of_servers",
    "config_form",
    "flow_unit",
    "flows_form",
    "largest_gains",
    "levels_form",
    "paper_form",
    "steps_form",
    "variant_form",
]

ONE_MORE = "one more server"
"""The column of whether all servers are needed, see `Aim.servers_above`."""

MOST_OF_A_GROUP = 1e5
"""Where nothing limits the servers of a group, it has no more than these."""

Forest = Sequence[tuple[Tree, list[Level]]]
Term = tuple[Places, Vector]
"""Columns, and the accuracy that one of each is worth."""


@dataclass(frozen=True)
class Aim:
    """One question to a program: what to strive for, and what must hold.

    "room" is capacity that shares of given servers leave over, of each group no more than one server's. `rate_of` is
    the application whose rate is the goal "rate" (None: all rates in proportion). `loose` is the field of a stated
    limit that may give way (`infeasible.loosen`). `counts` fixes the servers, per tree and configuration.
    """

    goal: Goal
    quality_least: float | None = None
    each_least: float | None = None
    servers_most: float | None = None
    servers_above: int | None = None
    """For the goal "servers": whether one more than these is needed; the objective does not count below."""
    cost_most: float | None = None
    moves_most: float | None = None
    rate_of: int | None = None
    rate_most: float | None = None
    """For the goal "rate": more is not asked for. In proportions, where 1 is the demand."""
    loose: str | None = None
    floors: bool = True
    counts: Sequence[Places] | None = None
    whole: bool = True
    multibatch: bool = False
    bursty: bool = False
    """Whether more servers may be of use than the demand keeps busy."""
    slip: float = 0.0
    """By how much capacities are tightened, so that whole counts keep exactly what an engine keeps to a tolerance."""

    @property
    def sense(self) -> Literal["max", "min"]:
        """Whether more of the goal is better."""
        return "max" if self.goal in ("quality", "fairest", "rate", "room") else "min"


@dataclass(frozen=True)
class Program:
    """A program, and where its columns are."""

    form: Milp
    x: list[Places]
    flows: list[list[Places]]
    """Per tree and task, the shares of its prefixes."""
    rate: int | None = None

    def counts(self, point: Vector) -> list[Places]:
        """Whole servers per tree and configuration."""
        return [np.round(point[columns]).astype(np.int64) for columns in self.x]


def config_form(
    forest: Forest, fleet: Fleet, aim: Aim, *, more: Callable[[Builder, Sequence[Places]], None] | None = None
) -> Program:
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
    m = Builder(aim.sense, name=f"config {aim.goal}")
    uppers = bounds_of_servers(trees, map(largest_gains, (levels for _, levels in forest)), fleet, aim)
    servers = add_servers(m, trees, uppers, fleet, aim)
    flows, rate = add_flows(m, forest, fleet, aim)
    loads = [_loads(m, i, forest, tree, fleet, aim, flows[i], servers) for i, tree in enumerate(trees)]
    if aim.counts is None:
        add_groups(m, trees, uppers, servers, fleet, aim, loads)
    if aim.goal == "room":
        _leave_room(m, trees, loads)
    if more is not None:
        more(m, servers.x)
    add_qualities(m, trees, terms_of(forest, flows), aim, rate)
    return Program(m.build(), servers.x, flows, rate)


def _leave_room(m: Builder, trees: Sequence[Tree], loads: Sequence[Places]) -> None:
    """Servers of each group that are left over, up to one, count."""
    for tree, rows in zip(trees, loads, strict=True):
        room = m.columns(f"room {tree.app}", str, size=rows.size, upper=1.0, cost=1.0, unit="servers")
        m.add(rows, room, np.concatenate([task.qps for task in tree.tasks]))


def add_load(
    m: Builder,
    name: str,
    tree: Tree,
    t: int,
    aim: Aim,
    x: Places,
    counts: Places | None,
    comes: tuple[Places, Places, Vector | float],
    row_of: Places,
    label: Callable[[int], str],
) -> Places:
    """(2) of a task: what comes to a row is no more than its servers carry; the row of each configuration.

    `comes` is rows, columns, and queries per second that each of these means.
    """  # fmt: skip
    task, (at, columns, qps) = tree.tasks[t], comes
    capacity, upper = task.qps * (1.0 - aim.slip), np.zeros(int(row_of.max(initial=-1)) + 1)
    if counts is not None:
        np.add.at(upper, row_of, capacity * np.maximum(counts - tree.spare / task.k, 0.0))
    load = m.rows(f"load {name}{task.id}", label, size=upper.size, upper=upper, unit="qps", equation="(2)")
    m.add(load[at], columns, qps)
    if counts is None:
        m.add(load[row_of], x, -capacity)
    return load[row_of]


def _loads(
    m: Builder, i: int, forest: Forest, tree: Tree, fleet: Fleet, aim: Aim, flows: list[Places], servers: Servers
) -> Places:
    """(2) of a pipeline, by configuration; of a forest of variants, by variant."""
    several, levels = forest[i]
    name, unit = f"{tree.app}/" if len(forest) > 1 else "", flow_unit(tree, i, aim)
    x = tree.by_task(servers.x[i])
    counts = tree.by_task(aim.counts[i]) if aim.counts is not None else [None] * len(x)
    rows = []
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        row_of, label = np.arange(task.size), _labels(task, fleet)
        if several is not tree:
            row_of, label = _by_variant(several.tasks[t].variant, task)
        comes = level.config, flows[t], unit * level.gain
        rows.append(add_load(m, name, tree, t, aim, x[t], counts[t], comes, row_of, label))
    return np.concatenate(rows)


def _labels(task: Task, fleet: Fleet) -> Callable[[int], str]:
    return lambda c: task.label(c, fleet.hardware)


def _by_variant(variants: Places, task: Task) -> tuple[Places, Callable[[int], str]]:
    """Which of these variants each configuration is of, and their names."""
    return np.searchsorted(variants, task.variant), lambda row: task.variants[variants[row]]


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
    aim: Aim,
    *,
    more: Callable[[_Parts], None] | None = None,
) -> Program:
    """Flows of variants; `forest` is of merged trees, `trees` hold the configurations that servers may run.

    Nothing here keeps paths in time: `more` adds the rows that do.
    """
    m = Builder(aim.sense, name=f"{name} {aim.goal}")
    uppers = bounds_of_servers(trees, map(largest_gains, (levels for _, levels in forest)), fleet, aim)
    servers = add_servers(m, trees, uppers, fleet, aim)
    flows, rate = add_flows(m, forest, fleet, aim)
    loads = [_loads(m, i, forest, tree, fleet, aim, flows[i], servers) for i, tree in enumerate(trees)]
    add_groups(m, trees, uppers, servers, fleet, aim, loads)
    if more is not None:
        more(_Parts(m, trees, forest, flows, servers, uppers))
    add_qualities(m, trees, terms_of(forest, flows), aim, rate)
    return Program(m.build(), servers.x, flows, rate)


def paper_form(forest: Forest, trees: Sequence[Tree], fleet: Fleet, aim: Aim) -> Program:
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
            if aim.whole:
                _count_servers(parts.m, tree, parts.servers.x[i])

    return variant_form("paper", forest, trees, fleet, aim, more=in_time)


def _count_servers(m: Builder, tree: Tree, x: Places) -> None:
    """The servers of each task and of the pipeline as columns: branching on those saves a third of the work."""
    counted = dict(zip((f"{tree.app}/{task.id}" for task in tree.tasks), tree.by_task(x), strict=True))
    for name, columns in (counted | {tree.app: x}).items():
        least = len(tree.tasks) if name == tree.app else 1
        count = m.columns(f"servers of {name}", ["all"], lower=least, whole=True, unit="servers")
        row = m.rows(f"servers of {name}", ["all"], lower=0.0, upper=0.0)
        m.add(row, columns, 1.0)
        m.add(row, count, -1.0)


def _add_latencies(m: Builder, name: str, task: Task, x: Places, upper: Vector, latency: Places | int) -> None:
    """(4) and (5): a latency is no less than that of any configuration in use."""
    used = m.columns(f"used {name}", str, size=task.size, upper=1.0, whole=True)
    rows = m.rows(f"used {name}", str, size=task.size, upper=0.0, equation="(4)")
    m.add(rows, x, 1.0)
    m.add(rows, used, -upper)
    slow = m.rows(f"latency {name}", str, size=task.size, lower=0.0, equation="(5)")
    m.add(slow, latency, 1.0)
    m.add(slow, used, -task.ms)


def steps_form(
    trees: Sequence[Tree],
    edges: Sequence[Sequence[tuple[int, int]]],
    limits_ms: Sequence[Sequence[float]],
    fleet: Fleet,
    aim: Aim,
) -> Program:
    r"""Steps whose branches meet again: shares per step, start times, additive accuracy.

    Shares of paths mean nothing there, so what is planned for is what they cannot matter to: accuracy that adds up over
    the steps, and factors that do not depend on the variant.

    ::

        max sum_t a_t sum_k A_k s_tk                              a_t: quality weights of the steps
        (1) sum_k s_tk = 1                                        per step t
        (2) D gain_t s_tk <= sum_c q_c x_c                        per step t and variant k
        (4) x_c <= S_g z_c,   sum_b z <= 1                        one batch per variant and hardware
        (5) T_t >= l_c z_c
        (7) s_v >= s_u + T_u per edge,   s_t + T_t <= H

    With servers in parts it asks of no time.
    """
    m = Builder(aim.sense, name=f"steps {aim.goal}")
    gains = [tree.gains_at_steps(own) for tree, own in zip(trees, edges, strict=True)]
    uppers = bounds_of_servers(trees, gains, fleet, aim)
    servers = add_servers(m, trees, uppers, fleet, aim)
    shared = [_step_shares(m, i, tree, gains[i], servers, aim) for i, tree in enumerate(trees)]
    if aim.counts is None:
        add_groups(m, trees, uppers, servers, fleet, aim, [loads for _, loads in shared])
        for i, tree in enumerate(trees if aim.whole else ()):
            _add_step_times(m, tree, edges[i], servers.x[i], uppers[i], limits_ms[i])
    flows, terms = [own for own, _ in shared], list[list[Term]]()
    for tree, own in zip(trees, flows, strict=True):
        weight = {task.id: (1.0 - tree.late) * (tree.weights or {}).get(task.id, 1.0) for task in tree.tasks}
        terms.append(
            [
                (s, weight[task.id] * task.quality[np.unique(task.variant)])
                for s, task in zip(own, tree.tasks, strict=True)
            ]
        )
    add_qualities(m, trees, terms, aim)
    return Program(m.build(), servers.x, flows)


def _step_shares(
    m: Builder, i: int, tree: Tree, gains: Sequence[float], servers: Servers, aim: Aim
) -> tuple[list[Places], Places]:
    """Columns of shares per task, and for each configuration the row of what its variant's servers carry."""
    columns, rows, x = list[Places](), list[Places](), tree.by_task(servers.x[i])
    counts = tree.by_task(aim.counts[i]) if aim.counts is not None else [None] * len(x)
    for t, task in enumerate(tree.tasks):
        used = np.unique(task.variant)
        s = m.columns(f"s {tree.app}/{task.id}", str, size=used.size)
        m.add(m.rows(f"all {tree.app}/{task.id}", ["all"], lower=1.0, upper=1.0, equation="(1)"), s, 1.0)
        comes = np.arange(used.size), s, tree.demand * gains[t]
        rows.append(add_load(m, f"{tree.app}/", tree, t, aim, x[t], counts[t], comes, *_by_variant(used, task)))
        columns.append(s)
    return columns, np.concatenate(rows)


def _add_step_times(
    m: Builder,
    tree: Tree,
    edges: Sequence[tuple[int, int]],
    x: Places,
    uppers: Sequence[np.ndarray],
    limit: Sequence[float],
) -> None:
    """A step takes as long as its slowest configuration in use; what follows starts after it."""
    size = len(tree.tasks)
    took = m.columns(f"T {tree.app}", str, size=size, unit="ms")
    begins = m.columns(f"start {tree.app}", str, size=size, unit="ms")
    for t, (task, own) in enumerate(zip(tree.tasks, tree.by_task(x), strict=True)):
        _add_latencies(m, f"{tree.app}/{task.id}", task, own, uppers[t], took[t])
    after = m.rows(f"order {tree.app}", str, size=len(edges), lower=0.0, unit="ms")
    for row, (u, v) in zip(after, edges, strict=True):
        m.add(row, begins[v], 1.0)
        m.add(row, begins[u], -1.0)
        m.add(row, took[u], -1.0)
    ends = m.rows(f"in time {tree.app}", str, size=size, upper=np.array(limit), unit="ms")
    m.add(ends, begins, 1.0)
    m.add(ends, took, 1.0)


def _in_time(parts: _Parts, i: int) -> None:
    """(4) to (7): the latency of a variant, and which paths may be used."""
    m, tree, (merged_tree, levels) = parts.m, parts.trees[i], parts.forest[i]
    flows, x, uppers = parts.flows[i], parts.servers.x[i], parts.uppers[i]
    latency: list[Places] = []
    longest: list[np.ndarray] = []
    for t, (task, own) in enumerate(zip(tree.tasks, tree.by_task(x), strict=True)):
        mine = merged_tree.tasks[t].variant
        row_of = np.searchsorted(mine, task.variant)
        most = np.zeros(mine.size)
        np.maximum.at(most, row_of, task.ms)
        longest.append(most)
        column = m.columns(f"l {task.id}", str, size=mine.size, upper=most, unit="ms")
        _add_latencies(m, task.id, task, own, uppers[t], column[row_of])
        latency.append(column)
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
class LevelProgram:
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
class _LevelParts:
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
    trees: Sequence[Tree], forest: Forest, levels: list[list[Vector]], fleet: Fleet, aim: Aim
) -> LevelProgram:
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
    m = Builder(aim.sense, name=f"budget {aim.goal}")
    flows, rate = add_flows(m, forest, fleet, aim)
    w = [
        [
            m.columns(f"w {tree.app}/{task.id}", str, size=ms.size, upper=1.0, whole=True)
            for task, ms in zip(tree.tasks, own, strict=True)
        ]
        for tree, own in zip(trees, levels, strict=True)
    ]
    parts = _LevelParts(m, trees, forest, levels, flows, w)
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
    servers.rent(m, fleet, x, hardware, places, fee, replace(aim, whole=False))
    add_qualities(m, trees, terms_of(forest, flows), aim, rate)
    return LevelProgram(m.build(), w, levels, flows)


def _add_leveled_task(parts: _LevelParts, i: int, t: int) -> None:
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


@dataclass
class Servers:
    """Columns of servers: `x` per tree and configuration, and `new` ones; how many are rented, and what they cost."""

    x: list[Places]
    rented: Expression = NOTHING
    bill: Expression = NOTHING
    new: Places = field(default_factory=lambda: np.zeros(0, np.int64))

    def rent(
        self, m: Builder, fleet: Fleet, x: Places, hardware: Places, places: Places, fee: Vector, aim: Aim
    ) -> None:
        """Rent what these columns take, each so many places of a server of its hardware at a fee.

        Servers that are not shared are whole, and none is idle.
        """
        used = {}
        for g in np.unique(hardware).tolist():
            mine = hardware == g
            used[fleet.hardware[g]] = Expression(x[mine], places[mine] / fleet.places[g])
        # Of a type that must be there, but runs nothing of these, there is no server: that has no plan.
        used |= {kind.id: NOTHING for kind in fleet.request.machines if kind.least and kind.id not in used}
        request = replace(fleet.request, machines=tuple(kind for kind in fleet.request.machines if kind.id in used))
        shared = frozenset(name for name, n in zip(fleet.hardware, fleet.places, strict=True) if n > 1)
        uses = Uses(
            used,
            most={} if aim.loose is None else dict.fromkeys(used, np.inf),
            idle=shared,
            counted=frozenset(used) - shared if aim.whole else frozenset(used),
            fees=Expression(x[fee > 0], fee[fee > 0]),
        )
        n = rent(m, request, uses, priced=aim.goal == "cost", whole=aim.whole)
        rented = machines_rented(request, uses, n)
        self.rented = weighted_sum((one, 1.0) for one in rented)
        self.bill = bill(request, uses, n)
        if aim.goal == "servers" and aim.servers_above is None:
            m.pay(self.rented.columns, self.rented.coefficients)
        for kind in request.machines:
            if kind.id in shared and kind.least:  # something runs on each that must be there
                row = m.rows(f"used {kind.id}", ["all"], lower=0.0, unit="instances")
                m.add(row, used[kind.id].columns, 1.0)
                for offer, one in zip(request.offers, rented, strict=True):
                    if offer.machine == kind.id:
                        m.add(row, one.columns, np.multiply(one.coefficients, -1.0))


def bound_of_servers(tree: Tree, gains: Sequence[float], t: int, fleet: Fleet, aim: Aim) -> Vector:
    """At most how many servers of each configuration of a task can be of use."""
    task = tree.tasks[t]
    limit = np.full(task.size, np.inf) if aim.loose is not None else np.floor(fleet.most[task.hardware] / task.places)
    if aim.bursty or (aim.goal == "rate" and aim.rate_most is None):
        return limit
    useful = np.ceil(tree.demand * gains[t] / task.qps * (1 + 1e-9) + 1e-9 + tree.spare / task.k)
    # Servers beyond need are wanted only where a least number is stated.
    return np.minimum(limit, np.maximum(useful, fleet.least[task.hardware]))


def bounds_of_servers(
    trees: Sequence[Tree], gains: Iterable[Sequence[float]], fleet: Fleet, aim: Aim
) -> list[list[Vector]]:
    """At most how many servers can be of use, by pipeline, task and configuration."""
    every = zip(trees, gains, strict=True)
    return [[bound_of_servers(tree, own, t, fleet, aim) for t in range(len(tree.tasks))] for tree, own in every]


def add_servers(
    m: Builder, trees: Sequence[Tree], uppers: Sequence[Sequence[Vector]], fleet: Fleet, aim: Aim
) -> Servers:
    """Columns x, what they rent, and moves."""
    prefix = [f"{tree.app}/" if len(trees) > 1 else "" for tree in trees]
    found = Servers([])
    for i, tree in enumerate(trees):
        if aim.counts is not None:
            found.x.append(np.zeros(0, np.int64))
            continue
        blocks = []
        for t, task in enumerate(tree.tasks):
            blocks.append(
                m.columns(
                    f"x {prefix[i]}{task.id}",
                    lambda c, task=task: task.label(c, fleet.hardware),  # type: ignore[misc]
                    size=task.size,
                    upper=uppers[i][t],
                    whole=aim.whole,
                    unit="servers",
                )
            )
        found.x.append(np.concatenate(blocks) if blocks else np.zeros(0, np.int64))
    if aim.counts is None:
        _limit_servers(m, trees, fleet, aim, found)
    return found


def _limit_servers(m: Builder, trees: Sequence[Tree], fleet: Fleet, aim: Aim, found: Servers) -> None:
    """Servers are rented by the program over machines (3); goals before this one lose nothing."""
    hardware, places, fee = (
        np.concatenate([getattr(task, name) for tree in trees for task in tree.tasks])
        for name in ("hardware", "places", "fee")
    )
    found.rent(m, fleet, np.concatenate(found.x), hardware, places, fee, aim)
    _count_moves(m, trees, fleet, aim, found)
    if aim.servers_above is not None:
        one_more = m.columns(ONE_MORE, ["all"], upper=1.0, cost=1.0, whole=True)
        row = m.rows("servers but for one", ["all"], upper=aim.servers_above, unit="servers")
        m.add(row, found.rented.columns, found.rented.coefficients)
        m.add(row, one_more, -1.0)
        m.offset += aim.servers_above
    for name, most, total in (
        ("servers", aim.servers_most, found.rented),
        ("cost", aim.cost_most, found.bill),
        ("changes", aim.moves_most, Expression(found.new)),
    ):
        if most is not None:
            m.add(m.rows(f"{name} so far", ["all"], upper=most), total.columns, total.coefficients)


def _count_moves(m: Builder, trees: Sequence[Tree], fleet: Fleet, aim: Aim, found: Servers) -> None:
    """Instances of each (application, step, variant, hardware) beyond those that run now are moves."""
    if aim.goal != "changes" and aim.moves_most is None and fleet.request.changes is None:
        return
    keys = [
        (tree.app, task.id, task.variants[k], fleet.hardware[g])
        for tree in trees
        for task in tree.tasks
        for k, g in zip(task.variant.tolist(), task.hardware.tolist(), strict=True)
    ]
    group = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    instances = np.concatenate([task.k for tree in trees for task in tree.tasks])
    counts = Expression(np.concatenate(found.x), instances)
    of = np.array([group[key] for key in keys], dtype=np.int64)
    running = [fleet.running[key] for key in group]
    found.new = limit_moves(m, counts, of, running, np.inf if fleet.request.changes is None else fleet.request.changes)
    if aim.goal == "changes":
        m.pay(found.new, 1.0)


def add_groups(
    m: Builder,
    trees: Sequence[Tree],
    uppers: Sequence[Sequence[Vector]],
    found: Servers,
    fleet: Fleet,
    aim: Aim,
    loads: Sequence[Places],
) -> None:
    """Which configurations are in use (z), where that counts.

    (4) one batch size per variant and hardware, unless `multibatch`; and in (2) the servers that a group in use keeps
    free. `loads` is per tree, for each configuration, the row of (2) that its servers are in.
    """
    ruled = aim.whole and not aim.multibatch
    for i, tree in enumerate(trees):
        counted = []
        for t, (task, x) in enumerate(zip(tree.tasks, tree.by_task(found.x[i]), strict=True)):
            pair = task.variant * len(fleet.hardware) + task.hardware
            _, which, count = np.unique(pair, return_inverse=True, return_counts=True)
            several = np.flatnonzero(count[which] > 1) if ruled else np.zeros(0, np.int64)
            used = np.arange(task.size) if tree.spare > 0 else several
            if not used.size:
                continue
            z = m.columns(f"z {task.id}", lambda c: str(c), size=used.size, upper=1.0, whole=aim.whole)
            counted.append(z)
            rows = m.rows(f"in use {task.id}", lambda c: str(c), size=used.size, upper=0.0, equation="(4)")
            m.add(rows, x[used], 1.0)
            m.add(rows, z, -np.minimum(uppers[i][t][used], MOST_OF_A_GROUP))
            if several.size:
                distinct, group = np.unique(which[several], return_inverse=True)
                one = m.rows(f"one batch {task.id}", lambda c: str(c), size=distinct.size, upper=1.0, equation="(4)")
                m.add(one[group], z[np.isin(used, several)], 1.0)
        if tree.spare > 0:
            own = np.concatenate(counted)
            of_one = np.concatenate([task.qps / task.k for task in tree.tasks])
            m.add(loads[i], own, of_one * (1.0 - aim.slip) * tree.spare)


def largest_gains(levels: Sequence[Level]) -> list[float]:
    """Per task, the most queries that can reach it per query at the entrance."""
    return [float(level.gain.max()) if level.size else 0.0 for level in levels]


def is_absolute(i: int, aim: Aim) -> bool:
    """Whether a tree's flows are queries per second (or multiples of its demand) rather than shares."""
    return aim.goal == "rate" and aim.rate_of in (None, i)


def flow_unit(tree: Tree, i: int, aim: Aim) -> float:
    """Queries per second that a flow of 1 means."""
    return 1.0 if is_absolute(i, aim) and aim.rate_of is not None else tree.demand


def add_flows(m: Builder, forest: Forest, fleet: Fleet, aim: Aim) -> tuple[list[list[Places]], int | None]:
    """Columns n per tree and task with the rows (1); and the column of the rate, where that is the goal."""
    rate = None
    if aim.goal == "rate":
        unit, most = "qps" if aim.rate_of is not None else "times the demand", aim.rate_most
        rate = int(m.columns("rate", ["all"], upper=np.inf if most is None else most, cost=1.0, unit=unit)[0])
    return [_flows(m, i, forest, fleet, aim, rate) for i in range(len(forest))], rate


def _flows(m: Builder, i: int, forest: Forest, fleet: Fleet, aim: Aim, rate: int | None) -> list[Places]:
    tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    total = 0.0 if is_absolute(i, aim) else 1.0
    columns: list[Places] = []
    for task, level in zip(tree.tasks, levels, strict=True):

        def label(p: int, task=task, level=level) -> str:  # type: ignore[no-untyped-def]
            return f"{p} {task.label(int(level.config[p]), fleet.hardware)}"

        n = m.columns(f"n {name}{task.id}", label, size=level.size)
        columns.append(n)
        if task.parent < 0:
            row = m.rows(f"all {name}{task.id}", ["all"], lower=total, upper=total, equation="(1)")
            m.add(row, n, 1.0)
            if is_absolute(i, aim):
                assert rate is not None
                m.add(row, rate, -1.0)
            continue
        size = levels[task.parent].size
        rows = m.rows(f"onward {name}{task.id}", str, size=size, lower=0.0, upper=0.0, equation="(1)")
        m.add(rows[level.parent], n, 1.0)
        m.add(rows, columns[task.parent], -1.0)
    return columns


def terms_of(forest: Forest, flows: list[list[Places]]) -> list[list[Term]]:
    """Per tree what its accuracy is: the mean over its last tasks, of the queries that are not late on purpose."""
    return [
        [(own[sink], (1.0 - tree.late) / len(tree.sinks) * levels[sink].quality) for sink in tree.sinks]
        for (tree, levels), own in zip(forest, flows, strict=True)
    ]


def add_qualities(
    m: Builder, trees: Sequence[Tree], terms: Sequence[Sequence[Term]], aim: Aim, rate: int | None = None
) -> None:
    """The objective where it is about accuracy, the floors, and what earlier levels of the objective have reached."""
    late = sum(tree.weight * tree.late_quality for tree in trees)
    least = before = None
    if aim.goal == "fairest":
        best = [sum(quality.max(initial=0.0) for _, quality in own) for own in terms]
        most = min(own + tree.late_quality for own, tree in zip(best, trees, strict=True))
        least = int(m.columns("least quality", ["all"], upper=most, cost=1.0)[0])
    if aim.goal == "quality":
        m.offset += late
    for i, (tree, own) in enumerate(zip(trees, terms, strict=True)):
        rows = list[Places]()
        floors = [value for value in (tree.floor if aim.floors else None, aim.each_least) if value is not None]
        if floors:
            absolute = is_absolute(i, aim)
            low = 0.0 if absolute else max(floors) - tree.late_quality
            rows.append(m.rows(f"quality {tree.app}", ["all"], lower=low))
            if absolute:
                assert rate is not None
                m.add(rows[-1], rate, -max(floors))
        if least is not None:
            rows.append(m.rows(f"no less than the least {tree.app}", ["all"], lower=-tree.late_quality))
            m.add(rows[-1], least, -1.0)
        if aim.quality_least is not None and before is None:
            before = m.rows("quality so far", ["all"], lower=aim.quality_least - late)
        for columns, quality in own:
            for row in rows:
                m.add(row, columns, quality)
            if before is not None:
                m.add(before, columns, tree.weight * quality)
            if aim.goal == "quality":
                m.pay(columns, tree.weight * quality)


def flows_form(forest: Forest, fleet: Fleet, aim: Aim) -> Milp:
    """Flows and what they are worth, without a server in sight."""
    m, trees = Builder("max", name=f"flows {aim.goal}"), [tree for tree, _ in forest]
    flows, rate = add_flows(m, forest, fleet, aim)
    add_qualities(m, trees, terms_of(forest, flows), aim, rate)
    return m.build()
