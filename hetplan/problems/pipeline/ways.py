"""Chooses the way to solve: the formulation that was named, or the one that suits the size.

Formulations that not every plan needs are imported when they are named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems.pipeline.climb import Solved
from hetplan.problems.pipeline.draft import draft, nothing_to_do
from hetplan.problems.pipeline.exact import by_config, by_paper, by_used
from hetplan.problems.pipeline.infeasible import explain, too_few, too_slow
from hetplan.problems.pipeline.letters import Pipelines

__all__ = ["planned"]

Way = Callable[[Pipelines, Ask], Solved | Infeasibility]


def planned(problem: Pipelines, ask: Ask) -> Draft | Infeasibility:
    """Answer by the chosen formulation; where servers may be shared, as well as without."""
    made = _answered(problem, ask)
    exact = problem.options.size == "planned" and problem.form != "budget"
    if exact or not problem.wish.fleet.is_shared or not problem.asked_for or ask.remaining <= 0:
        return made
    from hetplan.problems.pipeline.size import better_apart

    if isinstance(made, Draft) and not made.target_missed:
        ask.keep(lambda: made, simulated=True)
    return better_apart(problem, made, lambda whole: _answered(whole, ask))


def _answered(problem: Pipelines, ask: Ask) -> Draft | Infeasibility:
    """The same, with as much headroom as the size asks for."""
    size = problem.options.size
    if size == "planned" or not problem.asked_for:
        return _said_of_own_servers(problem, _planned(problem, ask))
    from hetplan.problems.pipeline.size import estimated, sized

    made = estimated(problem, ask, _planned) if size == "estimated" else sized(problem, ask, _planned)
    return _said_of_own_servers(problem, made)


def _said_of_own_servers(problem: Pipelines, made: Draft | Infeasibility) -> Draft | Infeasibility:
    """With what its bounds are about, where steps that would fit on one server have servers of their own.

    Nor is it proved there that no plan carries the demand: only that none is in time is.
    """
    if not problem.wish.fleet.apart:
        return made
    if isinstance(made, Infeasibility):
        return replace(made, proved=made.proved and too_slow(problem) is not None)
    note = "among plans on servers of each step's own"
    claims = (replace(one, note=one.note or note) if one.scope == "restriction" else one for one in made.reported)
    narrower = any(one.scope == "restriction" for one in made.reported[1:])
    return replace(made, reported=tuple(claims), levels_proved=made.levels_proved and not narrower)


def _planned(problem: Pipelines, ask: Ask, *, explained: bool = True) -> Draft | Infeasibility:
    if not problem.asked_for:
        return nothing_to_do(problem)
    problem, way = _way_of(problem)
    if problem.wish.joins:
        from hetplan.problems.pipeline.joins import by_steps

        steps = by_steps(problem, ask)
        return steps if isinstance(steps, Infeasibility) else draft(problem, steps)
    slow = too_slow(problem)
    if slow is not None:
        return slow
    brought = problem.tools.formulation
    few = too_few(problem, ask) if problem.formulation != "reroute" and not (brought and brought.partial) else None
    if few is not None:
        return few
    if way in (by_config, by_paper) and ask.limits.seconds is not None and not problem.fair:
        from hetplan.problems.pipeline.levels import at_least

        found = at_least(problem, ask, way)
    else:
        found = way(problem, ask)
    if isinstance(found, Infeasibility):
        is_brief = not (explained and problem.tools.explains)
        return found if found.why or is_brief else explain(problem, ask, proved=found.proved)
    return draft(problem, found)


def _way_of(problem: Pipelines) -> tuple[Pipelines, Way]:
    """The way of the formulation, and the question with the configurations that it looks at."""
    brought = problem.tools.formulation
    if brought is not None and brought.decide is not None:
        return (problem if brought.narrow is None else brought.narrow(problem)), brought.decide
    if problem.formulation == "reroute":
        from hetplan.problems.pipeline.reroute import by_reroute

        return replace(problem, of=problem.considered), by_reroute
    name = problem.form
    if name == "budget":
        from hetplan.problems.pipeline.levels import by_levels

        return problem, by_levels
    if problem.formulation == "config" and getattr(problem.options, "among", "") == "used":
        return problem, by_used
    return problem, by_config if name == "config" else by_paper
