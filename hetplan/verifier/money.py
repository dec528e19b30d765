"""What a plan costs, in exact integers of 1e-9 per hour."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.profiles.fields import NANO, money_text
from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import Facts, Seat, machines
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import needs_of

__all__ = ["check_cost", "cost_nanos", "machine_nanos", "same_money"]


def _slices(facts: Facts, seats: list[Seat], resource: str) -> Decimal | None:
    """How much of a resource is taken where every load has a slice of it, else None: the machine is taken whole.

    An operator on a processor takes nothing of the GPU.
    """
    if not seats:
        return None
    taken = Decimal(0)
    for seat in seats:
        if getattr(seat.load.share, resource, None) is not None:
            taken += Decimal(repr(needs_of(facts, seat)[resource]))
        elif resource != "gpu" or not _on_processor(facts, seat):
            return None
    return taken


def _on_processor(facts: Facts, seat: Seat) -> bool:
    app = facts.inputs.slo.apps.get(seat.load.app or "")
    if seat.run is not None or seat.load.node is None or app is None or app.runs is None or not app.runs.pipeline:
        return False
    node = facts.inputs.profile.pipelines[app.runs.pipeline].nodes[seat.load.node]
    return node.device == "cpu" and not node.needs.get("gpu", 0.0)


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
    taken = _slices(facts, seats, offer.per)
    if taken is None:
        provided = profile.hardware[worker.hardware].provides.get(offer.per)
        taken = None if provided is None else Decimal(repr(provided))
    return None if taken is None else (offer.price_per_hour * taken).to_integral_value(ROUND_HALF_EVEN)


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
