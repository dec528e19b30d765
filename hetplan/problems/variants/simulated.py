"""How busy instances may be, found by simulation: less for whoever is late, until nobody is (`size=simulated`).

It begins where a queueing formula leads (`variants_waiting`), so that few plans need to be simulated.

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
from hetplan.profiles.plan import InputHashes, Method, Plan, Promise

if TYPE_CHECKING:
    from hetplan.problems.variants.question import Variants
    from hetplan.problems.variants.wish import Serves

__all__ = ["sized"]

LESS = 0.85
"""What a late application still asks of the instances that it uses, each time."""
SEEDS = 5


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
        if isinstance(made, Infeasible) or not made.routing:
            return made
        turn += 1
        report = v.tools.simulate(_plan(v, made), v.inputs, seeds=SEEDS, seed=ask.limits.seed)
        shown = _response_times(v, report)
        late = {app for app, targets in shown.items() if any(held.high > limit for _, held, limit in targets)}
        ask.note(Event("simulated", f"{len(late)} applications late", done=turn / v.options.evaluations))
        if not late:
            return _told(made, shown)
        if turn >= v.options.evaluations or ask.remaining <= 0:
            why = f"late in simulation however little of each instance was asked: {', '.join(sorted(late)[:5])}"
            return replace(_told(made, shown), target_missed=why)
        now = replace(now, serves=tuple(_less_busy(now, made, pair, late) for pair in now.serves))


def _less_busy(v: Variants, made: Draft, pair: Serves, late: set[str]) -> Serves:
    """A pair by which an application was late, asked for less."""
    kind, one = v.kinds[pair.kind], v.asked[pair.app]
    used = any(
        load.variant == kind.variant and worker.hardware == kind.hardware and load.app in (None, one.id)
        for worker in made.workers
        for load in worker.loads
    )
    if one.id not in late or not used or pair.late:
        return pair
    return replace(pair, qps=pair.qps * LESS, busy=pair.busy * LESS)


def _plan(v: Variants, made: Draft) -> Plan:
    """The draft as something that a simulator can read."""
    return Plan(
        question="variants", method=Method(formulation=v.formulation), inputs=InputHashes(profile="", slo=""),
        workers=made.workers, routing=dict(made.routing), dispatch=dict(made.dispatch), promises=made.promises,
        unserved=made.unserved, valid=made.valid,
    )  # fmt: skip


def _response_times(v: Variants, report: Any) -> dict[str, list[tuple[float, Any, float]]]:
    """Of each application the percentiles that its SLO names: which, what simulation shows, the limit.

    Judged is the upper end of what simulation shows: the promise has to hold on other seeds too.
    """
    return {
        one.id: [
            (target.percentile, report.apps[one.id].percentiles_ms[target.percentile], target.max_ms)
            for target in one.app.latency
            if target.of == "response"
        ]
        for one in v.asked
        if one.id in report.apps
    }


def _told(made: Draft, shown: dict[str, list[tuple[float, Any, float]]]) -> Draft:
    """The draft with what simulation showed."""
    promises = [
        Promise(
            app=app, quantity="response_ms", percentile=percentile, relation="<=", value=limit,
            interval=(held.low, held.high), model="simulation/1", seeds=SEEDS,
        )
        for app, targets in shown.items()
        for percentile, held, limit in targets
        if held.high <= limit
    ]  # fmt: skip
    kept = tuple(notice for notice in made.warnings if notice.code != "W-queueing")
    return replace(made, promises=(*made.promises, *promises), warnings=kept, searched=True)
