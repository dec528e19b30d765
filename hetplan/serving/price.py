"""What things cost: exact, in whole counts of 1e-9 per hour (`NANO`).

One rule for every room. What one machine of a group costs is, in this order:

1. the prices of its loads' own runs (``price_per_hour`` of a run, times the load's instances), where any has one;
2. the price of the offer; where that is per unit of a resource, times the slices of it that the loads have (where each
   load says its slice: ``share``), else times all that the hardware provides of it;
3. 1 per hour where the profile knows no offers at all.

Nothing is known where there are offers and the worker names none, or where the hardware does not say how much it
provides of what is paid by the unit.

A product is rounded to a whole 1e-9 once per machine, half to even; a group costs its machines times that.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Hardware, Offer, Profile, Run
from hetplan.profiles.workers import Load, Share, Worker
from hetplan.serving.runs import fitting_runs

__all__ = ["SLICES", "Price", "machine_price", "offer_of", "price_of", "worker_price"]

SLICES = ("gpu", "cpu_cores")
"""Resources of which a load can have a slice (`Share`)."""


@dataclass(frozen=True)
class Price:
    """What one instance of a run costs, and the slice of its machine that is paid (None: the whole machine).

    A load must carry the slice as its `share`: by it every reader of the plan finds the same price.
    """

    nanos: int
    share: Share | None = None


def times(nanos: int, amount: float) -> int:
    """A price times an amount as it is written, to a whole 1e-9.

    >>> times(100_000_000, 0.35)
    35000000
    """
    return int((nanos * Decimal(repr(float(amount)))).to_integral_value(ROUND_HALF_EVEN))


def machine_price(offer: Offer, hardware: Hardware) -> int:
    """What a whole machine costs under an offer; InputError where its hardware does not say how much of it is paid."""
    if offer.per is None:
        return offer.price_per_hour
    if offer.per not in hardware.provides:
        raise InputError.one(
            file="profile", path=f"$.hardware.{offer.hardware}.provides", value=offer.per,
            why=f"it is paid per unit of {offer.per}, and does not say how much of that it provides",
            remedy=f'Add "{offer.per}" to it.',
        )  # fmt: skip
    return times(offer.price_per_hour, hardware.provides[offer.per])


def price_of(profile: Profile, run: Run, offer: str | None) -> Price:
    """What one instance of a run costs under an offer; the run's own price wins. InputError where nothing is known.

    A run that says how much it needs of a resource that is paid by the unit pays for that much; any other run pays for
    the machine. Without an offer (None) a machine costs 1 where the profile has no offers at all.
    """
    if run.price_per_hour is not None:
        return Price(run.price_per_hour)
    if offer is None:
        if profile.offers:
            raise InputError.one(
                file="profile", path="$.offers", value=run.hardware,
                why="the profile has offers, and none is named for this hardware", remedy="Add an offer of it.",
            )  # fmt: skip
        return Price(NANO)
    sold = profile.offers[offer]
    if sold.per in SLICES and sold.per in run.needs:
        amount = run.needs[sold.per]
        return Price(times(sold.price_per_hour, amount), share_of(sold.per, amount))
    return Price(machine_price(sold, profile.hardware[run.hardware]))


def share_of(resource: str, amount: float) -> Share:
    """A slice of a machine.

    >>> share_of("gpu", 0.5).gpu
    0.5
    """
    return Share(gpu=amount) if resource == "gpu" else Share(cpu_cores=amount)


def offer_of(profile: Profile, worker: Worker) -> str | None:
    """The offer that a worker is under: its own, else that of its host."""
    host = profile.hosts.get(worker.host) if worker.host is not None else None
    return worker.offer if worker.offer is not None else host.offer if host is not None else None


def worker_price(inputs: Inputs, worker: Worker) -> int | None:
    """What one machine of a group costs per hour; None where neither its runs nor an offer says."""
    profile = inputs.profile
    own = [
        load.instances * run.price_per_hour
        for load in worker.loads
        for run in _one(profile, load, worker.hardware)
        if run.price_per_hour is not None
    ]
    if own:
        return sum(own)
    name = offer_of(profile, worker)
    if name is None:
        return None if profile.offers else NANO
    offer = profile.offers[name]
    hardware = profile.hardware[worker.hardware]
    taken = _slices(inputs, worker, offer.per) if offer.per is not None else None
    if taken is None:
        known = offer.per is None or offer.per in hardware.provides
        return machine_price(offer, hardware) if known else None
    return int((offer.price_per_hour * taken).to_integral_value(ROUND_HALF_EVEN))


def _one(profile: Profile, load: Load, hardware: str) -> tuple[Run, ...]:
    runs = fitting_runs(profile, load, hardware)
    return runs if len(runs) == 1 else ()


def _slices(inputs: Inputs, worker: Worker, resource: str) -> Decimal | None:
    """How much of a resource the loads take where each has a slice of it, else None: the machine is paid whole."""
    taken = Decimal(0)
    for load in worker.loads:
        part = getattr(load.share, resource, None)
        if part is None and not (resource == "gpu" and _on_processor(inputs, load)):
            return None
        taken += load.instances * Decimal(repr(float(part or 0.0)))
    return taken if worker.loads else None


def _on_processor(inputs: Inputs, load: Load) -> bool:
    """Whether a load is an operator that takes nothing of a GPU."""
    app = inputs.slo.apps.get(load.app or "")
    pipeline = inputs.profile.pipelines.get((app.runs.pipeline if app and app.runs else None) or "")
    node = pipeline.nodes.get(load.node or "") if pipeline is not None and load.variant is None else None
    return node is not None and load.share is None and node.device == "cpu" and not node.needs.get("gpu", 0.0)
