"""One latency level per task: the way to large clusters (formulation `budget`), and safe under any router.

Stage 1 chooses levels, with servers in parts: its bound is the bound of this model. Stage 2 fixes the levels and makes
servers whole. Levels are thinned; `passes` looks again with finer levels around the last choice. The bound is one of
the first pass's levels, and no bound of the exact program.

Several pipelines on one large cluster are taken apart by prices on servers. Every pipeline answers the prices with its
best choice; the mixture of all choices bounds what any plan with these latency levels can reach (form `priced`, whose
oracle proves the bound again). The levels that the mixture uses are the only ones that stage 1 still has to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status, relative_gap
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.planner.forms.priced import Menu, Mixture, Options, Priced
from hetplan.problems.pipeline.apart import by_tables, is_crowded
from hetplan.problems.pipeline.climb import KEPT, Solved, best_quality, kept_best
from hetplan.problems.pipeline.exact import by_config, by_programs
from hetplan.problems.pipeline.few import best_of_all
from hetplan.problems.pipeline.form import levels_form, variant_form
from hetplan.problems.pipeline.infeasible import is_beyond_all
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked, Forest, Written
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Tree,
    Vector,
    all_levels,
    at_levels,
    best_at,
    count_prefixes,
    merged,
    prefixes,
    thinned,
)

__all__ = ["at_least", "by_levels", "priced_form"]

GAP = 5e-4
"""The gap of whole servers in stage 2, on a large cluster."""

PART_OF_A_SERVER = 0.1
"""On a small one a whole server is a larger part of it: the gap is at least this part of one."""

LEVELS = 8
"""Levels per step where none are asked for; with more, half as many are tried too, down to these."""

SMALL = 20_000
"""Up to so many prefixes the exact program is asked where levels fail."""

TIGHT = 1e-4
"""Prices whose bound is further than this from what their levels reach are put aside for one pipeline."""

GAP_OF_SEVERAL = 2e-3
"""The same where several pipelines share the servers."""

NEAR = 5e-3
"""A plan by tables that is this near to its bound is good enough: the rest of a limit is not spent on a better one."""

LOST = ((0.0,), (0.0, 0.15, 0.3))
"""Shares of capacity that whole servers may cost on a small cluster, by which configurations are chosen, in turn."""

ANY = 0.5
"""The gap at which a first plan will do."""

MOST_STATES = 12_000_000
"""Above so many states of one pipeline the oracle would take longer than the program it spares."""


@dataclass(frozen=True)
class Chosen:
    """Levels per tree and task, with the answer that chose them."""

    levels: list[list[float]]
    answer: Answer[Any]


def by_levels(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """Levels by stage 1, whole servers by stage 2; with more passes, levels around the choice and stage 2 again."""
    if is_beyond_all(problem, ask):
        return Infeasibility(why=())
    wanted = ask.limits.gap
    if wanted is not None and wanted < GAP and (closed := _closed(problem, ask, wanted)) is not None:
        return closed
    tables = by_tables(problem, ask)
    if tables is not None and (wanted is None or ask.limits.seconds is not None):
        return _bounded(problem, ask, *tables) if problem.options.size == "planned" else tables[0]
    soon = tables[0] if tables is not None else None
    if soon is None and ask.limits.seconds is not None:
        soon = _first_plan(problem, ask)
    made = [_by_so_many(replace(problem, options=problem.options.model_copy(update={"levels": count})), ask)
            for count in _counts(problem)]  # fmt: skip
    found = [one for one in [*made, soon] if isinstance(one, Solved)]
    best = found[0] if found else None
    for one in found[1:]:
        assert best is not None
        best = one if _is_better(problem, one, best) else best
    return made[0] if best is None else best


def at_least(
    problem: Pipelines, ask: Ask, way: Callable[[Pipelines, Ask], Solved | Infeasibility]
) -> Solved | Infeasibility:
    """What a program finds within its seconds; where that is nothing, or worse, the plan that was found before it."""
    tables = by_tables(problem, ask)
    soon = tables[0] if tables is not None else _first_plan(problem, ask)
    found = way(problem, ask)
    if soon is None or (isinstance(found, Infeasibility) and found.proved):
        return found
    if isinstance(found, Infeasibility):
        return soon
    if problem.levels[0] != "quality" or soon.quality <= found.quality + KEPT:
        return found
    bounds = [replace(one, value=soon.quality) for one in found.reported if one.about == "quality"]
    return replace(soon, reported=(*bounds, *(one for one in soon.reported if one.about != "quality")))


def _first_plan(problem: Pipelines, ask: Ask) -> Solved | None:
    """Some plan, soon: every step takes as much of the time as its fastest variant needs of the fastest path."""
    trees = [at_levels(tree, _in_proportion(tree)) for tree in problem.served]
    if not is_crowded(problem, trees) or not all(task.size for tree in trees for task in tree.tasks):
        return None
    found = _whole_at(problem, ask, trees, ANY)
    return None if isinstance(found, Infeasibility) else found


def _in_proportion(tree: Tree) -> list[float]:
    """Levels in proportion to what each step needs at least, as long as the tightest path through it allows."""
    least = np.array([task.ms.min() for task in tree.tasks])
    factor = np.full(least.size, np.inf)
    for sink in tree.sinks:
        path = list(tree.path(sink))
        factor[path] = np.minimum(factor[path], tree.limit_ms[sink] / least[path].sum())
    allowed: Vector = least * factor + ON_LIMIT_MS
    return [float(own[own <= most][-1]) for own, most in zip(all_levels(tree), allowed, strict=True)]


def _bounded(problem: Pipelines, ask: Ask, found: Solved, trees: Sequence[Tree]) -> Solved:
    """A plan with the bound of the latency levels, where there is time left for it.

    What is left of a limit after that goes to an engine, which looks for a better plan at the same levels.
    """
    chosen = _choose(problem, ask, None) if ask.remaining > 0 else None
    answer = chosen.answer if isinstance(chosen, Chosen) else None
    bound = answer.bound if answer is not None else None
    if ask.limits.seconds is not None and bound is not None and relative_gap(found.quality, bound) > NEAR:
        found = _better(problem, found, _whole_at(problem, ask, trees, GAP_OF_SEVERAL)) or found
    return _claimed(found, answer, "of the levels tried")


def _claimed(found: Solved, answer: Answer[Any] | None, which: str) -> Solved:
    """A plan that claims the bound of some levels; no bound where the plan is better: they were thinned, or too few."""
    if answer is not None and answer.bound is not None and answer.bound < found.quality - KEPT:
        answer = None
    note = f"bound of the model with one latency level per step, {which}" if answer is not None else None
    claim = found.valued(Reported("quality", "max", "restriction", answer, value=found.quality, note=note))
    return replace(found, reported=(claim, *(found.valued(one) for one in found.reported if one.about != "quality")))


def _counts(problem: Pipelines) -> list[int]:
    """As many levels as are asked for, and before them half as many: twice as many never give a worse plan."""
    most = int(getattr(problem.options, "levels", LEVELS))
    coarser = [most]
    while coarser[-1] // 2 >= LEVELS:
        coarser.append(coarser[-1] // 2)
    return coarser[::-1]


def _closed(problem: Pipelines, ask: Ask, gap: float) -> Solved | None:
    """The best there is with one level per step, where the choices of levels can all be looked at."""
    found = best_of_all(problem, ask, gap)
    if found is None:
        return None
    levels, claim = found
    made = _whole_servers(problem, ask, levels, gap=gap)
    if isinstance(made, Infeasibility) or made.mode == "hardware":
        return None if isinstance(made, Infeasibility) else made
    rest = tuple(made.valued(one) for one in made.reported if one.about != "quality")
    return replace(made, reported=(made.valued(claim), *rest))


def _by_so_many(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """So many levels per step, evenly over all, or around the choice of the pass before."""
    best: Solved | None = None
    backed: Answer[Any] | None = None
    levels: list[list[float]] | None = None
    for _ in range(_passes(problem)):
        chosen = _choose(problem, ask, levels)
        if isinstance(chosen, Infeasibility):
            return _exactly(problem, ask, chosen) if best is None else best
        if chosen.levels == levels:
            break
        levels = chosen.levels
        found = _whole_servers(problem, ask, levels)
        if isinstance(found, Infeasibility):
            if best is None:
                return _exactly(problem, ask, found)
            break
        if best is None or _is_better(problem, found, best):
            best, backed = found, chosen.answer
    assert best is not None
    assert backed is not None
    if best.mode == "hardware" or problem.wish.goals[0] != "quality":
        return best
    return _claimed(best, backed, "of the levels tried last")


def _exactly(problem: Pipelines, ask: Ask, failed: Infeasibility) -> Solved | Infeasibility:
    """What the exact program finds where the levels, or whole servers at them, do not do, if it is small."""
    return by_config(problem, ask) if sum(map(count_prefixes, problem.served)) <= SMALL else failed


def _passes(problem: Pipelines) -> int:
    return int(getattr(problem.options, "passes", 1))


def _is_better(problem: Pipelines, found: Solved, best: Solved) -> bool:
    """More accurate; or as accurate on fewer servers, where these are counted."""
    more = found.quality - best.quality
    if more > KEPT or "servers" not in problem.levels[1:2]:
        return more > 0
    return more >= -KEPT and found.servers < best.servers


def _choose(problem: Pipelines, ask: Ask, around: list[list[float]] | None) -> Chosen | Infeasibility:
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
    chosen: Chosen | Infeasibility | None = None
    if _can_be_priced(problem, levels):
        priced = _priced_levels(problem, ask, levels)
        if priced is not None:
            bound, used = priced
            chosen = _solve_levels(problem, ask, forest, used, about, asked)
            if isinstance(chosen, Chosen) and (len(trees) > 1 or _meets(chosen, bound)):
                chosen = replace(chosen, answer=bound)
            else:
                chosen = None
    chosen = chosen or _solve_levels(problem, ask, forest, levels, about, asked)
    return chosen if isinstance(chosen, Infeasibility) else _with_fewest(problem, ask, forest, levels, chosen)


def _with_fewest(problem: Pipelines, ask: Ask, forest: Forest, levels: list[list[Vector]], chosen: Chosen) -> Chosen:
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
    return chosen if isinstance(fewest, Infeasibility) else replace(fewest, answer=chosen.answer)


def _meets(chosen: Chosen, bound: Answer[Any]) -> bool:
    """Whether the levels that a mixture uses reach what its prices allow at all."""
    assert bound.bound is not None
    assert chosen.answer.value is not None
    return relative_gap(chosen.answer.value, bound.bound) <= TIGHT


def _solve_levels(
    problem: Pipelines,
    ask: Ask,
    forest: Forest,
    levels: list[list[Vector]],
    about: str,
    asked: Asked,
    *,
    gap: float = GAP / 10,
) -> Chosen | Infeasibility:
    written = levels_form(problem.served, forest, levels, problem.wish.fleet, asked)
    answer = ask(written.form, gap=gap, about=about)
    if answer.status is Status.INFEASIBLE:
        # Of one level per step, chosen from some: no proof that there is no plan.
        return Infeasibility(why=(), answer=answer, proved=False)
    if answer.point is None:
        return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
    return Chosen(written.chosen(answer.point), answer)


def _window(values: Vector, problem: Pipelines, around: float | None) -> Vector:
    """Levels of one task: evenly over all of them, or over those between the neighbours of the one chosen."""
    most = int(getattr(problem.options, "levels", LEVELS))
    coarse = thinned(values, most)
    if around is None or values.size <= most:
        return coarse
    at = int(np.searchsorted(coarse, around - ON_LIMIT_MS))
    low = coarse[max(0, at - 1)]
    high = coarse[min(coarse.size - 1, at + 1)]
    fine = thinned(values[(values >= low) & (values <= high)], most)
    return np.unique(np.append(fine, around))


def _whole_servers(
    problem: Pipelines, ask: Ask, levels: list[list[float]], *, gap: float | None = None
) -> Solved | Infeasibility:
    """Stage 2: the levels as they are, servers whole."""
    trees = [at_levels(tree, own) for tree, own in zip(problem.served, levels, strict=True)]
    if gap is None:
        gap = max(GAP, PART_OF_A_SERVER / problem.wish.fleet.most.sum()) if len(trees) == 1 else GAP_OF_SEVERAL
    best: Solved | None = None
    if is_crowded(problem, trees):
        # With more configurations than servers most are not in use, and an engine spends its time on which.
        for lost in LOST:
            best = _better(problem, best, _whole_at(problem, ask, _in_use(problem, ask, trees, lost), gap))
        if best is not None and (len(trees) > 1 or problem.options.size != "planned"):
            return best  # simulation looks at many plans, and moves single servers after that
    found = _whole_at(problem, ask, trees, gap)
    return _better(problem, best, found) or found


def _better(problem: Pipelines, best: Solved | None, found: Solved | Infeasibility) -> Solved | None:
    """The better of two."""
    if isinstance(found, Infeasibility):
        return best
    return found if best is None or _is_better(problem, found, best) else best


def _whole_at(problem: Pipelines, ask: Ask, trees: Sequence[Tree], gap: float) -> Solved | Infeasibility:
    """Whole servers of these configurations, which are in time together."""
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]

    def write(some: Forest, asked: Asked) -> Written:
        return variant_form("budget", some, trees, problem.wish.fleet, asked)

    found = by_programs(replace(problem, of=tuple(trees)), ask, forest, write, scope="restriction", gap=gap)
    if isinstance(found, Infeasibility) and not found.why:
        return Infeasibility(
            why=("whole servers at the levels of the relaxation do not carry the demand",), proved=False
        )
    return found


def _in_use(problem: Pipelines, ask: Ask, trees: Sequence[Tree], lost: Sequence[float]) -> list[Tree]:
    """Only the configurations that servers in parts use, all of them or as many as rounding may leave.

    For the best accuracy with ever less capacity, and for the largest demand.
    """
    forest = [(tree, prefixes(tree)) for tree in map(merged, trees)]
    kept = [[np.zeros(task.size, bool) for task in tree.tasks] for tree in trees]
    wanted = [*(problem.asked("quality", slip=slip, whole=False) for slip in lost), problem.asked("rate", whole=False)]
    for asked in wanted:
        written = variant_form("in use", forest, trees, problem.wish.fleet, asked)
        (answer,) = ask.all([written.form], about=f"{asked.goal} with servers in parts, for the configurations in use")
        if answer.point is None:
            continue
        for masks, tree, columns in zip(kept, trees, written.x, strict=True):
            ends = np.cumsum([task.size for task in tree.tasks])
            for mask, own in zip(masks, np.split(columns, ends[:-1]), strict=True):
                mask |= answer.point[own] > 1e-6
    return [tree.keeping(masks) for tree, masks in zip(trees, kept, strict=True)]


def _can_be_priced(problem: Pipelines, levels: list[list[Vector]]) -> bool:
    """Pipelines judged by the weighted sum of products (or sums) of qualities, limited by servers alone."""
    fleet = problem.wish.fleet
    plain = (
        problem.levels[0] == "quality"
        and fleet.request.budget is None
        and fleet.request.changes is None
        and not fleet.request.resources
        and bool(np.isfinite(fleet.most).all())
    )
    return plain and all(
        not tree.paths and tree.floor is None and _states(tree, own) <= MOST_STATES
        for tree, own in zip(problem.served, levels, strict=True)
    )


def _states(tree: Tree, levels: list[Vector]) -> float:
    states = [0.0] * len(tree.tasks)
    for t, task in enumerate(tree.tasks):
        before = states[task.parent] if task.parent >= 0 else 1.0
        states[t] = before * np.unique(task.variant).size * levels[t].size
    return sum(states)


def priced_form(problem: Pipelines, levels: list[list[Vector]]) -> Priced:
    """The question for prices over these latency levels."""
    menus = tuple(_menu(problem, tree, own) for tree, own in zip(problem.served, levels, strict=True))
    return Priced(menus, problem.wish.fleet.most, name="pipelines apart")


def _menu(problem: Pipelines, tree: Tree, levels: list[Vector]) -> Menu:
    kinds = len(problem.wish.fleet.hardware)
    options = []
    for t, task in enumerate(tree.tasks):
        rows: dict[tuple[int, int], Vector] = {}
        for place, level in enumerate(levels[t]):
            for c in best_at(tree, t, float(level)):
                rate = rows.setdefault((int(task.variant[c]), place), np.zeros(kinds))
                rate[task.hardware[c]] = max(rate[task.hardware[c]], task.qps[c] / task.places[c])
        pairs = sorted(rows)
        worth = [pair for pair in pairs if (pair[0], pair[1] - 1) not in rows
                 or (rows[pair] > rows[pair[0], pair[1] - 1]).any()]  # fmt: skip
        options.append(
            Options(
                np.array([k for k, _ in worth], dtype=np.int64),
                np.array([levels[t][place] for _, place in worth]),
                np.array([rows[pair] for pair in worth]),
            )
        )
    weights = tree.weights or {}
    additive = tree.rule == "additive"
    return Menu(
        name=tree.app,
        parent=tuple(task.parent for task in tree.tasks),
        quality=tuple(task.quality * (weights.get(task.id, 1.0) if additive else 1.0) for task in tree.tasks),
        factor=tuple(task.factor for task in tree.tasks),
        options=tuple(options),
        limit_ms=tree.limit_ms,
        demand=tree.demand,
        weight=tree.weight,
        additive=additive,
    )


def _priced_levels(
    problem: Pipelines, ask: Ask, levels: list[list[Vector]]
) -> tuple[Answer[Any], list[list[Vector]]] | None:
    """The answer with its bound, and the levels that its mixture uses; None where no mixture was found."""
    form = priced_form(problem, levels)
    answer: Answer[Mixture] = ask(form, gap=1e-5, about="prices of servers, pipelines apart")
    if answer.point is None:
        return None
    used = []
    for number, (menu, own) in enumerate(zip(form.menus, levels, strict=True)):
        kept: list[Vector] = []
        for t, option in enumerate(menu.options):
            at = [choice.option[t] for _, choice in answer.point[number]]
            kept.append(own[t][np.isin(own[t], option.ms[at])])
        used.append(kept)
    return answer, used
