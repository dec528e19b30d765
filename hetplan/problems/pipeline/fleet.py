"""The servers that pipelines may use: how many of which hardware, at which price, and what runs on them now.

A server that several steps may share is cut into *places*, all alike: as many as it holds instances of the smallest
run. An instance takes a place, or several. So whatever is planned for servers is planned for places; what is on one
server is settled at the end (`draft`). Where places do not say what fits, or servers are not shared, it is one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.faults import Faults, refuse_not_provided
from hetplan.problems.places import fit_together, places_for
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Worker
from hetplan.serving.price import Price, price_of
from hetplan.serving.runs import instances_on

__all__ = ["Fleet", "OfferOf", "placed", "read_fleet"]

Placed = tuple[str | None, str | None, str | None, str]
"""(application, step, variant, hardware)."""

Apart = Literal["", "whole", "unlike"]


@dataclass(frozen=True)
class OfferOf:
    """A price at which a hardware can be had: `price` in 1e-9 per hour, None where nothing is priced."""

    id: str | None
    hardware: int
    price: int | None
    stock: float


@dataclass(frozen=True)
class Fleet:
    """S_g (in places) and its prices. Hardware that is shared, or has several offers, is paid by whole servers of each
    offer; other hardware by what runs on it."""

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
    places: tuple[int, ...] = ()
    """How many there are on one server of each hardware; one where steps do not share it."""

    @property
    def is_shared(self) -> bool:
        """Whether steps may share some server."""
        return any(n > 1 for n in self.places)

    @cached_property
    def apart(self) -> Apart:
        """Whether steps that would fit on one server get servers of their own, so that other plans are not looked at.

        `whole` where places would say what fits: parts of servers bound those other plans, too. `unlike` where not even
        these do.
        """
        found: Apart = ""
        for name, places in zip(self.hardware, self.places, strict=True):
            if places == 1 and _fit_together(self.inputs, name):
                alike = _places_on(self.inputs, name, _tasks_of(self.inputs)) > 1 and found != "unlike"
                found = "whole" if alike else "unlike"
        return found

    def offers_of(self, hardware: int) -> list[OfferOf]:
        """The offers of one hardware, cheapest first."""
        return sorted((o for o in self.offers if o.hardware == hardware), key=lambda o: (o.price or 0, o.id or ""))

    def is_split(self, hardware: int) -> bool:
        """Whether its servers are counted by themselves: they are shared, or to be had under several offers."""
        return self.places[hardware] > 1 or len(self.offers_of(hardware)) > 1

    def price_of(self, run: Run) -> Price:
        """What one server with this run costs; nothing where the offers are priced one by one, or not at all."""
        g = self.hardware.index(run.hardware)
        offers = self.offers_of(g)
        if run.price_per_hour is None and (self.is_split(g) or offers[0].price is None):
            return Price(0)
        return price_of(self.inputs.profile, run, offers[0].id)

    def instances_of(self, run: Run) -> int:
        """How many instances of a run are counted as one: all on a server; one where it is shared or sold by slices."""
        alone = self.places[self.hardware.index(run.hardware)] == 1 and self.price_of(run).share is None
        return instances_on(run, self.inputs.profile.hardware[run.hardware]) if alone else 1

    def places_of(self, run: Run) -> int:
        """How many places these take."""
        places = self.places[self.hardware.index(run.hardware)]
        return places // instances_on(run, self.inputs.profile.hardware[run.hardware]) if places > 1 else 1

    def provides(self, resource: str) -> NDArray[np.float64]:
        """What one server of each hardware provides."""
        hardware = self.inputs.profile.hardware
        return np.array([hardware[name].provides.get(resource, 0.0) for name in self.hardware])

    def too_large(self, run: Run) -> str:
        """Why one server cannot hold a run ("" when it can)."""
        provides = self.inputs.profile.hardware[run.hardware].provides
        for resource, amount in run.needs.items():
            if provides and amount > provides.get(resource, 0.0) * (1 + 1e-9):
                return f"it needs {amount:g} {resource}, one {run.hardware} provides {provides.get(resource, 0.0):g}"
        return ""


def _places_on(inputs: Inputs, hardware: str, tasks: Set[str]) -> int:
    """How many places there are on a server that steps share (`places_for`).

    One where it is sold by the slice, or a run of its own price is on it.
    """
    profile = inputs.profile
    if any(offer.per is not None for offer in profile.offers.values() if offer.hardware == hardware):
        return 1
    runs = [
        run
        for variant in profile.variants.values()
        for run in variant.runs
        if variant.task in tasks and run.hardware == hardware and run.latency is not None
    ]
    if any(run.price_per_hour is not None for run in runs):
        return 1
    alone = [instances_on(run, profile.hardware[hardware]) for run in runs]
    return places_for(profile.hardware[hardware].provides, [run.needs for run in runs], alone)


def _fit_together(inputs: Inputs, hardware: str) -> bool:
    """Whether instances of two steps, or of two runs of one, fit on one server and are not paid by themselves."""
    profile = inputs.profile
    if any(offer.per is not None for offer in profile.offers.values() if offer.hardware == hardware):
        return False
    steps = [node.task for one in _pipelines_of(inputs) for node in one.nodes.values() if node.task is not None]
    runs = [run for task in steps for variant in profile.variants.values() if variant.task == task
            for run in variant.runs if run.hardware == hardware and run.latency is not None]  # fmt: skip
    # Of which two fit in twice the room, the needs say what fits beside them.
    provides = profile.hardware[hardware].provides
    twice = profile.hardware[hardware].model_copy(
        update={"provides": {one: 2 * all_ for one, all_ in provides.items()}}
    )
    return fit_together(provides, [run.needs for run in runs if instances_on(run, twice) > 1])


def read_fleet(inputs: Inputs, faults: Faults, *, shared: bool = False) -> Fleet:
    """The servers of the files; hardware that no variant runs on is left out. `shared`: steps may share a server."""
    profile, limits = inputs.profile, inputs.slo.limits
    run_on = {run.hardware for variant in profile.variants.values() for run in variant.runs}
    unknown = sorted(set(limits.instances) - set(profile.hardware))
    for name in unknown:
        faults.in_slo(f"$.limits.instances.{name}", "there is no such hardware", "Name one of the profile's.")
    refuse_not_provided(inputs, faults)
    tasks = _tasks_of(inputs) if shared else set[str]()
    names: list[str] = []
    places: list[int] = []
    least: list[float] = []
    most: list[float] = []
    offers: list[OfferOf] = []
    for name in profile.hardware:
        if name not in run_on or (limits.only_listed and name not in limits.instances):
            continue
        own = [(o, offer) for o, offer in profile.offers.items() if offer.hardware == name]
        stock = sum(np.inf if offer.stock is None else offer.stock for _, offer in own) if own else np.inf
        low, high = limits.instances.get(name, (0, None))
        place, many = len(names), _places_on(inputs, name, tasks) if shared else 1
        offers += [
            OfferOf(o, place, offer.price_per_hour, np.inf if offer.stock is None else offer.stock) for o, offer in own
        ] or [OfferOf(None, place, None, np.inf)]
        names.append(name)
        places.append(many)
        least.append(float(low))
        most.append(many * min(stock, np.inf if high is None else float(high)))
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
        places=tuple(places),
    )


def _tasks_of(inputs: Inputs) -> set[str]:
    """The tasks of all steps that are asked for."""
    return {node.task for one in _pipelines_of(inputs) for node in one.nodes.values() if node.task is not None}


def _pipelines_of(inputs: Inputs) -> list[Pipeline]:
    """The pipeline of each application, in turn."""
    asked = [app.runs.pipeline for app in inputs.slo.apps.values() if app.runs is not None]
    return [inputs.profile.pipelines[name] for name in asked if name in inputs.profile.pipelines]


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
