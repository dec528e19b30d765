"""Why a demand cannot be served where the exact program would be too large: by one latency level per step.

What is said to be impossible is so by a bound: every server at its best batch, whatever that does to latency. The
repairs are found with whole servers at the chosen levels, so each of them suffices; a smaller one may do. Where
accuracy is not asked for, configurations that another outdoes are left out (`pipeline_carrying`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pipeline.carrying import Carried, without_outdone
from hetplan.problems.pipeline.levels_of import all_levels, at_levels, thinned
from hetplan.problems.pipeline.repairs import (
    floor_repair,
    one_floor_free,
    slo_ms_of,
    slo_repair,
    stated_ms,
    with_limit,
)
from hetplan.problems.pipeline.rows import Asked
from hetplan.problems.pipeline.tree import Tree, prefixes
from hetplan.problems.pipeline.variants import merged, variant_form

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["ALL_OF_IT", "explain_at_levels", "fewest_at_levels", "is_beyond_all", "lower_floor_at_levels"]

GAP = 1e-3
"""A repair within a thousandth of the least is near enough."""

GAP_ON_FLOORS = 1e-2
"""The same of a rate that keeps a floor on accuracy: a narrower one takes whole servers minutes to prove."""

ALL_OF_IT = 1e-7
"""Less than this short of the demand is an engine's tolerance."""

HALVINGS = 4
"""How often the step between a limit that helps and one that does not is halved."""


def explain_at_levels(problem: Pipeline, ask: Ask, servers: tuple[Repair, ...], *, proved: bool) -> Infeasible:
    """What binds, and repairs that suffice; `proved` says that no plan can exist, whatever its levels.

    `servers` are the repairs by servers, found beforehand.
    """
    short = "the servers do not carry the demand"
    if not proved:
        short = "no plan was found that carries the demand, with one latency level per step"
    most = _found(problem, ask, problem.served, replace(problem.asked("rate"), rate_most=1.0))
    if most is None or most.value <= 0.0:
        more = (*servers, *_more_money(problem, ask), *lower_floor_at_levels(problem, ask))
        return Infeasible(why=(f"capacity: {short}",), repairs=more, proved=proved)
    why = [f"capacity: {short}; {_binding(most)}"]
    repairs = [*_less_demand(problem, most), *servers, *_more_money(problem, ask)]
    for i in range(len(problem.served)):
        found = _more_time(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    return Infeasible(why=tuple(why), repairs=(*repairs, *lower_floor_at_levels(problem, ask)), proved=proved)


def is_beyond_all(problem: Pipeline, ask: Ask) -> bool:
    """Whether servers in parts, each at its best batch, are too few: no plan whatever its latencies is better."""
    forest = [(tree, prefixes(tree)) for tree in map(merged, problem.served)]
    asked = replace(problem.asked("rate", whole=False), rate_most=1.0)
    form = variant_form("best batches", forest, problem.served, problem.wish.fleet, asked).form
    answer = ask(form, about="most of the demand with every server at its best batch")
    return answer.bound is not None and answer.bound < 1.0 - GAP


def _found(problem: Pipeline, ask: Ask, trees: Sequence[Tree], asked: Asked) -> Carried | None:
    """Levels by servers in parts, then whole servers at these levels; the bound is one of these levels in parts."""
    from hetplan.problems.pipeline.budget import levels_form

    fleet, most = problem.wish.fleet, int(getattr(problem.options, "levels", 8))
    accuracy = asked.goal == "quality"
    trees = [without_outdone(tree, fleet, accuracy=accuracy, anywhere=asked.free) for tree in trees]
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]
    levels = [[thinned(values, most) for values in all_levels(tree)] for tree in trees]
    written = levels_form(trees, forest, levels, fleet, asked)
    answer = ask(written.form, gap=GAP, about=f"{asked.goal} by latency levels, servers in parts")
    if answer.point is None or answer.bound is None:
        return None
    fixed = [at_levels(tree, own) for tree, own in zip(trees, written.chosen(answer.point), strict=True)]
    forest = [(tree, prefixes(tree)) for tree in map(merged, fixed)]
    whole = variant_form("budget", forest, fixed, fleet, asked)
    kept = asked.goal == "rate" and any(tree.floor is not None for tree in trees)
    best = ask(whole.form, gap=GAP_ON_FLOORS if kept else GAP, about=f"{asked.goal} with whole servers")
    if best.point is None or best.value is None:
        return None
    return Carried(best.value, answer.bound, fixed, whole.counts(best.point))


def _binding(most: Carried) -> str:
    """The step that takes most of the servers."""
    taken: dict[tuple[str, str], int] = {}
    for tree, counts in zip(most.trees, most.counts, strict=True):
        ends = np.cumsum([task.size for task in tree.tasks])
        for task, own in zip(tree.tasks, np.split(counts, ends[:-1]), strict=True):
            taken[tree.app, task.id] = int(own.sum())
    (app, step), used = max(taken.items(), key=lambda item: item[1])
    part = 100 * used / max(1, sum(taken.values()))
    return f"step {step} of {app} binds; where as much as was found is served it takes {part:.0f}% of the servers"


def _less_demand(problem: Pipeline, most: Carried) -> Iterator[Repair]:
    """The part of the demand that was found to fit: of one application a rate, of several that of all alike."""
    if most.value >= 1.0 - GAP:
        return
    if len(problem.served) == 1:
        tree = problem.served[0]
        to, at = most.value * tree.demand, f"slo.apps.{tree.app}.demand.rate_qps"
        yield Repair(at, "lower", tree.demand - to, to, "qps",
                     f"lower {at} by {tree.demand - to:.6g} qps to {to:.6g} qps (more may fit)")  # fmt: skip
        return
    at = "slo.apps.*.demand.rate_qps"
    yield Repair(at, "lower", None, most.value, "times the demand",
                 f"lower every {at} to {100 * most.value:.4g}% of it (more may fit)")  # fmt: skip


def fewest_at_levels(problem: Pipeline, ask: Ask, tree: Tree, asked: Asked) -> Carried | None:
    """Servers that suffice for one application; of fewer nothing is known, which a bound of 0 says."""
    found = _found(problem, ask, [tree], asked)
    return None if found is None else replace(found, bound=0.0)


def _more_money(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """A budget that suffices with the servers that there may be."""
    fleet = problem.wish.fleet
    if fleet.budget is None:
        return
    rich = replace(problem, wish=replace(problem.wish, fleet=replace(fleet, budget=None)))
    found = _found(rich, ask, problem.served, problem.asked("cost"))
    if found is not None and found.value > fleet.budget:
        at, short = "slo.limits.cost_per_hour", found.value - fleet.budget
        text = f"raise {at} by {short:.6g} to {found.value:.6g} (less may do)"
        yield Repair(at, "raise", short, found.value, "per hour", text)


def _more_time(problem: Pipeline, ask: Ask, i: int) -> Repair | str:
    """A limit on response that suffices, near the least by a part of the way up; or that none was found."""
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    asked = replace(problem.asked("rate"), rate_most=1.0)

    def carries(slo_ms: float) -> bool:
        there = [with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)]
        found = _found(problem, ask, there, asked)
        return found is not None and found.value >= 1.0 - ALL_OF_IT

    slowest = {sink: sum(float(full.tasks[t].ms.max()) for t in full.path(sink)) for sink in full.sinks}
    low, high = stated_ms(problem, full), max(slo_ms_of(problem, full, s, ms) for s, ms in slowest.items())
    if high <= low or not carries(high):
        return f"no latency limit of {full.app} was found to help"
    for _ in range(HALVINGS):
        if ask.remaining <= 0:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if carries(middle) else (middle, high)
    repair = slo_repair(problem, full, high)
    return replace(repair, text=f"{repair.text} (less may do)")


def lower_floor_at_levels(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """An accuracy that each application with a floor can have, the other floors kept."""
    for tree, alone in one_floor_free(problem):
        found = _found(problem, ask, alone, problem.asked("quality"))
        if found is not None and tree.floor is not None and found.value < tree.floor:
            yield floor_repair(tree, found.value, " (more may be had)")
