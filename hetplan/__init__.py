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

_NAMES = {
    "api.judge": "simulate verify",
    "api.planner": "Planner",
    "api.solve": "solve",
    "errors": "Fault HetplanError HostsError Infeasible InputError Interrupted PlanRejected SolverError",
    "planner.answer": "Answer Limits",
    "planner.contract": "Event Tools",
    "planner.draft": "Repair",
    "planner.forms.form": "certify",
    "planner.outcome": "Outcome",
    "profiles.inputs": "Inputs",
    "profiles.load": "load_inputs",
    "profiles.load_one": "load_profile load_slo load_state",
    "profiles.plan": "Plan",
    "profiles.plan_file": "write_plan",
    "profiles.profile": "Profile",
    "profiles.read_plan": "read_plan",
    "profiles.slo": "Slo",
    "profiles.state": "State",
    "studies.comparison": "compare_plans",
    "studies.explain": "explain",
    "studies.robust": "robust",
    "studies.whatif": "whatif",
}
"""Module -> what it offers here."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Answer",
    "Event",
    "Fault",
    "HetplanError",
    "HostsError",
    "Infeasible",
    "InputError",
    "Inputs",
    "Interrupted",
    "Limits",
    "Outcome",
    "Plan",
    "PlanRejected",
    "Planner",
    "Profile",
    "Repair",
    "Slo",
    "SolverError",
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
    from hetplan.api.judge import simulate, verify
    from hetplan.api.planner import Planner
    from hetplan.api.solve import solve
    from hetplan.errors import (
        Fault,
        HetplanError,
        HostsError,
        Infeasible,
        InputError,
        Interrupted,
        PlanRejected,
        SolverError,
    )
    from hetplan.planner.answer import Answer, Limits
    from hetplan.planner.contract import Event, Tools
    from hetplan.planner.draft import Repair
    from hetplan.planner.forms.form import certify
    from hetplan.planner.outcome import Outcome
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
    value = getattr(import_module(f"hetplan.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
