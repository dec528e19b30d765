"""InferLine's rule: one fixed variant per step, fewest servers (formulation `inferline`)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hetplan import InputError
from hetplan.extend import (
    SLIPS,
    Ask,
    Infeasibility,
    Pipelines,
    PipelineTask,
    PipelineTree,
    Reported,
    SolvedPipelines,
    best_prefixes,
    climb_goals,
    config_form,
    prefixes,
    route_servers,
    serve_part,
    without_dominated,
)
from hetplan_papers.pipeline.options import InferLineOptions

__all__ = ["fewest_servers", "fixed_variants", "with_fixed_variants"]


def with_fixed_variants(problem: Pipelines) -> Pipelines:
    """The question with one variant per step."""
    options = cast(InferLineOptions, problem.options)
    return replace(problem, before=tuple(fixed_variants(tree, options) for tree in problem.asked_for))


def fixed_variants(tree: PipelineTree, options: InferLineOptions) -> PipelineTree:
    """One variant per step: the named ones, and beside them those of the most accurate paths that can be in time."""
    named = tree.keeping([_named(task, options.variants.get(task.id)) for task in tree.tasks])
    useful = without_dominated(named)
    if any(not task.size for task in useful.tasks):
        return _only(named, [int(np.argmax(task.quality)) for task in tree.tasks], options)
    levels, chosen, places = best_prefixes(useful, prefixes(useful)), list[int](), list[int]()
    for t, level in enumerate(levels):
        parent = useful.tasks[t].parent
        place = int(np.flatnonzero(level.parent == (places[parent] if parent >= 0 else 0))[0])
        places.append(place)
        chosen.append(int(level.variants[place, -1]))
    return _only(named, chosen, options)


def _named(task: PipelineTask, wanted: str | None) -> NDArray[np.bool_]:
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


def _only(named: PipelineTree, chosen: list[int], options: InferLineOptions) -> PipelineTree:
    return named.keeping([
        np.ones(task.size, dtype=bool) if task.id in options.variants else task.variant == k
        for task, k in zip(named.tasks, chosen, strict=True)
    ])  # fmt: skip


def fewest_servers(problem: Pipelines, ask: Ask) -> SolvedPipelines | Infeasibility:
    """The fewest servers for one variant per step; above what they carry, that much is served and the rest dropped."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    if any(not level.size for _, levels in forest for level in levels):
        return Infeasibility(why=("latency: the fixed variants cannot be in time together",))
    for slip in SLIPS:
        base = problem.aim("servers", slip=slip)
        climbed = climb_goals(
            ask, lambda asked: config_form(forest, fleet, asked), ("servers",), base, scope="restriction"
        )
        if not isinstance(climbed, tuple):
            return _all_that_fits(problem, ask)
        written, point, reported = climbed
        shares = route_servers(ask, problem.served, written.counts(point), fleet)
        if shares is not None:
            return SolvedPipelines(*shares, mode="fixed variants", reported=tuple(reported))
    return Infeasibility(why=("whole servers do not carry what the program promised",), proved=False)


def _all_that_fits(problem: Pipelines, ask: Ask) -> SolvedPipelines | Infeasibility:
    """The largest part of all demands that the servers carry."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    written = config_form(forest, fleet, problem.aim("rate"))
    answer = ask(written.form, about="most demand that the servers carry")
    if answer.point is None or answer.value is None:
        return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
    claim = Reported("served_share", "max", "restriction", answer)
    found = serve_part(problem, ask, problem.served, written.counts(answer.point), float(answer.value))
    return found if isinstance(found, Infeasibility) else replace(found, mode="fixed variants", reported=(claim,))
