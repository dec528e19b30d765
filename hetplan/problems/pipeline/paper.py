r"""Loki's own program (formulation `paper`), linear and with its errors mended.

::

    max (1/sinks) sum_p A_p c_p                        (12); min sum x at the best accuracy (8-11)
    (2) D sum_{p through k} m_p c_p <= sum_{g,b} q x(k,g,b)
    (3) sum x <= S_g
    (4) x(k,g,b) <= S_g z(k,g,b),  sum_b z <= 1
    (5) l_k >= z(k,g,b) latency(k,g,b)
    (6) c_p <= I_p
    (7) sum_{k on p} l_k + M_p I_p <= H + M_p,  M_p = sum of the largest latencies - H

c_p are shares of paths of variants, written through their prefixes, so that the last tasks agree on what came before.
Paths that no choice of servers can bring in time are left out; paths that none can make late need no I. With one
hardware this equals `config`; with several, l_k is the slowest of the hardware in use, so it may find less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible
from hetplan.planner.forms.milp import Builder
from hetplan.problems.pipeline.exact import by_programs
from hetplan.problems.pipeline.flows import Forest
from hetplan.problems.pipeline.levels import Solved
from hetplan.problems.pipeline.rows import Asked, Places, Servers, Written
from hetplan.problems.pipeline.tree import Level, Tree, prefixes
from hetplan.problems.pipeline.variants import merged, variant_form

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["by_paper"]


def by_paper(problem: Pipeline, ask: Ask) -> Solved | Infeasible:
    """Hardware scaling while the best accuracy can be kept, else accuracy scaling."""
    fleet = problem.wish.fleet

    def write(forest: Forest, asked: Asked) -> Written:
        def in_time(
            m: Builder,
            trees: Sequence[Tree],
            forest: Forest,
            flows: list[list[Places]],
            servers: Servers,
            uppers: list[list[np.ndarray]],
        ) -> None:
            for i, tree in enumerate(trees):
                _in_time(m, tree, forest[i], flows[i], servers.x[i], uppers[i])
            for tree, x in zip(trees, servers.x, strict=True) if asked.whole else ():
                _count_servers(m, tree, x)

        return variant_form("paper", forest, problem.served, fleet, asked, more=in_time)

    forest = [(tree, prefixes(tree)) for tree in map(merged, problem.served)]
    one = len({int(g) for tree in problem.served for task in tree.tasks for g in task.hardware}) <= 1
    return by_programs(problem, ask, forest, write, scope="problem" if one else "restriction")


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


def _in_time(
    m: Builder, tree: Tree, kept: tuple[Tree, list[Level]], flows: list[Places], x: Places, uppers: list[np.ndarray]
) -> None:
    """(4) to (7): the latency of a variant, and which paths may be used."""
    merged_tree, levels = kept
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
