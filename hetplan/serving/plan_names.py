"""Names in a plan of what is not there, as it was edited or is of other files: each is a fault, before it is played."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.who_answers import pipeline_of

__all__ = ["refuse_unknown_names"]


@dataclass
class _Faults:
    found: list[Fault] = field(default_factory=list)

    def missing(self, at: str, kind: str, name: str | None, known: Collection[str]) -> None:
        """A fault, unless there is such a thing."""
        if name is not None and name not in known:
            listed = f" Known: {', '.join(sorted(known)[:10])}." if known else ""
            remedy = f"Mend the plan, or give the files that it was made from.{listed}"
            self.found.append(Fault("plan", at, name, f"there is no such {kind}", remedy))


def refuse_unknown_names(plan: Plan, inputs: Inputs, *, named: Collection[str] = (), whole: bool = False) -> None:
    """Each name of hardware, offers and variants is of something that is there; of the `whole` plan, each other name.

    `named` are loads whose times are handed in: their variants need not be known. What runs on the way to a plan is no
    whole plan: its routes name what is not there yet.
    """
    faults = _Faults()
    _of_workers(plan, inputs, named, faults)
    if whole:
        _of_loads(plan, inputs, faults)
        _of_routes(plan, inputs, faults)
        _of_actions(plan, inputs, faults)
    if faults.found:
        raise InputError(faults.found)


def _of_workers(plan: Plan, inputs: Inputs, named: Collection[str], faults: _Faults) -> None:
    profile = inputs.profile
    for number, worker in enumerate(plan.workers):
        at = f"$.workers[{number}]"
        faults.missing(f"{at}.hardware", "hardware", worker.hardware, profile.hardware)
        faults.missing(f"{at}.offer", "offer", worker.offer, profile.offers)
        for place, load in enumerate(worker.loads):
            if load.id not in named:
                faults.missing(f"{at}.loads[{place}].variant", "variant", load.variant, profile.variants)


def _of_loads(plan: Plan, inputs: Inputs, faults: _Faults) -> None:
    profile, apps, periods = inputs.profile, inputs.slo.apps, {period.id for period in plan.periods}
    for number, worker in enumerate(plan.workers):
        faults.missing(f"$.workers[{number}].period", "period", worker.period, periods)
        for place, load in enumerate(worker.loads):
            on, app = f"$.workers[{number}].loads[{place}]", apps.get(load.app or "")
            faults.missing(f"{on}.app", "application", load.app, apps)
            if app is not None and load.node is not None:
                pipeline = pipeline_of(profile, app)
                steps = pipeline.nodes if pipeline is not None else ()
                faults.missing(f"{on}.node", f"step of {load.app}", load.node, steps)


def _of_routes(plan: Plan, inputs: Inputs, faults: _Faults) -> None:
    loads = {load.id for worker in plan.workers for load in worker.loads}
    for section in ("routing", "dispatch", "policies"):
        for app in getattr(plan, section):
            faults.missing(f"$.{section}", "application", app, inputs.slo.apps)
    for app, routes in plan.routing.items():
        for number, route in enumerate(routes):
            at = f"$.routing.{app}[{number}]"
            for name in route.to:
                faults.missing(f"{at}.to", "load", name, loads)
            for name in route.prefix:
                faults.missing(f"{at}.prefix", "load", name, loads)
    for app, rule in plan.dispatch.items():
        backup: tuple[Any, ...] = getattr(rule, "backup", ())
        for number, entry in enumerate(backup):
            faults.missing(f"$.dispatch.{app}.backup[{number}].to", "load", getattr(entry, "to", None), loads)


def _of_actions(plan: Plan, inputs: Inputs, faults: _Faults) -> None:
    """What actions name is in the plan, or runs before it; where no state is given, what goes cannot be known."""
    running = inputs.state.workers if inputs.state is not None else ()
    there = (*plan.workers, *running)
    workers, loads = {worker.id for worker in there}, {load.id for worker in there for load in worker.loads}
    numbers = {str(action.id) for action in plan.actions}
    for number, action in enumerate(plan.actions):
        at = f"$.actions[{number}]"
        goes = action.do in ("stop", "unload", "keep", "move") and inputs.state is None
        if not goes:
            faults.missing(f"{at}.worker", "worker", action.worker, workers)
            faults.missing(f"{at}.load", "load", action.load, loads)
        for earlier in action.after:
            faults.missing(f"{at}.after", "action", str(earlier), numbers)
