r"""Pipelines that join branches: shares per step, start times, additive accuracy.

Shares of paths mean nothing where branches meet again, so what is planned for is what they cannot matter to: accuracy
that adds up over the steps, and factors that do not depend on the variant.

::

    max sum_t a_t sum_k A_k s_tk                              a_t: quality weights of the steps
    sum_k s_tk = 1;   D gain_t s_tk <= sum_c q_c x_c          per step t and variant k
    x_c <= S_g z_c,   sum_b z <= 1                            one batch per variant and hardware
    T_t >= l_c z_c;   s_v >= s_u + T_u per edge;   s_t + T_t <= H
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.faults import Faults
from hetplan.problems.pipeline.climb import SLIPS, Solved, climb
from hetplan.problems.pipeline.infeasible import Carried, all_limits_looser, loosened, looser_limits, rate_repair
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import (
    Asked,
    Servers,
    Written,
    add_groups,
    add_servers,
    bound_of_servers,
)
from hetplan.problems.pipeline.tree import Level, Places, Tree

__all__ = ["by_steps", "in_room", "may_be_late", "steps_form"]

Edges = Sequence[tuple[int, int]]

HALVINGS = 24
"""Of the interval in which the largest demand is sought: to a ten-millionth of it."""


def _check(problem: Pipelines) -> None:
    """Raise `InputError` where a pipeline that joins branches cannot be planned exactly."""
    faults = Faults.of(problem.inputs)
    if problem.formulation not in ("config", "budget"):
        why = f"the formulation {problem.formulation} plans trees; a pipeline here joins branches"
        faults.in_options("formulation", why, "Use config or budget.", value=problem.formulation)
    for tree in problem.wish.trees:
        at = f"$.pipelines.{problem.request.apps[tree.app].pipeline}"
        if tree.rule != "additive" or tree.paths:
            why = "steps with several steps before them are planned for accuracy that adds up over the steps only"
            remedy = 'Set "rule": "additive", or plan a tree.'
            faults.in_profile(f"{at}.quality.rule", why, remedy, value=tree.rule)
        for task in tree.tasks:
            if any(values.size and np.ptp(values) > 0 for values in task.factor.values()):
                why = f"what {task.id} sends on depends on the variant, which shares per step cannot follow"
                faults.in_profile(f"{at}.edges", why, "Give one fanout per edge, or plan a tree.")
        gains = _gains(tree, problem.wish.joins.get(tree.app, _edges(tree)))
        for t, several in enumerate(gains):
            if several and np.ptp(several) > 1e-9:
                why = f"the branches that meet at {tree.tasks[t].id} bring different numbers of queries"
                faults.in_profile(f"{at}.edges", why, "Make the fanouts along them multiply to the same.")
    faults.settle()


def _edges(tree: Tree) -> Edges:
    return [(task.parent, t) for t, task in enumerate(tree.tasks) if task.parent >= 0]


def _gains(tree: Tree, edges: Edges) -> list[list[float]]:
    """Queries that reach each step per query at the entrance, as each step before it says."""
    found: list[list[float]] = []
    for t in range(len(tree.tasks)):
        before = [u for u, v in edges if v == t]
        found.append([found[u][0] * float(tree.tasks[u].factor[t][0]) for u in before] or [1.0])
    return found


def by_steps(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """The best accuracy on all servers, then the least of them; raises `InputError` where no plan could be exact."""
    _check(problem)
    trees = in_room(problem)
    if any(not task.size for tree in trees for task in tree.tasks):
        return Infeasibility(why=("latency: some step has no variant that is fast enough beside the fastest others",))
    for slip in SLIPS:
        base = problem.asked(problem.levels[0], slip=slip)
        goals = problem.levels
        climbed = climb(ask, lambda asked: steps_form(problem, trees, asked), goals, base, scope=problem.scope)
        if isinstance(climbed, Answer):
            if climbed.status is Status.INFEASIBLE:
                why = "capacity: the servers do not carry the demand in time"
                proved = slip == SLIPS[0]  # else by capacities that were tightened
                return Infeasibility(why=(why,), repairs=_repairs(problem, ask, trees), answer=climbed, proved=proved)
            return Infeasibility(why=(f"no plan was found: {climbed.detail or climbed.stop}",), proved=False)
        written, point, reported = climbed
        counts = written.counts(point)
        fixed = steps_form(problem, trees, Asked("quality", counts=counts))
        again = ask(fixed.form, about="shares of the chosen servers")
        if again.point is not None:
            shares = fixed.flows
            found = _solved(problem, trees, counts, [[again.point[s] for s in own] for own in shares])
            return replace(found, reported=tuple(found.valued(one) for one in reported))
    return Infeasibility(why=("whole servers do not carry what the program promised",), proved=False)


def _repairs(problem: Pipelines, ask: Ask, trees: Sequence[Tree]) -> tuple[Repair, ...]:
    """The largest part of all demands, by bisection; and each limit on machines that helps."""
    found: list[Repair] = []
    enough = problem.wish.fleet.most.sum() >= sum(len(tree.tasks) for tree in trees)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS if enough else 0):
        middle = (low + high) / 2
        less = [replace(tree, demand=middle * tree.demand) for tree in trees]
        form = steps_form(problem, less, Asked("servers")).form
        try:
            fits = ask(form, gap=1.0, about="how much demand").point is not None
        except SolverFailed:
            fits = False  # on the edge, to within an engine's tolerance
        low, high = (middle, high) if fits else (low, middle)
    for tree in trees if low > 0 else ():
        found.append(rate_repair(tree, low * tree.demand))

    def find(_: Sequence[Tree], asked: Asked, about: str) -> Carried | None:
        written = steps_form(problem, trees, asked)
        form = loosened(written.form, asked)
        answer = None if form is None else ask(form, about=about)
        if answer is None or answer.point is None or answer.value is None or answer.bound is None:
            return None
        return Carried(answer.value, answer.bound, trees, written.counts(answer.point))

    def write(asked: Asked) -> Milp:
        return steps_form(problem, trees, asked).form

    found += looser_limits(problem, write, find)
    return tuple(found or all_limits_looser(problem, ask, write))


def _limits(problem: Pipelines, tree: Tree, edges: Edges) -> list[float]:
    """H per step: the limit less the network of the longest way there."""
    hops = [1] * len(tree.tasks)
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        hops[v] = max(hops[v], hops[u] + 1)
    slo = problem.stated_ms(tree.app)
    return [(slo - problem.network_ms(tree.app, n)) / problem.options.slo_divisor for n in hops]


def _with_room(tree: Tree, edges: Edges, problem: Pipelines) -> Tree:
    """Without configurations that cannot be in time beside the fastest others."""
    limit = _limits(problem, tree, edges)
    least = [float(task.ms.min()) if task.size else np.inf for task in tree.tasks]
    start, room = np.zeros(len(least)), np.array(limit)
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        start[v] = max(start[v], start[u] + least[u])
    for u, v in sorted(edges, key=lambda edge: -edge[1]):
        room[u] = min(room[u], room[v] - least[v])
    return tree.keeping([task.ms <= room[t] - start[t] + 1e-9 for t, task in enumerate(tree.tasks)])


def may_be_late(problem: Pipelines, tree: Tree) -> bool:
    """Whether the slowest of all steps end later than they may."""
    edges = problem.wish.joins[tree.app]
    took = [float(task.ms.max(initial=0.0)) for task in tree.tasks]
    ended = list(took)
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        ended[v] = max(ended[v], ended[u] + took[v])
    return any(end > limit + 1e-9 for end, limit in zip(ended, _limits(problem, tree, edges), strict=True))


def in_room(problem: Pipelines) -> list[Tree]:
    """The steps with the configurations that are fast enough beside the fastest of others."""
    return [_with_room(tree, problem.wish.joins.get(tree.app, _edges(tree)), problem) for tree in problem.considered]


def steps_form(problem: Pipelines, trees: Sequence[Tree], asked: Asked) -> Written:
    """Write the program; with servers in parts it asks of no time."""
    fleet = problem.wish.fleet
    m = Builder("max" if asked.goal in ("quality", "fairest") else "min", name=f"steps {asked.goal}")
    edges = [problem.wish.joins.get(tree.app, _edges(tree)) for tree in trees]
    gains = [[min(several) for several in _gains(tree, own)] for tree, own in zip(trees, edges, strict=True)]
    uppers = [[bound_of_servers(tree, own, t, fleet, asked) for t in range(len(tree.tasks))]
              for tree, own in zip(trees, gains, strict=True)]  # fmt: skip
    servers = add_servers(m, trees, uppers, fleet, asked)
    shared = [_shares(m, i, tree, gains[i], servers, asked) for i, tree in enumerate(trees)]
    if asked.counts is None:
        add_groups(m, trees, uppers, servers, fleet, asked, [loads for _, loads in shared])
    flows: list[list[Places]] = []
    totals: list[tuple[Tree, list[tuple[Places, np.ndarray]]]] = []
    for i, tree in enumerate(trees):
        flows.append(shared[i][0])
        if asked.counts is None and asked.whole:
            _times(m, tree, edges[i], servers.x[i], uppers[i], _limits(problem, tree, edges[i]))
        weights, part = tree.weights or {}, 1.0 - tree.late
        terms = [(s, part * weights.get(task.id, 1.0) * task.quality[np.unique(task.variant)])
                 for s, task in zip(flows[i], tree.tasks, strict=True)]  # fmt: skip
        totals.append((tree, terms))
    _goals(m, totals, asked)
    return Written(m.build(), servers.x, flows)


def _shares(
    m: Builder, i: int, tree: Tree, gains: Sequence[float], servers: Servers, asked: Asked
) -> tuple[list[Places], Places]:
    """Columns of shares per task, and for each configuration the row of what its variant's servers carry."""
    columns, rows, start = list[Places](), list[Places](), 0
    for t, task in enumerate(tree.tasks):
        used = np.unique(task.variant)
        s = m.columns(f"s {tree.app}/{task.id}", str, size=used.size)
        m.add(m.rows(f"all {tree.app}/{task.id}", ["all"], lower=1.0, upper=1.0), s, 1.0)
        row_of, capacity = np.searchsorted(used, task.variant), task.qps * (1.0 - asked.slip)
        upper = np.zeros(used.size)
        if asked.counts is not None:
            counts = asked.counts[i][start : start + task.size]
            np.add.at(upper, row_of, capacity * np.maximum(counts - tree.spare / task.k, 0.0))
        load = m.rows(f"load {tree.app}/{task.id}", str, size=used.size, upper=upper, unit="qps")
        m.add(load, s, tree.demand * gains[t])
        if asked.counts is None:
            m.add(load[row_of], servers.x[i][start : start + task.size], -capacity)
        start += task.size
        columns.append(s)
        rows.append(load[row_of])
    return columns, np.concatenate(rows)


def _times(
    m: Builder, tree: Tree, edges: Edges, x: Places, uppers: Sequence[np.ndarray], limit: Sequence[float]
) -> None:
    """A step takes as long as its slowest configuration in use; what follows starts after it."""
    size = len(tree.tasks)
    took = m.columns(f"T {tree.app}", str, size=size, unit="ms")
    begins = m.columns(f"start {tree.app}", str, size=size, unit="ms")
    start = 0
    for t, task in enumerate(tree.tasks):
        used = m.columns(f"used {tree.app}/{task.id}", str, size=task.size, upper=1.0, whole=True)
        rows = m.rows(f"used {tree.app}/{task.id}", str, size=task.size, upper=0.0)
        m.add(rows, x[start : start + task.size], 1.0)
        m.add(rows, used, -uppers[t])
        slow = m.rows(f"time {tree.app}/{task.id}", str, size=task.size, upper=0.0)
        m.add(slow, used, task.ms)
        m.add(slow, took[t], -1.0)
        start += task.size
    after = m.rows(f"order {tree.app}", str, size=len(edges), lower=0.0, unit="ms")
    for row, (u, v) in zip(after, edges, strict=True):
        m.add(row, begins[v], 1.0)
        m.add(row, begins[u], -1.0)
        m.add(row, took[u], -1.0)
    ends = m.rows(f"in time {tree.app}", str, size=size, upper=np.array(limit), unit="ms")
    m.add(ends, begins, 1.0)
    m.add(ends, took, 1.0)


def _goals(m: Builder, totals: Sequence[tuple[Tree, list[tuple[Places, np.ndarray]]]], asked: Asked) -> None:
    least = int(m.columns("least quality", ["all"], upper=1e9)[0]) if asked.goal == "fairest" else None
    late = sum(tree.weight * tree.late_quality for tree, _ in totals)
    least_of_all = None if asked.quality_least is None else asked.quality_least - late
    before = None if least_of_all is None else m.rows("quality so far", ["all"], lower=least_of_all)
    m.offset += late if asked.goal == "quality" else 0.0
    for tree, terms in totals:
        floors = [value for value in (tree.floor, asked.each_least) if value is not None]
        more = tree.late_quality
        row = m.rows(f"quality {tree.app}", ["all"], lower=max(floors, default=0.0) - more)
        worst = None if least is None else m.rows(f"no less than the least {tree.app}", ["all"], lower=-more)
        if worst is not None and least is not None:
            m.add(worst, least, -1.0)
        for columns, quality in terms:
            m.add(row, columns, quality)
            if worst is not None:
                m.add(worst, columns, quality)
            if before is not None:
                m.add(before, columns, tree.weight * quality)
            if asked.goal == "quality":
                m.pay(columns, tree.weight * quality)
    if least is not None:
        m.pay(least, 1.0)


def _solved(
    problem: Pipelines, trees: Sequence[Tree], counts: Sequence[Places], shares: Sequence[Sequence[np.ndarray]]
) -> Solved:
    """Steps beside one another, each with its own shares; the accuracy of all is their sum."""
    forest, kept, flows, longest = [], [], [], {}
    for tree, n, own in zip(trees, counts, shares, strict=True):
        edges = problem.wish.joins.get(tree.app, _edges(tree))
        gains = _gains(tree, edges)
        masks, tasks, levels, spread, start = [], [], list[Level](), [], 0
        for t, task in enumerate(tree.tasks):
            mine = n[start : start + task.size]
            start += task.size
            masks.append(mine > 0)
            small = replace(task.keeping(masks[-1]), parent=-1)
            tasks.append(small)
            share = np.zeros(len(task.variants))
            share[np.unique(task.variant)] = own[t]
            capacity = small.qps * mine[mine > 0]
            whole = np.bincount(small.variant, weights=capacity, minlength=len(task.variants))
            spread.append(share[small.variant] * capacity / whole[small.variant])
            weight = (tree.weights or {}).get(task.id, 1.0) * len(tree.tasks)
            levels.append(
                Level(np.zeros(small.size, np.int64), np.arange(small.size), small.ms,
                      np.full(small.size, gains[t][0]), weight * task.quality[small.variant], small.variant[:, None])
            )  # fmt: skip
        limits = _limits(problem, tree, edges)
        flat = replace(tree, tasks=tuple(tasks), limit_ms=dict(enumerate(limits)))
        forest.append((flat, levels))
        kept.append(n[n > 0])
        flows.append(spread)
        longest[tree.app] = _longest(problem, flat, edges, spread)
    return Solved(forest, kept, flows, mode="accuracy", reported=(), longest_ms=longest)


def _longest(problem: Pipelines, tree: Tree, edges: Edges, shares: Sequence[np.ndarray]) -> float:
    """When the last step ends, execution and network alone."""
    network = problem.request.apps[tree.app].hop_ms
    took = [float(task.ms[n > 1e-9].max()) + network for task, n in zip(tree.tasks, shares, strict=True)]
    ended = list(took)
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        ended[v] = max(ended[v], ended[u] + took[v])
    return max(ended) + problem.network_ms(tree.app, 0)
