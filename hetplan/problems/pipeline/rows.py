"""What every program over pipelines shares: servers and prices, flows and accuracy, and what a goal may not lose.

Formulations differ in what flows are shares of; the columns x (servers per configuration), n (shares of prefixes) and
the rows on them are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import NOTHING, Expression, Uses, bill, limit_moves, machines_rented, rent, weighted
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.tree import Level, Places, Tree, Vector

__all__ = [
    "ONE_MORE",
    "Asked",
    "Forest",
    "Servers",
    "Written",
    "add_flows",
    "add_groups",
    "add_qualities",
    "add_servers",
    "bound_of_servers",
    "flow_unit",
    "flows_form",
    "largest_gains",
]

ONE_MORE = "one more server"
"""The column of whether all servers are needed, see `Asked.servers_above`."""

MOST_OF_A_GROUP = 1e5
"""Where nothing limits the servers of a group, it has no more than these."""

Forest = Sequence[tuple[Tree, list[Level]]]
Goal = Literal["quality", "fairest", "servers", "cost", "changes", "rate", "room"]


@dataclass(frozen=True)
class Asked:
    """One question to a program: what to strive for, and what must hold.

    "room" is capacity that shares of given servers leave over, of each group no more than one server's. `rate_of` is
    the application whose rate is the goal "rate" (None: all rates in proportion). `loose` is the field of a stated
    limit that may give way (`infeasible.loosened`). `counts` fixes the servers, per tree and configuration.
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


@dataclass
class Servers:
    """Columns of servers: `x` per tree and configuration, and `new` ones; how many are rented, and what they cost."""

    x: list[Places]
    rented: Expression = NOTHING
    bill: Expression = NOTHING
    new: Places = field(default_factory=lambda: np.zeros(0, np.int64))

    def rent(
        self, m: Builder, fleet: Fleet, x: Places, hardware: Places, places: Places, fee: Vector, asked: Asked
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
            most={} if asked.loose is None else dict.fromkeys(used, np.inf),
            idle=shared,
            counted=frozenset(used) - shared if asked.whole else frozenset(used),
            fees=Expression(x[fee > 0], fee[fee > 0]),
        )
        n = rent(m, request, uses, priced=asked.goal == "cost", whole=asked.whole)
        rented = machines_rented(request, uses, n)
        self.rented = weighted((one, 1.0) for one in rented)
        self.bill = bill(request, uses, n)
        if asked.goal == "servers" and asked.servers_above is None:
            m.pay(self.rented.columns, self.rented.coefficients)
        for kind in request.machines:
            if kind.id in shared and kind.least:  # something runs on each that must be there
                row = m.rows(f"used {kind.id}", ["all"], lower=0.0, unit="instances")
                m.add(row, used[kind.id].columns, 1.0)
                for offer, one in zip(request.offers, rented, strict=True):
                    if offer.machine == kind.id:
                        m.add(row, one.columns, np.multiply(one.coefficients, -1.0))


@dataclass(frozen=True)
class Written:
    """A program, and where its columns are."""

    form: Milp
    x: list[Places]
    flows: list[list[Places]]
    """Per tree and task, the shares of its prefixes."""
    rate: int | None = None

    def counts(self, point: Vector) -> list[Places]:
        """Whole servers per tree and configuration."""
        return [np.round(point[columns]).astype(np.int64) for columns in self.x]


def bound_of_servers(tree: Tree, gains: Sequence[float], t: int, fleet: Fleet, asked: Asked) -> Vector:
    """At most how many servers of each configuration of a task can be of use."""
    task = tree.tasks[t]
    limit = np.full(task.size, np.inf) if asked.loose is not None else np.floor(fleet.most[task.hardware] / task.places)
    if asked.bursty or (asked.goal == "rate" and asked.rate_most is None):
        return limit
    useful = np.ceil(tree.demand * gains[t] / task.qps * (1 + 1e-9) + 1e-9 + tree.spare / task.k)
    # Servers beyond need are wanted only where a least number is stated.
    return np.minimum(limit, np.maximum(useful, fleet.least[task.hardware]))


def add_servers(
    m: Builder, trees: Sequence[Tree], uppers: Sequence[Sequence[Vector]], fleet: Fleet, asked: Asked
) -> Servers:
    """Columns x, what they rent, and moves."""
    prefix = [f"{tree.app}/" if len(trees) > 1 else "" for tree in trees]
    found = Servers([])
    for i, tree in enumerate(trees):
        if asked.counts is not None:
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
                    whole=asked.whole,
                    unit="servers",
                )
            )
        found.x.append(np.concatenate(blocks) if blocks else np.zeros(0, np.int64))
    if asked.counts is None:
        _limit_servers(m, trees, fleet, asked, found)
    return found


def _limit_servers(m: Builder, trees: Sequence[Tree], fleet: Fleet, asked: Asked, found: Servers) -> None:
    """Servers are rented by the program over machines (3); goals before this one lose nothing."""
    hardware, places, fee = (
        np.concatenate([getattr(task, name) for tree in trees for task in tree.tasks])
        for name in ("hardware", "places", "fee")
    )
    found.rent(m, fleet, np.concatenate(found.x), hardware, places, fee, asked)
    _count_moves(m, trees, fleet, asked, found)
    if asked.servers_above is not None:
        one_more = m.columns(ONE_MORE, ["all"], upper=1.0, cost=1.0, whole=True)
        row = m.rows("servers but for one", ["all"], upper=asked.servers_above, unit="servers")
        m.add(row, found.rented.columns, found.rented.coefficients)
        m.add(row, one_more, -1.0)
        m.offset += asked.servers_above
    for name, most, total in (
        ("servers", asked.servers_most, found.rented),
        ("cost", asked.cost_most, found.bill),
        ("changes", asked.moves_most, Expression(found.new)),
    ):
        if most is not None:
            m.add(m.rows(f"{name} so far", ["all"], upper=most), total.columns, total.coefficients)


def _count_moves(m: Builder, trees: Sequence[Tree], fleet: Fleet, asked: Asked, found: Servers) -> None:
    """Instances of each (application, step, variant, hardware) beyond those that run now are moves."""
    if asked.goal != "changes" and asked.moves_most is None and fleet.request.changes is None:
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
    if asked.goal == "changes":
        m.pay(found.new, 1.0)


def add_groups(
    m: Builder,
    trees: Sequence[Tree],
    uppers: Sequence[Sequence[Vector]],
    found: Servers,
    fleet: Fleet,
    asked: Asked,
    loads: Sequence[Places],
) -> None:
    """Which configurations are in use (z), where that counts.

    (4) one batch size per variant and hardware, unless `multibatch`; and in (2) the servers that a group in use keeps
    free. `loads` is per tree, for each configuration, the row of (2) that its servers are in.
    """
    ruled = asked.whole and not asked.multibatch
    for i, tree in enumerate(trees):
        start, counted = 0, []
        for t, task in enumerate(tree.tasks):
            x = found.x[i][start : start + task.size]
            start += task.size
            pair = task.variant * len(fleet.hardware) + task.hardware
            _, which, count = np.unique(pair, return_inverse=True, return_counts=True)
            several = np.flatnonzero(count[which] > 1) if ruled else np.zeros(0, np.int64)
            used = np.arange(task.size) if tree.spare > 0 else several
            if not used.size:
                continue
            z = m.columns(f"z {task.id}", lambda c: str(c), size=used.size, upper=1.0, whole=asked.whole)
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
            m.add(loads[i], own, of_one * (1.0 - asked.slip) * tree.spare)


def largest_gains(levels: Sequence[Level]) -> list[float]:
    """Per task, the most queries that can reach it per query at the entrance."""
    return [float(level.gain.max()) if level.size else 0.0 for level in levels]


def is_absolute(i: int, asked: Asked) -> bool:
    """Whether a tree's flows are queries per second (or multiples of its demand) rather than shares."""
    return asked.goal == "rate" and asked.rate_of in (None, i)


def flow_unit(tree: Tree, i: int, asked: Asked) -> float:
    """Queries per second that a flow of 1 means."""
    return 1.0 if is_absolute(i, asked) and asked.rate_of is not None else tree.demand


def add_flows(m: Builder, forest: Forest, fleet: Fleet, asked: Asked) -> tuple[list[list[Places]], int | None]:
    """Columns n per tree and task with the rows (1); and the column of the rate, where that is the goal."""
    rate = None
    if asked.goal == "rate":
        unit, most = "qps" if asked.rate_of is not None else "times the demand", asked.rate_most
        rate = int(m.columns("rate", ["all"], upper=np.inf if most is None else most, cost=1.0, unit=unit)[0])
    return [_flows(m, i, forest, fleet, asked, rate) for i in range(len(forest))], rate


def _flows(m: Builder, i: int, forest: Forest, fleet: Fleet, asked: Asked, rate: int | None) -> list[Places]:
    tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    total = 0.0 if is_absolute(i, asked) else 1.0
    columns: list[Places] = []
    for task, level in zip(tree.tasks, levels, strict=True):

        def label(p: int, task=task, level=level) -> str:  # type: ignore[no-untyped-def]
            return f"{p} {task.label(int(level.config[p]), fleet.hardware)}"

        n = m.columns(f"n {name}{task.id}", label, size=level.size)
        columns.append(n)
        if task.parent < 0:
            row = m.rows(f"all {name}{task.id}", ["all"], lower=total, upper=total, equation="(1)")
            m.add(row, n, 1.0)
            if is_absolute(i, asked):
                assert rate is not None
                m.add(row, rate, -1.0)
            continue
        size = levels[task.parent].size
        rows = m.rows(f"onward {name}{task.id}", str, size=size, lower=0.0, upper=0.0, equation="(1)")
        m.add(rows[level.parent], n, 1.0)
        m.add(rows, columns[task.parent], -1.0)
    return columns


def add_qualities(m: Builder, forest: Forest, flows: list[list[Places]], asked: Asked, rate: int | None) -> None:
    """The objective where it is about accuracy, the floors, and what earlier levels of the objective have reached."""
    total: list[tuple[Places, Vector]] = []
    most = min(
        tree.with_late(sum(levels[s].quality.max(initial=0.0) for s in tree.sinks) / len(tree.sinks))
        for tree, levels in forest
    )
    least = int(m.columns("least quality", ["all"], upper=most)[0]) if asked.goal == "fairest" else None
    for i, (tree, levels) in enumerate(forest):
        part = (1.0 - tree.late) / len(tree.sinks)
        terms = [(flows[i][sink], part * levels[sink].quality) for sink in tree.sinks]
        total += [(columns, tree.weight * quality) for columns, quality in terms]
        floors = [value for value in (tree.floor if asked.floors else None, asked.each_least) if value is not None]
        if floors:
            floor, absolute = max(floors, default=0.0), is_absolute(i, asked)
            row = m.rows(f"quality {tree.app}", ["all"], lower=0.0 if absolute else floor - tree.late_quality)
            for columns, quality in terms:
                m.add(row, columns, quality)
            if absolute:
                assert rate is not None
                m.add(row, rate, -floor)
        if least is not None:
            row = m.rows(f"no less than the least {tree.app}", ["all"], lower=-tree.late_quality)
            m.add(row, least, -1.0)
            for columns, quality in terms:
                m.add(row, columns, quality)
    late = sum(tree.weight * tree.late_quality for tree, _ in forest)
    if asked.quality_least is not None:
        row = m.rows("quality so far", ["all"], lower=asked.quality_least - late)
        for columns, quality in total:
            m.add(row, columns, quality)
    if asked.goal == "quality":
        m.offset += late
        for columns, quality in total:
            m.pay(columns, quality)
    if least is not None:
        m.pay(least, 1.0)


def flows_form(forest: Forest, fleet: Fleet, asked: Asked) -> Milp:
    """Flows and what they are worth, without a server in sight."""
    m = Builder("max", name=f"flows {asked.goal}")
    flows, rate = add_flows(m, forest, fleet, asked)
    add_qualities(m, forest, flows, asked, rate)
    return m.build()
