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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Reported
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.gap import relative_gap
from hetplan.problems.pipeline.exact import by_config, by_programs
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.flows import Forest, add_flows, add_qualities, largest_gains, set_costs
from hetplan.problems.pipeline.levels import KEPT, Solved, best_quality, kept_best
from hetplan.problems.pipeline.levels_of import all_levels, at_levels, best_at, thinned
from hetplan.problems.pipeline.priced import can_be_priced, priced_levels
from hetplan.problems.pipeline.rows import Asked, Places, Written
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Tree, count_prefixes, prefixes
from hetplan.problems.pipeline.variants import merged, variant_form

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["Chosen", "by_budget", "levels_form"]

GAP = 5e-4
"""The gap of whole servers in stage 2, on a large cluster."""

PART_OF_A_SERVER = 0.1
"""On a small one a whole server is a larger part of it: the gap is at least this part of one."""

SMALL = 20_000
"""Up to so many prefixes the exact program is asked where levels fail."""

TIGHT = 1e-4
"""Prices whose bound is further than this from what their levels reach are put aside for one pipeline."""

GAP_OF_SEVERAL = 2e-3
"""The same where several pipelines share the servers."""


@dataclass(frozen=True)
class Levels:
    """The program of stage 1 and where its columns stand: per tree and task, w and its levels."""

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
class Chosen:
    """Levels per tree and task, with the answer that chose them."""

    levels: list[list[float]]
    answer: Answer[Any]


def levels_form(
    trees: Sequence[Tree], forest: Forest, levels: list[list[np.ndarray]], fleet: Fleet, asked: Asked
) -> Levels:
    """Stage 1: levels whole, servers in parts."""
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate") else "min", name=f"budget {asked.goal}")
    flows, rate = add_flows(m, forest, fleet, asked)
    w = [
        [
            m.columns(f"w {tree.app}/{task.id}", str, size=ms.size, upper=1.0, whole=True)
            for task, ms in zip(tree.tasks, own, strict=True)
        ]
        for tree, own in zip(trees, levels, strict=True)
    ]
    rooms: dict[int, tuple[list[Places], list[Any]]] = {}
    costs: dict[int, float] = {} if rate is None else {rate: 1.0}
    for i, tree in enumerate(trees):
        for t in range(len(tree.tasks)):
            m.add(m.rows(f"one level {tree.app}/{tree.tasks[t].id}", ["all"], lower=1.0, upper=1.0), w[i][t], 1.0)
            _add_task(m, i, t, trees, forest, flows, levels, w, rooms)
        for sink in tree.sinks:
            limit = tree.limit_ms[sink] + ON_LIMIT_MS
            row = m.rows(f"in time {tree.app}/{tree.tasks[sink].id}", ["all"], upper=limit, equation="(2)")
            for t in tree.path(sink):
                m.add(row, w[i][t], levels[i][t])
    _limits(m, rooms, fleet, asked, costs)
    add_qualities(m, forest, flows, asked, costs, rate)
    return Levels(set_costs(m.build(), costs), w, levels, flows)


def _add_task(
    m: Builder,
    i: int,
    t: int,
    trees: Sequence[Tree],
    forest: Forest,
    flows: list[list[Places]],
    levels: list[list[np.ndarray]],
    w: list[list[Places]],
    rooms: dict[int, tuple[list[Places], list[Any]]],
) -> None:
    """(3) to (5) of one task."""
    tree, task, (merged_tree, prefix) = trees[i], trees[i].tasks[t], forest[i]
    mine, name = merged_tree.tasks[t].variant, f"{tree.app}/{task.id}"
    gain = max(largest_gains([prefix[t]])[0], 1e-12)
    total = m.rows(f"load {name}", str, size=mine.size, lower=0.0, upper=0.0, equation="(3)")
    m.add(total[prefix[t].config], flows[i][t], prefix[t].gain / gain)
    for place, ms in enumerate(levels[i][t]):
        best = best_at(tree, t, float(ms))
        row_of = np.searchsorted(mine, task.variant[best])
        y = m.columns(f"y {name} {place}", str, size=mine.size)
        m.add(total, y, -1.0)
        row = m.rows(f"level {name} {place}", ["all"], upper=0.0, equation="(4)")
        m.add(row, y, 1.0)
        m.add(row, w[i][t][place], -1.0)
        x = m.columns(f"x {name} {place}", str, size=best.size, unit="servers")
        rows = m.rows(f"carried {name} {place}", str, size=mine.size, upper=0.0, equation="(5)")
        m.add(rows, y, 1.0)
        m.add(rows[row_of], x, -task.qps[best] / (tree.demand * gain))
        for g in np.unique(task.hardware[best]):
            columns, cost = rooms.setdefault(int(g), ([], []))
            on = task.hardware[best] == g
            columns.append(x[on])
            cost.append(task.cost[best][on])


def _limits(
    m: Builder, rooms: dict[int, tuple[list[Places], list[Any]]], fleet: Fleet, asked: Asked, costs: dict[int, float]
) -> None:
    """(6), and money."""
    budget = m.rows("budget", ["all"], upper=fleet.budget) if fleet.budget is not None and not asked.free else None
    for g, (columns, cost) in rooms.items():
        x, price = np.concatenate(columns), np.concatenate(cost)
        if fleet.is_split(g):
            price = np.full(x.size, (fleet.offers_of(g)[0].price or 0) / 1e9)
        if np.isfinite(fleet.most[g]) and not asked.free:
            m.add(m.rows(f"servers {fleet.hardware[g]}", ["all"], upper=fleet.most[g], equation="(6)"), x, 1.0)
        if budget is not None:
            m.add(budget, x, price)
        if asked.goal in ("servers", "cost"):
            costs.update(zip(x.tolist(), (np.ones(x.size) if asked.goal == "servers" else price).tolist(), strict=True))


def by_budget(problem: Pipeline, ask: Ask) -> Solved | Infeasible:
    """Levels by stage 1, whole servers by stage 2; with more passes, levels around the choice and stage 2 again."""
    from hetplan.problems.pipeline.infeasible_at_levels import is_beyond_all

    if is_beyond_all(problem, ask):
        return Infeasible(why=())
    best: Solved | None = None
    backed: Answer[Any] | None = None
    levels: list[list[float]] | None = None
    for _ in range(_passes(problem)):
        chosen = _choose(problem, ask, levels)
        if isinstance(chosen, Infeasible):
            return _exactly(problem, ask, chosen) if best is None else best
        if chosen.levels == levels:
            break
        levels = chosen.levels
        found = _whole_servers(problem, ask, levels)
        if isinstance(found, Infeasible):
            if best is None:
                return _exactly(problem, ask, found)
            break
        if best is None or _is_better(problem, found, best):
            best, backed = found, chosen.answer
    assert best is not None
    assert backed is not None
    if best.mode == "hardware" or problem.wish.goals[0] != "quality":
        return best
    note = "bound of the model with one latency level per step, of the levels tried last"
    claim = problem.valued(best, Reported("quality", "max", "restriction", backed, note=note))
    rest = tuple(problem.valued(best, one) for one in best.reported if one.about != "quality")
    return replace(best, reported=(claim, *rest))


def _exactly(problem: Pipeline, ask: Ask, failed: Infeasible) -> Solved | Infeasible:
    """What the exact program finds where the levels, or whole servers at them, do not do, if it is small."""
    return by_config(problem, ask) if sum(map(count_prefixes, problem.served)) <= SMALL else failed


def _passes(problem: Pipeline) -> int:
    return int(getattr(problem.options, "passes", 1))


def _is_better(problem: Pipeline, found: Solved, best: Solved) -> bool:
    """More accurate; or as accurate on fewer servers, where these are counted."""
    more = _value(found) - _value(best)
    if more > KEPT or "servers" not in problem.levels[1:2]:
        return more > 0
    return more >= -KEPT and sum(int(n.sum()) for n in found.counts) < sum(int(n.sum()) for n in best.counts)


def _value(found: Solved) -> float:
    return sum(tree.weight * a for (tree, _), a in zip(found.forest, found.qualities, strict=True))


def _choose(problem: Pipeline, ask: Ask, around: list[list[float]] | None) -> Chosen | Infeasible:
    """Stage 1 over thinned levels, or over those around a choice."""
    trees = problem.served
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]
    levels = [
        [
            _window(values, problem, None if around is None else around[i][t])
            for t, values in enumerate(all_levels(tree))
        ]
        for i, tree in enumerate(trees)
    ]
    about = "latency levels, servers in parts" if around is None else "finer latency levels around the choice"
    asked = problem.asked(problem.levels[0])
    chosen: Chosen | Infeasible | None = None
    if can_be_priced(problem, levels):
        priced = priced_levels(problem, ask, levels)
        if priced is not None:
            bound, used = priced
            chosen = _solve_levels(problem, ask, forest, used, about, asked)
            if isinstance(chosen, Chosen) and (len(trees) > 1 or _meets(chosen, bound)):
                chosen = replace(chosen, answer=bound)
            else:
                chosen = None
    chosen = chosen or _solve_levels(problem, ask, forest, levels, about, asked)
    return chosen if isinstance(chosen, Infeasible) else _with_fewest(problem, ask, forest, levels, chosen)


def _with_fewest(problem: Pipeline, ask: Ask, forest: Forest, levels: list[list[np.ndarray]], chosen: Chosen) -> Chosen:
    """Where the best accuracy in time is reached, the levels that reach it with the least of servers (or cost)."""
    goals = problem.levels
    if len(goals) < 2 or goals[0] != "quality" or goals[1] not in ("servers", "cost"):
        return chosen
    best = sum(tree.weight * best_quality(tree, own)[0] for tree, own in forest)
    if chosen.answer.value is None or chosen.answer.value < best - KEPT:
        return chosen
    kept = [(tree, kept_best(tree, own)) for tree, own in forest]
    about = f"latency levels, least {goals[1]} in parts at the best accuracy"
    fewest = _solve_levels(problem, ask, kept, levels, about, problem.asked(goals[1]), gap=GAP)
    return chosen if isinstance(fewest, Infeasible) else replace(fewest, answer=chosen.answer)


def _meets(chosen: Chosen, bound: Answer[Any]) -> bool:
    """Whether the levels that a mixture uses reach what its prices allow at all."""
    assert bound.bound is not None
    assert chosen.answer.value is not None
    return relative_gap(chosen.answer.value, bound.bound) <= TIGHT


def _solve_levels(
    problem: Pipeline,
    ask: Ask,
    forest: Forest,
    levels: list[list[np.ndarray]],
    about: str,
    asked: Asked,
    *,
    gap: float = GAP / 10,
) -> Chosen | Infeasible:
    written = levels_form(problem.served, forest, levels, problem.wish.fleet, asked)
    answer = ask(written.form, gap=gap, about=about)
    if answer.status is Status.INFEASIBLE:
        # Of one level per step, chosen from some: no proof that there is no plan.
        return Infeasible(why=(), answer=answer, proved=False)
    if answer.point is None:
        return Infeasible(why=(f"no plan was found: {answer.stop}",), proved=False)
    return Chosen(written.chosen(answer.point), answer)


def _window(values: np.ndarray, problem: Pipeline, around: float | None) -> np.ndarray:
    """Levels of one task: evenly over all of them, or over those between the neighbours of the one chosen."""
    most = int(getattr(problem.options, "levels", 8))
    coarse = thinned(values, most)
    if around is None or values.size <= most:
        return coarse
    at = int(np.searchsorted(coarse, around - ON_LIMIT_MS))
    low = coarse[max(0, at - 1)]
    high = coarse[min(coarse.size - 1, at + 1)]
    fine = thinned(values[(values >= low) & (values <= high)], most)
    return np.unique(np.append(fine, around))


def _whole_servers(problem: Pipeline, ask: Ask, levels: list[list[float]]) -> Solved | Infeasible:
    """Stage 2: the levels as they are, servers whole."""
    trees = [at_levels(tree, own) for tree, own in zip(problem.served, levels, strict=True)]
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]

    def write(some: Forest, asked: Asked) -> Written:
        return variant_form("budget", some, trees, problem.wish.fleet, asked)

    fixed = replace(problem, of=tuple(trees))
    gap = max(GAP, PART_OF_A_SERVER / problem.wish.fleet.most.sum()) if len(trees) == 1 else GAP_OF_SEVERAL
    found = by_programs(fixed, ask, forest, write, scope="restriction", gap=gap)
    if isinstance(found, Infeasible) and not found.why:
        return Infeasible(why=("whole servers at the levels of the relaxation do not carry the demand",), proved=False)
    return found
