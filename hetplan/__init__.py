"""hetplan: proved, verified deployment plans for ML inference on mixed GPUs and CPUs.

::

    import hetplan as hp

    outcome = hp.solve("profile.json", "slo.json")     # -> Outcome: a verified plan, or why there is none
    plan = outcome.require()
    hp.write_plan(plan, "plan.json")

Everything below loads on first use; `import hetplan` itself loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Answer": "hetplan.planner.answer",
    "Cancelled": "hetplan.errors",
    "Event": "hetplan.planner.contract",
    "Fault": "hetplan.errors",
    "HetplanError": "hetplan.errors",
    "InputError": "hetplan.errors",
    "Inputs": "hetplan.profiles.inputs",
    "Limits": "hetplan.planner.answer",
    "NoPlan": "hetplan.errors",
    "NoSolver": "hetplan.errors",
    "Outcome": "hetplan.planner.outcome",
    "Plan": "hetplan.profiles.plan",
    "PlanRejected": "hetplan.errors",
    "Planner": "hetplan.planning_again",
    "Profile": "hetplan.profiles.profile",
    "Repair": "hetplan.planner.draft",
    "Slo": "hetplan.profiles.slo",
    "SolverFailed": "hetplan.errors",
    "State": "hetplan.profiles.state",
    "Tools": "hetplan.planner.contract",
    "certify": "hetplan.planner.forms.form",
    "compare_plans": "hetplan.studies.comparison",
    "explain": "hetplan.studies.explain",
    "load_inputs": "hetplan.profiles.load",
    "load_profile": "hetplan.profiles.load_one",
    "load_slo": "hetplan.profiles.load_one",
    "load_state": "hetplan.profiles.load_one",
    "read_plan": "hetplan.profiles.read_plan",
    "robust": "hetplan.studies.robust",
    "simulate": "hetplan.judging",
    "solve": "hetplan.front_door",
    "verify": "hetplan.judging",
    "whatif": "hetplan.studies.whatif",
    "write_plan": "hetplan.profiles.plan_file",
}

__all__ = [
    "Answer",
    "Cancelled",
    "Event",
    "Fault",
    "HetplanError",
    "InputError",
    "Inputs",
    "Limits",
    "NoPlan",
    "NoSolver",
    "Outcome",
    "Plan",
    "PlanRejected",
    "Planner",
    "Profile",
    "Repair",
    "Slo",
    "SolverFailed",
    "State",
    "Tools",
    "__version__",
    "certify",
    "compare_plans",
    "explain",
    "load_inputs",
    "load_profile",
    "load_slo",
    "load_state",
    "read_plan",
    "robust",
    "simulate",
    "solve",
    "verify",
    "whatif",
    "write_plan",
]

if TYPE_CHECKING:
    from hetplan.errors import (
        Cancelled,
        Fault,
        HetplanError,
        InputError,
        NoPlan,
        NoSolver,
        PlanRejected,
        SolverFailed,
    )
    from hetplan.front_door import solve
    from hetplan.judging import simulate, verify
    from hetplan.planner.answer import Answer, Limits
    from hetplan.planner.contract import Event, Tools
    from hetplan.planner.draft import Repair
    from hetplan.planner.forms.form import certify
    from hetplan.planner.outcome import Outcome
    from hetplan.planning_again import Planner
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.load import load_inputs
    from hetplan.profiles.load_one import load_profile, load_slo, load_state
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_file import write_plan
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.read_plan import read_plan
    from hetplan.profiles.slo import Slo
    from hetplan.profiles.state import State
    from hetplan.studies.comparison import compare_plans
    from hetplan.studies.explain import explain
    from hetplan.studies.robust import robust
    from hetplan.studies.whatif import whatif


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'hetplan' has no attribute {name!r}")
    value = getattr(import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
