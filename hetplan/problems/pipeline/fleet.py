"""The servers that pipelines may rent, how steps share them, and what runs on them now.

A server that several steps may share is cut into *places*, all alike: as many as it holds instances of the smallest
run. An instance takes a place, or several. So whatever is planned for servers is planned for places; what is on one
server is settled at the end (`draft`). Where places do not say what fits, or servers are not shared, it is one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.request import PLENTY, Request
from hetplan.problems.faults import Faults, refuse_not_provided
from hetplan.problems.places import fit_together, places_for
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Worker
from hetplan.serving.price import SLICES, Price, price_of
from hetplan.serving.runs import instances_on

__all__ = ["Fleet", "pipelines_of", "placed", "read_fleet"]

Placed = tuple[str | None, str | None, str | None, str]
"""(application, step, variant, hardware)."""

Apart = Literal["", "whole", "unlike"]


@dataclass(frozen=True)
class Fleet:
    """What may be rented, in how many places a server of each type is cut, and what runs now.

    Servers whose runs are paid (`paid_by_run`: own prices, or slices) cost nothing themselves; the runs have fees.
    """

    request: Request
    places: tuple[int, ...]
    """How many there are on one server of each hardware; one where steps do not share it."""
    paid_by_run: frozenset[str]
    priced: bool
    running: Counter[Placed]
    inputs: Inputs

    @cached_property
    def hardware(self) -> tuple[str, ...]:
        """The types g, by name."""
        return tuple(kind.id for kind in self.request.machines)

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """How many servers of each type must run."""
        return np.array([float(kind.least) for kind in self.request.machines])

    @cached_property
    def most(self) -> NDArray[np.float64]:
        """S_g: how many places of each type there may be; infinity where nothing limits them."""
        there = [kind.available if kind.available < PLENTY else np.inf for kind in self.request.machines]
        return np.array([n * places for n, places in zip(there, self.places, strict=True)], dtype=float)

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
            if places == 1 and _fit_together(self.inputs, self.request, name):
                alike = _places_on(self.inputs, name, _tasks_of(self.inputs, self.request)) > 1 and found != "unlike"
                found = "whole" if alike else "unlike"
        return found

    def fee_of(self, run: Run) -> Price:
        """What one server with this run costs beside the price of the server."""
        if run.hardware not in self.paid_by_run:
            return Price(0)
        return price_of(self.inputs.profile, run, self.request.of(run.hardware).offers[0].id)

    def instances_of(self, run: Run) -> int:
        """How many instances of a run are counted as one: all on a server; one where it is shared or sold by slices."""
        alone = self.places[self.hardware.index(run.hardware)] == 1 and self.fee_of(run).share is None
        return instances_on(run, self.inputs.profile.hardware[run.hardware]) if alone else 1

    def places_of(self, run: Run) -> int:
        """How many places these take."""
        places = self.places[self.hardware.index(run.hardware)]
        return places // instances_on(run, self.inputs.profile.hardware[run.hardware]) if places > 1 else 1

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


def _fit_together(inputs: Inputs, request: Request, hardware: str) -> bool:
    """Whether instances of two steps, or of two runs of one, fit on one server and are not paid by themselves."""
    profile = inputs.profile
    if any(offer.per is not None for offer in profile.offers.values() if offer.hardware == hardware):
        return False
    steps = [node.task for one in pipelines_of(inputs, request) for node in one.nodes.values() if node.task is not None]
    runs = [run for task in steps for variant in profile.variants.values() if variant.task == task
            for run in variant.runs if run.hardware == hardware and run.latency is not None]  # fmt: skip
    # Of which two fit in twice the room, the needs say what fits beside them.
    provides = profile.hardware[hardware].provides
    twice = profile.hardware[hardware].model_copy(
        update={"provides": {one: 2 * all_ for one, all_ in provides.items()}}
    )
    return fit_together(provides, [run.needs for run in runs if instances_on(run, twice) > 1])


def read_fleet(inputs: Inputs, request: Request, faults: Faults, *, shared: bool = False) -> Fleet:
    """The servers of the files; hardware that no variant runs on is left out. `shared`: steps may share a server."""
    profile = inputs.profile
    runs = [run for variant in profile.variants.values() for run in variant.runs]
    run_on, sold = {run.hardware for run in runs}, {offer.hardware for offer in profile.offers.values()}
    refuse_not_provided(request, faults)
    unpriced = {name: 0 for name in profile.hardware if name not in sold}
    paid_by_run = frozenset(run.hardware for run in runs if _is_paid(inputs, run))
    wanted = (name for name in profile.hardware if name in run_on)
    request = request.renting(profile, wanted, own_price=unpriced, paid_by_run=paid_by_run)
    names = [kind.id for kind in request.machines]
    for name in names:
        _check_offers(inputs, request, name, faults)
    tasks = _tasks_of(inputs, request) if shared else set[str]()
    fleet = Fleet(
        request=request,
        places=tuple(_places_on(inputs, name, tasks) if shared else 1 for name in names),
        paid_by_run=paid_by_run,
        priced=bool(names) and all(name in sold for name in names),
        running=placed(request.running),
        inputs=inputs,
    )
    if not np.isfinite(fleet.most).all() and request.budget is None:
        free = [name for name, limit in zip(names, fleet.most, strict=True) if not np.isfinite(limit)]
        faults.in_slo(
            "$.limits.instances",
            f"nothing limits how many servers of {', '.join(free)} there may be",
            f'Write {{"{free[0]}": [0, 20]}}, give its offers a stock, or limit cost_per_hour.',
        )
    elif names and not fleet.most.sum() >= 1:
        faults.in_slo("$.limits.instances", "there is not one server", 'Write for instance {"gpu": [0, 20]}.')
    return fleet


def _is_paid(inputs: Inputs, run: Run) -> bool:
    """Whether a run has a price by itself: its own, or that of the slice that it needs."""
    per = {offer.per for offer in inputs.profile.offers.values() if offer.hardware == run.hardware}
    return run.price_per_hour is not None or any(one in SLICES and one in run.needs for one in per)


def _tasks_of(inputs: Inputs, request: Request) -> set[str]:
    """The tasks of all steps that are asked for."""
    return {node.task for one in pipelines_of(inputs, request) for node in one.nodes.values() if node.task is not None}


def pipelines_of(inputs: Inputs, request: Request) -> list[Pipeline]:
    """The pipeline of each application, in turn."""
    known = inputs.profile.pipelines
    return [known[app.pipeline] for app in request.apps.values() if app.pipeline in known]


def placed(workers: Iterable[Worker]) -> Counter[Placed]:
    """How many servers run what where; what is more in a later plan is a move."""
    found = Counter[Placed]()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return found


def _check_offers(inputs: Inputs, request: Request, name: str, faults: Faults) -> None:
    profile = inputs.profile
    offers = [offer for offer in profile.offers.values() if offer.hardware == name]
    if request.budget is not None and not offers:
        faults.in_profile("$.offers", f"{name} has no price, yet the cost is limited", "Add an offer for it.")
    own = any(
        run.price_per_hour is not None and run.hardware == name
        for variant in profile.variants.values()
        for run in variant.runs
    )
    if len(offers) > 1 and (own or any(offer.per for offer in offers)):
        faults.in_profile(
            "$.offers",
            f"{name} has several offers, and prices per run or per resource besides",
            "Keep one offer for it, or plain prices per server.",
        )
