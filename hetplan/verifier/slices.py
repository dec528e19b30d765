"""Parts of machines: those paid per unit of a resource, for their loads or for all of it; and those that are shared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Worker
from hetplan.verifier.plan_index import QUESTIONS, Facts, Seat, needs_of, own_needs
from hetplan.verifier.report import Violation

__all__ = ["check_shares", "paid_by_the_unit", "parts_of_one"]


def paid_by_the_unit(facts: Facts, worker: Worker, seats: list[Seat], offer: Offer) -> Decimal | None:
    """What one machine with these loads costs; None where its hardware does not say how much is paid."""
    assert offer.per is not None
    taken = _slices(facts, seats, offer.per)
    if taken is None:
        provided = facts.inputs.profile.hardware[worker.hardware].provides.get(offer.per)
        taken = None if provided is None else Decimal(repr(provided))
    return None if taken is None else (offer.price_per_hour * taken).to_integral_value(ROUND_HALF_EVEN)


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


def check_shares(facts: Facts, worker: Worker) -> Iterator[Violation]:
    """No load is held to less than it was measured with: what its run or step needs, else the whole of the device.

    Operators of compound plans take as long as the shares say that their rule of dispatch names (`compound`).
    """
    for seat in (facts.seats[load.id] for load in worker.loads):
        if seat.load.share is None or facts.plan.question == "compound":
            continue
        for resource in ("gpu", "cpu_cores"):
            share, least = getattr(seat.load.share, resource), _measured_with(facts, seat, resource)
            if share is not None and share < least * (1.0 - VALUE):
                text = f"a share of {share:g} {resource}, it was measured with {least:g}"
                if least == math.inf:
                    text = f"a share of {share:g} {resource}, nobody says with how much it was measured"
                yield Violation("share", seat.at, text)


def _measured_with(facts: Facts, seat: Seat, resource: str) -> float:
    """What of a resource one instance had when it was measured; infinite where nobody says how much that was.

    Of what a run says nothing it had the whole; plans of other packages may know better.
    """
    engine = facts.inputs.profile.engines.get(seat.run.engine or "") if seat.run is not None else None
    if resource == "gpu" and engine is not None:
        return float(engine.tensor * engine.pipeline)
    needs = own_needs(facts, seat)
    if resource in needs or facts.plan.question not in QUESTIONS:
        return needs.get(resource, 0.0)
    if resource == "gpu":
        return 1.0
    return facts.inputs.profile.hardware[seat.worker.hardware].provides.get(resource, math.inf)


def _on_processor(facts: Facts, seat: Seat) -> bool:
    app = facts.inputs.slo.apps.get(seat.load.app or "")
    if seat.run is not None or seat.load.node is None or app is None or not app.pipeline:
        return False
    node = facts.inputs.profile.pipelines[app.pipeline].nodes[seat.load.node]
    return node.device == "cpu" and not node.needs.get("gpu", 0.0)


def parts_of_one(provides: Mapping[str, float], needs: Sequence[Mapping[str, float]], rooms: Sequence[int]) -> int:
    """How many of those of the least needs a machine holds, where all may share it; else one; `rooms` of each alone.

    They may where instances fit exactly if their parts do: one of a run of which n fit alone is 1/n of a machine. Such
    n divide one another, so parts that come to so many machines fill no more than these. With P the largest n, what
    comes to more than a machine has (P + 1)/P of it at least: more than there is, where of some resource each instance
    needs more than P/(n (P + 1)).
    """
    most = max(rooms, default=1)
    unlike = any(one % other and other % one for one in rooms for other in rooms)
    taken = ((name, need * n) for one, n in zip(needs, rooms, strict=True) for name, need in one.items())
    if unlike or any(amount > provides.get(name, 0.0) * (1.0 + VALUE) for name, amount in taken):
        return 1
    for resource, room in provides.items():
        if all(one.get(resource, 0.0) * n * (most + 1) > room * most for one, n in zip(needs, rooms, strict=True)):
            return most
    return 1
