r"""What bursts ask of pipelines, whoever dispatches: rows that join the program of servers in parts.

Of the N queries that come in a window of length T (`serving.window`), those that are to be in time have the servers for
T + D, at every step. With N_j the atoms of N, q_j their chances, D a response limit that a share m of the queries may
miss, and all else as in `form`::

    s_j                                                    share of the queries that is in time, where N_j come
    v_yj                                                   jobs on configuration y for these, per query that comes
    (5) sum_{y of t} v_yj >= s_j                           steps t at the entrance
    (5) sum_{y of t} v_yj >= sum_{y of u} r_y v_yj - (1 - s_j) c_t        steps t that follow u
    (6) N_j w_y v_yj <= x_y (T + D)                        every configuration: its servers have no more time
    (7) sum_j q_j N_j (1 - s_j) <= m E N                   no more are late than may be

Paths need not be in time here, as the rows (1) to (3) have them: a burst may be met on any servers there are. Where the
accuracy is the best there is, no job may go to others, in bursts neither.

c_t is for who lets those be late that send on most. A job sends on floor(r) or ceil(r), r in the mean: so jobs of
queries in time send on r each, less ceil(r) - r for each job of a late query. That has no more jobs at a step than the
product of all ceil(r) before it.

w_y is the least server time that a job takes, in batches of any measured size up to that of y. Where times vary,
`serving.window` says what it is, and T + 2 D takes the place of T + D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetplan.planner.forms.milp import Builder
from hetplan.planner.tolerances import SLIP
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.tree import Level, Places, Task, Tree, Vector
from hetplan.serving.reading import answering
from hetplan.serving.window import Window, busiest, least_work, time_after

__all__ = ["Burst", "bursts_of"]

MOST_COLUMNS = 1500
"""Larger programs take longer than the plan that they bound: fewer atoms do then."""


@dataclass(frozen=True)
class Burst:
    """A window of a pipeline's arrivals, and a limit, ms, that a share `late` of its queries may miss.

    `tree` is the pipeline as stated, `number` which of the trees it is; of each step `work` is w_y in ms, `span_ms` how
    long the servers of each configuration have for those in time.
    """

    tree: Tree
    number: int
    window: Window
    limit_ms: float
    late: float
    work: tuple[Vector, ...]
    span_ms: tuple[Vector, ...]

    def add(self, m: Builder, tree: Tree, levels: Sequence[Level], x: Places) -> None:
        """Add the columns s and v and their rows; `x` are the columns of the servers of each configuration.

        Jobs go to the configurations of `tree` where some of the prefixes in `levels` end.
        """
        used = [np.unique(level.config) for level in levels]
        fit = [own[np.isfinite(work[own])] for own, work in zip(used, self.work, strict=True)]
        window, at = self.window, f" of {self.limit_ms:g} ms of {tree.app} ({self.late:.4g})"
        part = window.chance * window.count / window.mean / self.late  # what may be late is 1: few may be
        enough = m.rows("in time in bursts" + at, ["share"], lower=part.sum() - 1.0, equation="(7)")
        for j, count in enumerate(window.count.tolist()):
            s = m.columns(f"in time, burst {j}{at}", ["share"], upper=1.0)
            m.add(enough, s, part[j])
            self._add_burst(m, tree, fit, x, s, count, f"burst {j}{at}")

    def _add_burst(
        self, m: Builder, tree: Tree, fit: Sequence[Places], x: Places, s: Places, count: float, burst: str
    ) -> None:
        """(5) and (6) where so many queries come, on these configurations of each step."""
        stated, start, v = self.tree.tasks, 0, list[Places]()
        most = _most_jobs(self.tree)
        for t, task in enumerate(tree.tasks):
            work, span_ms = self.work[t][fit[t]], self.span_ms[t][fit[t]]
            v.append(m.columns(f"v {task.id}, {burst}", str, size=fit[t].size))
            room = m.rows(f"time {task.id}, {burst}", str, size=fit[t].size, upper=0.0, equation="(6)")
            m.add(room, v[t], count * work / span_ms)
            m.add(room, x[start : start + task.size][fit[t]], -1.0)
            start += task.size
            if task.parent < 0:
                jobs = m.rows(f"jobs {task.id}, {burst}", ["all"], lower=0.0, equation="(5)")
                m.add(jobs, s, -1.0)
            else:
                sent = stated[task.parent].factor[t]
                fewer = most[task.parent] * float((np.ceil(sent) - sent).max())
                jobs = m.rows(f"jobs {task.id}, {burst}", ["all"], lower=-fewer, equation="(5)")
                m.add(jobs, v[task.parent], -sent[tree.tasks[task.parent].variant[fit[task.parent]]])
                if fewer > 0.0:
                    m.add(jobs, s, -fewer)
            m.add(jobs, v[t], 1.0)


def _most_jobs(tree: Tree) -> Vector:
    """At most how many jobs a query has at each step."""
    most = np.ones(len(tree.tasks))
    for t, task in enumerate(tree.tasks):
        if task.parent >= 0:
            most[t] = most[task.parent] * np.ceil(tree.tasks[task.parent].factor[t]).max()
    return most


def bursts_of(problem: Pipelines, stated: Pipelines) -> list[Burst]:
    """The bursts that ask for more servers than the rates do; none where it is not known when queries come.

    `problem` answers no more than it must: what comes, and how many a query sends on, is as `stated`.
    """
    found, trees = list[Burst](), {tree.app: tree for tree in stated.wish.trees}
    for number, tree in enumerate(problem.served):
        app, comes = problem.request.apps[tree.app], trees[tree.app]
        steps = min(len(tree.path(sink)) for sink in tree.sinks)
        size = sum(task.size for task in tree.tasks)
        for target in app.targets:
            limit = target.limit_ms(steps)
            if limit <= 0.0 or app.arrivals.process not in ("mmpp", "gamma"):
                continue
            works = [_works(task, limit) for task in tree.tasks]
            after_ms = time_after(limit, varies=any(varies.any() for _, varies in works))
            window = busiest(app.arrivals, comes.demand, after_ms / 1000.0, target.left)
            while window is not None and window.count.size * size > MOST_COLUMNS:
                window = window.coarser() if window.count.size > 1 else None
            if window is not None:
                spans = tuple(
                    1000.0 * window.seconds + np.where(varies, time_after(limit, varies=True), limit)
                    for _, varies in works
                )
                found.append(Burst(comes, number, window, limit, target.left, tuple(work for work, _ in works), spans))
    return found


def _works(task: Task, limit_ms: float) -> tuple[Vector, Vector]:
    """What a job takes of a server of each configuration, ms, infinite where it is late; and where times vary."""
    works, varies = np.full(task.size, np.inf), np.zeros(task.size, dtype=bool)
    for y in range(task.size):
        choice, most = task.choice(y), int(task.batch[y])
        law = choice.law
        varies[y], statistic = law.has_spread, answering(law.statistics, "mean")
        sizes = [int(size) for size in law.axes.get("batch", ()) if size <= most] if "batch" not in choice.at else []
        for size in {*sizes, most}:
            times, least = law.distribution({}, size) if law.has_spread else None, law.ms({}, size, statistic)
            if times is not None:
                least = least_work(times, limit_ms)
            elif least > limit_ms * (1.0 + SLIP):
                continue
            works[y] = min(works[y], least / size)
    return works / task.k, varies
