"""Why a demand cannot be served, and the smallest changes by which it could be: demand, servers, latency, floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pipeline.carrying import Carried, carried, without_outdone
from hetplan.problems.pipeline.config import config_form
from hetplan.problems.pipeline.infeasible_at_levels import (
    ALL_OF_IT,
    explain_at_levels,
    fewest_at_levels,
    lower_floor_at_levels,
)
from hetplan.problems.pipeline.levels import best_quality
from hetplan.problems.pipeline.repairs import (
    floor_repair,
    more_servers,
    one_floor_free,
    slo_ms_of,
    slo_repair,
    stated_ms,
    with_limit,
)
from hetplan.problems.pipeline.rows import Asked
from hetplan.problems.pipeline.tree import Tree, count_prefixes, prefixes, without_dominated
from hetplan.problems.pipeline.variants import merged

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["explain", "too_few", "too_slow"]

MOST_PREFIXES = 10_000
"""With more that nothing outdoes, exact programs would take longer than the plan did; latency levels explain."""

MOST_SUMS = 2_000_000

NO_RATE = 1e-6
"""A rate this small beside the demand is an engine's tolerance, not something that can be served."""


def too_slow(problem: Pipeline) -> Infeasible | None:
    """The applications of which no path can be in time, however many servers; None where all can."""
    why: list[str] = []
    repairs: list[Repair] = []
    for tree in problem.considered:
        if all(task.size for task in without_dominated(tree).tasks):
            continue
        needs = {sink: slo_ms_of(problem, tree, sink, tree.fastest_ms(sink)) for sink in tree.sinks}
        sink = max(needs, key=lambda s: needs[s])
        slo, path = stated_ms(problem, tree), tree.path(sink)
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


def too_few(problem: Pipeline, ask: Ask) -> Infeasible | None:
    """Fewer servers than steps, each of which needs one; None where there are enough."""
    steps = sum(len(tree.tasks) for tree in problem.served)
    there = float(problem.wish.fleet.most.sum())
    if steps <= there:
        return None
    why = f"capacity: {steps} steps need a server each, and there are {there:g}: no demand at all can be served"
    return Infeasible(why=(why,), repairs=tuple(_more_servers(problem, ask)))


def explain(problem: Pipeline, ask: Ask, *, proved: bool) -> Infeasible:
    """What binds, and the repairs; `proved` where an exact program found that there is no plan.

    Where only levels found none, all that is said is that none was found.
    """
    few = [without_outdone(tree, problem.wish.fleet) for tree in problem.served]
    large = sum(map(count_prefixes, few)) > MOST_PREFIXES
    floors = _floors(problem, ask, large=large)
    if floors is not None:
        return floors
    servers = tuple(_more_servers(problem, ask))
    if not proved or large:
        return explain_at_levels(problem, ask, servers, proved=proved)
    repairs = [*_less_demand(problem, ask), *servers, *_more_money(problem, ask)]
    why = [_binding(problem, ask, few)]
    for i in range(len(problem.served)):
        found = _more_time(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(found)
    if any(tree.floor is not None for tree in problem.served):
        repairs += _lower_floor(problem, ask)
    return Infeasible(why=tuple(why), repairs=tuple(repairs))


def _floors(problem: Pipeline, ask: Ask, *, large: bool) -> Infeasible | None:
    """Accuracy floors above the best accuracy in time, and those that the servers could keep."""
    why = []
    for tree in problem.served:
        if tree.floor is None:
            continue
        fastest = merged(tree)
        best, _ = best_quality(fastest, prefixes(fastest))
        if tree.floor > best + 1e-9:
            why.append(f"accuracy: {tree.app} is to reach {tree.floor:g}; the best in time is {best:.6g}")
    if not why:
        return None
    repairs = tuple(lower_floor_at_levels(problem, ask) if large else _lower_floor(problem, ask))
    if not repairs:
        why.append("no lower floor on one accuracy alone was found to help")
    return Infeasible(why=tuple(why), repairs=repairs)


def _binding(problem: Pipeline, ask: Ask, few: Sequence[Tree]) -> str:
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
            taken[tree.app, task.id] = float(answer.point[own].sum())
    (app, step), used = max(taken.items(), key=lambda item: item[1])
    total = sum(taken.values())
    if used <= 0:
        return "capacity: the servers do not carry the demand"
    return (
        f"capacity: step {step} of {app} binds; at the most that can be served it takes {100 * used / total:.0f}% of "
        f"the servers"
    )


def _less_demand(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The largest demand of each application alone, the others as they are."""
    for i, tree in enumerate(problem.served):
        asked = replace(problem.asked("rate"), rate_of=i)
        found = carried(problem, ask, problem.served, asked, about=f"largest demand of {tree.app}")
        if found is None or found.value <= NO_RATE * tree.demand:
            continue  # the others alone are too much
        most, at = found.value, f"slo.apps.{tree.app}.demand.rate_qps"
        text = f"lower {at} by {tree.demand - most:.6g} qps to {most:.6g} qps"
        if not found.is_exact:
            text += f" (no more than {found.bound:.6g} qps can fit)"
        yield Repair(at, "lower", tree.demand - most, most, "qps", text)


def _more_servers(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The fewest servers (the cheapest mix, where there are prices) that would do: without limits, each tree alone."""
    fleet = problem.wish.fleet
    asked = replace(problem.asked("cost" if fleet.priced else "servers"), free=True)
    found = [_fewest(problem, ask, tree, asked) for tree in problem.served]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return
    value, bound = sum(part.value for part in parts), sum(part.bound for part in parts)
    if fleet.priced and fleet.budget is not None and value > fleet.budget * (1 + 1e-9):
        return  # servers alone do not help where the money does not reach
    exact = all(part.is_exact for part in parts)
    least = f"{bound:.6g} per hour" if fleet.priced else f"{bound:g}"
    less = f" (not with less than {least})" if bound > 0 else " (fewer may do)"
    trees = [tree for part in parts for tree in part.trees]
    for one in more_servers(problem, trees, [counts for part in parts for counts in part.counts]):
        yield one if exact else replace(one, text=one.text + less)


def _fewest(problem: Pipeline, ask: Ask, tree: Tree, asked: Asked) -> Carried | None:
    few = without_outdone(tree, problem.wish.fleet, anywhere=True)
    if count_prefixes(few) > MOST_PREFIXES:
        return fewest_at_levels(problem, ask, tree, asked)
    return carried(problem, ask, [tree], asked, about=f"fewest servers for the demand of {tree.app}")


def _more_money(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The least cost with the servers that there may be."""
    fleet = problem.wish.fleet
    if fleet.budget is None:
        return
    rich = replace(problem, wish=replace(problem.wish, fleet=replace(fleet, budget=None)))
    found = carried(rich, ask, problem.served, problem.asked("cost"), about="least cost for the demand")
    if found is not None and found.value > fleet.budget:
        at = "slo.limits.cost_per_hour"
        text = f"raise {at} by {found.value - fleet.budget:.6g} to {found.value:.6g}"
        if not found.is_exact:
            text += f" (not less than {found.bound:.6g})"
        yield Repair(at, "raise", found.value - fleet.budget, found.value, "per hour", text)


def _lower_floor(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The best accuracy of each application that states a floor, the other floors kept."""
    for tree, alone in one_floor_free(problem):
        about = f"best accuracy of {tree.app} at this demand"
        found = carried(problem, ask, alone, problem.asked("quality"), about=about)
        if found is not None and tree.floor is not None and found.value < tree.floor:
            more = "" if found.is_exact else f" (no more than {found.bound:.6g} can be had)"
            yield floor_repair(tree, found.value, more)


# The smallest limit on latency


def _more_time(problem: Pipeline, ask: Ask, i: int) -> Repair | str:
    """The smallest limit on response that helps, by bisection over the sums of latencies; or why none does.

    Servers in parts are bisected first: they are asked in no time, and whole ones need as much or a little more.
    """
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    every = _sums(problem, full)
    sums = _sums(problem, without_outdone(full, problem.wish.fleet, in_time=False)) if every is None else every
    if sums is None:
        return f"no latency limit of {full.app} was sought: there are too many paths to try"
    sums = sums[sums > stated_ms(problem, full) * (1 + 1e-9)]
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

    def least_of(sums: np.ndarray, whole: bool) -> int:
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


def _sums(problem: Pipeline, tree: Tree) -> np.ndarray | None:
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
