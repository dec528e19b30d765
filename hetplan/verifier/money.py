"""What a plan costs, in exact integers of 1e-9 per hour."""

from __future__ import annotations

from decimal import Decimal

from hetplan.profiles.fields import NANO, money_text
from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import Facts, Seat, machines
from hetplan.verifier.report import Violation

__all__ = ["check_cost", "cost_nanos", "machine_nanos", "same_money"]


def machine_nanos(facts: Facts, worker: Worker, seats: list[Seat]) -> Decimal | None:
    """What one machine with these loads costs: a price of its runs wins over the offer's; None where none is stated.

    Where the profile knows no offers at all, a machine costs 1. A product is rounded once per machine.
    """
    profile = facts.inputs.profile
    own = [
        seat.load.instances * seat.run.price_per_hour
        for seat in seats
        if seat.run is not None and seat.run.price_per_hour is not None
    ]
    if own:
        return Decimal(sum(own))
    if worker.offer is None:
        return None if profile.offers else Decimal(NANO)
    offer = profile.offers[worker.offer]
    if offer.per is None:
        return Decimal(offer.price_per_hour)
    from hetplan.verifier.slices import paid_by_the_unit

    return paid_by_the_unit(facts, worker, seats, offer)


def _worker_nanos(facts: Facts, worker: Worker) -> int | None:
    price = machine_nanos(facts, worker, [facts.seats[load.id] for load in worker.loads])
    return None if price is None else machines(worker) * int(price)


def cost_nanos(facts: Facts) -> int | None:
    """The cost per hour of the dearest period; None where some worker has no price."""
    total = dict.fromkeys((period.id for period in facts.plan.periods), 0)
    for worker in facts.plan.workers:
        cost = _worker_nanos(facts, worker)
        if cost is None:
            return None
        total[worker.period] += cost
    if facts.inputs.profile.apis:
        from hetplan.verifier.calls import hourly_nanos  # few profiles have APIs

        return max(total.values()) + hourly_nanos(facts.plan, facts.inputs)
    return max(total.values())


def same_money(nanos: int, value: float) -> bool:
    """Whether a number of a plan is this amount, as far as 12 significant digits can show."""
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
            text = "its price is not known, yet the cost is limited"
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
