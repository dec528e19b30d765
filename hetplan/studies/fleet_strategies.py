"""A plan with periods as a strategy to compare: its hours as systems, its bill, and fleets for other rates.

Without such a plan people rent machines on demand, by the hour: static peaks and autoscalers are played
so, and need not survive a failure. Fleets planned again for each hour's rates may rent spot machines too, and survive
what the plan does. What no way can be below is planned with every machine at its lowest price, and without failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hetplan.api.plans_by_rate import Recipes
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_periods import of_period, period_at
from hetplan.profiles.profile import Offer
from hetplan.profiles.slo import Survive
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.runs import machine_price, times
from hetplan.serving.service import NoiseName
from hetplan.serving.system import System
from hetplan.simulator.system_changes import Names

__all__ = ["FleetPlayed"]

GRID = 0.15
"""Fleets for other rates are planned for rates this far apart."""


@dataclass(frozen=True)
class FleetPlayed:
    """A plan with periods beside its files, and what ways without its commitments rent from."""

    plan: Plan
    inputs: Inputs
    noise: NoiseName = "table"

    @cached_property
    def hours(self) -> Sequence[tuple[float, System]]:
        """What runs in each period, from when; machines that stay have the same names."""
        names, found = Names(), list[tuple[float, System]]()
        for period in self.plan.periods:
            single = of_period(self.plan, period)
            labels = {worker.id: worker.offer or worker.hardware for worker in single.workers}
            system = planned_systems(single, self.inputs, noise=self.noise)[0].system
            found.append((period.start_s, names.named(system, labels=labels)))
        return found

    def schedule(self, length_s: float, begin_s: float = 0.0) -> list[tuple[float, System]]:
        """What runs when, over so long from a moment of the day: after the last period the first comes again."""
        return [(at_s, self.hours[number][1]) for at_s, number in self._turns(length_s, begin_s)]

    def cost_per_hour(self, length_s: float, begin_s: float = 0.0) -> float:
        """What the bill says of that time, with what is paid for ahead and while machines start."""
        lines = self.plan.bill.lines if self.plan.bill is not None else ()
        turns, total = self._turns(length_s, begin_s), 0.0
        for (at_s, number), end_s in zip(turns, [*(at_s for at_s, _ in turns[1:]), length_s], strict=True):
            name = self.plan.periods[number].id
            total += (end_s - at_s) * sum(line.cost_per_hour for line in lines if line.period == name)
        return total / length_s

    def _turns(self, length_s: float, begin_s: float) -> list[tuple[float, int]]:
        """When which period is in force, from the first moment on."""
        day_s = self.plan.periods[-1].end_s or length_s
        first = period_at(self.plan, begin_s)
        found = [(0.0, self.plan.periods.index(first))]
        for turn in range(int((begin_s + length_s) // day_s) + 1):
            starts = ((turn * day_s + one.start_s - begin_s, n) for n, one in enumerate(self.plan.periods))
            found += [(at_s, number) for at_s, number in starts if 0.0 < at_s < length_s]
        return found

    @cached_property
    def busiest(self) -> Plan:
        """The period of the highest rates, as an ordinary plan: it names what each application runs."""
        parts = self.plan.parts or {}

        def load(number: int) -> float:
            names = self.plan.periods[number].parts or ()
            return sum(sum(parts[name].rate_qps.values()) for name in names)

        place = max(range(len(self.plan.periods)), key=load)
        return of_period(self.plan, self.plan.periods[place])

    @cached_property
    def on_demand(self) -> Inputs:
        """The files with machines on demand alone, rented by the hour."""
        return self._with_offers(
            {name: _without_commitment(one) for name, one in self._offers.items() if not _spot(one)}
        )

    @cached_property
    def by_the_hour(self) -> Inputs:
        """The files with all machines that are rented by the hour."""
        return self._with_offers({name: _without_commitment(one) for name, one in self._offers.items()}, kinds=True)

    @cached_property
    def cheapest(self) -> Inputs:
        """The files with each machine at its lowest price, and nothing to survive: no purchase costs less."""
        sold = {name: self._lowest(one) for name, one in self._offers.items()}
        return self._with_offers(sold).with_limits(survive=Survive())

    def recipes(self, inputs: Inputs) -> Recipes:
        """Fleets for other rates, from these files."""
        return Recipes(self.plan, inputs, noise=self.noise, grid=GRID)

    @property
    def _offers(self) -> dict[str, Offer]:
        return dict(self.inputs.profile.offers)

    def _with_offers(self, offers: dict[str, Offer], *, kinds: bool = False) -> Inputs:
        """The files with these offers; `kinds`: limits on spot machines stay."""
        limits = self.inputs.slo.limits
        stay = {name: one for name, one in limits.offers.items() if kinds and name in offers}
        profile = self.inputs.profile.model_copy(update={"offers": offers})
        return replace(
            self.inputs.with_limits(offers=stay, spot=limits.spot if kinds else None, on_demand=None, reserved=None),
            profile=profile,
            state=None,
        )

    def _lowest(self, offer: Offer) -> Offer:
        """An offer at the lower of its prices by the hour and paid for ahead, its upfront spread over the term."""
        price = machine_price(offer, self.inputs.profile.hardware[offer.hardware])
        if offer.commit is not None:
            own = offer.commit.price_per_hour
            ahead = own if own is not None else times(price, 1.0 - (offer.commit.discount or 0.0))
            price = min(price, int(ahead + offer.commit.upfront * 3600.0 / offer.commit.term_s))
        return offer.model_copy(update={"commit": None, "per": None, "price_per_hour": price})


def _spot(offer: Offer) -> bool:
    return offer.interruptions_per_hour is not None


def _without_commitment(offer: Offer) -> Offer:
    return offer.model_copy(update={"commit": None})
