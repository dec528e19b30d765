"""The least headroom whose plan is in time when it is simulated (`size=simulated`).

A plan that fills its servers to the brim keeps its latency only as long as nothing has to wait. Here the share of
capacity that is kept free grows step by step until simulation shows every application in time, and is then narrowed
down; the plan says which share it was, and promises what simulation showed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasible
from hetplan.profiles.plan import InputHashes, Method, Notice, Plan, Promise

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["sized"]

STEPS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Headrooms tried in turn."""
WIDTH = 0.01
"""Between a headroom that is too little and one that is enough, it is not worth looking further."""
SEEDS = 5


@dataclass(frozen=True)
class _Tried:
    """A headroom, its plan, and what simulation showed of it."""

    headroom: float
    draft: Draft
    shown: tuple[Promise, ...]
    late: tuple[str, ...]


def sized(p: Pipeline, ask: Ask, way: Callable[..., Draft | Infeasible]) -> Draft | Infeasible:
    """The plan by this way, with the least headroom that simulation finds enough."""
    if p.tools.simulate is None:
        raise InputError.one(
            file="options", path="size", value="simulated", why="nothing was handed in to simulate with",
            remedy="Hand in Tools(simulate=...), or leave the option out.",
        )  # fmt: skip
    least = p.options.headroom
    tried: list[_Tried] = []
    first: Draft | Infeasible | None = None
    enough: _Tried | None = None
    for headroom in (least, *(step for step in STEPS if step > least)):
        if first is not None and not _may_go_on(p, ask, len(tried)):
            break
        # Only what is asked for needs an explanation of why it cannot be; more headroom than that is our own idea.
        made = way(with_headroom(p, headroom), ask, explained=first is None)
        first = first or made
        if isinstance(made, Infeasible) or made.target_missed:
            break
        tried.append(_simulated(p, ask, headroom, made, turn=len(tried) + 1))
        if not tried[-1].late:
            enough = tried[-1]
            break
    if not tried:
        assert first is not None
        return first
    if enough is None:
        return _never_in_time(p, ask, tried)
    too_little = tried[-2].headroom if len(tried) > 1 else enough.headroom
    return _told(_narrowed(p, ask, way, too_little, enough, turn=len(tried)))


def with_headroom(p: Pipeline, headroom: float) -> Pipeline:
    """The same question with this share of every server kept free."""
    from hetplan.problems.pipeline.wish import read_wish

    options = p.options.model_copy(update={"headroom": headroom})
    return type(p)(p.inputs, read_wish(p.inputs, options), options, p.formulation, p.start, p.tools)


def _may_go_on(p: Pipeline, ask: Ask, turns: int) -> bool:
    return turns < p.options.evaluations and ask.remaining > 0


def _narrowed(
    p: Pipeline, ask: Ask, way: Callable[..., Draft | Infeasible], low: float, enough: _Tried, *, turn: int
) -> _Tried:
    """Halve the interval between too little and enough."""
    while enough.headroom - low > WIDTH and _may_go_on(p, ask, turn):
        headroom = round((low + enough.headroom) / 2, 4)
        made = way(with_headroom(p, headroom), ask, explained=False)
        turn += 1
        found = None
        if isinstance(made, Draft) and not made.target_missed:
            found = _simulated(p, ask, headroom, made, turn=turn)
        if found is None or found.late:
            low = headroom
        else:
            enough = found
    return enough


def _simulated(p: Pipeline, ask: Ask, headroom: float, made: Draft, *, turn: int) -> _Tried:
    assert p.tools.simulate is not None
    plan = _plan(p, headroom, made)
    # One run tells of most plans that they are late; only what stands it is worth all of them.
    for seeds in (1, SEEDS):
        report = p.tools.simulate(plan, p.inputs, seeds=seeds, seed=ask.limits.seed)
        shown, late = _response_times(p, report, seeds=seeds)
        if late:
            break
    ask.note(Event("simulated", f"headroom {headroom:g}: {len(late)} late", done=turn / p.options.evaluations))
    return _Tried(headroom, made, shown, late)


def _plan(p: Pipeline, headroom: float, made: Draft) -> Plan:
    """The draft as something that a simulator can read."""
    method = Method(formulation=p.formulation, options={"headroom": headroom})
    return Plan(
        question="pipeline", method=method, inputs=InputHashes(profile="", slo=""),
        workers=made.workers, routing=dict(made.routing), dispatch=dict(made.dispatch), promises=made.promises,
        tables=dict(made.tables), unserved=made.unserved, valid=made.valid,
    )  # fmt: skip


def _response_times(p: Pipeline, report: Any, *, seeds: int) -> tuple[tuple[Promise, ...], tuple[str, ...]]:
    """What simulation showed of every response time that the SLO limits, and whose is too long.

    Of several runs the upper end of the interval counts: the promise has to hold on other seeds too. One run alone
    promises nothing: its interval may well be infinite.
    """
    shown, late = [], []
    for name, app in p.inputs.slo.apps.items():
        for target in app.latency:
            if target.of != "response" or name not in report.apps:
                continue
            held = report.apps[name].percentiles_ms[target.percentile]
            if not (held.high if seeds > 1 else held.value) <= target.max_ms:
                late.append(name)
            elif seeds > 1:
                shown.append(
                    Promise(app=name, quantity="response_ms", percentile=target.percentile, relation="<=",
                            value=target.max_ms, interval=(held.low, held.high), model="simulation/1", seeds=seeds)
                )  # fmt: skip
    return tuple(shown), tuple(dict.fromkeys(late))


def _told(found: _Tried) -> Draft:
    """The draft with what simulation showed and the headroom that it took."""
    return replace(
        found.draft, promises=(*found.draft.promises, *found.shown), warnings=_but_for_advice(found.draft),
        searched=True, chosen={"headroom": found.headroom},
    )  # fmt: skip


def _but_for_advice(made: Draft) -> tuple[Notice, ...]:
    """Its warnings without the one that says to simulate: that was done."""
    return tuple(notice for notice in made.warnings if notice.code != "W-queueing")


def _never_in_time(p: Pipeline, ask: Ask, tried: list[_Tried]) -> Draft:
    last = tried[-1]
    why = f"late in simulation even with a headroom of {last.headroom:g}: {', '.join(last.late[:5])}"
    if last.headroom < STEPS[-1]:
        ended = "with more there is no plan" if _may_go_on(p, ask, len(tried)) else "more was not tried"
        why = f"{why}; {ended}"
    return replace(
        last.draft, target_missed=why, warnings=_but_for_advice(last.draft), chosen={"headroom": last.headroom}
    )
