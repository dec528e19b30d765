"""Why a demand cannot be served, and the smallest changes by which it could be: demand, servers, latency, floor.

Where the exact program would be too large, one latency level per step explains. What is then said to be impossible is
so by a bound: every server at its best batch, whatever that does to latency. The repairs are found with whole servers
at the chosen levels, so each of them suffices; a smaller one may do. Where accuracy is not asked for, configurations
that another outdoes are left out (`carrying`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.carrying import (
    Carried,
    carried,
    floor_repair,
    loosened,
    looser_limits,
    one_floor_free,
    rate_repair,
    slo_ms_of,
    slo_repair,
    with_limit,
    without_outdone,
)
from hetplan.problems.pipeline.climb import best_quality
from hetplan.problems.pipeline.form import config_form, levels_form, variant_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.reroute import NO_RATE
from hetplan.problems.pipeline.rows import Asked, Forest
from hetplan.problems.pipeline.tree import (
    Tree,
    Vector,
    all_levels,
    at_levels,
    count_prefixes,
    merged,
    prefixes,
    thinned,
    without_dominated,
)

__all__ = ["explain", "is_beyond_all", "too_few", "too_slow"]

MOST_PREFIXES = 10_000
"""With more that nothing outdoes, exact programs would take longer than the plan did; latency levels explain."""

MOST_SUMS = 2_000_000

GAP = 1e-3
"""A repair within a thousandth of the least is near enough."""

GAP_ON_FLOORS = 1e-2
"""The same of a rate that keeps a floor on accuracy: a narrower one takes whole servers minutes to prove."""

ALL_OF_IT = 1e-7
"""Less than this short of the demand is an engine's tolerance."""

HALVINGS = 4
"""How often the step between a limit that helps and one that does not is halved."""


def too_slow(problem: Pipelines) -> Infeasible | None:
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
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def too_few(problem: Pipelines, ask: Ask) -> Infeasible | None:
    """Fewer servers than steps, each of which needs one; None where there are enough."""
    least = [int(task.places.min()) if task.size else 1 for tree in problem.served for task in tree.tasks]
    there = float(problem.wish.fleet.most.sum())
    if sum(least) <= there:
        return None
    each = "a place on a server" if problem.wish.fleet.is_shared else "a server"
    if max(least) > 1:
        each = f"at least {sum(least)} places on servers, not one"
    why = f"capacity: {len(least)} steps need {each} each, and there are {there:g}: no demand at all can be served"
    return Infeasible(why=(why,), repairs=tuple(_looser_limits(problem, ask)))


def explain(problem: Pipelines, ask: Ask, *, proved: bool) -> Infeasible:
    """What binds, and the repairs; `proved` where an exact program found that there is no plan.

    Where only levels found none, all that is said is that none was found. Where the exact program has none with a
    little less capacity, the demand is beyond the servers by a hair, or just within: the bound on it tells.
    """
    few = [without_outdone(tree, problem.wish.fleet) for tree in problem.served]
    large = sum(map(count_prefixes, few)) > MOST_PREFIXES
    floors = _floors(problem, ask, large=large)
    if floors is not None:
        return floors
    limits = tuple(_looser_limits(problem, ask))
    if large or not (proved or problem.form == "config"):
        return _explain_at_levels(problem, ask, limits, proved=proved)
    less = list(_less_demand(problem, ask))
    proved = proved or any(bound < tree.demand for tree, bound, _ in less)
    repairs = [*(repair for _, _, repair in less), *limits]
    why = [_binding(problem, ask, few), *_too_little(limits)]
    for i in range(len(problem.served)):
        found = _more_time(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    if any(tree.floor is not None for tree in problem.served):
        repairs += _lower_floor(problem, ask)
    return Infeasible(why=tuple(why), repairs=tuple(repairs), proved=proved)


def _too_little(limits: Sequence[Repair]) -> Iterator[str]:
    """The limits on moves and resources that are in the way."""
    for one in limits:
        if one.field == "slo.limits.moves":
            yield f"moves: {round(float(one.to or 0) - (one.amount or 0))} are too few"
        if (resource := one.field.removeprefix("slo.limits.resources.")) != one.field:
            yield f"resources: {resource} is too little"


def _floors(problem: Pipelines, ask: Ask, *, large: bool) -> Infeasible | None:
    """Accuracy floors above the best accuracy in time, and those that the servers could keep."""
    why, at_most = [], []
    for tree in problem.served:
        if tree.floor is None:
            continue
        fastest = merged(tree)
        best, _ = best_quality(fastest, prefixes(fastest))
        if tree.floor > best + 1e-9:
            why.append(f"accuracy: {tree.app} is to reach {tree.floor:g}; the best in time is {best:.6g}")
            at_most.append(floor_repair(tree, best))
    if not why:
        return None
    repairs = tuple(_lower_floor_at_levels(problem, ask) if large else _lower_floor(problem, ask))
    if not repairs:
        why.append("no lower floor on one accuracy alone was found to help")
        repairs = tuple(at_most)  # a part of what helps
    return Infeasible(why=tuple(why), repairs=repairs)


def _binding(problem: Pipelines, ask: Ask, few: Sequence[Tree]) -> str:
    """Which task takes most of the servers when as much as possible is served."""
    forest = [(tree, prefixes(tree)) for tree in few]
    written = config_form(forest, problem.wish.fleet, problem.asked("rate", whole=False))
    answer = ask(written.form, about="most demand with servers in parts")
    if answer.point is None:
        return "capacity: the servers do not carry the demand"
    taken = {}
    for tree, columns in zip(few, written.x, strict=True):
        ends = np.cumsum([task.size for task in tree.tasks])
        for task, own in zip(tree.tasks, np.split(columns, ends[:-1]), strict=True):
            taken[tree.app, task.id] = float((task.places * answer.point[own]).sum())
    (app, step), used = max(taken.items(), key=lambda item: item[1])
    total = sum(taken.values())
    if used <= 0:
        return "capacity: the servers do not carry the demand"
    return (
        f"capacity: step {step} of {app} binds; at the most that can be served it takes {100 * used / total:.0f}% of "
        f"the servers"
    )


def _less_demand(problem: Pipelines, ask: Ask) -> Iterator[tuple[Tree, float, Repair]]:
    """The largest demand of each application alone, the others as they are, and the bound on it."""
    for i, tree in enumerate(problem.served):
        asked = replace(problem.asked("rate"), rate_of=i)
        found = carried(problem, ask, problem.served, asked, about=f"largest demand of {tree.app}")
        if found is None or found.value <= NO_RATE * tree.demand:
            continue  # the others alone are too much
        more = "" if found.is_exact else f" (no more than {found.bound:.6g} qps can fit)"
        yield tree, found.bound, rate_repair(tree, found.value, more)


def _looser_limits(problem: Pipelines, ask: Ask) -> Iterator[Repair]:
    """Each limit on machines, money, resources and moves that helps alone, by exact programs where these are small."""
    fleet, trees = problem.wish.fleet, problem.served
    few = [without_outdone(tree, fleet) for tree in trees]
    if sum(map(count_prefixes, few)) > MOST_PREFIXES:
        return _looser_limits_at_levels(problem, ask)

    def write(asked: Asked) -> Milp:
        return config_form([(tree, prefixes(tree)) for tree in few], fleet, asked).form

    def find(asked: Asked, about: str) -> Carried | None:
        return carried(problem, ask, trees, asked, about=about)

    return looser_limits(problem, ask, write, find)


def _looser_limits_at_levels(problem: Pipelines, ask: Ask) -> Iterator[Repair]:
    """The same by one latency level per step: of smaller changes nothing is known, which a bound of 0 says."""

    def write(asked: Asked) -> Milp:
        trees, levels, forest = _thinned(problem, problem.served, accuracy=False)
        return levels_form(trees, forest, levels, problem.wish.fleet, asked).form

    def find(asked: Asked, about: str) -> Carried | None:
        found = _at_levels(problem, ask, problem.served, asked, about=about)
        return None if found is None else replace(found, bound=0.0)

    return looser_limits(problem, ask, write, find)


def _lower_floor(problem: Pipelines, ask: Ask) -> Iterator[Repair]:
    """The best accuracy of each application that states a floor, the other floors kept."""
    for tree, alone in one_floor_free(problem):
        about = f"best accuracy of {tree.app} at this demand"
        found = carried(problem, ask, alone, problem.asked("quality"), about=about)
        if found is not None and tree.floor is not None and found.value < tree.floor:
            more = "" if found.is_exact else f" (no more than {found.bound:.6g} can be had)"
            yield floor_repair(tree, found.value, more)


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
    asked, sure = replace(problem.asked("rate"), rate_most=1.0), True

    def fits(slo_ms: float, whole: bool) -> bool:
        """Asked as how much of the demand does, which always has an answer to certify."""
        nonlocal sure
        trees = [with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)]
        about = f"is {slo_ms:.6g} ms enough for {full.app}"
        found = carried(problem, ask, trees, replace(asked, whole=whole), about=about)
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


# By one latency level per step


def _explain_at_levels(problem: Pipelines, ask: Ask, limits: tuple[Repair, ...], *, proved: bool) -> Infeasible:
    """What binds, and repairs that suffice; `proved` says that no plan can exist, whatever its levels.

    `limits` are the repairs by limits on machines, found beforehand.
    """
    short = "the servers do not carry the demand"
    if not proved:
        short = "no plan was found that carries the demand, with one latency level per step"
    most = _at_levels(problem, ask, problem.served, replace(problem.asked("rate"), rate_most=1.0))
    if most is None or most.value <= 0.0:
        more = (*limits, *_lower_floor_at_levels(problem, ask))
        return Infeasible(why=(f"capacity: {short}",), repairs=more, proved=proved)
    why = [f"capacity: {short}; {_binding_at_levels(most)}"]
    repairs = [*_less_demand_at_levels(problem, most), *limits]
    for i in range(len(problem.served)):
        found = _more_time_at_levels(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    return Infeasible(why=tuple(why), repairs=(*repairs, *_lower_floor_at_levels(problem, ask)), proved=proved)


def is_beyond_all(problem: Pipelines, ask: Ask) -> bool:
    """Whether servers in parts, each at its best batch, are too few: no plan whatever its latencies is better."""
    forest = [(tree, prefixes(tree)) for tree in map(merged, problem.served)]
    asked = replace(problem.asked("rate", whole=False), rate_most=1.0)
    form = variant_form("best batches", forest, problem.served, problem.wish.fleet, asked).form
    answer = ask(form, about="most of the demand with every server at its best batch")
    return answer.bound is not None and answer.bound < 1.0 - GAP


def _at_levels(problem: Pipelines, ask: Ask, trees: Sequence[Tree], asked: Asked, *, about: str = "") -> Carried | None:
    """Levels by servers in parts, then whole servers at these levels; the bound is one of these levels in parts."""
    fleet, about = problem.wish.fleet, about or asked.goal
    trees, levels, forest = _thinned(problem, trees, accuracy=asked.goal == "quality")
    written = levels_form(trees, forest, levels, fleet, asked)
    answer = ask(loosened(written.form, asked), gap=GAP, about=f"{about} by latency levels, servers in parts")
    if answer.point is None or answer.bound is None:
        return None
    fixed = [at_levels(tree, own) for tree, own in zip(trees, written.chosen(answer.point), strict=True)]
    forest = [(tree, prefixes(tree)) for tree in map(merged, fixed)]
    whole = variant_form("budget", forest, fixed, fleet, asked)
    kept = asked.goal == "rate" and any(tree.floor is not None for tree in trees)
    gap = GAP_ON_FLOORS if kept else GAP
    best = ask(loosened(whole.form, asked), gap=gap, about=f"{about} with whole servers")
    if best.point is None or best.value is None:
        return None
    return Carried(best.value, answer.bound, fixed, whole.counts(best.point))


def _thinned(
    problem: Pipelines, trees: Sequence[Tree], *, accuracy: bool
) -> tuple[list[Tree], list[list[Vector]], Forest]:
    """The trees without what is outdone, some latency levels of each step, and their prefixes of variants."""
    most = int(getattr(problem.options, "levels", 8))
    trees = [without_outdone(tree, problem.wish.fleet, accuracy=accuracy) for tree in trees]
    levels = [[thinned(values, most) for values in all_levels(tree)] for tree in trees]
    return list(trees), levels, [(tree, prefixes(tree)) for tree in map(merged, trees)]


def _binding_at_levels(most: Carried) -> str:
    """The step that takes most of the servers."""
    taken: dict[tuple[str, str], int] = {}
    for tree, counts in zip(most.trees, most.counts, strict=True):
        ends = np.cumsum([task.size for task in tree.tasks])
        for task, own in zip(tree.tasks, np.split(counts, ends[:-1]), strict=True):
            taken[tree.app, task.id] = int(own.sum())
    (app, step), used = max(taken.items(), key=lambda item: item[1])
    part = 100 * used / max(1, sum(taken.values()))
    return f"step {step} of {app} binds; where as much as was found is served it takes {part:.0f}% of the servers"


def _less_demand_at_levels(problem: Pipelines, most: Carried) -> Iterator[Repair]:
    """The part of the demand that was found to fit: of one application a rate, of several that of all alike."""
    if most.value >= 1.0 - GAP:
        return
    if len(problem.served) == 1:
        tree = problem.served[0]
        yield rate_repair(tree, most.value * tree.demand, " (more may fit)")
        return
    at = "slo.apps.*.demand.rate_qps"
    yield Repair(at, "lower", None, most.value, "times the demand",
                 f"lower every {at} to {100 * most.value:.4g}% of it (more may fit)")  # fmt: skip


def _more_time_at_levels(problem: Pipelines, ask: Ask, i: int) -> Repair | str:
    """A limit on response that suffices, near the least by a part of the way up; or that none was found."""
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    asked = replace(problem.asked("rate"), rate_most=1.0)

    def carries(slo_ms: float) -> bool:
        there = [with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)]
        found = _at_levels(problem, ask, there, asked)
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


def _lower_floor_at_levels(problem: Pipelines, ask: Ask) -> Iterator[Repair]:
    """An accuracy that each application with a floor can have, the other floors kept."""
    for tree, alone in one_floor_free(problem):
        found = _at_levels(problem, ask, alone, problem.asked("quality"))
        if found is not None and tree.floor is not None and found.value < tree.floor:
            yield floor_repair(tree, found.value, " (more may be had)")
