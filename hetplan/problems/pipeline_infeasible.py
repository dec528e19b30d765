"""Why a demand cannot be served, and the smallest changes by which it could be: demand, servers, latency, floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.pipeline_config import config_form
from hetplan.problems.pipeline_infeasible_at_levels import explain_at_levels, is_beyond_all
from hetplan.problems.pipeline_levels import best_quality
from hetplan.problems.pipeline_rows import Places
from hetplan.problems.pipeline_tree import Tree, count_prefixes, prefixes, without_dominated

if TYPE_CHECKING:
    from hetplan.problems.pipeline import Pipeline

__all__ = [
    "explain",
    "more_servers",
    "slo_ms_of",
    "slo_repair",
    "stated_ms",
    "too_few",
    "too_slow",
    "with_limit",
]

MOST_PREFIXES = 200_000
"""Beyond, the exact programs of an explanation would take longer than the plan; latency levels explain."""

MOST_SUMS = 2_000_000

ALL_OF_IT = 1e-7
"""Less than this short of the demand is an engine's tolerance."""

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

    Where only levels found none, a relaxation may prove it; else all that is said is that none was found.
    """
    floors = _floors(problem)
    if floors is not None:
        return floors
    proved = proved or is_beyond_all(problem, ask)
    if not proved or sum(map(count_prefixes, problem.served)) > MOST_PREFIXES:
        return explain_at_levels(problem, ask, proved=proved)
    repairs = [*_less_demand(problem, ask), *_more_servers(problem, ask), *_more_money(problem, ask)]
    why = [_binding(problem, ask)]
    for i, tree in enumerate(problem.served):
        found = _more_time(problem, ask, i)
        if isinstance(found, Repair):
            repairs.append(found)
        else:
            why.append(f"no latency limit of {tree.app} helps: {found}")
    if any(tree.floor is not None for tree in problem.served):
        repairs += _lower_floor(problem, ask)
    return Infeasible(why=tuple(why), repairs=tuple(repairs))


def _floors(problem: Pipeline) -> Infeasible | None:
    """Accuracy floors above the best accuracy in time."""
    why, repairs = [], []
    for tree in problem.served:
        if tree.floor is None:
            continue
        best, _ = best_quality(tree, prefixes(tree))
        if tree.floor > best + 1e-9:
            why.append(f"accuracy: {tree.app} is to reach {tree.floor:g}; the best in time is {best:.6g}")
            at = f"slo.apps.{tree.app}.quality.min"
            repairs.append(
                Repair(at, "lower", tree.floor - best, best, "", f"lower {at} from {tree.floor:g} to {best:.6g}")
            )
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def _binding(problem: Pipeline, ask: Ask) -> str:
    """Which task takes most of the servers when as much as possible is served, by its prices."""
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    written = config_form(forest, problem.wish.fleet, problem.asked("rate", whole=False))
    answer = ask(written.form, about="most demand with servers in parts")
    if answer.point is None or answer.row_duals is None:
        return "capacity: the servers do not carry the demand"
    taken = {}
    for (tree, _), columns in zip(forest, written.x, strict=True):
        start = 0
        for task in tree.tasks:
            used = float(answer.point[columns[start : start + task.size]].sum())
            taken[tree.app, task.id] = used
            start += task.size
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
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    for i, tree in enumerate(problem.served):
        asked = replace(problem.asked("rate"), rate_of=i)
        answer = ask(config_form(forest, problem.wish.fleet, asked).form, about=f"largest demand of {tree.app}")
        if answer.point is None or answer.value is None:
            continue
        most, at = float(answer.value), f"slo.apps.{tree.app}.demand.rate_qps"
        if most <= NO_RATE * tree.demand:
            continue  # the others alone are too much
        text = f"lower {at} by {tree.demand - most:.6g} qps to {most:.6g} qps"
        yield Repair(at, "lower", tree.demand - most, most, "qps", text)


def _more_servers(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The fewest servers (the cheapest mix, where there are prices) that would do."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    asked = replace(problem.asked("cost" if fleet.priced else "servers"), free=True)
    written = config_form(forest, fleet, asked)
    answer = ask(written.form, about="fewest servers for the demand")
    if answer.point is None or answer.value is None:
        return
    if fleet.priced and fleet.budget is not None and answer.value > fleet.budget * (1 + 1e-9):
        return  # servers alone do not help where the money does not reach
    yield from more_servers(problem, problem.served, written.counts(answer.point))


def more_servers(problem: Pipeline, trees: Sequence[Tree], found: Sequence[Places]) -> Iterator[Repair]:
    """The repair that so many servers would be."""
    fleet = problem.wish.fleet
    need = np.zeros(len(fleet.hardware))
    for tree, counts in zip(trees, found, strict=True):
        np.add.at(need, np.concatenate([task.hardware for task in tree.tasks]), counts)
    changed = [g for g in range(len(fleet.hardware)) if need[g] > fleet.most[g]]
    if not changed:
        return
    total, now = float(need.sum()), float(fleet.most[np.isfinite(fleet.most)].sum())
    if len(fleet.hardware) == 1:
        at = f"slo.limits.instances.{fleet.hardware[0]}"
        yield Repair(at, "raise", total - now, total, "servers", f"raise {at} to {total:g} servers")
        return
    mix = ", ".join(f"{fleet.hardware[g]} {need[g]:g}" for g in np.flatnonzero(need))
    yield Repair("slo.limits.instances", "raise", None, mix, "servers", f"raise slo.limits.instances to {mix}")


def _more_money(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The least cost with the servers that there may be."""
    fleet = problem.wish.fleet
    if fleet.budget is None:
        return
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    form = config_form(forest, replace(fleet, budget=None), problem.asked("cost")).form
    answer = ask(form, about="least cost for the demand")
    if answer.value is not None and answer.value > fleet.budget:
        at = "slo.limits.cost_per_hour"
        text = f"raise {at} by {answer.value - fleet.budget:.6g} to {answer.value:.6g}"
        yield Repair(at, "raise", answer.value - fleet.budget, answer.value, "per hour", text)


def _lower_floor(problem: Pipeline, ask: Ask) -> Iterator[Repair]:
    """The best accuracy of each application that states a floor, the other floors kept."""
    for i, tree in enumerate(problem.served):
        if tree.floor is None:
            continue
        alone = [replace(one, floor=None if j == i else one.floor, weight=float(j == i))
                 for j, one in enumerate(problem.served)]  # fmt: skip
        form = config_form([(one, prefixes(one)) for one in alone], problem.wish.fleet, problem.asked("quality")).form
        answer = ask(form, about=f"best accuracy of {tree.app} at this demand")
        if answer.value is not None and answer.value < tree.floor:
            at = f"slo.apps.{tree.app}.quality.min"
            text = f"lower {at} from {tree.floor:g} to {answer.value:.6g}"
            yield Repair(at, "lower", tree.floor - answer.value, answer.value, "", text)


# The smallest limit on latency


def stated_ms(problem: Pipeline, tree: Tree) -> float:
    """The limit on response that the user states."""
    app = problem.inputs.slo.apps[tree.app]
    return min(target.max_ms for target in app.latency if target.of == "response")


def slo_ms_of(problem: Pipeline, tree: Tree, sink: int, ms: float) -> float:
    """The limit on response under which a path of this execution time is in time."""
    app = problem.inputs.slo.apps[tree.app]
    return ms * problem.options.slo_divisor + len(tree.path(sink)) * app.network_ms_per_hop


def with_limit(problem: Pipeline, tree: Tree, slo_ms: float) -> Tree:
    """The pipeline under another limit on response."""
    app = problem.inputs.slo.apps[tree.app]
    limits = {
        sink: (slo_ms * (1 + 1e-12) - len(tree.path(sink)) * app.network_ms_per_hop) / problem.options.slo_divisor
        for sink in tree.sinks
    }
    return without_dominated(replace(tree, limit_ms=limits))


def slo_repair(problem: Pipeline, tree: Tree, slo_ms: float) -> Repair:
    """The repair that this limit would be."""
    at, now = f"slo.apps.{tree.app}.latency", stated_ms(problem, tree)
    text = f"raise {at} by {slo_ms - now:.6g} ms to {slo_ms:.6g} ms"
    return Repair(at, "raise", slo_ms - now, slo_ms, "ms", text)


def _more_time(problem: Pipeline, ask: Ask, i: int) -> Repair | str:
    """The smallest limit on response that helps, by bisection over the sums of latencies; or why none does.

    Servers in parts are bisected first: they are asked in no time, and whole ones need as much or a little more.
    """
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    sums = _sums(problem, full)
    if sums is None:
        return "there are too many paths to try"
    sums = sums[sums > stated_ms(problem, full) * (1 + 1e-9)]
    none = "the servers do not carry the demand however long it may take"
    if not sums.size or not all(_carries(problem, ask, i, float(sums[-1]), whole=whole) for whole in (False, True)):
        return none
    least = _least_limit(problem, ask, i, sums, whole=False)
    if not _carries(problem, ask, i, float(sums[least]), whole=True):
        least += 1 + _least_limit(problem, ask, i, sums[least + 1 :], whole=True)
    return slo_repair(problem, full, float(sums[least]))


def _least_limit(problem: Pipeline, ask: Ask, i: int, sums: np.ndarray, *, whole: bool) -> int:
    """Which of these limits is the first that helps; the last one does."""
    low, high = 0, sums.size - 1
    while low < high and ask.remaining > 0:
        middle = (low + high) // 2
        if _carries(problem, ask, i, float(sums[middle]), whole=whole):
            high = middle
        else:
            low = middle + 1
    return high


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


def _carries(problem: Pipeline, ask: Ask, i: int, slo_ms: float, *, whole: bool) -> bool:
    """Whether the demand fits under this limit: asked as how much of it does, which always has an answer to certify."""
    full = next(tree for tree in problem.considered if tree.app == problem.served[i].app)
    trees: Sequence[Tree] = [
        with_limit(problem, full, slo_ms) if j == i else tree for j, tree in enumerate(problem.served)
    ]
    forest = [(tree, prefixes(tree)) for tree in trees]
    asked = replace(problem.asked("rate", whole=whole), rate_most=1.0)
    form, about = config_form(forest, problem.wish.fleet, asked).form, f"is {slo_ms:.6g} ms enough for {full.app}"
    for gap in (None, ALL_OF_IT):  # the usual gap decides, but for the last bit of the demand
        answer = ask(form, gap=gap, about=about)
        if answer.value is not None and answer.value >= 1.0 - ALL_OF_IT:
            return True
        if answer.bound is None or answer.bound < 1.0 - ALL_OF_IT:
            return False
    return False
