"""What the machines of a plan cost per hour, by the prices of the profile."""

from __future__ import annotations

from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.loads import worker_price

__all__ = ["call_costs", "prices_of"]


def prices_of(plan: Plan, inputs: Inputs) -> dict[str, float]:
    """Worker id -> money per hour of one machine, where it is known; calls of an application under "calls of APP"."""
    profile = inputs.profile
    if not profile.offers and not any(run.price_per_hour for one in profile.variants.values() for run in one.runs):
        return {}  # every machine counts 1 then, which is no sum of money
    found = {}
    for worker in plan.workers:
        try:
            price = worker_price(inputs, worker)
        except (InputError, KeyError):
            continue
        if price is not None:
            found[worker.id] = price / NANO
    return found | call_costs(plan, inputs)


def call_costs(plan: Plan, inputs: Inputs) -> dict[str, float]:
    """Per hour what the plan promises that calls cost per query, at the rate of each application."""
    rates = {app: wanted.stated_qps for app, wanted in inputs.slo.apps.items()}
    return {
        f"calls of {one.app}": 3600.0 * rate * one.value
        for one in plan.promises
        if one.quantity == "calls_per_query" and (rate := rates.get(one.app or "")) is not None
    }
