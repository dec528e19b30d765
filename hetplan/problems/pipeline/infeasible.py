"""Why a demand cannot be served, and the smallest changes by which it could be: demand, limits, latency, floor.

Each change is the answer of a program (`Find`): how much of a rate, of an accuracy, or beyond a stated limit. What
limits machines (money, stock, counts, resources, moves) are rows of the program over machines, which say themselves
what they would have to be.

Where accuracy is not asked for, a configuration that another one of its task outdoes is of no use: one no slower, that
carries no less, sends on no more and is no dearer, on the same type of server. (Where a floor or the goal is about
accuracy, no less accurate besides.) Only rule (4), one batch size per variant and server type, is against this. Without
the rule nothing is lost, so that program, of the configurations that nothing outdoes, proves a bound; under the rule
its point is a plan. Mostly both agree, and the answer is exact; else the program of all configurations is asked, if it
is not too large. On three server types ten variants a task become one or two.

Where the exact program would be too large, one latency level per step explains. What is then said to be impossible is
so by a bound: every server at its best batch, whatever that does to latency. The repairs are found with whole servers
at the chosen levels, so each of them suffices; a smaller one may do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.elastic import Knob, giving_together, knobs, stretch
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.pipelines import LEVELS, Pipelines
from hetplan.problems.pipeline.programs import Aim, Forest, config_form, levels_form, variant_form
from hetplan.problems.pipeline.request import Fleet
from hetplan.problems.pipeline.scaling import NO_RATE, best_quality
from hetplan.problems.pipeline.tree import (
    Mask,
    Places,
    Tree,
    Vector,
    all_levels,
    anyhow_ms,
    at_levels,
    count_prefixes,
    forest_of,
    forest_of_variants,
    prefixes,
    thin_out,
    variant_tree,
    without_dominated,
)
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO

__all__ = [
    "Reach",
    "all_limits_looser",
    "best_reach",
    "explain",
    "explain_too_few",
    "explain_too_slow",
    "is_beyond_all",
    "loosen",
    "looser_limits",
    "rate_repair",
]

MOST_PREFIXES = 10_000
"""With more that nothing outdoes, exact programs would take longer than the plan did; latency levels explain."""

MOST_SUMS = 2_000_000

GAP = 1e-3
"""A repair within a thousandth of the least is near enough."""

GAP_ON_FLOORS = 1e-2
"""The same of a rate that keeps a floor on accuracy: a narrower one takes whole servers minutes to prove."""

ALL_OF_IT = 1e-7
"""Less than this short of the demand is an engine's tolerance."""

HALVINGS_OF_A_RATE = 24
"""Of the interval in which the largest demand is sought: to a ten-millionth of it."""
HALVINGS = 4
"""How often the step between a limit that helps and one that does not is halved."""

MOST_OF_ALL = 100_000
"""Up to so many prefixes the program of all configurations is asked where the small ones do not agree."""

LARGE = 60_000
"""Above this product of prefixes and servers a bound as near as an engine can see would take minutes to prove."""

NEAR = 1e-3
"""There an answer within a thousandth of the best is near enough."""

CLOSE = 1e-7
"""Elsewhere, an engine's tolerance."""

SAME = 1e-6
"""Values this near to one another are the same."""

BUDGET = "slo.limits.cost_per_hour"


@dataclass(frozen=True)
class Reach:
    """What whole servers that keep every rule reach, beside the bound that nothing can pass."""

    value: float
    bound: float
    trees: Sequence[Tree]
    counts: Sequence[Places]

    @property
    def is_exact(self) -> bool:
        """Whether nothing better can be."""
        return _same(self.value, self.bound)


Find = Callable[[Sequence[Tree], Aim, str], Reach | None]
"""The best answer for pipelines to what is asked; None where there is none, or none was found."""

Write = Callable[[Aim], Milp]
"""A program of what is asked."""


def explain_too_slow(problem: Pipelines) -> Infeasibility | None:
    """The applications of which no path can be in time, however many servers; None where all can."""
    why: list[str] = []
    repairs: list[Repair] = []
    for tree in problem.considered:
        if all(task.size for task in without_dominated(tree).tasks):
            continue
        needs = {sink: slo_ms_of(problem, tree, sink, tree.fastest_ms(sink)) for sink in tree.sinks}
        sink = max(needs, key=lambda s: needs[s])
        slo, path = problem.stated_ms(tree.app), tree.path(sink)
        fastest = ", ".join(
            f"{tree.tasks[t].id}={tree.tasks[t].variants[tree.tasks[t].variant[int(np.argmin(tree.tasks[t].ms))]]}"
            for t in path
        )
        why.append(
            f"latency: no path of {tree.app} to {tree.tasks[sink].id} can be in time; the fastest, {fastest}, takes "
            f"{tree.fastest_ms(sink):.6g} ms of the {tree.limit_ms[sink]:.6g} ms that {slo:g} ms leave for execution"
        )
        repairs.append(slo_repair(problem, tree, needs[sink]))
    return Infeasibility(why=tuple(why), repairs=tuple(repairs)) if why else None


def explain_too_few(problem: Pipelines, ask: Ask) -> Infeasibility | None:
    """Fewer servers than steps, each of which needs one; None where there are enough."""
    least = [int(task.places.min()) if task.size else 1 for tree in problem.served for task in tree.tasks]
    there = float(problem.wish.fleet.most.sum())
    if sum(least) <= there:
        return None
    each = "a place on a server" if problem.wish.fleet.is_shared else "a server"
    if max(least) > 1:
        each = f"at least {sum(least)} places on servers, not one"
    find, write = _finder(problem, ask)
    why = f"capacity: {len(least)} stages need {each} each, and there are {there:g}: no demand at all can be served"
    repairs = tuple(looser_limits(problem, write, find)) or tuple(all_limits_looser(problem, ask, write))
    return Infeasibility(why=(why,), repairs=repairs)


def explain(problem: Pipelines, ask: Ask, *, proved: bool) -> Infeasibility:
    """What binds, and the repairs; `proved` where an exact program found that there is no plan.

    Where only levels found none, all that is said is that none was found. Where the exact program has none with a
    little less capacity, the demand is beyond the servers by a hair, or just within: the bound on it tells.
    """
    find, write = _finder(problem, ask)
    floors = _explain_floors(problem, find)
    if floors is not None:
        return floors
    limits = tuple(looser_limits(problem, write, find))
    few = [without_outdone(tree, problem.wish.fleet) for tree in problem.served]
    if _is_large(problem) or not (proved or problem.form == "pipeline-milp"):
        return _explain_at_levels(problem, ask, limits, proved=proved)
    less = list(_less_demand(problem, find))
    proved = proved or any(bound < tree.demand for tree, bound, _ in less)
    repairs = [*(repair for _, _, repair in less), *limits]
    why = [_binding_step(problem, ask, few), *_short_limits(limits)]
    for i in range(len(problem.served)):
        found = _more_time(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    repairs += _lower_floor(problem, find)
    return Infeasibility(
        why=tuple(why), repairs=tuple(repairs or all_limits_looser(problem, ask, write)), proved=proved
    )


def explain_steps(problem: Pipelines, ask: Ask) -> tuple[Repair, ...]:
    """The largest part of all demands, by bisection; and each limit on machines that helps."""
    trees, found = problem.by_steps, list[Repair]()
    enough = problem.wish.fleet.most.sum() >= sum(len(tree.tasks) for tree in trees)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS_OF_A_RATE if enough else 0):
        middle = (low + high) / 2
        less = [replace(tree, demand=middle * tree.demand) for tree in trees]
        form = problem.steps_form(less, Aim("servers")).form
        try:
            fits = ask(form, gap=1.0, about="how much demand").point is not None
        except SolverFailed:
            fits = False  # on the edge, to within an engine's tolerance
        low, high = (middle, high) if fits else (low, middle)
    for tree in trees if low > 0 else ():
        found.append(rate_repair(tree, low * tree.demand))

    def find(_: Sequence[Tree], aim: Aim, about: str) -> Reach | None:
        program = problem.steps_form(trees, aim)
        form = loosen(program.form, aim)
        answer = None if form is None else ask(form, about=about)
        if answer is None or answer.point is None or answer.value is None or answer.bound is None:
            return None
        return Reach(answer.value, answer.bound, trees, program.counts(answer.point))

    def write(aim: Aim) -> Milp:
        return problem.steps_form(trees, aim).form

    found += looser_limits(problem, write, find)
    return tuple(found or all_limits_looser(problem, ask, write))


def _is_large(problem: Pipelines) -> bool:
    few = (without_outdone(tree, problem.wish.fleet) for tree in problem.served)
    return sum(map(count_prefixes, few)) > MOST_PREFIXES


def _finder(problem: Pipelines, ask: Ask) -> tuple[Find, Write]:
    """How questions are answered, exactly or by one latency level per step; and a program with all limits."""
    if _is_large(problem):
        return partial(_reach_at_levels, problem, ask), partial(_write_levels, problem)
    return partial(best_reach, problem, ask), partial(_write_few, problem)


def _write_few(problem: Pipelines, aim: Aim) -> Milp:
    few = (without_outdone(tree, problem.wish.fleet) for tree in problem.served)
    return config_form(forest_of(few), problem.wish.fleet, aim).form


def _write_levels(problem: Pipelines, aim: Aim) -> Milp:
    trees, levels, forest = _thin_levels(problem, problem.served, accuracy=False)
    return levels_form(trees, forest, levels, problem.wish.fleet, aim).form


def _short_limits(limits: Sequence[Repair]) -> Iterator[str]:
    """The limits on moves and resources that are in the way."""
    for one in limits:
        if one.field == "slo.limits.changes":
            yield f"changes: {round(float(one.to or 0) - (one.amount or 0))} are too few"
        if (resource := one.field.removeprefix("slo.limits.provides.")) != one.field:
            yield f"provides: {resource} is too little"


def _explain_floors(problem: Pipelines, find: Find) -> Infeasibility | None:
    """Accuracy floors above the best accuracy in time, and those that the servers could keep."""
    why, at_most = [], []
    for tree in problem.served:
        if tree.floor is None:
            continue
        fastest = variant_tree(tree)
        best, _ = best_quality(fastest, prefixes(fastest))
        if tree.floor > best + 1e-9:
            why.append(f"accuracy: {tree.app} is to reach {tree.floor:g}; the best in time is {best:.6g}")
            at_most.append(floor_repair(tree, best))
    if not why:
        return None
    repairs = tuple(_lower_floor(problem, find))
    if not repairs:
        why.append("no lower floor on one accuracy alone was found to help")
        repairs = tuple(at_most)  # a part of what helps
    return Infeasibility(why=tuple(why), repairs=repairs)


def _binding_step(problem: Pipelines, ask: Ask, few: Sequence[Tree]) -> str:
    """Which task takes most of the servers when as much as possible is served."""
    forest = forest_of(few)
    program = config_form(forest, problem.wish.fleet, problem.aim("rate", whole=False))
    answer = ask(program.form, about="most demand with servers in parts")
    most = None if answer.point is None else _largest_step(few, [answer.point[columns] for columns in program.x])
    if most is None:
        return "capacity: the servers do not carry the demand"
    step, part = most
    return f"capacity: stage {step} binds; at the most that can be served it takes {part:.0f}% of the servers"


def _largest_step(trees: Sequence[Tree], counts: Sequence[Places | Vector]) -> tuple[str, float] | None:
    """The step that takes most of the servers, and how many percent; None where there are none."""
    taken: dict[tuple[str, str], float] = {}
    for tree, own in zip(trees, counts, strict=True):
        for task, mine in zip(tree.tasks, tree.by_task(own), strict=True):
            taken[tree.app, task.id] = float((task.places * mine).sum())
    (app, step), used = max(taken.items(), key=lambda item: item[1])
    return (f"{step} of {app}", 100 * used / sum(taken.values())) if used > 0 else None


def _less_demand(problem: Pipelines, find: Find) -> Iterator[tuple[Tree, float, Repair]]:
    """The largest demand of each application alone, the others as they are, and the bound on it."""
    for i, tree in enumerate(problem.served):
        found = find(problem.served, replace(problem.aim("rate"), rate_of=i), f"largest demand of {tree.app}")
        if found is None or found.value <= NO_RATE * tree.demand:
            continue  # the others alone are too much
        more = "" if found.is_exact else f" (no more than {found.bound:.6g} qps can fit)"
        yield tree, found.bound, rate_repair(tree, found.value, more)


def _lower_floor(problem: Pipelines, find: Find) -> Iterator[Repair]:
    """The best accuracy of each application that states a floor, the other floors kept; it alone counts."""
    for i, tree in enumerate(problem.served):
        if tree.floor is None:
            continue
        alone = [
            replace(one, floor=None if j == i else one.floor, weight=float(j == i))
            for j, one in enumerate(problem.served)
        ]
        found = find(alone, problem.aim("quality"), f"best accuracy of {tree.app} at this demand")
        if found is not None and found.value < tree.floor:
            least = " (more may be had)" if np.isinf(found.bound) else f" (no more than {found.bound:.6g} can be had)"
            yield floor_repair(tree, found.value, "" if found.is_exact else least)


# The limits on machines


def looser_limits(problem: Pipelines, write: Write, find: Find) -> Iterator[Repair]:
    """Each stated limit on machines moved by as little as does, all others kept; `write` makes a program with them."""
    aim = replace(problem.aim("servers"), loose="")
    form = write(aim)
    for knob in knobs(form):
        found = find(problem.served, replace(aim, loose=knob.field), f"least change of {knob.field} alone")
        repair = None if found is None else _limit_repair(problem, form, knob, found.value, found.bound)
        if repair is not None and repair.amount:  # by a hair is not short
            yield repair


def all_limits_looser(problem: Pipelines, ask: Ask, write: Write) -> Iterator[Repair]:
    """The stated limits on machines that give way together, where no change of one thing is enough."""
    form = write(replace(problem.aim("servers"), loose=""))
    if loose := knobs(form):
        for knob, more in giving_together(form, ask, loose, NEAR)[1].items():
            to = more + (_stated_limit(form, knob) if knob.elastic.verb == "raise" else 0.0)
            yield _limit_repair(problem, form, knob, to, to)


def _limit_repair(problem: Pipelines, form: Milp, knob: Knob, value: float, bound: float) -> Repair:
    """The repair that this limit would be; what was not proved to be the least says so."""
    stated, elastic, more = _stated_limit(form, knob), knob.elastic, ""
    if elastic.whole:
        value, bound = (float(np.ceil(one - SAME)) for one in (value, bound))
        bound = max(bound, stated + 1.0) if elastic.verb == "raise" else max(bound, 1.0)  # what is stated does not do
    if not _same(value, bound):
        more = f" (not less than {bound:.6g})" if elastic.verb == "raise" and bound > stated else " (less may do)"
    if knob.field == BUDGET:  # the row has what whole machines can cost of it
        stated = (problem.wish.fleet.request.budget or 0) / NANO
    to = value if elastic.verb == "raise" else stated - value
    return change(knob.field, stated, to, "per hour" if knob.field == BUDGET else elastic.unit, more=more)


def loosen(form: Milp, aim: Aim) -> Milp | None:
    """The program in which the stated limit that is asked for gives way by as little as can be: no other goal counts.

    Its value is what an upper limit would have to be, and by how much less a lower one; None where it has no row.
    """
    if aim.loose is None:
        return form
    knob = next((knob for knob in knobs(form) if knob.field == aim.loose), None)
    if knob is None:
        return None
    stretched, _ = stretch(form, [knob])
    return replace(stretched, offset=_stated_limit(form, knob) if knob.elastic.verb == "raise" else 0.0)


def _stated_limit(form: Milp, knob: Knob) -> float:
    return float((form.row_upper if knob.elastic.verb == "raise" else form.row_lower)[knob.index])


# The smallest limit on latency


def _more_time(problem: Pipelines, ask: Ask, i: int) -> Repair | str:
    """The smallest limit on response that helps, by bisection over the sums of latencies; or why none does.

    Servers in parts are bisected first: they are asked in no time, and whole ones need as much or a little more.
    """
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    every = _sums(problem, full)
    sums = _sums(problem, without_outdone(full, problem.wish.fleet, in_time=False)) if every is None else every
    if sums is None:
        return f"no latency limit of {full.app} was sought: there are too many paths to try"
    sums = sums[sums > problem.stated_ms(full.app) * (1 + 1e-9)]
    aim, sure = replace(problem.aim("rate"), rate_most=1.0), True

    def fits(slo_ms: float, whole: bool) -> bool:
        """Asked as how much of the demand does, which always has an answer to certify."""
        nonlocal sure
        trees = [with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)]
        about = f"is {slo_ms:.6g} ms enough for {full.app}"
        found = best_reach(problem, ask, trees, replace(aim, whole=whole), about)
        if found is None or found.value < 1.0 - ALL_OF_IT:
            sure = sure and found is not None and found.bound < 1.0 - ALL_OF_IT
            return False
        return True

    def least_of(sums: Vector, whole: bool) -> int:
        """The first of these limits that helps; the last one does."""
        low, high = 0, sums.size - 1
        while low < high and ask.remaining > 0:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(float(sums[middle]), whole) else (middle + 1, high)
        return high

    if not sums.size or not all(fits(float(sums[-1]), whole) for whole in (False, True)):
        # Whatever is worth choosing is in time at the last of these limits; without one, at the stated limit.
        if sure and (sums.size or every is not None):
            return f"no latency limit of {full.app} helps: the servers do not carry the demand however long it may take"
        return f"no latency limit of {full.app} was found to help"
    least = least_of(sums, False)
    if not fits(float(sums[least]), True):
        least += 1 + least_of(sums[least + 1 :], True)
    repair = slo_repair(problem, full, float(sums[least]))
    least_of_all = sure and every is not None and ask.remaining > 0
    return repair if least_of_all else replace(repair, text=f"{repair.text} (less may do)")


def _sums(problem: Pipelines, tree: Tree) -> Vector | None:
    """All limits on response at which some path comes in time."""
    found = []
    for sink in tree.sinks:
        sums = np.zeros(1)
        for t in tree.path(sink):
            own = np.unique(tree.tasks[t].ms)
            if sums.size * own.size > MOST_SUMS:
                return None
            sums = np.unique(np.round(sums[:, None] + own[None, :], 9))
        found.append(np.array([slo_ms_of(problem, tree, sink, float(ms)) for ms in sums]))
    return np.unique(np.concatenate(found))


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


# What carries a demand


def best_reach(problem: Pipelines, ask: Ask, trees: Sequence[Tree], aim: Aim, about: str) -> Reach | None:
    """The best answer that keeps every rule, and a bound on all; None where there is none, or none was found."""
    fleet = problem.wish.fleet
    accuracy = aim.goal == "quality"
    few = [without_outdone(tree, fleet, accuracy=accuracy) for tree in trees]
    loose = _best_reach(ask, few, fleet, replace(aim, multibatch=True), about)
    if loose is None or aim.multibatch or not aim.whole or _one_batch_each(loose):
        return loose
    best = _best_reach(ask, few, fleet, aim, f"{about}, one batch size each")
    if best is not None and _same(best.value, loose.bound):
        return replace(best, bound=loose.bound)
    if sum(map(count_prefixes, trees)) <= MOST_OF_ALL:
        every = _best_reach(ask, trees, fleet, aim, f"{about}, of all configurations")
        if every is not None:
            return every
    # What bounds the few under the rule bounds nobody else.
    return None if best is None else replace(best, bound=loose.bound)


def _best_reach(ask: Ask, trees: Sequence[Tree], fleet: Fleet, aim: Aim, about: str) -> Reach | None:
    forest = forest_of(trees)
    program = config_form(forest, fleet, aim)
    flows = sum(level.size for _, levels in forest for level in levels)
    large = flows * float(fleet.most[np.isfinite(fleet.most)].sum()) > LARGE
    form = loosen(program.form, aim)
    if form is None:
        return None
    answer = ask(form, gap=NEAR if large else CLOSE, about=about)
    if answer.point is None or answer.value is None or answer.bound is None:
        return None
    return Reach(answer.value, answer.bound, trees, program.counts(answer.point))


def _same(value: float, bound: float) -> bool:
    return math.isfinite(bound) and abs(value - bound) <= SAME * max(abs(value), abs(bound))


def _one_batch_each(found: Reach) -> bool:
    """Whether servers of one variant and type run one batch size, though nothing asked them to."""
    for tree, counts in zip(found.trees, found.counts, strict=True):
        for task, own in zip(tree.tasks, tree.by_task(counts), strict=True):
            pairs = np.stack([task.variant, task.hardware])[:, own > 0]
            if np.unique(pairs, axis=1).shape[1] < pairs.shape[1]:
                return False
    return True


def without_outdone(tree: Tree, fleet: Fleet, *, accuracy: bool = False, in_time: bool = True) -> Tree:
    """Without configurations that another of the task makes needless.

    With `in_time` those that are in time whatever else is chosen count as equally fast.
    """
    accuracy = accuracy or tree.floor is not None
    if fleet.request.changes is not None or (accuracy and tree.paths):
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


# By one latency level per step


def _explain_at_levels(problem: Pipelines, ask: Ask, limits: tuple[Repair, ...], *, proved: bool) -> Infeasibility:
    """What binds, and repairs that suffice; `proved` says that no plan can exist, whatever its levels.

    `limits` are the repairs by limits on machines, found beforehand.
    """
    short = "the servers do not carry the demand"
    if not proved:
        short = "no plan was found that carries the demand, with one latency level per step"
    most = _reach_at_levels(
        problem, ask, problem.served, replace(problem.aim("rate"), rate_most=1.0), "most of the demand"
    )
    floors = tuple(_lower_floor(problem, partial(_reach_at_levels, problem, ask)))
    largest = None if most is None else _largest_step(most.trees, most.counts)
    if most is None or most.value <= 0.0 or largest is None:
        repairs = [*limits, *floors] or [*all_limits_looser(problem, ask, partial(_write_levels, problem))]
        return Infeasibility(why=(f"capacity: {short}",), repairs=tuple(repairs), proved=proved)
    step, part = largest
    binds = f"stage {step} binds; where as much as was found is served it takes {part:.0f}% of the servers"
    why = [f"capacity: {short}; {binds}"]
    repairs = [*_less_demand_at_levels(problem, most), *limits]
    for i in range(len(problem.served)):
        found = _more_time_at_levels(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    return Infeasibility(why=tuple(why), repairs=(*repairs, *floors), proved=proved)


def is_beyond_all(problem: Pipelines, ask: Ask) -> bool:
    """Whether servers in parts, each at its best batch, are too few: no plan whatever its latencies is better."""
    forest = forest_of_variants(problem.served)
    aim = replace(problem.aim("rate", whole=False), rate_most=1.0)
    form = variant_form("best batches", forest, problem.served, problem.wish.fleet, aim).form
    answer = ask(form, about="most of the demand with every server at its best batch")
    return answer.bound is not None and answer.bound < 1.0 - GAP


def _reach_at_levels(problem: Pipelines, ask: Ask, trees: Sequence[Tree], aim: Aim, about: str) -> Reach | None:
    """Levels by servers in parts, then whole servers at these levels: of other levels nothing is known, so no bound."""
    fleet = problem.wish.fleet
    trees, levels, forest = _thin_levels(problem, trees, accuracy=aim.goal == "quality")
    program = levels_form(trees, forest, levels, fleet, aim)
    form = loosen(program.form, aim)
    answer = None if form is None else ask(form, gap=GAP, about=f"{about}, by latency levels, servers in parts")
    if answer is None or answer.point is None:
        return None
    fixed = [at_levels(tree, own) for tree, own in zip(trees, program.chosen(answer.point), strict=True)]
    forest = forest_of_variants(fixed)
    whole = variant_form("budget", forest, fixed, fleet, aim)
    form = loosen(whole.form, aim)
    if form is None:  # at these levels nothing runs on what is limited
        return None
    kept = aim.goal == "rate" and any(tree.floor is not None for tree in trees)
    best = ask(form, gap=GAP_ON_FLOORS if kept else GAP, about=f"{about}, by levels, whole servers")
    if best.point is None or best.value is None:
        return None
    return Reach(best.value, -np.inf if aim.loose is not None else np.inf, fixed, whole.counts(best.point))


def _thin_levels(
    problem: Pipelines, trees: Sequence[Tree], *, accuracy: bool
) -> tuple[list[Tree], list[list[Vector]], Forest]:
    """The trees without what is outdone, some latency levels of each step, and their prefixes of variants."""
    trees = [without_outdone(tree, problem.wish.fleet, accuracy=accuracy) for tree in trees]
    levels = [[thin_out(values, LEVELS) for values in all_levels(tree)] for tree in trees]
    return list(trees), levels, forest_of_variants(trees)


def _less_demand_at_levels(problem: Pipelines, most: Reach) -> Iterator[Repair]:
    """The part of the demand that was found to fit: of one application a rate, of several that of all alike."""
    if most.value >= 1.0 - GAP:
        return
    if len(problem.served) == 1:
        tree = problem.served[0]
        yield rate_repair(tree, most.value * tree.demand, " (more may fit)")
        return
    at = "slo.apps.*.rate_qps"
    yield Repair(at, "lower", None, most.value, "times the demand",
                 f"lower every {at} to {100 * most.value:.4g}% of it (more may fit)")  # fmt: skip


def _more_time_at_levels(problem: Pipelines, ask: Ask, i: int) -> Repair | str:
    """A limit on response that suffices, near the least by a part of the way up; or that none was found."""
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    aim = replace(problem.aim("rate"), rate_most=1.0)

    def carries(slo_ms: float) -> bool:
        there = [with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)]
        found = _reach_at_levels(problem, ask, there, aim, f"is {slo_ms:.6g} ms enough for {full.app}")
        return found is not None and found.value >= 1.0 - ALL_OF_IT

    slowest = {sink: sum(float(full.tasks[t].ms.max()) for t in full.path(sink)) for sink in full.sinks}
    low, high = problem.stated_ms(full.app), max(slo_ms_of(problem, full, s, ms) for s, ms in slowest.items())
    if high <= low or not carries(high):
        return f"no latency limit of {full.app} was found to help"
    for _ in range(HALVINGS):
        if ask.remaining <= 0:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if carries(middle) else (middle, high)
    repair = slo_repair(problem, full, high)
    return replace(repair, text=f"{repair.text} (less may do)")


# Repairs in words


def floor_repair(tree: Tree, quality: float, more: str = "") -> Repair:
    """The repair that this floor would be; `more` is added to its text."""
    assert tree.floor is not None
    return change(f"slo.apps.{tree.app}.quality.min", tree.floor, quality, more=more)


def rate_repair(tree: Tree, rate: float, more: str = "") -> Repair:
    """The repair that this demand would be."""
    return change(f"slo.apps.{tree.app}.rate_qps", tree.demand, rate, "qps", more=more)
