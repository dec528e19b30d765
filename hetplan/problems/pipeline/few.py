"""Whole servers on small clusters: solved for each choice of latency levels that may be best.

With one latency level per step every path is in time, so a program needs shares of variants only and takes
milliseconds. Where the levels of a choice are nowhere shorter than those of another, and fit, the other is needless;
of most pipelines a handful is left. Their linear programs say which are worth solving with whole servers. What is
found is as good as the exact program's in most cases, and bounds nothing: the searches by simulation ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Any, Literal

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.request import Application
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.pipeline.bursts import Burst, bursts_of
from hetplan.problems.pipeline.climb import CLAIMED, KEPT, SLIPS, Solved, best_quality, keeping, kept_best, polished
from hetplan.problems.pipeline.form import config_form, variant_form
from hetplan.problems.pipeline.joins import in_room, may_be_late, steps_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked, Forest, Goal, Written
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Places,
    Tree,
    all_levels,
    as_stated,
    at_levels,
    count_prefixes,
    merged,
    prefixes,
)

__all__ = [
    "NONE",
    "at_the_most",
    "best_of_all",
    "bursts_in_parts",
    "by_few_levels",
    "carrying_most",
    "choices",
    "few_levels_answer",
    "in_parts",
    "part_answered",
    "parts_form",
]

MOST = 64
"""With more choices of levels than this, the search for the best of them is a program of its own."""
SOLVED = 2
"""Choices that are solved with whole servers at most, the most promising first."""
ALL = 1.0 - 1e-6
"""What carries less than this of the demand with servers in parts has no plan with whole ones."""
GAP = 1e-3
"""The gap of their programs: waiting moves more than this."""
MOST_PREFIXES = 20_000
"""With more prefixes bounds know variants only, where no option says how many the exact program may have."""
SEND_NONE = 1e-6
"""Where some send on less than that, all that is sent on may be of those dropped."""


NONE = Infeasible(why=("no choice of latency levels has a plan",), proved=False)


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


def by_few_levels(problem: Pipelines, ask: Ask, *, tight: bool = False) -> Solved | Infeasible | None:
    """The best plan with one latency level per step; None where there are too many choices to answer.

    `tight` asks of what could carry most whether it has a plan, however good the others would be: so it is of a room
    that few choices leave.
    """
    goals = problem.levels
    chosen = _chosen(problem)
    if not chosen or goals[0] != "quality":
        return None
    if tight:
        return _of_most(problem, ask, chosen) or NONE
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


def few_levels_answer(problem: Pipelines) -> bool:
    """Whether `by_few_levels` does."""
    return problem.levels[0] == "quality" and bool(_chosen(problem))


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
