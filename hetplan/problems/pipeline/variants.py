"""Programs whose flows are shares of prefixes of variants: a variant's servers carry its load together.

Where any server of a variant may be met on any path, a path is in time when its slowest servers are. `merged` gives the
tree of variants; `variant_form` writes flows, loads per variant and servers. Who keeps paths in time is left to the
formulations: indicators (`pipeline_paper`), or one latency level per task (`pipeline_budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hetplan.planner.forms.milp import Builder
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.flows import Forest, add_flows, add_qualities, flow_unit, largest_gains, set_costs
from hetplan.problems.pipeline.rows import (
    Asked,
    Places,
    Servers,
    Written,
    add_batch_rule,
    add_goal,
    add_servers,
    bound_of_servers,
)
from hetplan.problems.pipeline.tree import Task, Tree

__all__ = ["More", "merged", "variant_form"]

More = Callable[[Builder, Sequence[Tree], Forest, list[list[Places]], Servers, list[list[np.ndarray]]], None]
"""Adds rows: (builder, trees, forest of variants, flows, servers, bounds on servers)."""


def merged(tree: Tree) -> Tree:
    """One configuration per variant: the fastest of its own."""
    return replace(tree, tasks=tuple(_merged(task) for task in tree.tasks))


def _merged(task: Task) -> Task:
    variants, place = np.unique(task.variant, return_inverse=True)
    ms = np.full(variants.size, np.inf)
    np.minimum.at(ms, place, task.ms)
    zeros = np.zeros(variants.size, np.int64)
    none = np.zeros(variants.size)
    return replace(task, variant=variants, hardware=zeros, batch=zeros + 1, ms=ms, qps=none, cost=none)


def variant_form(
    name: str, forest: Forest, trees: Sequence[Tree], fleet: Fleet, asked: Asked, *, more: More | None = None
) -> Written:
    """Write the program; `forest` is of merged trees, `trees` hold the configurations that servers may run."""
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate") else "min", name=f"{name} {asked.goal}")
    uppers = [
        [bound_of_servers(tree, largest_gains(levels), t, fleet, asked) for t in range(len(tree.tasks))]
        for tree, (_, levels) in zip(trees, forest, strict=True)
    ]
    servers = add_servers(m, trees, uppers, fleet, asked)
    flows, rate = add_flows(m, forest, fleet, asked)
    for i, tree in enumerate(trees):
        _loads(m, i, forest, tree, asked, flows[i], servers)
    if asked.whole and not asked.multibatch:
        add_batch_rule(m, trees, uppers, servers, fleet)
    if more is not None:
        more(m, trees, forest, flows, servers, uppers)
    costs: dict[int, float] = {} if rate is None else {rate: 1.0}
    add_qualities(m, forest, flows, asked, costs, rate)
    add_goal(costs, trees, servers, fleet, asked)
    return Written(set_costs(m.build(), costs), servers.x, flows, rate)


def _loads(m: Builder, i: int, forest: Forest, tree: Tree, asked: Asked, flows: list[Places], servers: Servers) -> None:
    """No variant gets more than its servers, of all types and batches, carry together."""
    merged_tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    unit, start = flow_unit(tree, i, asked), 0
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        mine = merged_tree.tasks[t].variant
        label = _names(task, mine)
        load = m.rows(f"load {name}{task.id}", label, size=mine.size, upper=0.0, unit="qps", equation="(2)")
        m.add(load[level.config], flows[t], unit * level.gain)
        row_of = np.searchsorted(mine, task.variant)
        m.add(load[row_of], servers.x[i][start : start + task.size], -task.qps * (1.0 - asked.slip))
        start += task.size


def _names(task: Task, mine: Places) -> Callable[[int], str]:
    return lambda row: task.variants[mine[row]]
