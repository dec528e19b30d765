"""Solves the levels of the objective one after the other, for all programs over pipelines.

While the best accuracy can be kept, servers are minimised (hardware scaling); beyond, accuracy is maximised first
(accuracy scaling). Each level keeps what the one before has reached. At the end counts are whole, and the shares are
solved again as a linear program: no verdict rests on an engine's rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Reported, Scope
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.form import config_form
from hetplan.problems.pipeline.rows import ONE_MORE, Asked, Written
from hetplan.problems.pipeline.tree import Level, Mask, Places, Tree, Vector, prefixes

__all__ = [
    "ABOUT",
    "CLAIMED",
    "GAP",
    "KEPT",
    "SLIPS",
    "Solved",
    "best_quality",
    "climb",
    "cut",
    "evenly_filled",
    "in_proportion",
    "keeping",
    "kept_best",
    "polished",
    "quality_of",
]

KEPT = 1e-7
"""How much of an earlier level's value a later one may lose."""

SAME = 1e-9
"""A value this near to its bound is it: both were solved to a tolerance."""

SLIPS = (0.0, 1e-5, 1e-4)
"""By how much capacities are tightened, in turn, until whole counts carry the demand exactly; the first is the rule."""

GAP = 1e-6
"""The default gap of exact programs."""

Write = Callable[[Asked], Written]


@dataclass(frozen=True)
class Solved:
    """A choice of servers with the shares that they carry.

    `forest` holds the configurations that `counts` are of, with the prefixes that `shares` are of.
    """

    forest: list[tuple[Tree, list[Level]]]
    counts: list[Places]
    shares: list[list[Vector]]
    mode: str
    reported: tuple[Reported, ...]
    served: dict[str, float] | None = None
    """Per application the rate that is served, where it is less than the demand."""
    longest_ms: dict[str, float] | None = None
    """Per application the longest way through, where branches join and no path says so."""
    levels_proved: bool = True
    """Whether what is claimed of later levels of the objective holds among all plans, and not only among some."""

    @property
    def qualities(self) -> list[float]:
        """Accuracy of each application."""
        return [quality_of(tree, levels, n) for (tree, levels), n in zip(self.forest, self.shares, strict=True)]

    @property
    def quality(self) -> float:
        """The weighted sum of the accuracies."""
        return sum(tree.weight * a for (tree, _), a in zip(self.forest, self.qualities, strict=True))

    @property
    def servers(self) -> int:
        """How many servers there are in all."""
        return sum(int(counts.sum()) for counts in self.counts)

    def valued(self, reported: Reported) -> Reported:
        """A claim of a goal with the value that the finished plan has."""
        values = {
            "quality": self.quality,
            "least_quality": min(self.qualities, default=0.0),
            "servers": float(self.servers),
        }
        value, answer = values.get(reported.about), reported.answer
        if value is None:
            return reported
        if answer is not None and answer.bound is not None and abs(value - answer.bound) <= SAME:
            value = answer.bound  # the same number but for its last digit
        return replace(reported, value=value)


def quality_of(tree: Tree, levels: Sequence[Level], shares: Sequence[Vector]) -> float:
    """The mean accuracy over the last tasks."""
    return float(sum(levels[s].quality @ shares[s] / shares[s].sum() for s in tree.sinks)) / len(tree.sinks)


def best_quality(tree: Tree, levels: Sequence[Level]) -> tuple[float, list[Vector]]:
    """A*: the best accuracy in time with unlimited servers, and per prefix what is still to be had from it on."""
    worth = [np.zeros(level.size) for level in levels]
    best: list[Vector] = [np.zeros(0)] * len(levels)
    for t in reversed(range(len(levels))):
        level = levels[t]
        if not tree.children[t]:
            worth[t] = level.quality / len(tree.sinks)
        for child in tree.children[t]:
            worth[t] = worth[t] + best[child]
        size = levels[tree.tasks[t].parent].size if tree.tasks[t].parent >= 0 else 1
        best[t] = np.full(size, -np.inf)
        np.maximum.at(best[t], level.parent, worth[t])
    return float(sum(best[root][0] for root in tree.roots)), [
        worth[t] - best[t][levels[t].parent] for t in range(len(levels))
    ]


def kept_best(tree: Tree, levels: Sequence[Level]) -> list[Level]:
    """Only the prefixes by which the best accuracy is kept."""
    _, short = best_quality(tree, levels)
    return cut(tree, levels, [loss >= -1e-12 for loss in short])


def cut(tree: Tree, levels: Sequence[Level], masks: Sequence[Mask]) -> list[Level]:
    """Only some of the prefixes, and of those only the ones whose beginnings are kept too."""
    kept: list[Level] = []
    places: list[Places] = []
    for level, task, mask in zip(levels, tree.tasks, masks, strict=True):
        above = places[task.parent][level.parent] if task.parent >= 0 else np.zeros(level.size, np.int64)
        keep = mask & (above >= 0)
        place = np.full(level.size, -1)
        place[keep] = np.arange(int(keep.sum()))
        places.append(place)
        kept.append(
            Level(above[keep], level.config[keep], level.ms[keep], level.gain[keep], level.quality[keep],
                  level.variants[keep])
        )  # fmt: skip
    return kept


def climb(
    ask: Ask, write: Write, goals: Sequence[str], base: Asked, *, scope: Scope, gap: float = GAP
) -> tuple[Written, Vector, list[Reported]] | Answer[Any]:
    """Solve level after level: the last program and its point, or the answer that found the first one wanting.

    A demand that whole servers miss by less than an engine's tolerance is neither feasible nor believed infeasible: no
    answer, though the work was finished.
    """
    try:
        return _climbed(ask, write, goals, base, scope, gap)
    except SolverFailed as failure:
        return Answer(Status.NO_ANSWER, stop=Stop.FINISHED, detail=str(failure))


def _climbed(
    ask: Ask, write: Write, goals: Sequence[str], base: Asked, scope: Scope, gap: float
) -> tuple[Written, Vector, list[Reported]] | Answer[Any]:
    asked, reported = base, list[Reported]()
    best: tuple[Written, Vector] | None = None
    point: Vector | None = None
    for goal in goals:
        if goal == "servers" and best is not None:
            needed = _as_few_as_there_are(ask, write, asked, best, gap)
            if needed is not None:
                reported.append(Reported("servers", "min", scope, needed))
                asked = keeping(asked, goal, needed.value or 0.0)
                continue
        written = write(replace(asked, goal=goal))  # type: ignore[arg-type]
        hint = point if point is not None and point.size == written.form.cost.size else None
        answer = ask(written.form, start=hint, gap=gap, about=ABOUT[goal])
        if answer.point is None:
            if best is None:
                return answer
            break
        best, point = (written, answer.point), answer.point
        value = written.form.value(answer.point)
        reported.append(Reported(CLAIMED[goal], "max" if goal in ("quality", "fairest") else "min", scope, answer))
        asked = keeping(asked, goal, value)
    assert best is not None
    return best[0], best[1], reported


def _as_few_as_there_are(
    ask: Ask, write: Write, asked: Asked, best: tuple[Written, Vector], gap: float
) -> Answer[Any] | None:
    """The proof that the servers of the best point so far are the fewest; None where one fewer would do.

    Most often none is to spare, and an engine that may count no lower sees so many times faster.
    """
    written, point = best
    now = sum(int(counts.sum()) for counts in written.counts(point))
    form = write(replace(asked, goal="servers", servers_above=now - 1)).form
    start = np.insert(point, next(block.start for block in form.columns if block.name == ONE_MORE), 1.0)
    answer = ask(form, start=start, gap=gap, about="whether one server fewer would do")
    # The objective does not count below one fewer, so a bound of no more than that (under a wide gap) proves nothing.
    return answer if answer.bound is not None and answer.bound > now - 1 + KEPT and answer.point is not None else None


ABOUT = {
    "quality": "best accuracy", "fairest": "best accuracy of the worst served", "servers": "fewest servers",
    "cost": "least cost", "changes": "fewest changes",
}  # fmt: skip
CLAIMED: dict[str, str] = {
    "quality": "quality", "fairest": "least_quality", "servers": "servers", "cost": "cost_per_hour",
    "changes": "changes",
}  # fmt: skip


def keeping(asked: Asked, goal: str, value: float) -> Asked:
    """What was asked, and no less of this goal than was reached."""
    if goal == "quality":
        return replace(asked, quality_least=value - KEPT)
    if goal == "fairest":
        return replace(asked, each_least=value - KEPT)
    if goal == "servers":
        return replace(asked, servers_most=round(value))
    if goal == "changes":
        return replace(asked, moves_most=round(value))
    return replace(asked, cost_most=value * (1 + 1e-9) + 1e-9)


def polished(
    ask: Ask, trees: Sequence[Tree], counts: Sequence[Places], fleet: Fleet, *, fair: bool = False
) -> tuple[list[tuple[Tree, list[Level]]], list[Places], list[list[Vector]]] | None:
    """The best shares that whole counts carry: configurations without a server are gone, the rest is linear."""
    used = [_used(tree, n) for tree, n in zip(trees, counts, strict=True)]
    forest = [(tree, prefixes(tree)) for tree, _ in used]
    kept = [n for _, n in used]
    if any(not level.size for _, levels in forest for level in levels):
        return None
    asked = Asked("quality", counts=kept, slip=SLIPS[0])
    if fair:
        first = config_form(forest, fleet, replace(asked, goal="fairest"))
        answer = ask(first.form, about="shares of the chosen servers, fairest first")
        if answer.point is None:
            return None
        asked = replace(asked, each_least=first.form.value(answer.point) - KEPT / 10)
    written = config_form(forest, fleet, asked)
    answer = ask(written.form, about="shares of the chosen servers")
    if answer.status is not Status.OPTIMAL or answer.point is None:
        return None
    if any(tree.spare > 0 for tree in trees):
        # Of shares that are as good, those that fill no group to the brim.
        reached = replace(asked, goal="room", quality_least=written.form.value(answer.point) - KEPT / 10)
        roomy = config_form(forest, fleet, reached)
        again = ask(roomy.form, about="shares that leave most room")
        if again.point is not None:
            written, answer = roomy, again
    assert answer.point is not None
    shares = [[np.maximum(answer.point[columns], 0.0) for columns in flows] for flows in written.flows]
    return forest, kept, shares


def evenly_filled(
    ask: Ask, trees: Sequence[Tree], counts: Sequence[Places], fleet: Fleet, asked: Asked
) -> tuple[list[tuple[Tree, list[Level]]], list[Places], list[list[Vector]]] | None:
    """Shares in proportion to what servers carry; else those by which they could carry the most of all rates.

    None where they break a limit, do not carry the demand, or where some of them have nothing to do.
    """
    cut_down = [_used(tree, n) for tree, n in zip(trees, counts, strict=True)]
    forest, kept = [(tree, prefixes(tree)) for tree, _ in cut_down], [n for _, n in cut_down]
    if any(not level.size for _, levels in forest for level in levels):
        return None
    written = config_form(forest, fleet, asked)
    lower, upper = written.form.lower.copy(), written.form.upper.copy()
    for columns, n in zip(written.x, kept, strict=True):
        lower[columns] = upper[columns] = n
    answer = ask(replace(written.form, lower=lower, upper=upper), about="shares by which these servers carry most")
    if answer.point is None or answer.value is None or answer.value < 1.0:
        return None
    point = np.maximum(answer.point, 0.0) / answer.value
    shares = [
        in_proportion(tree, levels, n) or [point[columns] for columns in flows]
        for (tree, levels), n, flows in zip(forest, kept, written.flows, strict=True)
    ]
    used_at = (
        np.bincount(level.config, weights=share, minlength=task.size)
        for (tree, levels), own in zip(forest, shares, strict=True)
        for task, level, share in zip(tree.tasks, levels, own, strict=True)
    )
    return None if any((used <= KEPT).any() for used in used_at) else (forest, kept, shares)


def in_proportion(tree: Tree, levels: Sequence[Level], counts: Places) -> list[Vector] | None:
    """Shares by which the groups of each step are equally full; None where that is no plan.

    A program says so of the step alone that is fullest. Not every way through may be in time, nor every step have room.
    """
    shares, start = list[Vector](), 0
    for task, level in zip(tree.tasks, levels, strict=True):
        carried = counts[start : start + task.size] * task.qps
        start += task.size
        before = shares[task.parent] if task.parent >= 0 else np.ones(1)
        if (np.bincount(level.parent, minlength=before.size) < task.size).any():
            return None
        shares.append(before[level.parent] * (carried / carried.sum())[level.config])
        if tree.demand * float(shares[-1] @ level.gain) > carried.sum():
            return None
    return shares


def _used(tree: Tree, counts: Places) -> tuple[Tree, Places]:
    masks, start = [], 0
    for task in tree.tasks:
        masks.append(counts[start : start + task.size] > 0)
        start += task.size
    return tree.keeping(masks), counts[counts > 0]
