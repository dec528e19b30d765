"""`verify` and `simulate`: a plan that is there, beside the files that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hetplan.front_door import Source, verified
from hetplan.planner.terms import logged
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
) -> Report:
    """Recompute everything a plan promises from the inputs, with code that never saw how it was made."""
    checked = read_plan(plan, trust_digest=True)
    return verified(checked, load_inputs(profile, slo, state=state, measured=measured))


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
    from hetplan.simulator.simulate import simulator_of

    tried = read_plan(plan, trust_digest=True)
    how["on_event"] = logged(how.get("on_event"))
    return simulator_of(tried)(tried, load_inputs(profile, slo, state=state, measured=measured), **how)
