"""One latency level per task: the way to large clusters (formulation `budget`), and safe under any router.

Stage 1 chooses levels, with servers in parts: its bound is the bound of this model. Stage 2 fixes the levels and makes
servers whole. Levels are thinned; `passes` looks again with finer levels around the last choice. The bound is one of
the first pass's levels, and no bound of the exact program.

Several pipelines on one large cluster are taken apart by prices on servers. Every pipeline answers the prices with its
best choice; the mixture of all choices bounds what any plan with these latency levels can reach (form `priced`, whose
oracle proves the bound again). The levels that the mixture uses are the only ones that stage 1 still has to look at.

On small clusters whole servers are solved for each choice of levels that may be best (`solve_level_choices`). A program
at given levels needs shares of variants only, and takes milliseconds. Where the levels of a choice are nowhere shorter
than those of another, and fit, the other is needless; of most pipelines a handful is left. Their linear programs say
which are worth solving with whole servers. What is found is as good as the exact program's in most cases, and bounds
nothing: the searches by simulation ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status, relative_gap
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.planner.forms.priced import Menu, Mixture, Options, Priced
from hetplan.problems.pipeline.infeasible import is_beyond_all
from hetplan.problems.pipeline.pipelines import LEVELS, Pipelines
from hetplan.problems.pipeline.programs import Aim, Forest, Program, levels_form, variant_form
from hetplan.problems.pipeline.scaling import (
    KEPT,
    Solution,
    best_of,
    best_prefixes,
    scale,
    solve_config,
)
from hetplan.problems.pipeline.small_cluster import is_crowded, solve_by_tables
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Places,
    Tree,
    Vector,
    all_levels,
    at_levels,
    best_at,
    count_prefixes,
    forest_of_variants,
    thin_out,
)

__all__ = [
    "best_level_choice",
    "level_choices",
    "priced_form",
    "servers_that_carry_most",
    "solve_after_first_plan",
    "solve_level_choices",
    "solve_levels",
]

GAP = 5e-4
"""The gap of whole servers in stage 2, on a large cluster."""

PART_OF_A_SERVER = 0.1
"""On a small one a whole server is a larger part of it: the gap is at least this part of one."""

SMALL = 20_000
"""Up to so many prefixes the exact program is asked where levels fail."""

TIGHT = 1e-4
"""Prices whose bound is further than this from what their levels reach are put aside for one pipeline."""

GAP_OF_SEVERAL = 2e-3
"""The gap of whole servers where several pipelines share them."""

NEAR = 5e-3
"""A plan by tables that is this near to its bound is good enough: the rest of a limit is not spent on a better one."""

LOST = ((0.0,), (0.15, 0.3))
"""Shares of capacity that whole servers may cost on a small cluster, by which configurations are added, in turn."""

ANY = 0.5
"""The gap at which a first plan will do."""

MOST_STATES = 12_000_000
"""Above so many states of one pipeline the oracle would take longer than the program it spares."""


@dataclass(frozen=True)
class LevelChoice:
    """Levels per tree and task, with the answer that chose them."""

    levels: list[list[float]]
    answer: Answer[Any]


def solve_levels(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """Levels by stage 1, whole servers by stage 2; with more passes, levels around the choice and stage 2 again."""
    if is_beyond_all(problem, ask):
        return Infeasibility(why=())
    wanted = ask.limits.gap
    if wanted is not None and wanted < GAP and (closed := _close_gap(problem, ask, wanted)) is not None:
        return closed
    tables = solve_by_tables(problem, ask)
    if tables is not None and (wanted is None or ask.limits.seconds is not None):
        return _add_bound(problem, ask, *tables) if problem.options.sizing == "fluid" else tables[0]
    soon = tables[0] if tables is not None else None
    if soon is None and ask.limits.seconds is not None:
        soon = _first_plan(problem, ask)
    made = _solve_levels_in_turn(problem, ask)
    found = [one for one in [made, soon] if isinstance(one, Solution)]
    best = found[0] if found else None
    for one in found[1:]:
        assert best is not None
        best = one if _is_better(problem, one, best) else best
    return made if best is None else best


def solve_after_first_plan(
    problem: Pipelines, ask: Ask, way: Callable[[Pipelines, Ask], Solution | Infeasibility]
) -> Solution | Infeasibility:
    """What a program finds within its seconds; where that is nothing, or worse, the plan that was found before it."""
    tables = solve_by_tables(problem, ask)
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


def _first_plan(problem: Pipelines, ask: Ask) -> Solution | None:
    """Some plan, soon: every step takes as much of the time as its fastest variant needs of the fastest path."""
    trees = [at_levels(tree, _proportional_levels(tree)) for tree in problem.served]
    if not is_crowded(problem, trees) or not all(task.size for tree in trees for task in tree.tasks):
        return None
    found = _solve_whole_servers(problem, ask, trees, ANY)
    return None if isinstance(found, Infeasibility) else found


def _proportional_levels(tree: Tree) -> list[float]:
    """Levels in proportion to what each step needs at least, as long as the tightest path through it allows."""
    least = np.array([task.ms.min() for task in tree.tasks])
    factor = np.full(least.size, np.inf)
    for sink in tree.sinks:
        path = list(tree.path(sink))
        factor[path] = np.minimum(factor[path], tree.limit_ms[sink] / least[path].sum())
    allowed: Vector = least * factor + ON_LIMIT_MS
    return [float(own[own <= most][-1]) for own, most in zip(all_levels(tree), allowed, strict=True)]


def _add_bound(problem: Pipelines, ask: Ask, found: Solution, trees: Sequence[Tree]) -> Solution:
    """A plan with the bound of the latency levels, where there is time left for it.

    What is left of a limit after that goes to an engine, which looks for a better plan at the same levels.
    """
    chosen = _choose(problem, ask, None) if ask.remaining > 0 else None
    answer = chosen.answer if isinstance(chosen, LevelChoice) else None
    bound = answer.bound if answer is not None else None
    if ask.limits.seconds is not None and bound is not None and relative_gap(found.quality, bound) > NEAR:
        found = _better_of(problem, found, _solve_whole_servers(problem, ask, trees, GAP_OF_SEVERAL)) or found
    return _claim_bound(found, answer, "of the levels tried")


def _claim_bound(found: Solution, answer: Answer[Any] | None, which: str) -> Solution:
    """A plan that claims the bound of some levels; no bound where the plan is better: they were thinned, or too few."""
    if answer is not None and answer.bound is not None and answer.bound < found.quality - KEPT:
        answer = None
    note = f"bound of the model with one latency level per step, {which}" if answer is not None else None
    claim = found.valued(Reported("quality", "max", "restriction", answer, value=found.quality, note=note))
    return replace(found, reported=(claim, *(found.valued(one) for one in found.reported if one.about != "quality")))


def _close_gap(problem: Pipelines, ask: Ask, gap: float) -> Solution | None:
    """The best there is with one level per step, where the choices of levels can all be looked at."""
    found = best_level_choice(problem, ask, gap)
    if found is None:
        return None
    levels, claim = found
    made = _make_servers_whole(problem, ask, levels, gap=gap)
    if isinstance(made, Infeasibility) or made.mode == "hardware":
        return None if isinstance(made, Infeasibility) else made
    rest = tuple(made.valued(one) for one in made.reported if one.about != "quality")
    return replace(made, reported=(made.valued(claim), *rest))


def _solve_levels_in_turn(problem: Pipelines, ask: Ask) -> Solution | Infeasibility:
    """So many levels per step, evenly over all, or around the choice of the pass before."""
    best: Solution | None = None
    backed: Answer[Any] | None = None
    levels: list[list[float]] | None = None
    for _ in range(_pass_count(problem)):
        chosen = _choose(problem, ask, levels)
        if isinstance(chosen, Infeasibility):
            return _solve_exactly(problem, ask, chosen) if best is None else best
        if chosen.levels == levels:
            break
        levels = chosen.levels
        found = _make_servers_whole(problem, ask, levels)
        if isinstance(found, Infeasibility):
            if best is None:
                return _solve_exactly(problem, ask, found)
            break
        if best is None or _is_better(problem, found, best):
            best, backed = found, chosen.answer
    assert best is not None
    assert backed is not None
    if best.mode == "hardware" or problem.wish.goals[0] != "quality":
        return best
    return _claim_bound(best, backed, "of the levels tried last")


def _solve_exactly(problem: Pipelines, ask: Ask, failed: Infeasibility) -> Solution | Infeasibility:
    """What the exact program finds where the levels, or whole servers at them, do not do, if it is small."""
    return solve_config(problem, ask) if sum(map(count_prefixes, problem.served)) <= SMALL else failed


def _pass_count(problem: Pipelines) -> int:
    return problem.passes or (1 if problem.formulation == "loki-budget" else 2)


def _is_better(problem: Pipelines, found: Solution, best: Solution) -> bool:
    """More accurate; or as accurate on fewer servers, where these are counted."""
    more = found.quality - best.quality
    if more > KEPT or "servers" not in problem.levels[1:2]:
        return more > 0
    return more >= -KEPT and found.servers < best.servers


def _choose(problem: Pipelines, ask: Ask, around: list[list[float]] | None) -> LevelChoice | Infeasibility:
    """Stage 1 over thinned levels, or over those around a choice."""
    trees = problem.served
    forest = forest_of_variants(trees)
    levels = [
        [_window(values, None if around is None else around[i][t]) for t, values in enumerate(all_levels(tree))]
        for i, tree in enumerate(trees)
    ]
    about = "latency levels, servers in parts" if around is None else "finer latency levels around the choice"
    aim = problem.aim(problem.levels[0])
    chosen: LevelChoice | Infeasibility | None = None
    if _can_be_priced(problem, levels):
        priced = _choose_by_prices(problem, ask, levels)
        if priced is not None:
            bound, used = priced
            chosen = _solve_levels(problem, ask, forest, used, about, aim)
            if isinstance(chosen, LevelChoice) and (len(trees) > 1 or _meets_bound(chosen, bound)):
                chosen = replace(chosen, answer=bound)
            else:
                chosen = None
    chosen = chosen or _solve_levels(problem, ask, forest, levels, about, aim)
    return chosen if isinstance(chosen, Infeasibility) else _choose_fewest_servers(problem, ask, forest, levels, chosen)


def _choose_fewest_servers(
    problem: Pipelines, ask: Ask, forest: Forest, levels: list[list[Vector]], chosen: LevelChoice
) -> LevelChoice:
    """Where the best accuracy in time is reached, the levels that reach it with the least of servers (or cost)."""
    goals = problem.levels
    if len(goals) < 2 or goals[0] != "quality" or goals[1] not in ("servers", "cost"):
        return chosen
    best = best_of(forest)
    if chosen.answer.value is None or chosen.answer.value < best - KEPT:
        return chosen
    kept = [(tree, best_prefixes(tree, own)) for tree, own in forest]
    about = f"latency levels, least {goals[1]} in parts at the best accuracy"
    fewest = _solve_levels(problem, ask, kept, levels, about, problem.aim(goals[1]), gap=GAP)
    return chosen if isinstance(fewest, Infeasibility) else replace(fewest, answer=chosen.answer)


def _meets_bound(chosen: LevelChoice, bound: Answer[Any]) -> bool:
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
    aim: Aim,
    *,
    gap: float = GAP / 10,
) -> LevelChoice | Infeasibility:
    program = levels_form(problem.served, forest, levels, problem.wish.fleet, aim)
    answer = ask(program.form, gap=gap, about=about)
    if answer.status is Status.INFEASIBLE:
        # Of one level per step, chosen from some: no proof that there is no plan.
        return Infeasibility(why=(), answer=answer, proved=False)
    if answer.point is None:
        return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
    return LevelChoice(program.chosen(answer.point), answer)


def _window(values: Vector, around: float | None) -> Vector:
    """Levels of one task: evenly over all of them, or over those between the neighbours of the one chosen."""
    coarse = thin_out(values, LEVELS)
    if around is None or values.size <= LEVELS:
        return coarse
    at = int(np.searchsorted(coarse, around - ON_LIMIT_MS))
    low = coarse[max(0, at - 1)]
    high = coarse[min(coarse.size - 1, at + 1)]
    fine = thin_out(values[(values >= low) & (values <= high)], LEVELS)
    return np.unique(np.append(fine, around))


def _make_servers_whole(
    problem: Pipelines, ask: Ask, levels: list[list[float]], *, gap: float | None = None
) -> Solution | Infeasibility:
    """Stage 2: the levels as they are, servers whole."""
    trees = [at_levels(tree, own) for tree, own in zip(problem.served, levels, strict=True)]
    if gap is None:
        gap = max(GAP, PART_OF_A_SERVER / problem.wish.fleet.most.sum()) if len(trees) == 1 else GAP_OF_SEVERAL
    best: Solution | None = None
    if is_crowded(problem, trees):
        # With more configurations than servers most are not in use, and an engine spends its time on which.
        for used in _keep_used(problem, ask, trees):
            best = _better_of(problem, best, _solve_whole_servers(problem, ask, used, gap))
        if best is not None and (len(trees) > 1 or problem.options.sizing != "fluid"):
            return best  # simulation looks at many plans, and moves single servers after that
    found = _solve_whole_servers(problem, ask, trees, gap)
    return _better_of(problem, best, found) or found


def _better_of(problem: Pipelines, best: Solution | None, found: Solution | Infeasibility) -> Solution | None:
    """The better of two."""
    if isinstance(found, Infeasibility):
        return best
    return found if best is None or _is_better(problem, found, best) else best


def _solve_whole_servers(
    problem: Pipelines, ask: Ask, trees: Sequence[Tree], gap: float, best: float | None = None
) -> Solution | Infeasibility:
    """Whole servers of these configurations, which are in time together."""
    forest = forest_of_variants(trees)

    def write(some: Forest, aim: Aim) -> Program:
        return variant_form("budget", some, trees, problem.wish.fleet, aim)

    found = scale(replace(problem, of=tuple(trees)), ask, forest, write, scope="restriction", gap=gap, best=best)
    if isinstance(found, Infeasibility) and not found.why:
        return Infeasibility(
            why=("whole servers at the levels of the relaxation do not carry the demand",), proved=False
        )
    return found


def _keep_used(problem: Pipelines, ask: Ask, trees: Sequence[Tree]) -> Iterator[list[Tree]]:
    """Only the configurations that servers in parts use, then as many more as rounding may leave.

    For the best accuracy with ever less capacity, and for the largest demand. Where a limit ends all of that, all.
    """
    forest = forest_of_variants(trees)
    kept = [[np.zeros(task.size, bool) for task in tree.tasks] for tree in trees]
    for lost in LOST:
        wanted = [problem.aim("quality", slip=slip, whole=False) for slip in lost]
        for aim in wanted if lost != LOST[0] else [*wanted, problem.aim("rate", whole=False)]:
            program = variant_form("in use", forest, trees, problem.wish.fleet, aim)
            (answer,) = ask.all(
                [program.form], about=f"{aim.goal} with servers in parts, for the configurations in use"
            )
            if answer.point is None:
                continue
            for masks, tree, columns in zip(kept, trees, program.x, strict=True):
                for mask, own in zip(masks, tree.by_task(columns), strict=True):
                    mask |= answer.point[own] > 1e-6
        is_any = any(mask.any() for masks in kept for mask in masks)
        yield [tree.keeping(masks) if is_any else tree for tree, masks in zip(trees, kept, strict=True)]


def _can_be_priced(problem: Pipelines, levels: list[list[Vector]]) -> bool:
    """Pipelines judged by the weighted sum of products (or sums) of qualities, limited by servers alone."""
    return problem.counts_servers_alone and all(
        not tree.paths and tree.floor is None and _count_states(tree, own) <= MOST_STATES
        for tree, own in zip(problem.served, levels, strict=True)
    )


def _count_states(tree: Tree, levels: list[Vector]) -> float:
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


def _choose_by_prices(
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


MOST = 64
"""With more choices of levels than this, the search for the best of them is a program of its own."""

MOST_LOOKED_AT = 100_000
"""Nor are those of a pipeline looked for among more levels of all but its last steps: that takes seconds."""

SOLVED = 2
"""Choices that are solved with whole servers at most, the most promising first."""

ALL = 1.0 - 1e-6
"""What carries less than this of the demand with servers in parts has no plan with whole ones."""

GAP_OF_A_CHOICE = 1e-3
"""The gap of their programs: waiting moves more than this."""

NONE = Infeasibility(why=("no choice of latency levels has a plan",), proved=False)


@dataclass(frozen=True)
class _Choice:
    """The configurations at one level per step, as programs over variants see them."""

    problem: Pipelines
    levels: tuple[list[float], ...]
    trees: tuple[Tree, ...]
    forest: Forest

    def write(self, aim: Aim, forest: Forest | None = None) -> Program:
        """The program of these configurations."""
        return variant_form("few levels", forest or self.forest, self.trees, self.problem.wish.fleet, aim)

    @property
    def at_best(self) -> Forest:
        """Their prefixes of the best accuracy alone."""
        return [(tree, best_prefixes(tree, levels)) for tree, levels in self.forest]

    def solve(self, ask: Ask, best: float) -> Solution | Infeasibility:
        """Whole servers of these configurations, where this is the best accuracy in time."""
        return _solve_whole_servers(self.problem, ask, self.trees, GAP_OF_A_CHOICE, best)


def solve_level_choices(problem: Pipelines, ask: Ask) -> Solution | Infeasibility | None:
    """The best plan with one latency level per step; None where there are too many choices to answer."""
    chosen = _promising_choices(problem)
    if not chosen or problem.levels[0] != "quality":
        return None
    forms = [one.write(problem.aim("quality", whole=False)).form for one in chosen]
    in_parts = ask.all(forms, about="choices of latency levels, servers in parts")
    order = sorted((-one.value, n) for n, one in enumerate(in_parts) if one.value is not None)
    best = best_of(forest_of_variants(problem.served))
    reach_best = [chosen[n] for value, n in order if -value >= best - KEPT]
    reached: Solution | None = None
    for one in _choices_of_least(problem, ask, reach_best):
        reached = _better_of(problem, reached, one.solve(ask, best))
    for value, n in order[:SOLVED] if reached is None else ():
        if reached is None or -value > reached.quality + KEPT:
            reached = _better_of(problem, reached, chosen[n].solve(ask, best))
    # Whole servers may be too many for what is best in parts.
    for one in _roomiest_choices(problem, ask, [chosen[n] for _, n in order[SOLVED:]]) if reached is None else ():
        reached = reached or _better_of(problem, None, one.solve(ask, best))
    return NONE if reached is None else reached


def _roomiest_choices(problem: Pipelines, ask: Ask, chosen: Sequence[_Choice]) -> list[_Choice]:
    """The choices that could carry most with servers in parts: all that is asked for, at least."""
    most = ask.all(
        [one.write(problem.aim("rate", whole=False)).form for one in chosen],
        about="choices of latency levels, most that servers in parts could carry",
    )
    ranked = sorted((-one.value, n) for n, one in enumerate(most) if one.value is not None and one.value >= ALL)
    return [chosen[n] for _, n in ranked[:SOLVED]]


def servers_that_carry_most(problem: Pipelines, ask: Ask) -> Iterator[tuple[tuple[Tree, ...], list[Places]]]:
    """Whole servers by which all rates could be largest, at the choices of levels that could carry most."""
    for choice in _roomiest_choices(problem, ask, _promising_choices(problem) or []):
        program = choice.write(problem.aim("rate"))
        (answer,) = ask.all([program.form], gap=GAP_OF_A_CHOICE, about="whole servers at one choice of levels: rate")
        if answer.point is not None:
            yield choice.trees, program.counts(answer.point)


def _promising_choices(problem: Pipelines) -> list[_Choice] | None:
    """Every choice of levels that is worth a look; None where there are too many."""
    inner = [[own.size for own, below in zip(all_levels(tree), tree.children, strict=True) if below]
             for tree in problem.served]  # fmt: skip
    if any(math.prod(sizes) > MOST_LOOKED_AT for sizes in inner):
        return None
    several = [list(islice(level_choices(tree), MOST + 1)) for tree in problem.served]
    if np.prod([float(len(own)) for own in several]) > MOST:
        return None
    found = []
    for levels in product(*several):
        trees = tuple(at_levels(tree, own) for tree, own in zip(problem.served, levels, strict=True))
        if all(task.size for tree in trees for task in tree.tasks):
            found.append(_Choice(problem, levels, trees, forest_of_variants(trees)))
    return found


def level_choices(tree: Tree) -> Iterator[list[float]]:
    """One latency level per task, such that every path is in time and none could be longer."""
    levels, room_ms = all_levels(tree), tree.room_ms

    def below(tasks: Sequence[int], before: float) -> Iterator[dict[int, float]]:
        """Levels of these tasks, which begin after so much, and of all that follows them."""
        for parts in product(*(list(of(t, before)) for t in tasks)):
            yield {t: ms for part in parts for t, ms in part.items()}

    def of(t: int, before: float) -> Iterator[dict[int, float]]:
        own = levels[t][levels[t] <= room_ms[t] - before + ON_LIMIT_MS]
        if not tree.children[t]:
            if own.size:
                yield {t: float(own[-1])}
            return
        seen: set[tuple[float, ...]] = set()
        for ms in own[::-1].tolist():
            for rest in below(tree.children[t], before + ms):
                # A shorter level of this task is worth it only where one below gets longer by it.
                key = tuple(rest.values())
                if not any(all(a <= b for a, b in zip(key, old, strict=True)) for old in seen):
                    seen.add(key)
                    yield {t: ms, **rest}

    for found in below(tree.roots, 0.0):
        yield [found[t] for t in range(len(tree.tasks))]


def best_level_choice(problem: Pipelines, ask: Ask, gap: float) -> tuple[list[list[float]], Reported] | None:
    """Of all choices of levels the best with whole servers, and a bound on all; None where there are too many.

    A choice whose program in parts reaches no more than what was found needs no whole servers. The bound is that of the
    choice with the largest: no other can be better.
    """
    chosen = _promising_choices(problem)
    if not chosen or problem.levels[0] != "quality":
        return None
    forms = [one.write(problem.aim("quality", whole=False)).form for one in chosen]
    parts = ask.all(forms, about="choices of latency levels, servers in parts")
    best: tuple[float, int] | None = None
    widest: Answer[Any] | None = None
    for value, n in sorted((-one.value, n) for n, one in enumerate(parts) if one.value is not None):
        if best is not None and -value <= best[0] + KEPT:
            break
        form = chosen[n].write(problem.aim("quality")).form
        answer = ask(form, gap=gap, about="whole servers at one choice of levels")
        if answer.status is Status.INFEASIBLE:
            continue
        if answer.bound is None:
            return None
        if answer.value is not None and (best is None or answer.value > best[0]):
            best = answer.value, n
        if widest is None or answer.bound > (widest.bound or 0.0):
            widest = answer
    if best is None:
        return None
    note = f"of {len(chosen)} choices of one latency level per step that with the largest bound"
    claim = Reported("quality", "max", "restriction", widest, value=best[0], note=note)
    return [list(own) for own in chosen[best[1]].levels], claim


def _choices_of_least(problem: Pipelines, ask: Ask, worth: Sequence[_Choice]) -> list[_Choice]:
    """Of choices that reach the best accuracy, those that take the least of servers (cost, moves) in parts."""
    if len(problem.levels) < 2:
        return []
    if len(worth) <= SOLVED:
        return list(worth)
    least = ask.all(
        [one.write(problem.aim(problem.levels[1], whole=False), one.at_best).form for one in worth],
        about=f"choices of latency levels, least {problem.levels[1]} in parts",
    )
    ranked = sorted((answer.value, n) for n, answer in enumerate(least) if answer.value is not None)
    return [worth[n] for _, n in ranked[:SOLVED]]
