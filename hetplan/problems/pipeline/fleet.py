"""The servers that pipelines may rent, how steps share them, and what runs on them now.

A server that several steps may share is cut into *places*, all alike: as many as it holds instances of the smallest
run. An instance takes a place, or several. So whatever is planned for servers is planned for places; what is on one
server is settled at the end (`draft`). Where places do not say what fits, or servers are not shared, it is one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.choices import Choice
from hetplan.planner.request import PLENTY, Request
from hetplan.problems.faults import Faults, refuse_not_provided
from hetplan.problems.places import fit_together, places_for
from hetplan.profiles.workers import Worker
from hetplan.serving.price import Price

__all__ = ["Fleet", "placed", "read_fleet"]

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
            if places == 1 and _fit_together(self.request, name):
                alike = _places_on(self.request, name) > 1 and found != "unlike"
                found = "whole" if alike else "unlike"
        return found

    def fee_of(self, choice: Choice) -> Price:
        """What one server with this run costs beside the price of the server."""
        if choice.hardware not in self.paid_by_run:
            return Price(0)
        return choice.price(self.request.of(choice.hardware).offers[0].id)

    def instances_of(self, choice: Choice) -> int:
        """How many instances of a run are counted as one: all on a server; one where it is shared or sold by slices."""
        alone = self._places_on(choice) == 1 and self.fee_of(choice).share is None
        return choice.per_machine if alone else 1

    def places_of(self, choice: Choice) -> int:
        """How many places these take."""
        places = self._places_on(choice)
        return places // choice.per_machine if places > 1 else 1

    def _places_on(self, choice: Choice) -> int:
        return self.places[self.hardware.index(choice.hardware)]


def _of_steps(request: Request, hardware: str) -> list[Choice]:
    """The runs on a hardware that are timed, of every step that is asked for."""
    steps = [names for app in request.apps for names in request.steps(app).values()]
    found = (one for names in steps for one in request.choices(variants=names, hardware=hardware))
    return [one for one in found if one.is_timed]


def _places_on(request: Request, hardware: str) -> int:
    """How many places there are on a server that steps share (`places_for`).

    One where it is sold by the slice, or a run of its own price is on it.
    """
    runs = _of_steps(request, hardware)
    if request.is_sold_in_parts(hardware) or any(one.own_price is not None for one in runs):
        return 1
    provides = request.profile.hardware[hardware].provides
    return places_for(provides, [one.needs for one in runs], [one.per_machine for one in runs])


def _fit_together(request: Request, hardware: str) -> bool:
    """Whether instances of two steps, or of two runs of one, fit on one server and are not paid by themselves."""
    provides, runs = request.profile.hardware[hardware].provides, _of_steps(request, hardware)
    return not request.is_sold_in_parts(hardware) and fit_together(provides, [r.needs for r in runs if r.fits_twice])


def read_fleet(request: Request, faults: Faults, *, shared: bool = False) -> Fleet:
    """The servers of the files; hardware that no variant runs on is left out. `shared`: steps may share a server."""
    profile, runs = request.profile, request.choices()
    run_on, sold = {one.hardware for one in runs}, {offer.hardware for offer in profile.offers.values()}
    refuse_not_provided(request, faults)
    unpriced = {name: 0 for name in profile.hardware if name not in sold}
    paid_by_run = frozenset(one.hardware for one in runs if one.is_paid)
    wanted = (name for name in profile.hardware if name in run_on)
    request = request.renting(profile, wanted, own_price=unpriced, paid_by_run=paid_by_run)
    names = [kind.id for kind in request.machines]
    for name in names:
        _check_offers(request, name, faults)
    fleet = Fleet(
        request=request,
        places=tuple(_places_on(request, name) if shared else 1 for name in names),
        paid_by_run=paid_by_run,
        priced=bool(names) and all(name in sold for name in names),
        running=placed(request.running),
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


def placed(workers: Iterable[Worker]) -> Counter[Placed]:
    """How many servers run what where; what is more in a later plan is a move."""
    found = Counter[Placed]()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return found


def _check_offers(request: Request, name: str, faults: Faults) -> None:
    offers = sum(offer.hardware == name for offer in request.profile.offers.values())
    if request.budget is not None and not offers:
        faults.in_profile("$.offers", f"{name} has no price, yet the cost is limited", "Add an offer for it.")
    if offers > 1 and (request.is_paid_by_run(name) or request.is_sold_in_parts(name)):
        faults.in_profile(
            "$.offers",
            f"{name} has several offers, and prices per run or per resource besides",
            "Keep one offer for it, or plain prices per server.",
        )
