"""What each group of a plan's workers costs per hour, by the prices of the profile."""

from __future__ import annotations

from hetplan.drawing.report import BillLine
from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.loads import offer_of, worker_price

__all__ = ["bill_of"]


def bill_of(plan: Plan, inputs: Inputs) -> list[BillLine]:
    """A line per group of workers, without a price where the profile says none; nothing where it names no money."""
    profile = inputs.profile
    if not profile.offers and not any(run.price_per_hour for one in profile.variants.values() for run in one.runs):
        return []  # every machine counts 1 then, which is no sum of money
    lines = []
    for worker in plan.workers:
        try:
            price = worker_price(inputs, worker)
        except (InputError, KeyError):
            price = None
        offer = offer_of(profile, worker) or worker.hardware
        each = None if price is None else price / NANO
        lines.append(BillLine(worker.id, worker.count, worker.hardware, offer, each, worker.period))
    return [*lines, *_calls(plan, inputs)]


def _calls(plan: Plan, inputs: Inputs) -> list[BillLine]:
    """A line for the calls of each application: what the plan promises that they cost per query."""
    lines = []
    for promise in plan.promises:
        if promise.quantity == "calls_per_query" and promise.app in inputs.slo.apps:
            rate = inputs.slo.apps[promise.app].demand.rate_qps
            each = 3600.0 * rate * promise.value if isinstance(rate, int | float) else None
            placement = getattr(plan.dispatch.get(promise.app), "placement", {})
            names = ", ".join(dict.fromkeys(place for place in placement.values() if place in inputs.profile.apis))
            lines.append(BillLine(f"calls of {promise.app}", 1, names, names, each, plan.periods[0].id))
    return lines
