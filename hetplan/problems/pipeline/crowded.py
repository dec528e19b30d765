"""Whole servers if there are more configurations than servers: by exchange, from a quick first plan.

An engine that branches spends its time on which few configurations to use. Exchanging one server for another finds
better plans there (engine `exchange`); what they miss of the best is said by the bound of the latency levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hetplan.errors import NoSolver, SolverFailed
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Reported
from hetplan.problems.pipeline.apart import whole_servers
from hetplan.problems.pipeline.climb import KEPT, SLIPS, Solved, best_quality, polished
from hetplan.problems.pipeline.exact import tidied
from hetplan.problems.pipeline.form import variant_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Tree, Vector, all_levels, at_levels, merged, prefixes

__all__ = ["at_least", "by_tables", "exchanged", "first_plan", "is_crowded"]

PER_STEP = 3
"""Up to so many servers per step tables are made."""

ANY = 0.5
"""The gap at which a first plan will do."""


def is_crowded(problem: Pipelines, trees: Sequence[Tree]) -> bool:
    """Whether there are more configurations than servers."""
    return bool(sum(task.size for tree in trees for task in tree.tasks) > problem.wish.fleet.most.sum())


def first_plan(problem: Pipelines, ask: Ask) -> Solved | None:
    """Some plan, soon: every step takes as much of the time as its fastest variant needs of the fastest path."""
    trees = [at_levels(tree, _in_proportion(tree)) for tree in problem.served]
    if not is_crowded(problem, trees) or not all(task.size for tree in trees for task in tree.tasks):
        return None
    return exchanged(problem, ask, trees, gap=ANY)


def by_tables(problem: Pipelines, ask: Ask) -> tuple[Solved, list[Tree]] | None:
    """Whole servers by tables of qualities (`apart`), their shares solved again, and the configurations at the levels
    that they chose; None where tables do not fit.

    Nor where the best accuracy is kept: the fewest servers are then another search. Nor for one chain, or with more
    servers per step: programs found better plans there.
    """
    trees = problem.served
    bushy = len(trees) > 1 or any(len(below) > 1 for tree in trees for below in tree.children)
    steps = sum(len(tree.tasks) for tree in trees)
    if problem.fair or not bushy or problem.wish.fleet.most.sum() > PER_STEP * steps or not is_crowded(problem, trees):
        return None
    chosen = whole_servers(problem)
    shares = polished(ask, *chosen, problem.wish.fleet) if chosen is not None else None
    if chosen is None or shares is None:
        return None
    found = Solved(*shares, mode="accuracy", reported=())
    best = sum(tree.weight * best_quality(one, prefixes(one))[0] for tree, one in
               ((tree, merged(tree)) for tree in problem.served))  # fmt: skip
    if found.quality >= best - KEPT:
        return None
    found = tidied(problem, ask, found, problem.levels[1:])
    claim = found.valued(Reported("quality", "max", "restriction", value=0.0))
    return replace(found, reported=(claim, *found.reported)), chosen[0]


def at_least(problem: Pipelines, ask: Ask, way: Callable[[Pipelines, Ask], Solved | Infeasible]) -> Solved | Infeasible:
    """What a program finds within its seconds; where that is nothing, or worse, the plan that was found before it."""
    tables = by_tables(problem, ask)
    soon = tables[0] if tables is not None else first_plan(problem, ask)
    found = way(problem, ask)
    if soon is None or (isinstance(found, Infeasible) and found.proved):
        return found
    if isinstance(found, Infeasible):
        return soon
    if problem.levels[0] != "quality" or soon.quality <= found.quality + KEPT:
        return found
    bounds = [replace(one, value=soon.quality) for one in found.reported if one.about == "quality"]
    return replace(soon, reported=(*bounds, *(one for one in soon.reported if one.about != "quality")))


def _in_proportion(tree: Tree) -> list[float]:
    """Levels in proportion to what each step needs at least, as long as the tightest path through it allows."""
    least = np.array([task.ms.min() for task in tree.tasks])
    factor = np.full(least.size, np.inf)
    for sink in tree.sinks:
        path = list(tree.path(sink))
        factor[path] = np.minimum(factor[path], tree.limit_ms[sink] / least[path].sum())
    allowed: Vector = least * factor + ON_LIMIT_MS
    return [float(own[own <= most][-1]) for own, most in zip(all_levels(tree), allowed, strict=True)]


def exchanged(problem: Pipelines, ask: Ask, trees: Sequence[Tree], *, gap: float | None = None) -> Solved | None:
    """Whole servers of these configurations by exchange; None where it finds none."""
    if problem.levels[0] != "quality":
        return None
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]
    for slip in SLIPS:
        written = variant_form("exchange", forest, trees, fleet, problem.asked("quality", slip=slip))
        try:
            answer = ask(written.form, gap=gap, solver="exchange", about="whole servers by exchange")
        except (NoSolver, SolverFailed):
            return None
        if answer.point is None:
            return None
        shares = polished(ask, trees, written.counts(answer.point), fleet, fair=problem.fair)
        if shares is None:
            continue
        claim = Reported("quality", "max", "restriction", answer)
        found = Solved(*shares, mode="accuracy", reported=(claim,))
        best = sum(tree.weight * best_quality(tree, levels)[0] for tree, levels in forest)
        if found.quality < best - KEPT:
            found = tidied(problem, ask, found, problem.levels[1:])
        else:
            found = replace(found, mode="hardware")
        return replace(found, reported=tuple(found.valued(one) for one in found.reported))
    return None
