"""What carries a demand: questions about rate, servers, money and time, made small.

Where accuracy is not asked for, a configuration that another one of its task outdoes is of no use: one no slower, that
carries no less, sends on no more and is no dearer, on the same type of server. (Where a floor or the goal is about
accuracy, no less accurate besides.) Only rule (4), one batch size per
variant and server type, is against this. Without the rule nothing is lost, so that program, of the configurations
that nothing outdoes, proves a bound; under the rule its point is a plan. Mostly both agree, and the answer is exact;
else the program of all configurations is asked, if it is not too large. On three server types ten variants a task
become one or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Repair
from hetplan.planner.elastic import Knob, knobs, stretch
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.form import config_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked
from hetplan.problems.pipeline.tree import (
    Mask,
    Places,
    Tree,
    anyhow_ms,
    count_prefixes,
    prefixes,
    without_dominated,
)
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO

__all__ = [
    "Carried",
    "carried",
    "floor_repair",
    "loosened",
    "looser_limits",
    "one_floor_free",
    "rate_repair",
    "slo_ms_of",
    "slo_repair",
    "with_limit",
    "without_outdone",
]

MOST_OF_ALL = 100_000
"""Up to so many prefixes the program of all configurations is asked where the small ones do not agree."""

LARGE = 60_000
"""Above this product of prefixes and servers a bound as near as an engine can see would take minutes to prove."""

NEAR = 1e-3
"""There an answer within a thousandth of the best is near enough."""

BUDGET = "slo.limits.cost_per_hour"

CLOSE = 1e-7
"""Elsewhere, an engine's tolerance."""

SAME = 1e-6
"""Values this near to one another are the same."""


@dataclass(frozen=True)
class Carried:
    """What whole servers that keep every rule reach, beside the bound that nothing can pass."""

    value: float
    bound: float
    trees: Sequence[Tree]
    counts: Sequence[Places]

    @property
    def is_exact(self) -> bool:
        """Whether nothing better can be."""
        return _same(self.value, self.bound)


def without_outdone(tree: Tree, fleet: Fleet, *, accuracy: bool = False, in_time: bool = True) -> Tree:
    """Without configurations that another of the task makes needless.

    With `in_time` those that are in time whatever else is chosen count as equally fast.
    """
    accuracy = accuracy or tree.floor is not None
    if fleet.moves is not None or (accuracy and tree.paths):
        return tree
    soon = anyhow_ms(tree) if in_time else np.full(len(tree.tasks), -np.inf)
    masks = []
    for task, soon_ms in zip(tree.tasks, soon.tolist(), strict=True):
        less = [np.where(task.ms <= soon_ms, -np.inf, task.ms), -task.qps, task.fee, task.places]
        less += [values[task.variant] for values in task.factor.values()]
        if accuracy:
            less.append(-task.quality[task.variant])
        less += [task.hardware, -task.hardware]
        masks.append(_first_of_the_least(less))
    return tree.keeping(masks)


def _first_of_the_least(less: Sequence[NDArray[Any]]) -> Mask:
    """Those that no other matches in everything, and of equals the first."""
    size = less[0].size
    outdoes = np.ones((size, size), dtype=bool)  # [c, d]: d is nowhere more than c
    for values in less:
        outdoes &= values[None, :] <= values[:, None]
    earlier = np.tri(size, k=-1, dtype=bool)
    return np.asarray(~(outdoes & (~outdoes.T | earlier)).any(axis=1))


def carried(problem: Pipelines, ask: Ask, trees: Sequence[Tree], asked: Asked, *, about: str) -> Carried | None:
    """The best answer that keeps every rule, and a bound on all; None where there is none, or none was found."""
    fleet = problem.wish.fleet
    accuracy = asked.goal == "quality"
    few = [without_outdone(tree, fleet, accuracy=accuracy) for tree in trees]
    loose = _best(ask, few, fleet, replace(asked, multibatch=True), about)
    if loose is None or asked.multibatch or not asked.whole or _one_batch_each(loose):
        return loose
    best = _best(ask, few, fleet, asked, f"{about}, one batch size each")
    if best is not None and _same(best.value, loose.bound):
        return replace(best, bound=loose.bound)
    if sum(map(count_prefixes, trees)) <= MOST_OF_ALL:
        every = _best(ask, trees, fleet, asked, f"{about}, of all configurations")
        if every is not None:
            return every
    # What bounds the few under the rule bounds nobody else.
    return None if best is None else replace(best, bound=loose.bound)


def _best(ask: Ask, trees: Sequence[Tree], fleet: Fleet, asked: Asked, about: str) -> Carried | None:
    forest = [(tree, prefixes(tree)) for tree in trees]
    written = config_form(forest, fleet, asked)
    flows = sum(level.size for _, levels in forest for level in levels)
    large = flows * float(fleet.most[np.isfinite(fleet.most)].sum()) > LARGE
    answer = ask(loosened(written.form, asked), gap=NEAR if large else CLOSE, about=about)
    if answer.point is None or answer.value is None or answer.bound is None:
        return None
    return Carried(answer.value, answer.bound, trees, written.counts(answer.point))


def loosened(form: Milp, asked: Asked) -> Milp:
    """The program in which the stated limit that is asked for gives way by as little as can be: no other goal counts.

    Its value is what an upper limit would have to be, and by how much less a lower one.
    """
    if asked.loose is None:
        return form
    (knob,) = (knob for knob in knobs(form) if knob.field == asked.loose)
    stretched, _ = stretch(form, [knob])
    return replace(stretched, offset=_stated(form, knob) if knob.elastic.verb == "raise" else 0.0)


def _stated(form: Milp, knob: Knob) -> float:
    return float((form.row_upper if knob.elastic.verb == "raise" else form.row_lower)[knob.index])


def _same(value: float, bound: float) -> bool:
    return abs(value - bound) <= SAME * max(abs(value), abs(bound))


def _one_batch_each(found: Carried) -> bool:
    """Whether servers of one variant and type run one batch size, though nothing asked them to."""
    for tree, counts in zip(found.trees, found.counts, strict=True):
        ends = np.cumsum([task.size for task in tree.tasks])
        for task, own in zip(tree.tasks, np.split(counts, ends[:-1]), strict=True):
            pairs = np.stack([task.variant, task.hardware])[:, own > 0]
            if np.unique(pairs, axis=1).shape[1] < pairs.shape[1]:
                return False
    return True


# Repairs in words


def looser_limits(
    problem: Pipelines, ask: Ask, write: Callable[[Asked], Milp], find: Callable[[Asked, str], Carried | None]
) -> Iterator[Repair]:
    """Each stated limit on machines moved by as little as does, the others kept; where none does alone, all together.

    `write` makes a program that has the limits, and `find` answers a question to such a program.
    """
    asked = replace(problem.asked("servers"), loose="")
    form, found_one = write(asked), False
    for knob in knobs(form):
        found = find(replace(asked, loose=knob.field), f"least change of {knob.field} alone")
        if found is not None:
            found_one = True
            yield _limit_repair(problem, form, knob, found.value, found.bound)
    if not found_one and (loose := knobs(form)):
        joint, read = stretch(form, loose)
        answer = ask(joint, gap=NEAR, about="least change of all limits on machines together")
        slack = np.zeros(len(loose)) if answer.point is None else read(answer.point)
        for knob, more in zip(loose, slack.tolist(), strict=True):
            if more > SAME:
                to = more + (_stated(form, knob) if knob.elastic.verb == "raise" else 0.0)
                yield _limit_repair(problem, form, knob, to, to)


def _limit_repair(problem: Pipelines, form: Milp, knob: Knob, value: float, bound: float) -> Repair:
    """The repair that this limit would be; what was not proved to be the least says so."""
    stated, elastic, more = _stated(form, knob), knob.elastic, ""
    if elastic.whole:
        value, bound = (float(np.ceil(one - SAME)) for one in (value, bound))
        bound = max(bound, stated + 1.0) if elastic.verb == "raise" else max(bound, 1.0)  # what is stated does not do
    if not _same(value, bound):
        more = f" (not less than {bound:.6g})" if elastic.verb == "raise" and bound > stated else " (less may do)"
    if knob.field == BUDGET:  # the row has what whole machines can cost of it
        stated = (problem.wish.fleet.request.budget or 0) / NANO
    to = value if elastic.verb == "raise" else stated - value
    return change(knob.field, stated, to, "per hour" if knob.field == BUDGET else elastic.unit, more=more)


def one_floor_free(problem: Pipelines) -> Iterator[tuple[Tree, list[Tree]]]:
    """Each application that states an accuracy floor, and all of them where it alone has none and alone counts."""
    for i, tree in enumerate(problem.served):
        if tree.floor is not None:
            yield tree, [replace(one, floor=None if j == i else one.floor, weight=float(j == i))
                         for j, one in enumerate(problem.served)]  # fmt: skip


def floor_repair(tree: Tree, quality: float, more: str = "") -> Repair:
    """The repair that this floor would be; `more` is added to its text."""
    assert tree.floor is not None
    return change(f"slo.apps.{tree.app}.quality.min", tree.floor, quality, more=more)


def slo_ms_of(problem: Pipelines, tree: Tree, sink: int, ms: float) -> float:
    """The limit on response under which a path of this execution time is in time."""
    return ms * problem.options.slo_divisor + problem.network_ms(tree.app, len(tree.path(sink)))


def with_limit(problem: Pipelines, tree: Tree, slo_ms: float) -> Tree:
    """The pipeline under another limit on response."""
    room, steps = slo_ms * (1 + 1e-12), {sink: len(tree.path(sink)) for sink in tree.sinks}
    limits = {
        sink: (room - problem.network_ms(tree.app, count)) / problem.options.slo_divisor
        for sink, count in steps.items()
    }
    return without_dominated(replace(tree, limit_ms=limits))


def slo_repair(problem: Pipelines, tree: Tree, slo_ms: float) -> Repair:
    """The repair that this limit would be."""
    return change(f"slo.apps.{tree.app}.latency", problem.stated_ms(tree.app), slo_ms, "ms")


def rate_repair(tree: Tree, rate: float, more: str = "") -> Repair:
    """The repair that this demand would be."""
    return change(f"slo.apps.{tree.app}.demand.rate_qps", tree.demand, rate, "qps", more=more)
