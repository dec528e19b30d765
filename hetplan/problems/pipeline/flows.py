"""How queries spread over prefixes: the columns n, the rows that keep all served, the accuracy that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp, Vector
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.rows import Asked, Places
from hetplan.problems.pipeline.tree import Level, Tree

__all__ = [
    "Forest",
    "add_flows",
    "add_qualities",
    "flow_unit",
    "flows_form",
    "is_absolute",
    "largest_gains",
    "set_costs",
]

Forest = Sequence[tuple[Tree, list[Level]]]


def largest_gains(levels: Sequence[Level]) -> list[float]:
    """Per task, the most queries that can reach it per query at the entrance."""
    return [float(level.gain.max()) if level.size else 0.0 for level in levels]


def is_absolute(i: int, asked: Asked) -> bool:
    """Whether a tree's flows are queries per second (or multiples of its demand) rather than shares."""
    return asked.goal == "rate" and asked.rate_of in (None, i)


def flow_unit(tree: Tree, i: int, asked: Asked) -> float:
    """Queries per second that a flow of 1 stands for."""
    return 1.0 if is_absolute(i, asked) and asked.rate_of is not None else tree.demand


def add_flows(m: Builder, forest: Forest, fleet: Fleet, asked: Asked) -> tuple[list[list[Places]], int | None]:
    """Columns n per tree and task with the rows (1); and the column of the rate, where that is the goal."""
    rate = None
    if asked.goal == "rate":
        unit, most = "qps" if asked.rate_of is not None else "times the demand", asked.rate_most
        rate = int(m.columns("rate", ["all"], upper=np.inf if most is None else most, unit=unit)[0])
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


def add_qualities(
    m: Builder, forest: Forest, flows: list[list[Places]], asked: Asked, costs: dict[int, float], rate: int | None
) -> None:
    """The objective where it is about accuracy, the floors, and what earlier levels of the objective have reached."""
    total: list[tuple[Places, Vector]] = []
    least = int(m.columns("least quality", ["all"], upper=1e9)[0]) if asked.goal == "fairest" else None
    for i, (tree, levels) in enumerate(forest):
        terms = [(flows[i][sink], levels[sink].quality / len(tree.sinks)) for sink in tree.sinks]
        total += [(columns, tree.weight * quality) for columns, quality in terms]
        floors = [value for value in (tree.floor if asked.floors else None, asked.each_least) if value is not None]
        if floors or least is not None:
            floor, absolute = max(floors, default=0.0), is_absolute(i, asked)
            row = m.rows(f"quality {tree.app}", ["all"], lower=0.0 if absolute else floor)
            for columns, quality in terms:
                m.add(row, columns, quality)
            if absolute:
                assert rate is not None
                m.add(row, rate, -floor)
            if least is not None:
                m.add(row, least, -1.0)
    if asked.quality_least is not None:
        row = m.rows("quality so far", ["all"], lower=asked.quality_least)
        for columns, quality in total:
            m.add(row, columns, quality)
    if asked.goal == "quality":
        for columns, quality in total:
            costs.update(zip(columns.tolist(), quality.tolist(), strict=True))
    if least is not None:
        costs[least] = 1.0


def flows_form(forest: Forest, fleet: Fleet, asked: Asked) -> Milp:
    """Flows and what they are worth, without a server in sight."""
    m = Builder("max", name=f"flows {asked.goal}")
    flows, rate = add_flows(m, forest, fleet, asked)
    costs: dict[int, float] = {}
    add_qualities(m, forest, flows, asked, costs, rate)
    return set_costs(m.build(), costs)


def set_costs(form: Milp, costs: dict[int, float]) -> Milp:
    """The form with these objective coefficients."""
    cost = np.zeros_like(form.cost)
    cost[list(costs)] = list(costs.values())
    return replace(form, cost=cost)
