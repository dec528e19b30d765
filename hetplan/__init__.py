"""hetplan: proved, verified deployment plans for ML inference on mixed GPUs and CPUs.

::

    import hetplan as hp

    outcome = hp.solve("profile.json", "slo.json")     # -> Outcome: a verified plan, or why there is none
    plan = outcome.require()
    plan.write("plan.json")

Everything below loads on first use; `import hetplan` itself loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "api.formulate": "formulate",
    "api.verify_and_simulate": "simulate verify",
    "api.planner": "Planner",
    "api.solve": "solve",
    "errors": "HetplanError HostsError Infeasible InputError Interrupted PlanRejected SolverError",
    "planner.draft": "Repair",
    "planner.outcome": "Outcome",
    "planner.terms": "Event",
    "profiles.given_files": "load",
    "profiles.inputs": "Inputs",
    "profiles.plan": "Plan",
    "profiles.profile": "Profile",
    "profiles.slo": "Slo",
    "profiles.state": "State",
    "studies.compare": "compare",
    "studies.comparison": "diff",
    "studies.explain": "explain",
    "studies.report": "report",
    "studies.whatif": "whatif",
}
"""Module -> what it offers here."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Event",
    "HetplanError",
    "HostsError",
    "Infeasible",
    "InputError",
    "Inputs",
    "Interrupted",
    "Outcome",
    "Plan",
    "PlanRejected",
    "Planner",
    "Profile",
    "Repair",
    "Slo",
    "SolverError",
    "State",
    "__version__",
    "compare",
    "diff",
    "explain",
    "formulate",
    "load",
    "report",
    "simulate",
    "solve",
    "verify",
    "whatif",
]

if TYPE_CHECKING:
    from hetplan.api.formulate import formulate
    from hetplan.api.planner import Planner
    from hetplan.api.solve import solve
    from hetplan.api.verify_and_simulate import simulate, verify
    from hetplan.errors import HetplanError, HostsError, Infeasible, InputError, Interrupted, PlanRejected, SolverError
    from hetplan.planner.draft import Repair
    from hetplan.planner.outcome import Outcome
    from hetplan.planner.terms import Event
    from hetplan.profiles.given_files import load
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import Slo
    from hetplan.profiles.state import State
    from hetplan.studies.compare import compare
    from hetplan.studies.comparison import diff
    from hetplan.studies.explain import explain
    from hetplan.studies.report import report
    from hetplan.studies.whatif import whatif


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'hetplan' has no attribute {name!r}")
    value = getattr(import_module(f"hetplan.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
