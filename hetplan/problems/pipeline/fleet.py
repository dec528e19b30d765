"""The servers that pipelines may use: how many of which hardware, at which price, and what runs on them now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.faults import Faults
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Worker
from hetplan.serving.price import Price, price_of
from hetplan.serving.runs import instances_on

__all__ = ["Fleet", "OfferOf", "placed", "read_fleet"]

Placed = tuple[str | None, str | None, str | None, str]
"""(application, step, variant, hardware)."""


@dataclass(frozen=True)
class OfferOf:
    """A price at which a hardware can be had: `price` in 1e-9 per hour, None where nothing is priced."""

    id: str | None
    hardware: int
    price: int | None
    stock: float


@dataclass(frozen=True)
class Fleet:
    """S_g and its prices. Hardware with several offers is paid per offer, other hardware per server."""

    hardware: tuple[str, ...]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    offers: tuple[OfferOf, ...]
    priced: bool
    budget: float | None
    resources: Mapping[str, float]
    moves: int | None
    running: Counter[Placed]
    listed: tuple[bool, ...]
    inputs: Inputs

    def offers_of(self, hardware: int) -> list[OfferOf]:
        """The offers of one hardware, cheapest first."""
        return sorted((o for o in self.offers if o.hardware == hardware), key=lambda o: (o.price or 0, o.id or ""))

    def is_split(self, hardware: int) -> bool:
        """Whether the hardware is to be had under several offers."""
        return len(self.offers_of(hardware)) > 1

    def price_of(self, run: Run) -> Price:
        """What one server with this run costs; nothing where the offers are priced one by one, or not at all."""
        offers = self.offers_of(self.hardware.index(run.hardware))
        if run.price_per_hour is None and (len(offers) != 1 or offers[0].price is None):
            return Price(0)
        return price_of(self.inputs.profile, run, offers[0].id)

    def instances_of(self, run: Run) -> int:
        """How many instances of a run one server holds; one where it is paid by the slice."""
        shared = self.price_of(run).share is not None
        return 1 if shared else instances_on(run, self.inputs.profile.hardware[run.hardware])

    def too_large(self, run: Run) -> str:
        """Why one server cannot hold a run ("" when it can)."""
        provides = self.inputs.profile.hardware[run.hardware].provides
        for resource, amount in run.needs.items():
            if provides and resource not in self.resources and amount > provides.get(resource, 0.0) * (1 + 1e-9):
                return f"it needs {amount:g} {resource}, one {run.hardware} provides {provides.get(resource, 0.0):g}"
        return ""


def read_fleet(inputs: Inputs, faults: Faults) -> Fleet:
    """The servers of the files; hardware that no variant runs on is left out."""
    profile, limits = inputs.profile, inputs.slo.limits
    run_on = {run.hardware for variant in profile.variants.values() for run in variant.runs}
    unknown = sorted(set(limits.instances) - set(profile.hardware))
    for name in unknown:
        faults.in_slo(f"$.limits.instances.{name}", "there is no such hardware", "Name one of the profile's.")
    names: list[str] = []
    least: list[float] = []
    most: list[float] = []
    offers: list[OfferOf] = []
    for name in profile.hardware:
        if name not in run_on or (limits.only_listed and name not in limits.instances):
            continue
        own = [(o, offer) for o, offer in profile.offers.items() if offer.hardware == name]
        stock = sum(np.inf if offer.stock is None else offer.stock for _, offer in own) if own else np.inf
        low, high = limits.instances.get(name, (0, None))
        place = len(names)
        offers += [
            OfferOf(o, place, offer.price_per_hour, np.inf if offer.stock is None else offer.stock) for o, offer in own
        ] or [OfferOf(None, place, None, np.inf)]
        names.append(name)
        least.append(float(low))
        most.append(min(stock, np.inf if high is None else float(high)))
        _check_offers(inputs, name, [offer.currency for _, offer in own], [o.per for _, o in own], faults)
    if not np.isfinite(most).all() and limits.cost_per_hour is None:
        free = [name for name, limit in zip(names, most, strict=True) if not np.isfinite(limit)]
        faults.in_slo(
            "$.limits.instances",
            f"nothing limits how many servers of {', '.join(free)} there may be",
            f'Write {{"{free[0]}": [0, 20]}}, give its offers a stock, or limit cost_per_hour.',
        )
    elif names and not sum(most) >= 1:
        faults.in_slo("$.limits.instances", "there is not one server", 'Write for instance {"gpu": [0, 20]}.')
    return Fleet(
        hardware=tuple(names),
        least=np.array(least),
        most=np.array(most),
        offers=tuple(offers),
        priced=bool(offers) and all(offer.price is not None for offer in offers),
        budget=None if limits.cost_per_hour is None else limits.cost_per_hour / NANO,
        resources=limits.resources,
        moves=limits.moves,
        running=placed(inputs.state.workers if inputs.state is not None else ()),
        listed=tuple(name in limits.instances for name in names),
        inputs=inputs,
    )


def placed(workers: Iterable[Worker]) -> Counter[Placed]:
    """How many servers run what where; what is more in a later plan is a move."""
    found = Counter[Placed]()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return found


def _check_offers(inputs: Inputs, name: str, currencies: list[str], per: list[str | None], faults: Faults) -> None:
    limits, profile = inputs.slo.limits, inputs.profile
    if limits.cost_per_hour is not None and not currencies:
        faults.in_profile("$.offers", f"{name} has no price, yet the cost is limited", "Add an offer for it.")
    if limits.cost_per_hour is not None and set(currencies) - {limits.currency}:
        faults.in_slo(
            "$.limits.currency", f"{name} is priced in {currencies[0]}", "Use one currency.", value=limits.currency
        )
    own = any(
        run.price_per_hour is not None and run.hardware == name
        for variant in profile.variants.values()
        for run in variant.runs
    )
    if len(currencies) > 1 and (own or any(per)):
        faults.in_profile(
            "$.offers",
            f"{name} has several offers, and prices per run or per resource besides",
            "Keep one offer for it, or plain prices per server.",
        )
