"""Whole servers on small clusters: solved for each choice of latency levels that may be best.

With one latency level per step every path is in time, so a program needs shares of variants only and takes
milliseconds. Where the levels of a choice are nowhere shorter than those of another, and fit, the other is needless;
of most pipelines a handful is left. Their linear programs say which are worth solving with whole servers. What is
found is as good as the exact program's in most cases, and bounds nothing: the searches by simulation ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.problems.pipeline.climb import KEPT, SLIPS, Solved, best_quality, keeping, kept_best, polished
from hetplan.problems.pipeline.form import config_form, variant_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked, Forest, Goal, Written
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Places,
    Tree,
    all_levels,
    at_levels,
    merged,
    prefixes,
)

__all__ = [
    "best_of_all",
    "by_few_levels",
    "carrying_most",
    "choices",
]

MOST = 64
"""With more choices of levels than this, the search for the best of them is a program of its own."""
MOST_LOOKED_AT = 100_000
"""Nor are those of a pipeline looked for among more levels of all but its last steps: that takes seconds."""
SOLVED = 2
"""Choices that are solved with whole servers at most, the most promising first."""
ALL = 1.0 - 1e-6
"""What carries less than this of the demand with servers in parts has no plan with whole ones."""
GAP = 1e-3
"""The gap of their programs: waiting moves more than this."""

NONE = Infeasibility(why=("no choice of latency levels has a plan",), proved=False)


@dataclass(frozen=True)
class _Choice:
    """The configurations at one level per step, as programs over variants see them."""

    problem: Pipelines
    levels: tuple[list[float], ...]
    trees: tuple[Tree, ...]
    forest: Forest

    @cached_property
    def at_the_best(self) -> Forest:
        """Those of the best accuracy alone."""
        return [(tree, kept_best(tree, levels)) for tree, levels in self.forest]

    @property
    def has_the_best(self) -> bool:
        """Whether each step has one of these."""
        return all(level.size for _, levels in self.at_the_best for level in levels)

    def write(self, some: Forest, asked: Asked) -> Written:
        """The program of these configurations."""
        return variant_form("few levels", some, self.trees, self.problem.wish.fleet, asked)


def by_few_levels(problem: Pipelines, ask: Ask) -> Solved | Infeasibility | None:
    """The best plan with one latency level per step; None where there are too many choices to answer."""
    goals = problem.levels
    chosen = _chosen(problem)
    if not chosen or goals[0] != "quality":
        return None
    parts = ask.all(
        [one.write(one.forest, problem.asked("quality", whole=False)).form for one in chosen],
        about="choices of latency levels, servers in parts",
    )
    order = sorted((-answer.value, n) for n, answer in enumerate(parts) if answer.value is not None)
    if not order:
        return NONE
    best = sum(tree.weight * best_quality(fast, prefixes(fast))[0]
               for tree, fast in ((tree, merged(tree)) for tree in problem.served))  # fmt: skip
    worth = [chosen[n] for value, n in order if -value >= best - KEPT and chosen[n].has_the_best]
    found = [
        one for choice in _with_least(problem, ask, worth) if (one := _at_the_best(problem, ask, choice)) is not None
    ]
    if found:
        return min(found, key=lambda one: one.servers)
    reached: Solved | None = None
    for value, n in order[:SOLVED]:
        if reached is not None and -value <= reached.quality + KEPT:
            break
        made = _at_most(problem, ask, chosen[n])
        if made is not None and (reached is None or made.quality > reached.quality + KEPT):
            reached = made
    left = [n for _, n in order[SOLVED:]]
    if reached is None and left:
        reached = _of_most(problem, ask, [chosen[n] for n in left])
    return NONE if reached is None else reached


def _of_most(problem: Pipelines, ask: Ask, chosen: Sequence[_Choice]) -> Solved | None:
    """A plan of one of the choices that could carry most: whole servers may be too many for what is best in parts."""
    made = (_at_most(problem, ask, one) for one in _with_most(problem, ask, chosen))
    return next((one for one in made if one is not None), None)


def _with_most(problem: Pipelines, ask: Ask, chosen: Sequence[_Choice]) -> list[_Choice]:
    """The choices that could carry most with servers in parts: all that is asked for, at least."""
    most = ask.all(
        [one.write(one.forest, problem.asked("rate", whole=False)).form for one in chosen],
        about="choices of latency levels, most that servers in parts could carry",
    )
    ranked = sorted((-one.value, n) for n, one in enumerate(most) if one.value is not None and one.value >= ALL)
    return [chosen[n] for _, n in ranked[:SOLVED]]


def carrying_most(problem: Pipelines, ask: Ask) -> Iterator[tuple[tuple[Tree, ...], list[Places]]]:
    """Whole servers by which all rates could be largest, at the choices of levels that could carry most."""
    for choice in _with_most(problem, ask, _chosen(problem) or []):
        written = choice.write(choice.forest, problem.asked("rate"))
        (answer,) = ask.all([written.form], gap=GAP, about="whole servers at one choice of levels: rate")
        if answer.point is not None:
            yield choice.trees, written.counts(answer.point)


def _chosen(problem: Pipelines) -> list[_Choice] | None:
    """Every choice of levels that is worth a look; None where there are too many."""
    inner = [[own.size for own, below in zip(all_levels(tree), tree.children, strict=True) if below]
             for tree in problem.served]  # fmt: skip
    if any(math.prod(sizes) > MOST_LOOKED_AT for sizes in inner):
        return None
    several = [list(islice(choices(tree), MOST + 1)) for tree in problem.served]
    if np.prod([float(len(own)) for own in several]) > MOST:
        return None
    found = []
    for levels in product(*several):
        trees = tuple(at_levels(tree, own) for tree, own in zip(problem.served, levels, strict=True))
        if all(task.size for tree in trees for task in tree.tasks):
            found.append(_Choice(problem, levels, trees, [(tree, prefixes(tree)) for tree in map(merged, trees)]))
    return found


def choices(tree: Tree) -> Iterator[list[float]]:
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


def best_of_all(problem: Pipelines, ask: Ask, gap: float) -> tuple[list[list[float]], Reported] | None:
    """Of all choices of levels the best with whole servers, and a bound on all; None where there are too many.

    A choice whose program in parts reaches no more than what was found needs no whole servers. The bound is that of the
    choice with the largest: no other can be better.
    """
    chosen = _chosen(problem)
    if not chosen or problem.levels[0] != "quality":
        return None
    forms = [one.write(one.forest, problem.asked("quality", whole=False)).form for one in chosen]
    parts = ask.all(forms, about="choices of latency levels, servers in parts")
    best: tuple[float, int] | None = None
    widest: Answer[Any] | None = None
    for value, n in sorted((-one.value, n) for n, one in enumerate(parts) if one.value is not None):
        if best is not None and -value <= best[0] + KEPT:
            break
        form = chosen[n].write(chosen[n].forest, problem.asked("quality")).form
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


def _with_least(problem: Pipelines, ask: Ask, worth: Sequence[_Choice]) -> list[_Choice]:
    """Of choices that reach the best accuracy, those that take the least of servers (cost, moves) in parts."""
    if len(problem.levels) < 2:
        return []
    if len(worth) <= SOLVED:
        return list(worth)
    least = ask.all(
        [one.write(one.at_the_best, problem.asked(problem.levels[1], whole=False)).form for one in worth],
        about=f"choices of latency levels, least {problem.levels[1]} in parts",
    )
    ranked = sorted((answer.value, n) for n, answer in enumerate(least) if answer.value is not None)
    return [worth[n] for _, n in ranked[:SOLVED]]


def _at_the_best(problem: Pipelines, ask: Ask, choice: _Choice) -> Solved | None:
    """The least of servers (cost, moves) at the best accuracy in time."""
    base = problem.asked(problem.levels[1])
    return _whole(problem, ask, choice, choice.at_the_best, problem.levels[1:], base, "hardware")


def _at_most(problem: Pipelines, ask: Ask, choice: _Choice) -> Solved | None:
    """The best accuracy on all servers, then the least of them."""
    found = _whole(problem, ask, choice, choice.forest, ("quality",), problem.asked("quality"), "accuracy")
    if found is None:
        return None
    later: tuple[Goal, ...] = problem.levels[1:]
    if later == ("servers",):
        return _without_idle(problem, ask, found)
    base = replace(problem.asked("quality"), quality_least=found.quality - 10 * KEPT)
    return _whole(problem, ask, choice, choice.forest, later, base, "accuracy") or found if later else found


def _whole(
    problem: Pipelines, ask: Ask, choice: _Choice, forest: Forest, goals: Sequence[Goal], base: Asked, mode: str
) -> Solved | None:
    """These goals in turn with whole servers; the last point, its shares solved again."""
    for slip in SLIPS:
        asked, written, answer = replace(base, slip=slip), None, None
        for goal in goals:
            written = choice.write(forest, replace(asked, goal=goal))
            (answer,) = ask.all([written.form], gap=GAP, about=f"whole servers at one choice of levels: {goal}")
            if answer.point is None or answer.value is None:
                return None
            asked = keeping(asked, goal, answer.value)
        assert written is not None
        assert answer is not None
        assert answer.point is not None
        shares = polished(ask, choice.trees, written.counts(answer.point), problem.wish.fleet)
        if shares is not None:
            return Solved(*shares, mode=mode, reported=())
    return None


def _without_idle(problem: Pipelines, ask: Ask, found: Solved) -> Solved:
    """Without servers that the accuracy does not need, one after the other."""
    fleet = problem.wish.fleet
    trees = [tree for tree, _ in found.forest]
    hardware = np.concatenate([task.hardware for tree in trees for task in tree.tasks])
    ends = np.cumsum([counts.size for counts in found.counts])[:-1]
    least = found.quality - KEPT
    while True:
        now = np.concatenate(found.counts)
        idle = [y for y in np.flatnonzero(now) if now[hardware == hardware[y]].sum() > fleet.least[hardware[y]]]
        fewer = [np.split(now - (np.arange(now.size) == y), ends) for y in idle]
        forms = [config_form(found.forest, fleet, Asked("quality", counts=own, slip=SLIPS[0])).form for own in fewer]
        answers = ask.all(forms, about="whether one server fewer would do")
        good = [own for own, one in zip(fewer, answers, strict=True) if one.value is not None and one.value >= least]
        shares = polished(ask, trees, good[0], fleet) if good else None
        if shares is None:
            return found
        found = replace(found, forest=shares[0], counts=shares[1], shares=shares[2])
        trees = [tree for tree, _ in found.forest]
        hardware = np.concatenate([task.hardware for tree in trees for task in tree.tasks])
        ends = np.cumsum([counts.size for counts in found.counts])[:-1]
