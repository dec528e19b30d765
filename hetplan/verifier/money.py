"""What a plan costs, in exact integers of 1e-9 per hour."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.profiles.fields import NANO, money_text
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import Facts, Seat, machines
from hetplan.verifier.report import Violation

__all__ = ["check_cost", "cost_nanos", "same_money"]


def _used(seats: list[Seat], resource: str) -> Decimal:
    """How much of a resource the loads of one machine take."""
    used = Decimal(0)
    for seat in seats:
        share = seat.load.share
        if resource == "gpu" and share is not None and share.gpu is not None:
            amount = share.gpu
        else:
            amount = seat.run.needs.get(resource, 0.0) if seat.run is not None else 0.0
        used += seat.load.instances * Decimal(repr(amount))
    return used


def _machine_nanos(seats: list[Seat], offer: Offer | None) -> Decimal | None:
    """What one machine costs: a price of its runs wins over the offer's; None where neither is stated."""
    own = [
        seat.load.instances * seat.run.price_per_hour
        for seat in seats
        if seat.run is not None and seat.run.price_per_hour is not None
    ]
    if own:
        return Decimal(sum(own))
    if offer is None:
        return None
    return offer.price_per_hour * (Decimal(1) if offer.per is None else _used(seats, offer.per))


def _worker_nanos(facts: Facts, worker: Worker) -> int | None:
    offer = facts.inputs.profile.offers[worker.offer] if worker.offer is not None else None
    price = _machine_nanos([facts.seats[load.id] for load in worker.loads], offer)
    return None if price is None else int((machines(worker) * price).to_integral_value(ROUND_HALF_EVEN))


def cost_nanos(facts: Facts) -> int | None:
    """The cost per hour of the dearest period; None where some worker has no price."""
    total = dict.fromkeys((period.id for period in facts.plan.periods), 0)
    for worker in facts.plan.workers:
        cost = _worker_nanos(facts, worker)
        if cost is None:
            return None
        total[worker.period] += cost
    return max(total.values())


def same_money(nanos: int, value: float) -> bool:
    """Whether a number of a plan is this amount, as far as 12 significant digits can tell."""
    stated = Decimal(repr(value)) * NANO
    return abs(stated - nanos) <= max(Decimal("0.5"), Decimal(nanos).scaleb(-11))


def check_cost(facts: Facts) -> list[Violation]:
    """The limit on the cost, in its own currency."""
    limits = facts.inputs.slo.limits
    found: list[Violation] = []
    if limits.cost_per_hour is None:
        return found
    for worker in facts.plan.workers:
        if _worker_nanos(facts, worker) is None:
            text = "no offer and no price of its own, yet the cost is limited"
            found.append(Violation("price-missing", f"workers.{worker.id}", text))
        offer = facts.inputs.profile.offers[worker.offer] if worker.offer is not None else None
        if offer is not None and offer.currency != limits.currency:
            text = f"priced in {offer.currency}, the limit is in {limits.currency}"
            found.append(Violation("currency", f"workers.{worker.id}", text))
    cost = cost_nanos(facts)
    if cost is not None and cost > limits.cost_per_hour:
        text = f"costs {money_text(cost)} an hour, the limit is {money_text(limits.cost_per_hour)}"
        found.append(Violation("cost-limit", "workers", text))
    return found
