"""The least headroom whose plan is in time when it is simulated (`size=simulated`).

A plan that fills its servers to the brim keeps its latency only as long as nothing has to wait. Here the share of
capacity that is kept free grows step by step until simulation shows every application in time, and is then narrowed
down; the plan says which share it was, and promises what simulation showed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasible
from hetplan.problems.pipeline.letters import Pipelines
from hetplan.problems.pipeline.wish import read_wish
from hetplan.problems.simulated import Shown, check_simulator, plan_to_simulate, shown_by, with_shown

__all__ = ["sized"]

STEPS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Headrooms tried in turn."""
WIDTH = 0.01
"""Between a headroom that is too little and one that is enough, it is not worth looking further."""


@dataclass(frozen=True)
class _Tried:
    """A headroom, its plan, and what simulation showed of it."""

    headroom: float
    draft: Draft
    shown: Shown


def sized(p: Pipelines, ask: Ask, way: Callable[..., Draft | Infeasible]) -> Draft | Infeasible:
    """The plan by this way, with the least headroom that simulation finds enough."""
    check_simulator(p.tools)
    least = p.options.headroom
    tried: list[_Tried] = []
    first: Draft | Infeasible | None = None
    enough: _Tried | None = None
    for headroom in (least, *(step for step in STEPS if step > least)):
        if first is not None and not _may_go_on(p, ask, len(tried)):
            break
        # Only what is asked for needs an explanation of why it cannot be; more headroom than that is our own idea.
        made = way(_with_headroom(p, headroom), ask, explained=first is None)
        first = first or made
        if isinstance(made, Infeasible) or made.target_missed:
            break
        tried.append(_simulated(p, ask, headroom, made, turn=len(tried) + 1))
        if not tried[-1].shown.late:
            enough = tried[-1]
            break
    if not tried:
        assert first is not None
        return first
    if enough is None:
        return _never_in_time(p, ask, tried)
    too_little = tried[-2].headroom if len(tried) > 1 else enough.headroom
    return _with_headroom_named(_narrowed(p, ask, way, too_little, enough, turn=len(tried)))


def _with_headroom(p: Pipelines, headroom: float) -> Pipelines:
    """The same question with this share of every server kept free."""
    options = p.options.model_copy(update={"headroom": headroom})
    return Pipelines(p.inputs, read_wish(p.inputs, options), options, p.formulation, p.start, p.tools)


def _may_go_on(p: Pipelines, ask: Ask, turns: int) -> bool:
    return turns < p.options.evaluations and ask.remaining > 0


def _narrowed(
    p: Pipelines, ask: Ask, way: Callable[..., Draft | Infeasible], low: float, enough: _Tried, *, turn: int
) -> _Tried:
    """Halve the interval between too little and enough."""
    while enough.headroom - low > WIDTH and _may_go_on(p, ask, turn):
        headroom = round((low + enough.headroom) / 2, 4)
        made = way(_with_headroom(p, headroom), ask, explained=False)
        turn += 1
        found = None
        if isinstance(made, Draft) and not made.target_missed:
            found = _simulated(p, ask, headroom, made, turn=turn)
        if found is None or found.shown.late:
            low = headroom
        else:
            enough = found
    return enough


def _simulated(p: Pipelines, ask: Ask, headroom: float, made: Draft, *, turn: int) -> _Tried:
    plan = plan_to_simulate("pipeline", p.formulation, made, {"headroom": headroom})
    # One run shows most plans that are late; only what passes it is worth all of them.
    shown = shown_by(p.tools, p.inputs, plan, ask, seeds=1)
    if not shown.late:
        shown = shown_by(p.tools, p.inputs, plan, ask)
    ask.note(Event("simulated", f"headroom {headroom:g}: {len(shown.late)} late", done=turn / p.options.evaluations))
    return _Tried(headroom, made, shown)


def _with_headroom_named(found: _Tried) -> Draft:
    """The draft with what simulation showed and the headroom that it took."""
    return replace(with_shown(found.draft, found.shown), searched=True, chosen={"headroom": found.headroom})


def _never_in_time(p: Pipelines, ask: Ask, tried: list[_Tried]) -> Draft:
    last = tried[-1]
    why = f"late in simulation even with a headroom of {last.headroom:g}: {', '.join(last.shown.late[:5])}"
    if last.headroom < STEPS[-1]:
        ended = "with more there is no plan" if _may_go_on(p, ask, len(tried)) else "more was not tried"
        why = f"{why}; {ended}"
    made = with_shown(last.draft, Shown((), last.shown.late))
    return replace(made, target_missed=why, chosen={"headroom": last.headroom})
