"""Finds prices, menus and a bound for a fleet. The work is counted in programs of one application.

Zones that sell the same may change places, so prices are made alike in them (their mean is never a worse bound), and a
choice counts in the relaxed fleet as the mean of its orders. Where there are many periods, prices are found for groups
of like ones, each at its highest rates; `lift` then asks every period at these prices, which is the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted, SolverFailed
from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask, Event
from hetplan.planner.fleet_part import Part
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.machine_limits import MachineLimit, machine_limits
from hetplan.planner.program import Rented, rent_by_period
from hetplan.planner.safe_bound import dual_bound
from hetplan.problems.fleet.candidate_columns import CandidateColumns, Choice, on_grid
from hetplan.problems.fleet.request import HUGE, Application, FleetRequest
from hetplan.problems.fleet.zones import zone_classes, zone_orders

__all__ = [
    "FEW",
    "MOST_PROGRAMS",
    "REFINED",
    "Fleet",
    "Relaxation",
    "Search",
    "add_machines",
    "cost_of",
    "cost_per_hour",
    "is_over",
    "starts_of",
]

Floats = NDArray[np.float64]

MOST_PROGRAMS = 500
"""Programs of one application and period; prices are settled after them."""
MISSING = 1e4
"""What a period costs per hour in which an application gets nothing: above any price that is met."""
CENTRE = 1e-3
"""How much of all prices is taken from those at which machines are sold, so that none is free."""
PAIRS = 30
"""So many applications and periods in a round of prices; where there are more, periods are grouped."""
LEAST_GROUPS = 4
FEW = 1e-6
"""Less than this of an application is missing: rounding."""
MIXTURE = 40
"""So many choices of an application in a period are mixed where prices came from groups of periods."""
REFINED = 1
"""At least so many rounds of prices over all periods after those over groups of them, which need not be as near."""
RESERVED = 0.3
"""So much of the time is kept to make a plan of what is known."""
MIXED = 0.5
"""How much of the prices of the best bound goes into the next ones, at first."""


def is_over(ask: Ask) -> bool:
    """Whether a plan is to be made of what is known: the work was interrupted, or its time is nearly over."""
    return ask.is_over(RESERVED)


def add_machines(
    m: Builder,
    wish: FleetRequest,
    limits: Sequence[MachineLimit],
    periods: Sequence[int],
    *,
    whole: bool,
    stocked: bool = True,
    most: Floats | float = np.inf,
) -> Rented:
    """Columns of what is committed and rented in these periods, with every limit; not `stocked`: as many as wanted.

    `most` machines of each offer are of use; where limits ask for others, more may be there.
    """
    stock = wish.stock if stocked else np.full(len(wish.offers), HUGE)
    if not wish.request.shares and not any(least for least, _ in wish.request.instances.values()):
        stock = np.minimum(stock, most)
    barred = np.array([offer.spot and not wish.spot for offer in wish.offers])
    ends = (
        np.where(np.isfinite(wish.committed) & wish.commits, stock, 0).astype(float),
        np.where(barred, 0, stock).astype(float),
    )
    return rent_by_period(m, wish.offers, limits, {p: wish.length(p) for p in periods}, most=ends, whole=whole)


def groups_of(wish: FleetRequest, most: int) -> list[list[int]]:
    """Periods in at most so many groups of nearly the same rates; those of exactly the same are always together.

    In the order of the first period of each.
    """
    rates = np.array([[app.rates[p] for app in wish.apps] for p in range(wish.periods)])
    scaled = rates / np.maximum(rates.max(axis=0), 1e-12)
    centres = [int(np.argmax(scaled.sum(axis=1)))]
    away = np.abs(scaled - scaled[centres[0]]).max(axis=1)
    while len(centres) < most and away.max() > 0:
        centres.append(int(np.argmax(away)))
        away = np.minimum(away, np.abs(scaled - scaled[centres[-1]]).max(axis=1))
    nearest = [int(np.argmin([np.abs(one - scaled[centre]).max() for centre in centres])) for one in scaled]
    groups = [[p for p, centre in enumerate(nearest) if centre == number] for number in range(len(centres))]
    return sorted(groups)


def merge_periods(wish: FleetRequest, groups: Sequence[Sequence[int]]) -> FleetRequest:
    """The request with its periods merged into groups, each at the highest rates of its periods."""
    apps = tuple(replace(app, rates=tuple(max(app.rates[p] for p in group) for group in groups)) for app in wish.apps)
    return replace(wish, apps=apps, spans=tuple(sum(wish.length(p) for p in group) for group in groups))


@dataclass(frozen=True)
class Fleet:
    """What is committed, and per period what each application gets, and what is rented."""

    committed: tuple[int, ...]
    choices: Mapping[tuple[str, int], Choice]
    rented: tuple[tuple[int, ...], ...]


def cost_of(wish: FleetRequest, fleet: Fleet) -> float:
    """What a fleet costs over the horizon: committed, rented, and while machines start."""
    committed = np.array(fleet.committed, dtype=float)
    pay = np.where(committed > 0, np.where(np.isfinite(wish.committed), wish.committed, 0.0), 0.0)
    total = float(pay @ committed) * wish.hours * wish.periods
    for rented in fleet.rented:
        total += float(wish.prices @ np.array(rented, dtype=float)) * wish.hours
    return total + float(sum(wish.prices @ started for started in starts_of(wish, fleet)))


def starts_of(wish: FleetRequest, fleet: Fleet) -> list[Floats]:
    """Hours that machines are paid while they start, before each period, per offer; the first follows the last.

    With a state the first period follows what runs, the first time it comes: all machines that do not run yet start
    then, those that are paid for ahead too.
    """
    if wish.periods == 1:
        return [np.zeros(len(wish.offers))]
    hours = np.array([offer.start_hours for offer in wish.offers])
    rented = [np.array(one, dtype=float) for one in fleet.rented]
    found = [hours * np.maximum(rented[p] - rented[p - 1], 0.0) for p in range(wish.periods)]
    if wish.stated:
        new = np.maximum(rented[0] + np.array(fleet.committed) - wish.all_running, 0.0)
        found[0] = wish.again * found[0] + (1.0 - wish.again) * hours * new
    return found


def cost_per_hour(wish: FleetRequest, fleet: Fleet) -> float:
    """The same per hour."""
    return cost_of(wish, fleet) / (wish.hours * wish.periods)


@dataclass(frozen=True)
class Relaxation:
    """The cheapest mixture, and the prices of its rows (all but those that say that each application gets one)."""

    value: float
    missing: float
    duals: Floats
    committed: Floats


@dataclass
class Search:
    """One search; `bound` is per horizon, in currency units."""

    wish: FleetRequest
    ask: Ask
    menus: CandidateColumns
    bound: float = 0.0
    rounds: int = 0
    limits: Sequence[MachineLimit] = ()
    impossible: list[tuple[Application, int]] = field(default_factory=list)
    best: Floats | None = None
    """The prices of rows that gave the best bound."""
    lifted: bool = False
    """Whether its prices came from groups of its periods."""
    last: Relaxation | None = None
    """The cheapest mixture found last."""

    @classmethod
    def of(cls, wish: FleetRequest, parts: Mapping[str, Part], ask: Ask) -> Search:
        """An empty search."""
        return cls(
            wish,
            ask,
            CandidateColumns(wish, parts),
            limits=tuple(machine_limits(wish.request, wish.offers, commits=True)),
        )

    @cached_property
    def pairs(self) -> list[tuple[Application, int]]:
        """Applications and periods."""
        return [(app, p) for p in range(self.wish.periods) for app in self.wish.apps]

    @cached_property
    def equal_periods(self) -> list[list[int]]:
        """Periods of the same rates."""
        return groups_of(self.wish, self.wish.periods)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Groups of periods with nearly equal rates (numbers of periods), which share their prices at first."""
        return groups_of(self.wish, max(LEAST_GROUPS, PAIRS // len(self.wish.apps)))

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Offers that differ by a zone alone."""
        return zone_classes(self.wish)

    @cached_property
    def limit_classes(self) -> NDArray[np.int64]:
        """Limits that differ by a zone alone."""
        orders, classes = zone_orders(self.wish), list[int]()
        for number, limit in enumerate(self.limits):
            same = [
                other
                for other, one in enumerate(self.limits[:number])
                if (one.name, one.lower, one.upper) == (limit.name, limit.lower, limit.upper)
                and any(np.array_equal(one.total, limit.total[order]) for order in orders)
            ]
            classes.append(classes[same[0]] if same else number)
        return np.array(classes, dtype=np.int64)

    def over(self, groups: Sequence[Sequence[int]]) -> Search:
        """The search over groups of periods, with the same menus; itself where there is nothing to group."""
        if len(groups) == self.wish.periods:
            return self
        wish = merge_periods(self.wish, groups)
        menus = replace(self.menus, wish=wish)
        return Search(wish, self.ask, menus, limits=self.limits)

    def lowest(self) -> Floats:
        """The least that a machine of each offer can cost per hour: prices that no purchase undercuts."""
        wish = self.wish
        committed = wish.committed if wish.commits else np.full(len(wish.offers), np.inf)
        return np.minimum(wish.prices, committed)

    def begin(self) -> bool:
        """Menus at the prices of the offers; whether each application has a choice in each period."""
        wish = self.wish
        self.ask.note(Event("fleet", detail="machines of each application"))
        plain = [wish.prices, self.lowest()]
        if not wish.spot or not wish.commits:
            plain = plain[:1]
        for prices in plain:
            rates = {(app.name, wish.rate(app, p)): app for app, p in self.pairs}
            wanted = [(app, rate, self.bar_prices(prices)) for (_, rate), app in rates.items()]
            found = dict(zip(rates, self.menus.price(self.ask, wanted), strict=True))
            self.impossible = [(a, p) for a, p in self.pairs if found[a.name, wish.rate(a, p)][1] is None]
            if self.impossible:
                return False
        return True

    def contradictions(self, limits: Sequence[MachineLimit] | None = None) -> Milp | None:
        """These limits (all) of a period, where no machines at all keep them; None where some do."""
        m = Builder("min", name="fleet, limits")
        add_machines(m, self.wish, self.limits if limits is None else limits, [0], whole=False)
        form = m.build()
        return form if self.ask(form, gap=0.0, about="limits on machines").status is Status.INFEASIBLE else None

    def bar_prices(self, prices: Floats) -> Floats:
        """Prices, prohibitive for offers that may not be rented."""
        spot = np.array([offer.spot and not self.wish.spot for offer in self.wish.offers])
        return np.where(spot, MISSING, prices)

    def mean_over_zones(self, values: Floats) -> Floats:
        """Values per offer, each replaced by the mean over equal zones."""
        sums = np.bincount(self.classes, weights=values)
        return np.asarray((sums / np.bincount(self.classes))[self.classes], dtype=float)

    def evened_rows(self, duals: Floats) -> Floats:
        """Prices of rows, each the mean over zones that are alike, and of the sign that their rows allow."""
        count, limits = len(self.wish.offers), self.limit_classes
        found = duals.copy()
        for first in range(0, len(duals), count + len(self.limits)):
            middle, last = first + count, first + count + len(self.limits)
            found[first:middle] = self.mean_over_zones(duals[first:middle])
            if len(limits):
                sums = np.bincount(limits, weights=duals[middle:last])
                found[middle:last] = (sums / np.maximum(np.bincount(limits), 1))[limits]
        found = np.where((found > 0) & ~np.isfinite(self.bare.row_lower), 0.0, found)
        return np.where((found < 0) & ~np.isfinite(self.bare.row_upper), 0.0, found)

    def solve_relaxation(self) -> Relaxation:
        """The cheapest fractional mixture of the known columns, with its dual prices."""
        wish, m = self.wish, Builder("min", name="fleet, relaxed")
        machines = add_machines(m, wish, self.limits, range(wish.periods), whole=False)
        cover = machines.cover
        pairs = self.pairs
        each = m.rows("each", str, size=len(pairs), lower=1.0, upper=1.0)
        cost = [MISSING * wish.length(p) for _, p in pairs]
        missing = m.columns("missing", str, size=len(pairs), cost=cost)
        m.add(each, missing, 1.0)
        for row, (app, p) in zip(each, pairs, strict=True):
            choices = self.cheap(app, p)
            y = m.columns(f"{app.name} in {p}", str, size=len(choices))
            m.add(row, y, 1.0)
            for column, choice in zip(y, choices, strict=True):
                taken = self.mean_over_zones(choice.array)
                used = np.flatnonzero(taken)
                m.add(cover[p][used], column, -taken[used])
        form = m.build()
        answer = self.ask(form, gap=0.0, about="cheapest mixture of machines")
        if answer.point is None or answer.row_duals is None:
            raise SolverFailed(answer.engine, f"the relaxed fleet has no answer: {answer.status}")
        return Relaxation(
            value=float(answer.value or 0.0),
            missing=float(answer.point[missing].sum()),
            duals=self.evened_rows(answer.row_duals[: len(self.bare.row_lower)]),
            committed=answer.point[machines.committed],
        )

    def cheap(self, app: Application, p: int) -> list[Choice]:
        """The choices of a mixture: those of the rate; where prices came from elsewhere, the cheapest by them."""
        if not self.lifted:
            return self.menus.of(app, p)
        choices = self.menus.of(app, p, wide=True)
        worth = np.array([choice.array for choice in choices]) @ self.hourly()[p]
        return [choices[n] for n in np.argsort(worth, kind="stable")[:MIXTURE]]

    def hourly(self) -> Floats:
        """Prices per hour of each period and offer, those of the best bound."""
        duals = self.best if self.best is not None else self.centre()
        return np.array([self._hourly_of(duals, p) for p in range(self.wish.periods)])

    def _hourly_of(self, duals: Floats, p: int) -> Floats:
        """Prices per hour of machines in a period, by these prices of rows."""
        machines = duals[self.rows_of(p)[: len(self.wish.offers)]]
        return np.asarray(np.maximum(machines, 0.0) / self.wish.length(p), dtype=float)

    def plan_prices(self, groups: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """The dual prices of the best bound as plain data for the plan file, by groups of periods."""
        if self.best is None:
            return []
        offers, listed = [offer.name for offer in self.wish.offers], list[dict[str, Any]]()
        names = [*offers, *(f"{limit.name}[{limit.label}]" for limit in self.limits)]
        for number, periods in enumerate(groups):
            hourly = self.best[self.rows_of(number)] / self.wish.length(number)
            prices = dict(zip(names, (float(price) for price in hourly), strict=True))
            listed.append(
                {
                    "periods": [f"p{p}" for p in periods],
                    "machines": {name: on_grid(min(prices[name], MISSING)) for name in offers},
                    "limits": {name: prices[name] for name in names[len(offers) :] if prices[name]},
                }
            )
        return listed

    def worth(self, duals: Floats) -> tuple[float, bool]:
        """What no fleet costs less than, by these prices of rows; whether they showed a choice that was not known.

        It is what each application costs at least at the prices of machines, and the safe bound of the rest.
        """
        wish, before = self.wish, self.n_choices
        hourly = [np.minimum(self._hourly_of(duals, p), MISSING) for p in range(wish.periods)]
        wanted = [(app, wish.rate(app, p), hourly[p]) for app, p in self.pairs]
        cheapest = self.menus.price(self.ask, wanted)
        served = sum(value * wish.length(p) for (value, _), (_, p) in zip(cheapest, self.pairs, strict=True))
        return served + dual_bound(self.bare, duals), self.n_choices > before

    def bound_by_app(self) -> dict[str, float]:
        """The share of each application in the best bound: its cheapest machines at the prices of that bound."""
        hourly, total = np.minimum(self.hourly(), MISSING), dict[str, float]()
        cheapest = self.menus.price(self.ask, [(app, self.wish.rate(app, p), hourly[p]) for app, p in self.pairs])
        for (value, _), (app, p) in zip(cheapest, self.pairs, strict=True):
            total[app.name] = total.get(app.name, 0.0) + value * self.wish.length(p)
        return total

    @property
    def hourly_bound(self) -> float | None:
        """The bound so far, per hour."""
        return self.bound / sum(map(self.wish.length, range(self.wish.periods))) if self.bound else None

    @property
    def n_choices(self) -> int:
        """How many columns there are in all."""
        return sum(len(one) for one in self.menus.found.values())

    def centre(self) -> Floats:
        """The prices at which machines are sold, as prices of rows."""
        centre = np.zeros(len(self.bare.row_lower))
        for p in range(self.wish.periods):
            centre[self.rows_of(p)[: len(self.wish.offers)]] = self.lowest() * self.wish.length(p)
        return centre

    def converge(self, gap: float, rounds: int) -> Relaxation:
        """Prices and menus in turn until the bound meets the relaxed fleet, or enough programs were asked.

        Where the work is interrupted, the cheapest mixture found last.
        """
        try:
            return self._converged(gap, rounds)
        except Interrupted:
            if self.last is None:
                raise
            return self.last

    def _converged(self, gap: float, rounds: int) -> Relaxation:
        best, last = self.best, self.rounds + rounds
        while True:
            if self.last is not None and is_over(self.ask):
                return self.last
            self.last = found = self.solve_relaxation()
            centre = self.centre()
            best = centre if best is None else best
            fresh = False
            for mixed in (MIXED, 0.0):
                duals = (1 - CENTRE) * (mixed * best + (1 - mixed) * found.duals) + CENTRE * centre
                bound, fresh = self.worth(duals)
                if bound > self.bound or self.best is None:
                    self.bound, best = max(bound, self.bound), duals
                    self.best = best
                if fresh:
                    break
            self.rounds += 1
            said = f"round {self.rounds}"
            self.ask.note(Event("fleet", detail=said, bound=self.hourly_bound))
            closed = not found.missing and found.value - self.bound <= gap * abs(found.value)
            enough = self.rounds >= last or (not self.lifted and self.menus.n_programs >= MOST_PROGRAMS)
            if not fresh or closed or (enough and found.missing <= FEW):
                return found

    def lift(self, other: Search, groups: Sequence[Sequence[int]]) -> None:
        """The bound, and choices of every period, at the prices that were found for groups of them."""
        if other is self or other.best is None:
            return
        duals = np.zeros(len(self.bare.row_lower))
        for group, periods in enumerate(groups):
            for p in periods:
                share = self.wish.length(p) / other.wish.length(group)
                duals[self.rows_of(p)] = share * other.best[other.rows_of(group)]
        bound, _ = self.worth(duals)
        self.rounds, self.lifted = other.rounds, True
        if bound > self.bound or self.best is None:
            self.bound, self.best = max(self.bound, bound), duals
        self.ask.note(Event("fleet", detail="all periods", bound=self.hourly_bound))

    @cached_property
    def bare(self) -> Milp:
        """The relaxed fleet without any choice: of each period the rows of its machines, then those of its limits."""
        m = Builder("min", name="fleet, rows")
        add_machines(m, self.wish, self.limits, range(self.wish.periods), whole=False)
        return m.build()

    def rows_of(self, period: int) -> NDArray[np.int64]:
        """Rows of a period: its machines, then its limits."""
        count = len(self.wish.offers) + len(self.limits)
        return np.arange(period * count, (period + 1) * count, dtype=np.int64)
