"""The slack found by simulation: more room for whoever is late, until nobody is (`size=simulated`).

The simulator is handed in (`Tools.simulate`), called with a plan, the inputs and `seeds`; what it returns has `lines`,
promised against simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Event
from hetplan.planner.draft import Draft, Infeasible
from hetplan.planner.plan import InputHashes, Method, Plan, Promise

if TYPE_CHECKING:
    from hetplan.problems.variants import Variants

__all__ = ["sized"]

MORE = 1.25
"""By how much the need of a late application grows, each time."""
SEEDS = 3


def sized(v: Variants, ask: Ask, way: Callable[[Variants, Ask], Draft | Infeasible]) -> Draft | Infeasible:
    """The plan by this way whose applications are in time in simulation."""
    if v.tools.simulate is None:
        raise InputError.one(
            file="options", path="size", value="simulated", why="nothing was handed in to simulate with",
            remedy="Hand in Tools(simulate=...), or leave the option out.",
        )  # fmt: skip
    now, turn = v, 0
    while True:
        made = way(now, ask)
        if isinstance(made, Infeasible):
            return made
        turn += 1
        report = v.tools.simulate(_plan(v, made), v.inputs, seeds=SEEDS, seed=ask.limits.seed)
        shown = _response_times(v, report)
        late = {name for name, (value, limit) in shown.items() if value > limit}
        ask.note(Event("simulated", f"{len(late)} applications late", done=turn / v.options.evaluations))
        if not late:
            return _told(v, made, shown)
        if turn >= v.options.evaluations or ask.remaining <= 0:
            why = f"late in simulation with all the slack that was tried: {', '.join(sorted(late)[:5])}"
            return replace(_told(v, made, shown), target_missed=why)
        asked = tuple(replace(one, need_qps=one.need_qps * MORE) if one.id in late else one for one in now.asked)
        now = replace(now, asked=asked)


def _plan(v: Variants, made: Draft) -> Plan:
    """The draft as something that a simulator can read."""
    return Plan(
        question="variants", method=Method(formulation=v.formulation), inputs=InputHashes(profile="", slo=""),
        workers=made.workers, routing=dict(made.routing), dispatch=dict(made.dispatch), promises=made.promises,
        unserved=made.unserved, valid=made.valid,
    )  # fmt: skip


def _response_times(v: Variants, report: Any) -> dict[str, tuple[float, float]]:
    """Of each application the simulated percentile that its SLO names, and its limit."""
    found: dict[str, tuple[float, float]] = {}
    for one in v.asked:
        for target in one.app.latency:
            if target.of == "response" and one.id in report.apps:
                held = report.apps[one.id].percentiles_ms[target.percentile]
                value = float(held.value)
                if one.id not in found or value / target.max_ms > found[one.id][0] / found[one.id][1]:
                    found[one.id] = (value, target.max_ms)
    return found


def _told(v: Variants, made: Draft, shown: dict[str, tuple[float, float]]) -> Draft:
    """The draft with what simulation showed."""
    promises = list(made.promises)
    for one in v.asked:
        targets = [t for t in one.app.latency if t.of == "response"]
        if one.id in shown and shown[one.id][0] <= shown[one.id][1] and targets:
            strictest = min(targets, key=lambda t: t.max_ms)
            value, limit = shown[one.id]
            promises.append(
                Promise(
                    app=one.id, quantity="response_ms", percentile=strictest.percentile, relation="<=", value=limit,
                    interval=(value, value), model="simulation/1", seeds=SEEDS,
                )
            )  # fmt: skip
    kept = tuple(notice for notice in made.warnings if notice.code != "W-queueing")
    return replace(made, promises=tuple(promises), warnings=kept, searched=True)
