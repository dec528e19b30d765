"""Whole servers on small clusters: solved for each choice of latency levels that may be best.

With one latency level per step every path is in time, so a program needs shares of variants only and takes
milliseconds. Where the levels of a choice are nowhere shorter than those of another, and fit, the other is needless;
of most pipelines a handful is left. Their linear programs say which are worth solving with whole servers. What is
found is as good as the exact program's in most cases, and bounds nothing: the searches by simulation ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Reported
from hetplan.problems.pipeline.climb import KEPT
from hetplan.problems.pipeline.form import variant_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked, Forest, Written
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


@dataclass(frozen=True)
class _Choice:
    """The configurations at one level per step, as programs over variants see them."""

    problem: Pipelines
    levels: tuple[list[float], ...]
    trees: tuple[Tree, ...]
    forest: Forest

    def write(self, asked: Asked) -> Written:
        """The program of these configurations."""
        return variant_form("few levels", self.forest, self.trees, self.problem.wish.fleet, asked)


def _with_most(problem: Pipelines, ask: Ask, chosen: Sequence[_Choice]) -> list[_Choice]:
    """The choices that could carry most with servers in parts: all that is asked for, at least."""
    most = ask.all(
        [one.write(problem.asked("rate", whole=False)).form for one in chosen],
        about="choices of latency levels, most that servers in parts could carry",
    )
    ranked = sorted((-one.value, n) for n, one in enumerate(most) if one.value is not None and one.value >= ALL)
    return [chosen[n] for _, n in ranked[:SOLVED]]


def carrying_most(problem: Pipelines, ask: Ask) -> Iterator[tuple[tuple[Tree, ...], list[Places]]]:
    """Whole servers by which all rates could be largest, at the choices of levels that could carry most."""
    for choice in _with_most(problem, ask, _chosen(problem) or []):
        written = choice.write(problem.asked("rate"))
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
    forms = [one.write(problem.asked("quality", whole=False)).form for one in chosen]
    parts = ask.all(forms, about="choices of latency levels, servers in parts")
    best: tuple[float, int] | None = None
    widest: Answer[Any] | None = None
    for value, n in sorted((-one.value, n) for n, one in enumerate(parts) if one.value is not None):
        if best is not None and -value <= best[0] + KEPT:
            break
        form = chosen[n].write(problem.asked("quality")).form
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
