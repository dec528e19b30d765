"""The servers of a previous plan as they are, routing made anew for the demand (formulation `reroute`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.problems.pipeline.climb import Solved, polished
from hetplan.problems.pipeline.form import config_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked
from hetplan.problems.pipeline.tree import Places, Tree, prefixes

__all__ = ["NO_RATE", "by_reroute", "partly_served"]

NO_RATE = 1e-6
"""So small a share of the demand is an engine's tolerance, not something that can be served."""

HAIR = 1e-9
"""By this share less is served where the last digit is too much."""


def by_reroute(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """Routing for the demand of now, with the servers of the plan before; what they cannot carry stays unserved."""
    counts = _running(problem)
    trees = problem.served
    used = polished(ask, trees, counts, problem.wish.fleet)
    claim = "the best routing of these servers"
    if used is not None:
        found = Solved(*used, mode="rerouted", reported=())
        return replace(found, reported=(Reported("quality", "max", "none", value=found.quality, note=claim),))
    forest = [(tree, prefixes(tree)) for tree in trees]
    written = config_form(forest, problem.wish.fleet, Asked("rate", counts=counts))
    answer = ask(written.form, about="how much of the demand these servers carry")
    if answer.value is None or answer.value <= 0:
        return Infeasibility(why=("the servers of the previous plan carry nothing of this demand in time",))
    served = Reported("served_share", "max", "restriction", answer)
    scaled = partly_served(problem, ask, trees, counts, float(answer.value))
    return scaled if isinstance(scaled, Infeasibility) else replace(scaled, mode="rerouted", reported=(served,))


def partly_served(
    problem: Pipelines, ask: Ask, trees: Sequence[Tree], counts: list[Places], share: float
) -> Solved | Infeasibility:
    """The shares of given servers when only this share of every demand is served."""
    for slip in (0.0, HAIR, 1e-7) if share > NO_RATE else ():
        served = tuple(replace(tree, demand=tree.demand * share * (1 - slip)) for tree in trees)
        shares = polished(ask, served, counts, problem.wish.fleet)
        if shares is not None:
            whole = {tree.app: tree.demand for tree in trees}
            forest = [(replace(tree, demand=whole[tree.app]), levels) for tree, levels in shares[0]]
            rates = {tree.app: tree.demand for tree in served}
            return Solved(forest, shares[1], shares[2], mode="partly served", reported=(), served=rates)
    return Infeasibility(why=("the servers carry nothing of it",), proved=False)


def _running(problem: Pipelines) -> list[Places]:
    """Servers of the previous plan, per configuration."""
    if problem.start is None:
        raise InputError.one(
            path="--from",
            why="new routes need the plan whose servers stay",
            remedy="Give the previous plan (--from plan.json, start=plan).",
        )
    placed = Counter[tuple[object, ...]]()
    if any(len(worker.loads) > 1 for worker in problem.start.workers):
        raise InputError.one(
            file="plan", path="$.workers", why="steps share its servers; new routes are made for servers of one step",
            remedy="Plan again, with a state file; or make that plan with --set machines=whole.",
        )  # fmt: skip
    for worker in problem.start.workers:
        for load in worker.loads:
            placed[load.app, load.node, load.variant, worker.hardware, load.serve.max_batch, load.instances] += (
                worker.count
            )
    counts, known = [], Counter[tuple[object, ...]]()
    for tree in problem.served:
        own = []
        for task in tree.tasks:
            for k, g, b, n in zip(task.variant, task.hardware, task.batch, task.k, strict=True):
                key = (tree.app, task.id, task.variants[k], problem.wish.fleet.hardware[g], int(b), int(n))
                own.append(placed[key])
                known[key] += 1
        counts.append(np.array(own, dtype=np.int64))
    apps = {tree.app for tree in problem.served}
    strange = [key for key in placed if key[0] in apps and placed[key] and not known[key]]
    if strange:
        which = "/".join(str(part) for part in strange[0])
        raise InputError.one(
            file="plan", path="$.workers", value=which, why="the profile has no such configuration in time",
            remedy="Plan again, without rerouting.",
        )  # fmt: skip
    return counts
