"""What servers in parts could do: bounds of every plan, however much room it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.request import Application
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.pipeline.bursts import Burst, bursts_of
from hetplan.problems.pipeline.climb import CLAIMED, KEPT, best_quality, keeping, kept_best
from hetplan.problems.pipeline.form import config_form, variant_form
from hetplan.problems.pipeline.joins import in_room, may_be_late, steps_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Goal
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Places, Tree, as_stated, count_prefixes, merged, prefixes

__all__ = ["at_the_most", "bursts_in_parts", "in_parts", "part_answered", "parts_form", "without_room"]

MOST_PREFIXES = 20_000
"""With more prefixes bounds know variants only, where no option says how many the exact program may have."""
SEND_NONE = 1e-6
"""Where some send on less than that, all that is sent on may be of those dropped."""


def without_room(p: Pipelines, divisor: float | None = None) -> Pipelines:
    """The question whose bounds hold however much is kept free: all of each server, and this part of the deadline."""
    return p.with_options(spare=0.0, headroom=0.0, slo_divisor=p.options.slo_divisor if divisor is None else divisor)


def in_parts(problem: Pipelines, ask: Ask, made: Draft) -> tuple[Reported, ...]:
    """What a plan reaches, beside what servers in parts would: a bound of all plans, however much is kept free."""
    wide, scope = at_the_most(problem), problem.scope_in_parts
    bursts, problem = bursts_in_parts(wide, problem), wide
    shown = {one.app: one.value for one in made.promises if one.quantity == "quality"}
    quality = sum(tree.weight * shown[tree.app] for tree in problem.served)
    found, reached = list[Reported](), dict[Goal, float]()
    totals = {one.quantity: one.value for one in made.promises if one.app is None}
    totals |= {"quality": quality, "least_quality": min(shown[tree.app] for tree in problem.served)}
    for goal in problem.levels:
        answer = ask(parts_form(problem, goal, reached), about=f"{goal}, servers in parts")
        value, note = totals.get(CLAIMED[goal]), None
        sense: Literal["max", "min"] = "max" if goal in ("quality", "fairest") else "min"
        if bursts and answer.bound is not None and value is not None:
            form = parts_form(problem, goal, reached, bursts)
            bursty = ask(form, about=f"{goal}, servers in parts, in bursts such as come")
            if _is_tighter(sense, bursty.bound, than=answer.bound, of=value):
                answer, note = bursty, "against the best in bursts such as come, whoever dispatches"
        found.append(Reported(CLAIMED[goal], sense, scope, answer, value=value, note=note))
        if answer.value is None:
            break
        # What comes later is bounded at the accuracy that the plan has, however much more there could be.
        reached[goal] = float(value or 0.0)
    return tuple(found)


def _is_tighter(sense: Literal["max", "min"], bound: float | None, *, than: float, of: float) -> bool:
    """Whether a bound of a value says more than another one, and does not refute the plan that has the value."""
    if bound is None:
        return False
    sign = 1.0 if sense == "min" else -1.0
    return sign * than < sign * bound <= sign * of + BOUND_SLIP * abs(of)


def at_the_most(problem: Pipelines) -> Pipelines:
    """The question in which a path may take all of its deadline, and no more queries are in time than must be.

    A plan that is played says itself how long its paths may be, a rule for late queries who is dropped, and routes who
    is late on purpose, on servers that are slow and cheap: any other plan that keeps the wish does as well.
    """
    whole, trees = problem.options.slo_divisor, list[Tree]()
    problem = replace(problem, options=problem.options.model_copy(update={"slo_divisor": 1.0}), before=None, of=None)
    for tree in problem.wish.trees:
        app, limit_ms = problem.request.apps[tree.app], {sink: whole * ms for sink, ms in tree.limit_ms.items()}
        tree = replace(tree, limit_ms=limit_ms)
        joins = tree.app in problem.wish.joins
        too_long = may_be_late(problem, tree) if joins else _may_be_late(tree)
        if (answered := least_served(app, may_be_late=too_long)) < app.least_answered:
            late = 1.0 - answered
            tree = replace(tree, late=late, late_quality=late * _best_of_any(tree, joins=joins))
        trees.append(replace(_sending_fewest(tree, max(answered, SEND_NONE)), demand=answered * tree.demand))
    return replace(problem, wish=replace(problem.wish, trees=tuple(trees)))


def least_served(app: Application, *, may_be_late: bool) -> float:
    """The share of queries that need servers which are in time; all that are answered where no path is too long."""
    return min(app.least_answered, app.least_in_time) if may_be_late else app.least_answered


def _may_be_late(tree: Tree) -> bool:
    """Whether some path takes longer than its deadline."""
    slowest = [task.ms.max(initial=0.0) for task in tree.tasks]
    return any(sum(slowest[t] for t in tree.path(sink)) > tree.limit_ms[sink] + ON_LIMIT_MS for sink in tree.sinks)


def _best_of_any(tree: Tree, *, joins: bool) -> float:
    """The best accuracy of paths that may take as long as they like."""
    if joins:
        weights = tree.weights or {}
        return sum(weights.get(task.id, 1.0) * float(task.quality.max(initial=0.0)) for task in tree.tasks)
    free = merged(replace(tree, limit_ms=dict.fromkeys(tree.limit_ms, np.inf)))
    return best_quality(free, prefixes(free))[0]


def _sending_fewest(tree: Tree, answered: float) -> Tree:
    """The same, each query that is answered sending on as few as may be: those that send on more may be dropped.

    A step sends on floor(f) or ceil(f). All send on f in the mean, and of those dropped none more than ceil(f): with
    `dropped` of them for each that is answered, these send on f - (ceil(f) - f) dropped at least, or floor(f).
    """
    tasks, dropped = list(tree.tasks), np.full(len(tree.tasks), (1.0 - answered) / answered)
    for t, task in enumerate(tasks if answered < 1.0 else ()):
        factor = {}
        for child, sent in task.factor.items():
            least = sent - (np.ceil(sent) - sent).max() * dropped[t]
            factor[child] = np.floor(sent) if (least < np.floor(sent)).any() else least
            more = dropped[t] * np.ceil(sent).max() / max(factor[child].min(), SEND_NONE)
            dropped[child] = max(dropped[child], more)  # of several branches that meet, the one that leaves the least
        tasks[t] = replace(task, factor=factor)
    return replace(tree, tasks=tuple(tasks))


def part_answered(app: Application, tree: Tree) -> float:
    """Of what steps do where every query is in time, what is left for each at least where no more are than must be.

    `tree` may take all of its deadline.
    """
    answered = max(least_served(app, may_be_late=_may_be_late(tree)), SEND_NONE)
    fewest, part = _sending_fewest(tree, answered), np.full(len(tree.tasks), answered)
    for t, task in enumerate(tree.tasks):
        for child, sent in task.factor.items():
            some = sent > 0.0
            part[child] = part[t] * (fewest.tasks[t].factor[child][some] / sent[some]).min(initial=1.0)
    return float(part.min())


def bursts_in_parts(wide: Pipelines, stated: Pipelines) -> Sequence[Burst]:
    """The bursts that servers in parts must carry; none where the program has no paths to send them on."""
    return bursts_of(wide, stated) if _has_paths(wide) else ()


def _has_paths(problem: Pipelines) -> bool:
    """Whether a program knows each path and how long it takes; else each step has to be in time by itself alone."""
    most = getattr(problem.options, "prefixes", MOST_PREFIXES)
    return not problem.wish.joins and sum(map(count_prefixes, problem.served)) <= most


def parts_form(problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], bursts: Sequence[Burst] = ()) -> Milp:
    """The program of servers in parts for a goal, where no less of others is reached than this.

    Where branches join, and where paths are too many, it has shares of variants, and configurations that are in time
    beside the fastest others: so it knows no less than all plans.
    """
    asked = replace(problem.asked("quality", whole=False), bursty=bool(bursts))
    for other, value in reached.items():
        asked = keeping(asked, other, value)
    stated, asked = {tree.app: tree for tree in problem.wish.trees}, replace(asked, goal=goal)
    if problem.wish.joins:
        trees = [as_stated(tree, stated[tree.app]) for tree in in_room(problem)]
        return steps_form(problem, trees, asked).form
    trees = [as_stated(tree, stated[tree.app]) for tree in problem.served]
    if not _has_paths(problem):
        by_variants = [(tree, prefixes(tree)) for tree in map(merged, trees)]
        return variant_form("in parts", by_variants, trees, problem.wish.fleet, asked).form
    forest = [(tree, prefixes(tree)) for tree in trees]
    tops = (tree.weight * tree.with_late(best_quality(tree, levels)[0]) for tree, levels in forest)
    best = sum(tops) if bursts else np.inf
    if reached.get("quality", 0.0) >= best - KEPT:
        forest = [(tree, kept_best(tree, levels)) for tree, levels in forest]

    def more(m: Builder, x: Sequence[Places]) -> None:
        for burst in bursts:
            burst.add(m, *forest[burst.number], x[burst.number])

    return config_form(forest, problem.wish.fleet, asked, more=more).form
