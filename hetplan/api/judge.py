"""`verify` and `simulate`: a plan that is there, beside the files that it was made from."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hetplan.api.solve import ANEW_S, Source, verified
from hetplan.planner.answer import Limits
from hetplan.planner.terms import OnEvent, logged
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State

if TYPE_CHECKING:
    from hetplan.simulator.report import SimulationReport
    from hetplan.verifier.check import Report

__all__ = ["simulate", "verify"]


def verify(
    plan: Source | Plan,
    profile: Source | Profile | Sequence[Source | Profile],
    slo: Source | Slo,
    *,
    state: Source | State | None = None,
    measured: Source | None = None,
    prove: bool | None = None,
    solver: str | None = None,
    simulate: bool = True,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Report:
    """Recompute everything a plan promises from the inputs, with code that never saw how it was made.

    What a plan promises by simulation is played again, with seeds of its own; `simulate=False` leaves that out, and the
    report says so. A plan that is wrong without it is not played. Bounds are proved again by the planner's programs:
    that is no code of the verifier's own. `prove` solves the program of every bound anew that the plan's own proof does
    not show (with a `solver` that is named, of every bound). None does so where a bound is called certified; False
    never does.
    """
    checked = read_plan(plan, trust_digest=True)
    inputs = load_inputs(profile, slo, state=state, measured=measured)
    limits = Limits(seconds=ANEW_S, cancel=cancel)
    report = verified(checked, inputs, prove=prove, solver=solver, limits=limits, on_event=on_event)
    if report.ok:
        from hetplan.api.simulated_promises import with_simulated

        report = with_simulated(report, checked, inputs, play=simulate, on_event=logged(on_event), cancel=cancel)
    return report


def simulate(
    plan: Source | Plan,
    profile: Source | Profile | Sequence[Source | Profile],
    slo: Source | Slo,
    *,
    state: Source | State | None = None,
    measured: Source | None = None,
    **how: Any,
) -> SimulationReport:
    """Run a plan under its demand before any host does; `how` is `hetplan.simulator.simulate.simulate`'s."""
    from hetplan.simulator.simulate import simulate as play

    tried = read_plan(plan, trust_digest=True)
    how["on_event"] = logged(how.get("on_event"))
    return play(tried, load_inputs(profile, slo, state=state, measured=measured), **how)
