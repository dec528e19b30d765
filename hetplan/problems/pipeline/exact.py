"""Exact programs over pipelines: hardware scaling while the best accuracy can be kept, else accuracy scaling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported, Scope
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.climb import (
    ABOUT,
    CLAIMED,
    GAP,
    KEPT,
    SLIPS,
    Solved,
    climb,
    cut,
    keeping,
    kept_best,
    polished,
)
from hetplan.problems.pipeline.form import config_form, paper_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.rows import Asked, Forest, Goal, Written, flows_form
from hetplan.problems.pipeline.tree import Level, Mask, Tree, Vector, merged, prefixes

__all__ = [
    "MOST_USED",
    "among_used",
    "at_best",
    "best_in_time",
    "by_config",
    "by_paper",
    "by_programs",
    "by_used",
    "exact_of",
    "paper_of",
    "tidied",
]

MOST_USED: dict[Goal, int] = {"quality": 4, "fairest": 6}
"""So many configurations of each step are looked at where a plan is wanted soon.

The prices are those of accuracy, so where the worst served comes first they say less, and more is looked at: of two
applications on the street's servers 4 left it at .947 and 6 at .968, in the same time.
"""

NEAR = 3e-3
"""How near to the best of those."""

Write = Callable[[Forest, Asked], Written]


def by_config(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """The exact program."""
    return by_programs(problem, ask, *exact_of(problem))


def exact_of(problem: Pipelines) -> tuple[Forest, Write, Scope]:
    """The exact program, ready to be written for a goal; and what its bounds are of."""
    fleet = problem.wish.fleet
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    return forest, lambda kept, asked: config_form(kept, fleet, asked), problem.scope


def by_used(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """Soon: whole servers among the configurations that are worth most where servers may be in parts.

    What the accuracy (of several where the worst served comes first, the least) misses of that with servers in parts,
    which no plan is above, is the gap. Of later levels nothing is proved but among those configurations.
    """
    found = among_used(problem, ask) if problem.levels[0] in ("quality", "fairest") else None
    return by_config(problem, ask) if found is None else found


def among_used(problem: Pipelines, ask: Ask) -> Solved | Infeasibility | None:
    """The same, accuracy first; None where those configurations have no plan: others may."""
    first = problem.levels[0]
    fleet = problem.wish.fleet
    if any(task.size == 0 for tree in problem.served for task in tree.tasks):
        return None
    forest = [(tree, prefixes(tree)) for tree in problem.served]
    base = problem.asked(first, whole=False)
    written = config_form(forest, fleet, base)
    best = answer = ask(written.form, about=f"{ABOUT[first]}, servers in parts")
    if answer.status is Status.INFEASIBLE:
        return Infeasibility(why=(), answer=answer, proved=problem.wish.fleet.apart != "unlike")
    if first == "fairest" and answer.point is not None:
        # Only the worst served have a worth there: what the others are worth says the accuracy of all.
        written = config_form(
            forest, fleet, replace(keeping(base, first, written.form.value(answer.point)), goal="quality")
        )
        answer = ask(written.form, about=f"{ABOUT['quality']} at it, servers in parts")
    if answer.point is None or answer.row_duals is None:
        return None
    kept = _worth_most(written, forest, answer.point, answer.row_duals, MOST_USED[first])
    narrowed = replace(problem, of=tuple(kept))
    some = [(tree, prefixes(tree)) for tree in kept]
    found = by_programs(
        narrowed, ask, some, lambda part, asked: config_form(part, fleet, asked), scope="restriction", gap=NEAR
    )
    if isinstance(found, Infeasibility):
        return None
    about = CLAIMED[first]
    claim = found.valued(Reported(about, "max", problem.scope_in_parts, best, value=found.quality))
    rest = tuple(one for one in found.reported if one.about != about)
    return replace(found, reported=(claim, *rest), levels_proved=all(one.scope != "restriction" for one in rest))


def _worth_most(written: Written, forest: Forest, point: Vector, prices: Vector, most: int) -> list[Tree]:
    """The trees with the configurations of each step that are used, or are worth most at these prices."""
    short = written.form.cost - written.form.matrix.T @ prices
    kept = []
    for (tree, _), columns in zip(forest, written.x, strict=True):
        worth, masks, start = np.where(point[columns] > KEPT, np.inf, short[columns]), list[Mask](), 0
        for task in tree.tasks:
            own = worth[start : start + task.size]
            least = np.sort(own)[::-1][min(most, task.size) - 1]
            masks.append(own >= least)
            start += task.size
        kept.append(tree.keeping(masks))
    return kept


def by_paper(problem: Pipelines, ask: Ask) -> Solved | Infeasibility:
    """Loki's own program; with several hardware it may find less than there is."""
    return by_programs(problem, ask, *paper_of(problem))


def paper_of(problem: Pipelines) -> tuple[Forest, Write, Scope]:
    """The same, ready to be written for a goal; and what its bounds are of."""
    forest = [(tree, prefixes(tree)) for tree in map(merged, problem.served)]

    def write(kept: Forest, asked: Asked) -> Written:
        return paper_form(kept, problem.served, problem.wish.fleet, asked)

    return forest, write, problem.scope if problem.has_one_hardware else "restriction"


def by_programs(
    problem: Pipelines, ask: Ask, forest: Forest, write: Write, scope: Scope, *, gap: float = GAP
) -> Solved | Infeasibility:
    """Hardware scaling while the best accuracy can be kept, else accuracy scaling."""
    found = _hardware_scaling(problem, ask, forest, write, scope, gap)
    return found if found is not None else _accuracy_scaling(problem, ask, forest, write, scope, gap)


def _hardware_scaling(
    problem: Pipelines, ask: Ask, forest: Forest, write: Write, scope: Scope, gap: float
) -> Solved | None:
    """The least of servers (cost, moves) at the best accuracy in time; None where it cannot be kept."""
    goals = problem.wish.goals
    if goals[0] != "quality" or len(goals) < 2:
        return None
    best = at_best(problem, forest)
    if any(not level.size for _, levels in best for level in levels):
        return None
    in_parts = write(best, problem.asked(goals[1], whole=False))
    if ask(in_parts.form, about="can the best accuracy be kept at all").status is Status.INFEASIBLE:
        return None
    for slip in SLIPS:
        base = problem.asked(goals[1], slip=slip)
        climbed = climb(ask, lambda asked: write(best, asked), goals[1:], base, scope=scope, gap=gap)
        if isinstance(climbed, Answer):
            return None
        written, point, reported = climbed
        shares = polished(ask, problem.served, written.counts(point), problem.wish.fleet)
        if shares is not None:
            found = Solved(*shares, mode="hardware", reported=())
            best_claim = found.valued(_best_in_time(problem, ask))
            if best_claim.value is not None and best_claim.answer is not None and best_claim.answer.bound is not None:
                # At latency levels that were chosen before, the best there may be less than the best there is.
                reached = best_claim.value >= best_claim.answer.bound - KEPT
                found = replace(found, mode="hardware" if reached else "accuracy")
            rest = tuple(found.valued(one) for one in reported)
            return replace(found, reported=(best_claim, *rest))
    return None


def at_best(problem: Pipelines, forest: Forest) -> list[tuple[Tree, list[Level]]]:
    """Only what keeps the best accuracy in time; as the paper has it, the most accurate variants."""
    by_paper = getattr(problem.options, "step1", "") == "top-variants"
    return [(tree, _top_only(tree, levels) if by_paper else kept_best(tree, levels)) for tree, levels in forest]


def _best_in_time(problem: Pipelines, ask: Ask) -> Reported:
    """The claim that no number of servers gives a better accuracy in time."""
    answer = ask(best_in_time(problem), about="best accuracy in time, however many servers")
    return Reported("quality", "max", "problem", answer)


def best_in_time(problem: Pipelines) -> Milp:
    """The best accuracy in time, however many servers there are: flows alone, on each variant's fastest."""
    forest = [(tree, prefixes(tree)) for tree in map(merged, problem.considered)]
    return flows_form(forest, problem.wish.fleet, Asked("quality", floors=False))


def _accuracy_scaling(
    problem: Pipelines, ask: Ask, forest: Forest, write: Write, scope: Scope, gap: float
) -> Solved | Infeasibility:
    """The best accuracy on all servers, then the least of them."""
    fleet, goals = problem.wish.fleet, problem.levels
    # Within a wide gap the least servers are sought among the configurations already chosen: it is a matter of order.
    upto = len(goals) if gap <= GAP else goals.index("quality") + 1 if "quality" in goals else len(goals)
    for slip in SLIPS:
        base = problem.asked(goals[0], slip=slip)
        climbed = climb(ask, lambda asked: write(forest, asked), goals[:upto], base, scope=scope, gap=gap)
        if isinstance(climbed, Answer):
            if climbed.status is Status.INFEASIBLE:
                # Neither a restriction nor capacities that were tightened prove anything.
                proved = scope == "problem" and slip == SLIPS[0]
                return Infeasibility(why=(), answer=climbed, proved=proved)
            if climbed.stop is Stop.FINISHED:
                continue  # by a hair: with a little less capacity all engines say the same
            return Infeasibility(why=(f"no plan was found: {climbed.detail or climbed.stop}",), proved=False)
        written, point, reported = climbed
        shares = polished(ask, problem.served, written.counts(point), fleet, fair=problem.fair)
        if shares is not None:
            found = Solved(*shares, mode="accuracy", reported=tuple(reported))
            if upto < len(goals):
                found = tidied(problem, ask, found, goals[upto:])
            return replace(found, reported=tuple(found.valued(one) for one in found.reported))
    return Infeasibility(why=("whole servers do not carry what the program promised",), proved=False)


def tidied(problem: Pipelines, ask: Ask, found: Solved, goals: tuple[Goal, ...]) -> Solved:
    """The later levels of the objective among the chosen configurations, at the accuracy reached."""
    fleet, forest = problem.wish.fleet, found.forest
    least = min(found.qualities) - KEPT if problem.fair else None
    for slip in SLIPS:
        base = replace(problem.asked(goals[0], slip=slip), quality_least=found.quality - KEPT, each_least=least)
        climbed = climb(
            ask, lambda asked: config_form(forest, fleet, asked), goals, base, scope="restriction", gap=1e-3
        )
        if isinstance(climbed, Answer):
            return found
        written, point, reported = climbed
        shares = polished(ask, [tree for tree, _ in forest], written.counts(point), fleet, fair=problem.fair)
        if shares is not None:
            return Solved(*shares, mode=found.mode, reported=(*found.reported, *reported))
    return found


def _top_only(tree: Tree, levels: list[Level]) -> list[Level]:
    """Only the prefixes of the most accurate variants."""
    tops = [task.quality >= task.quality.max() - 1e-12 for task in tree.tasks]
    return cut(tree, levels, [top[level.variants[:, -1]] for top, level in zip(tops, levels, strict=True)])
