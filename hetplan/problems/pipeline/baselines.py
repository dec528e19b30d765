"""What others do, and what is done between two plans: InferLine's fixed variants; the same servers, routed anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Reported
from hetplan.problems.pipeline.config import config_form
from hetplan.problems.pipeline.levels import SLIPS, Solved, climb, kept_best, polished
from hetplan.problems.pipeline.options import InferLineOptions
from hetplan.problems.pipeline.rows import Asked, Places
from hetplan.problems.pipeline.tree import Mask, Task, Tree, prefixes, without_dominated

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["by_inferline", "by_reroute", "fixed_variants"]

HAIR = 1e-9


def fixed_variants(tree: Tree, options: InferLineOptions) -> Tree:
    """One variant per step: the named ones, and beside them those of the most accurate paths that can be in time."""
    named = tree.keeping([_named(task, options.variants.get(task.id)) for task in tree.tasks])
    useful = without_dominated(named)
    if any(not task.size for task in useful.tasks):
        return _only(named, [int(np.argmax(task.quality)) for task in tree.tasks], options)
    levels, chosen, places = kept_best(useful, prefixes(useful)), list[int](), list[int]()
    for t, level in enumerate(levels):
        parent = useful.tasks[t].parent
        place = int(np.flatnonzero(level.parent == (places[parent] if parent >= 0 else 0))[0])
        places.append(place)
        chosen.append(int(level.variants[place, -1]))
    return _only(named, chosen, options)


def _named(task: Task, wanted: str | None) -> Mask:
    """Which configurations an option leaves a step."""
    if wanted is None:
        return np.ones(task.size, dtype=bool)
    if wanted not in task.variants:
        raise InputError.one(
            file="options",
            path=f"variants.{task.id}",
            value=wanted,
            why="no variant of this step",
            remedy=f"Name one of {', '.join(task.variants)}.",
        )
    return np.asarray(task.variant == task.variants.index(wanted))


def _only(named: Tree, chosen: list[int], options: InferLineOptions) -> Tree:
    return named.keeping([
        np.ones(task.size, dtype=bool) if task.id in options.variants else task.variant == k
        for task, k in zip(named.tasks, chosen, strict=True)
    ])  # fmt: skip


def by_inferline(problem: Pipeline, ask: Ask) -> Solved | Infeasible:
    """The fewest servers for one variant per step; above what they carry, that much is served and the rest dropped."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    if any(not level.size for _, levels in forest for level in levels):
        return Infeasible(why=("latency: the fixed variants cannot be in time together",))
    for slip in SLIPS:
        base = problem.asked("servers", slip=slip)
        climbed = climb(ask, lambda asked: config_form(forest, fleet, asked), ("servers",), base, scope="restriction")
        if not isinstance(climbed, tuple):
            return _all_that_fits(problem, ask)
        written, point, reported = climbed
        shares = polished(ask, problem.served, written.counts(point), fleet)
        if shares is not None:
            return Solved(*shares, mode="fixed variants", reported=tuple(reported))
    return Infeasible(why=("whole servers do not carry what the program promised",), proved=False)


def _all_that_fits(problem: Pipeline, ask: Ask) -> Solved | Infeasible:
    """The largest part of all demands that the servers carry."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    written = config_form(forest, fleet, problem.asked("rate"))
    answer = ask(written.form, about="most demand that the servers carry")
    if answer.point is None or answer.value is None:
        return Infeasible(why=(f"no plan was found: {answer.stop}",), proved=False)
    claim = Reported("served_share", "max", "restriction", answer)
    found = _scaled(problem, ask, problem.served, written.counts(answer.point), float(answer.value))
    return found if isinstance(found, Infeasible) else replace(found, mode="fixed variants", reported=(claim,))


def _scaled(
    problem: Pipeline, ask: Ask, trees: tuple[Tree, ...], counts: list[Places], share: float
) -> Solved | Infeasible:
    """The shares of given servers when only this share of every demand is served."""
    for slip in (0.0, HAIR, 1e-7):
        served = tuple(replace(tree, demand=tree.demand * share * (1 - slip)) for tree in trees)
        shares = polished(ask, served, counts, problem.wish.fleet)
        if shares is not None:
            whole = {tree.app: tree.demand for tree in trees}
            forest = [(replace(tree, demand=whole[tree.app]), levels) for tree, levels in shares[0]]
            rates = {tree.app: tree.demand for tree in served}
            return Solved(forest, shares[1], shares[2], mode="partly served", reported=(), served=rates)
    return Infeasible(why=("the servers carry nothing of it",), proved=False)


def by_reroute(problem: Pipeline, ask: Ask) -> Solved | Infeasible:
    """Routing for the demand of now, with the servers of the plan before; what they cannot carry stays unserved."""
    counts = _running(problem)
    trees = problem.served
    used = polished(ask, trees, counts, problem.wish.fleet)
    claim = "the best routing of these servers"
    if used is not None:
        found = Solved(*used, mode="rerouted", reported=())
        value = sum(tree.weight * a for (tree, _), a in zip(found.forest, found.qualities, strict=True))
        return replace(found, reported=(Reported("quality", "max", "none", value=value, note=claim),))
    forest = [(tree, prefixes(tree)) for tree in trees]
    written = config_form(forest, problem.wish.fleet, Asked("rate", counts=counts))
    answer = ask(written.form, about="how much of the demand these servers carry")
    if answer.value is None or answer.value <= 0:
        return Infeasible(why=("the servers of the previous plan carry nothing of this demand in time",))
    served = Reported("served_share", "max", "restriction", answer)
    scaled = _scaled(problem, ask, trees, counts, float(answer.value))
    return scaled if isinstance(scaled, Infeasible) else replace(scaled, mode="rerouted", reported=(served,))


def _running(problem: Pipeline) -> list[Places]:
    """Servers of the previous plan, per configuration."""
    if problem.start is None:
        raise InputError.one(
            path="--from",
            why="routing anew needs the plan whose servers stay",
            remedy="Give the previous plan (--from plan.json, start=plan).",
        )
    placed = Counter[tuple[object, ...]]()
    for worker in problem.start.workers:
        for load in worker.loads:
            placed[load.app, load.node, load.variant, worker.hardware, load.serve.max_batch] += worker.count
    counts, known = [], Counter[tuple[object, ...]]()
    for tree in problem.served:
        own = []
        for task in tree.tasks:
            for k, g, b in zip(task.variant, task.hardware, task.batch, strict=True):
                key = (tree.app, task.id, task.variants[k], problem.wish.fleet.hardware[g], int(b))
                own.append(placed[key])
                known[key] += 1
        counts.append(np.array(own, dtype=np.int64))
    apps = {tree.app for tree in problem.served}
    strange = [key for key in placed if key[0] in apps and placed[key] and not known[key]]
    if strange:
        told = "/".join(str(part) for part in strange[0])
        raise InputError.one(
            file="plan", path="$.workers", value=told, why="the profile has no such configuration in time",
            remedy="Plan anew, without rerouting.",
        )  # fmt: skip
    return counts
