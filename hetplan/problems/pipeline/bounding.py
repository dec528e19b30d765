"""The programs that bound what a plan of pipelines claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from hetplan.planner.certify import Bounding
from hetplan.planner.forms.milp import Milp
from hetplan.problems.pipeline.climb import CLAIMED, KEPT, best_quality, keeping
from hetplan.problems.pipeline.exact import at_best, best_in_time, exact_of, paper_of
from hetplan.problems.pipeline.form import config_form
from hetplan.problems.pipeline.joins import in_room, steps_form
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.parts import at_the_most, bursts_in_parts, parts_form, without_room
from hetplan.problems.pipeline.rows import Asked, Goal, Written
from hetplan.problems.pipeline.tree import count_prefixes, prefixes
from hetplan.profiles.plan import Claim, Plan

__all__ = ["bounding"]

NEAR = 10 * KEPT
"""So much less than its program a plan may have of an earlier goal: a millionth, where qualities are that small."""
MOST_PREFIXES = 600
"""Up to so many the whole program stands in for one of some configurations: it is solved in seconds."""


def bounding(problem: Pipelines, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The programs for a goal, where no less of the goals before it is reached than the plan says.

    The loosest first: servers in parts, the best accuracy that any number of servers gives, whole servers.
    """
    goals: dict[str, Goal] = {CLAIMED[goal]: goal for goal in problem.levels}
    if problem.formulation not in ("config", "paper", "budget"):
        return None
    if claim.about not in goals:
        return []
    goal = goals[claim.about]
    if claim.sense != ("max" if goal in ("quality", "fairest") else "min"):
        return []
    narrow = claim.scope == "restriction"
    whole = problem.form != "budget" and getattr(problem.options, "among", "") != "used"
    # Of later goals, plans of some configurations are bounded too: those that were chosen for the first.
    wider = narrow and not (whole and claim.scope == problem.scope and goal == problem.levels[0])
    if wider and (problem.wish.joins or sum(map(count_prefixes, problem.served)) > MOST_PREFIXES):
        return None
    found = [Bounding(form, wider=wider) for form in _loose(problem, goal, plan, claim)]
    for form in _whole(problem, goal, _reached(problem, goal, plan), claim):
        found.append(Bounding(form, wider=wider, of_plans=not wider))
    return found if found or (whole and not narrow) else None


def _reached(problem: Pipelines, goal: Goal, plan: Plan, *, solved: bool = True) -> dict[Goal, float]:
    """What the plan says that it has of the goals before; as their programs have it, which rounding moves by a hair."""
    before, found = problem.levels[: problem.levels.index(goal)], dict[Goal, float]()
    solves = {one.id: one.value for one in plan.solves}
    for other in before:
        said = next((one for one in plan.claims if one.about == CLAIMED[other]), None)
        if said is None:
            raise ValueError(f"the plan says nothing of its {CLAIMED[other]}")
        exactly = solves.get(said.solve) if solved and said.solve is not None else None
        found[other] = exactly if exactly is not None and abs(exactly - said.value) <= NEAR else said.value
    return found


def _loose(problem: Pipelines, goal: Goal, plan: Plan, claim: Claim) -> Iterator[Milp]:
    """Servers in parts, at what the plan has of the goals before; the best accuracy of any number of servers."""
    if claim.scope in (problem.scope_in_parts, "restriction"):
        reached, bare = _reached(problem, goal, plan, solved=False), without_room(problem)
        wide = at_the_most(bare)
        yield parts_form(wide, goal, reached)
        if claim.scope != "restriction" and (bursts := bursts_in_parts(wide, bare)):
            yield parts_form(wide, goal, reached, bursts)
        if claim.scope == "restriction":
            yield parts_form(bare, goal, reached)
        of_paths = problem.options.size == "planned" or claim.scope == "restriction"
        if goal == problem.levels[0] and of_paths and not problem.wish.joins:
            served = [(tree, prefixes(tree)) for tree in problem.served]
            yield config_form(served, problem.wish.fleet, problem.asked(goal, whole=False)).form
    if goal == problem.levels[0] == "quality" and claim.scope == "problem" and not problem.wish.joins:
        yield best_in_time(problem)


def _whole(problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], claim: Claim) -> Iterator[Milp]:
    """Whole servers."""
    first, roomy = goal == problem.levels[0], problem.options.size != "planned"  # other plans may do with less room
    if problem.wish.joins:
        trees = in_room(problem)
        if claim.scope == problem.scope and not roomy:
            yield from _asked(problem, goal, reached, claim, lambda asked: steps_form(problem, trees, asked))
        return
    forest, write, scope = paper_of(problem) if problem.form == "paper" else exact_of(problem)
    if claim.scope != "restriction" and (claim.scope != scope or problem.form == "budget" or roomy):
        return
    best = sum(tree.weight * best_quality(tree, levels)[0] for tree, levels in forest)
    if not first and problem.levels[0] == "quality" and reached["quality"] >= best - 2 * KEPT:
        top = at_best(problem, forest)
        after: dict[Goal, float] = {other: value for other, value in reached.items() if other != "quality"}
        yield from _asked(problem, goal, after, claim, lambda asked: write(top, asked))
    yield from _asked(problem, goal, reached, claim, lambda asked: write(forest, asked))


def _asked(
    problem: Pipelines, goal: Goal, reached: Mapping[Goal, float], claim: Claim, write: Callable[[Asked], Written]
) -> Iterator[Milp]:
    """Whole servers for a goal; of servers also whether one fewer than the bound would do."""
    asked = problem.asked(goal)
    for other, value in reached.items():
        asked = keeping(asked, other, value)
    if goal == "servers" and reached:
        yield write(replace(asked, servers_above=round(claim.bound or 0.0) - 1)).form
    yield write(asked).form
