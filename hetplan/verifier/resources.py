"""Stock, machines, memory, money: whether what is placed can be had, fits, and costs no more than it may.

Hardware that says what it provides has nothing of what it does not list, unless the wish has a total of it that loads
take from (`capacity`): then it counts there. What all machines provide together is limited by `resources`. Of hardware
that says nothing at all, nothing is checked, and the report says so.

Loads of a worker take what they need side by side. Where they wait in one queue for one server they run one at a time:
then they compute with no more than the largest of them needs, while memory is held by all of them all the time. Of
hetplan's questions policies alone plan so; the others count on each load at any time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from hetplan.planner.tolerances import FEASIBILITY, SLIP
from hetplan.profiles.fields import NANO, money_text
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Run
from hetplan.profiles.slo import WishLimits
from hetplan.profiles.workers import Worker
from hetplan.verifier.plan_index import Facts, Seat, machines, needs_of
from hetplan.verifier.report import Violation

__all__ = [
    "check_cost",
    "check_instances",
    "check_resources",
    "check_spot_warning",
    "cost_nanos",
    "instances_on",
    "machine_nanos",
    "not_provided",
    "same_money",
]


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


_COMPUTE = ("cpu_cores", "gpu")
"""What a load takes only while it runs; everything else, memory above all, it holds as long as it is loaded."""

_MOST_ON_ONE = 64
"""No more instances are ever planned on one machine."""


def instances_on(facts: Facts, run: Run, *, times: float = 1.0) -> int:
    """The instances that fit on one (or so many) machines by all they need; one where it does not say all of that."""
    provides = {name: times * all_ for name, all_ in facts.inputs.profile.hardware[run.hardware].provides.items()}
    wanted = {name: need for name, need in run.needs.items() if need > 0.0}
    by_memory = all(name.endswith("_gib") for name in wanted)
    if by_memory or run.price_per_hour is not None or any(name not in provides for name in wanted):
        return 1
    if "gpu" not in wanted and provides.get("gpu"):
        return 1
    return int(max(1, min(_MOST_ON_ONE, *(provides[name] / need + SLIP for name, need in wanted.items()))))


def _taken_resources(facts: Facts, worker: Worker) -> dict[str, float]:
    taken: dict[str, float] = defaultdict(float)
    in_turn = _one_at_a_time(facts, worker)
    for load in worker.loads:
        for resource, amount in needs_of(facts, facts.seats[load.id]).items():
            if in_turn and resource in _COMPUTE:
                taken[resource] = max(taken[resource], amount)
            else:
                taken[resource] += amount
    return taken


_SIDE_BY_SIDE = ("pool", "pipeline", "variants", "compound", "llm")


def _one_at_a_time(facts: Facts, worker: Worker) -> bool:
    """Whether a machine never runs two of its loads at once; a share of a device is held even while its load rests."""
    return (
        worker.queue == "shared"
        and facts.plan.question not in _SIDE_BY_SIDE
        and all(load.share is None and load.instances * load.serve.concurrency == 1 for load in worker.loads)
    )


def _check_queue(facts: Facts, worker: Worker) -> Iterator[Violation]:
    """Loads that are counted on side by side do not wait in one queue, where they take turns."""
    if worker.queue == "shared" and len(worker.loads) > 1 and facts.plan.question in _SIDE_BY_SIDE:
        text = f"its {len(worker.loads)} loads take turns in one queue, and each is counted on at any time"
        yield Violation("queue", f"workers.{worker.id}.queue", text)


def _is_over(taken: float, room: float) -> bool:
    return taken > room + FEASIBILITY * max(room, 1.0)


def _check_machine(facts: Facts, worker: Worker, taken: Mapping[str, float]) -> Iterator[Violation]:
    """One machine of a group: what its loads take against what the hardware provides."""
    provides = facts.inputs.profile.hardware[worker.hardware].provides
    elsewhere = facts.inputs.slo.limits.capacity
    for resource, amount in sorted(taken.items()):
        room = provides.get(resource, None if not provides or resource in elsewhere else 0.0)
        if room is not None and _is_over(amount, room):
            text = f"loads take {amount:g} {resource}, {worker.hardware} provides {room:g}"
            yield Violation("resource", f"workers.{worker.id}", text)


def not_provided(facts: Facts) -> Iterator[str]:
    """Hardware in use that does not say what it provides, where something is needed that no total limits."""
    elsewhere = facts.inputs.slo.limits.capacity
    needed: dict[str, set[str]] = defaultdict(set)
    for worker in facts.plan.workers:
        if not facts.inputs.profile.hardware[worker.hardware].provides:
            needed[worker.hardware].update(_taken_resources(facts, worker).keys() - elsewhere.keys())
    for hardware, resources in sorted(needed.items()):
        if resources:
            yield f"{hardware}: it does not say what it provides, so {', '.join(sorted(resources))} are not checked"


def _check_counts(facts: Facts, workers: list[Worker], period: str) -> Iterator[Violation]:
    """Stock per offer, and the wished number of machines per hardware."""
    profile, limits = facts.inputs.profile, facts.inputs.slo.limits
    offers: Counter[str] = Counter()
    hardware: Counter[str] = Counter()
    for worker in workers:
        hardware[worker.hardware] += machines(worker)
        if worker.offer is not None:
            offers[worker.offer] += machines(worker)
    for offer, count in sorted(offers.items()):
        stock = profile.offers[offer].stock
        if stock is not None and count > stock:
            yield Violation("stock", f"periods.{period}", f"{count} machines of offer {offer}, {stock} in stock")
    yield from check_instances(limits, hardware, f"periods.{period}")


def check_instances(limits: WishLimits, counts: Mapping[str, float], at: str) -> Iterator[Violation]:
    """The wished number of machines of each hardware."""
    for name, (least, most) in sorted(limits.instances.items()):
        count = counts.get(name, 0)
        if count < least or (most is not None and count > most):
            text = f"{count:g} machines of {name}, wanted are {least} to {'any' if most is None else most}"
            yield Violation("instances", at, text)
    if limits.only_listed:
        for name in sorted(counts.keys() - limits.instances.keys()):
            yield Violation("instances", at, f"{name} is not among the hardware that may be used")


def _check_hosts(workers: list[Worker], period: str) -> Iterator[Violation]:
    """A host is one machine, of one worker."""
    taken: Counter[str] = Counter()
    for worker in workers:
        if worker.host is not None:
            taken[worker.host] += machines(worker)
    for host, count in sorted(taken.items()):
        if count > 1:
            yield Violation("host", f"periods.{period}", f"{count} machines are placed on host {host}")


def check_spot_warning(plan: Plan, inputs: Inputs, rented: Iterable[str]) -> Iterator[Violation]:
    """Machines that may be taken back are warned of."""
    said = {warning.at for warning in plan.warnings if warning.code == "W-interruptions"}
    for name in sorted(rented):
        at = inputs.profile.places.text(f"offers.{name}")
        if inputs.profile.offers[name].interruptions_per_hour and at not in said:
            text = f"machines of {name} may be taken back, and no W-interruptions says so"
            yield Violation("interruptions", "warnings", text)


def check_resources(facts: Facts) -> list[Violation]:
    """Everything that can run out, period by period."""
    rented = {worker.offer for worker in facts.plan.workers if worker.offer is not None and machines(worker)}
    found = [*check_spot_warning(facts.plan, facts.inputs, rented)]
    for period in facts.plan.periods:
        workers = [worker for worker in facts.plan.workers if worker.period == period.id]
        found += _check_counts(facts, workers, period.id)
        found += _check_hosts(workers, period.id)
        in_all: dict[str, float] = defaultdict(float)
        provided: dict[str, float] = defaultdict(float)
        for worker in workers:
            taken = _taken_resources(facts, worker)
            found += _check_machine(facts, worker, taken)
            found += _check_queue(facts, worker)
            if any(load.share is not None for load in worker.loads):
                from hetplan.verifier.slices import check_shares  # few plans have shares

                found += check_shares(facts, worker)
            for resource, amount in taken.items():
                in_all[resource] += amount * machines(worker)
            for resource, amount in facts.inputs.profile.hardware[worker.hardware].provides.items():
                provided[resource] += amount * machines(worker)
        limits = facts.inputs.slo.limits
        for words, total, most in (("in all", in_all, limits.capacity), ("provided", provided, limits.provides)):
            for resource, room in sorted(most.items()):
                if _is_over(total[resource], room):
                    text = f"{total[resource]:g} {resource} {words}, the limit is {room:g}"
                    found.append(Violation("resource-limit", f"periods.{period.id}", text))
    return found
