"""The check of `one_type`: it reads plan and files by itself, and knows nothing of the program.

Cost, stock, memory, capacity, limits and simulated promises are checked for every plan. What is left is what this
question promises beyond that: one machine type, and a simulated limit unless the plan says that it was not simulated.
"""

from __future__ import annotations

from hetplan.extend import Inputs, Plan, Violation

__all__ = ["check"]


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What is wrong with a plan, each with a code, a place and a sentence."""
    found = []
    types = sorted({worker.hardware for worker in plan.workers if worker.count})
    if len(types) > 1:
        found.append(Violation("one-type", "workers", f"the machines are of {len(types)} types: {', '.join(types)}"))
    if plan.status != "not-simulated" and plan.method.options.get("sizing") != "fluid":
        shown = {one.app for one in plan.promises if one.quantity == "response_ms" and "simulation" in one.model}
        found += [
            Violation("one-type", f"promises.{app}", "no simulation shows its response time")
            for app in inputs.slo.apps
            if app not in shown
        ]
    return found
