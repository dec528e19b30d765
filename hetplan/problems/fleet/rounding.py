"""Whole machines of a fleet from its columns: which are committed, and which each application gets per period.

They are found step by step: commitments change by one machine while the bill falls.
At given committed machines R each application in each period takes the choice that rents least beyond what the others
leave of R, one application after the other until none changes.
Choices are those of its rate or more in all orders of zones that are alike. Moves of R are a machine more, one less, or
one for another. Work is counted, never timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.planner.contract import Event
from hetplan.planner.machine_limits import keeps
from hetplan.problems.fleet.candidate_columns import Choice
from hetplan.problems.fleet.program import planned
from hetplan.problems.fleet.request import FleetRequest
from hetplan.problems.fleet.search import MOST_PROGRAMS, Fleet, Relaxation, Search, cost_of, is_over
from hetplan.problems.fleet.zones import to_whole, zone_orders

__all__ = [
    "FEW_PAIRS",
    "Descent",
    "best_fleet",
    "descend_repeatedly",
    "keeps_limits",
    "refine_fleet",
    "whole_up",
]

Floats = NDArray[np.float64]
KEPT = 250
"""So many choices of an application in a period are looked at: those that cost least at the prices found."""
LOOKS = 60_000
"""So many choices of menus are made in one descent."""
SWEEPS = 4
SLACK = 1e-9


def whole_up(machines: Floats) -> Floats:
    """Whole machines, where parts of them are taken."""
    return np.asarray(np.ceil(machines - SLACK), dtype=float)


@dataclass
class Descent:
    """One descent over the periods of a search, at prices per hour of each period."""

    search: Search
    prices: Floats
    menus: list[list[Floats]] = field(default_factory=list)
    looks: int = 0
    shared: bool = False
    """Whether parts of machines are taken."""

    def __post_init__(self) -> None:
        """The menus of every period and application."""
        wish, orders = self.search.wish, zone_orders(self.search.wish)
        self.cost = np.where(self.search.bar_prices(wish.prices) > wish.prices, 1e6, wish.prices)
        self.pay = np.where(np.isfinite(wish.committed) & wish.commits, wish.committed, np.inf)
        self.shared = bool(wish.places)
        self.lengths = np.array([wish.length(p) for p in range(wish.periods)])
        known = dict[tuple[str, float], Floats]()
        for p in range(wish.periods):
            self.menus.append([])
            for app in wish.apps:
                key = (app.name, wish.rate(app, p))
                if key not in known:
                    held = [choice.array for choice in self.search.menus.of(app, p, wide=True)]
                    closed = np.array(held, dtype=float)[:, np.array(orders)].reshape(-1, len(wish.offers))
                    known[key] = np.unique(closed, axis=0)
                machines = known[key]
                refused = self.search.menus.refused
                cheap = np.argsort(machines @ np.minimum(self.prices[p], self.cost), kind="stable")[:KEPT]
                if refused:
                    cheap = cheap[[(*key, self.counted(app.name, machines[n])) not in refused for n in cheap]]
                self.menus[p].append(machines[cheap])

    def counted(self, name: str, machines: Floats) -> tuple[int, ...]:
        """Machines as an application counts them: those who share, in slices."""
        return to_whole(machines * np.array(self.search.wish.each(name)))

    def rent(self, machines: Floats) -> Floats:
        """What is rented where machines are taken beyond those committed: whole ones, whoever shares them."""
        more = np.maximum(machines, 0.0)
        return (whole_up(more) if self.shared else more) @ self.cost

    def hour(self, p: int, committed: Floats, taken: Floats) -> tuple[float, Floats]:
        """The least rent of a period and what each application takes, from what each took."""
        menus, taken = self.menus[p], taken.copy()
        total = taken.sum(axis=0)
        for _ in range(SWEEPS):
            changed = False
            for number, menu in enumerate(menus):
                others = total - taken[number]
                self.looks += 1
                rent = self.rent(menu + (others - committed))
                best = int(np.argmin(rent))
                if not np.array_equal(menu[best], taken[number]):
                    now = float(self.rent(total - committed))
                    if rent[best] < now - SLACK:
                        taken[number], total, changed = menu[best], others + menu[best], True
            if not changed or len(menus) == 1:
                break
        return float(self.rent(total - committed)), taken

    def at(self, committed: Floats, before: list[Floats]) -> tuple[float, list[Floats]]:
        """What a fleet costs at these committed machines, and what each application takes in each period."""
        sold = committed > 0
        bill = float(self.pay[sold] @ committed[sold]) * float(self.lengths.sum())
        taken = []
        for p, length in enumerate(self.lengths):
            rent, own = self.hour(p, committed, before[p])
            bill += length * rent
            taken.append(own)
        return bill, taken

    def descend(self, committed: Floats) -> tuple[float, Floats, list[Floats]] | None:
        """Local search from committed machines: the bill, committed machines, machines by period; None if none fit."""
        if any(not len(menu) for menus in self.menus for menu in menus):
            return None
        self.looks = 0
        first = [np.array([menu[0] for menu in menus]) for menus in self.menus]
        bill, taken = self.at(committed, self.at(committed, first)[1])
        falls = True
        while falls and self.looks < LOOKS and not is_over(self.search.ask):
            falls = False
            for other in self._near(committed):
                less, own = self.at(other, taken)
                if less < bill - SLACK * max(1.0, abs(bill)):
                    bill, committed, taken, falls = less, other, own, True
                    break
                if self.looks >= LOOKS or is_over(self.search.ask):
                    break
        return bill, committed, taken

    def repair_periods(
        self, committed: Floats, taken: list[Floats], others: Iterable[tuple[int, int]]
    ) -> list[Floats] | None:
        """Machines by period where these (period, application) choose again; None where one has no choice."""
        taken, periods = [own.copy() for own in taken], dict[int, None]()
        for p, number in others:
            menu, own = self.menus[p][number], taken[p]
            if not len(menu):
                return None
            rest = own.sum(axis=0) - own[number] - committed
            own[number], periods[p] = menu[int(np.argmin(self.rent(menu + rest)))], None
        for p in periods:
            taken[p] = self.hour(p, committed, taken[p])[1]
        return taken

    def _near(self, committed: Floats) -> Iterator[Floats]:
        sold = np.flatnonzero(np.isfinite(self.pay))
        stock = self.search.wish.stock
        steps = np.eye(len(committed))
        for i in sold:
            if committed[i] > 0:
                yield committed - steps[i]
            if committed[i] < stock[i]:
                yield committed + steps[i]
        for i in sold:
            for j in sold:
                if i != j and committed[i] > 0 and committed[j] < stock[j]:
                    yield committed - steps[i] + steps[j]

    def fleet(self, search: Search, committed: Floats, taken: list[Floats]) -> Fleet | None:
        """As a fleet of a search, where every limit holds; its choices are in the menus from then on."""
        wish, menus = search.wish, search.menus
        choices, rented = dict[tuple[str, int], Choice](), list[tuple[int, ...]]()
        for own in taken:
            rented.append(tuple(int(n) for n in whole_up(np.maximum(own.sum(axis=0) - committed, 0.0))))
        if not keeps_limits(search, committed, rented):
            return None
        for p, own in enumerate(taken):
            for number, app in enumerate(wish.apps):
                machines = self.counted(app.name, own[number])
                choices[app.name, p] = menus.add(app, wish.rate(app, p), machines)
        return Fleet(tuple(int(n) for n in committed), choices, tuple(rented))


def keeps_limits(search: Search, committed: Sequence[float] | Floats, rented: Sequence[Sequence[float]]) -> bool:
    """Whether machines that are committed, and rented in each period, keep every limit."""
    ahead = np.array(committed, dtype=float)
    each = dict.fromkeys(tuple(one) for one in rented)
    return all(keeps(search.limits, ahead + np.array(more), ahead) for more in each)


TRIES = 4
FEW_PAIRS = 72
"""Up to so many applications and periods hours are looked at alone, too, and what their machines leave."""
HOUR_GAP = 0.01
"""How near the cheapest each hour is looked for by itself, then."""
POLISHES = 2
MORE = 1.5
"""Up to so many times the programs that set prices, choices are made a second time."""


def best_fleet(search: Search, each: Search, like: Search, relaxed: Relaxation) -> Fleet | None:
    """The cheapest whole fleet found: by descent, then by the program, where that is not near the bound.

    `each` has every rate once, `like` is the search over groups of periods that set the first prices. Where moves are
    limited, a fleet found by descent is kept if it moves so few, beside one that has the same machines in all hours.
    """
    wish = search.wish
    found = list(_descents(search, each, like, relaxed))
    if wish.request.changes is not None and wish.periods > 1:
        still = _still(search)
        found = [one for one in (*found, still) if one is not None and _moves_of(wish, one) <= wish.request.changes]
    best = min(found, key=lambda one: cost_of(wish, one), default=None)
    for committed in _tries_of(search, relaxed) if best is None else ():
        best = best or _hour_by_hour(search, to_whole(committed))
    return refine_fleet(search, best)


def refine_fleet(search: Search, fleet: Fleet | None) -> Fleet | None:
    """The fleet, or a cheaper one by the full program where it is not near its bound or slices share machines.

    Menus have few ways to fill a machine, and none of the machines that are the cheapest at no prices, such as some of
    each of two offers of which one is limited. Where parts are played, rows do not say how much room queues need.
    """
    wish = search.wish
    if fleet is None:
        return None
    is_far = cost_of(wish, fleet) * (1.0 - wish.options.gap) > search.bound
    if wish.places or (is_far and wish.options.sizing == "fluid" and len(search.pairs) <= FEW_PAIRS):
        with suppress(Interrupted):
            return _hour_by_hour(search, fleet.committed, fleet)
    return fleet


def _hour_by_hour(search: Search, committed: Sequence[int], beside: Fleet | None = None) -> Fleet | None:
    """Periods alone, given what is committed: those that are cheaper than `beside`, on the offers that are used there.

    None where one of them has no fleet.
    """
    wish, each, fleet = search.wish, search.over(search.equal_periods), beside
    used = [any(counts) for counts in zip(committed, *beside.rented, strict=True)] if beside is not None else None
    if wish.request.changes is not None and wish.periods > 1:
        return beside
    for n, same in enumerate(search.equal_periods):
        if is_over(search.ask):
            return beside and fleet
        search.ask.note(Event("fleet", detail=f"machines of p{same[0]}", bound=search.hourly_bound))
        hour = planned(each, [n], gap=HOUR_GAP, committed=committed, only=used).fleet
        other = None if hour is None else _of_all(search, hour, {n: same}, fleet)
        if other is None and beside is None:
            return None
        if other is not None and (fleet is None or beside is None or cost_of(wish, other) < cost_of(wish, fleet)):
            fleet = other
    return fleet


def _of_all(
    search: Search, hours: Fleet, groups: Mapping[int, Sequence[int]], beside: Fleet | None = None
) -> Fleet | None:
    """What is rented in some hours, each of them so many periods; its choices are in the menus from then on.

    None where a question did not settle one of them.
    """
    wish = search.wish
    choices = dict(beside.choices) if beside is not None else {}
    rented = list[tuple[int, ...]](beside.rented if beside is not None else [()] * wish.periods)
    for (n, same), counts in zip(groups.items(), hours.rented, strict=True):
        for p in same:
            rented[p] = counts
            for app in wish.apps:
                machines = hours.choices[app.name, n].machines
                if (app.name, wish.rate(app, p), machines) in search.menus.refused:
                    return None
                choices[app.name, p] = search.menus.add(app, wish.rate(app, p), machines)
    return _tight(wish, Fleet(hours.committed, choices, tuple(rented)))


def _descents(search: Search, each: Search, like: Search, relaxed: Relaxation) -> Iterator[Fleet]:
    """Fleets by descent, the later ones with choices that were made for what the earlier ones commit."""
    coarse = Descent(like, like.hourly())
    tried = [one for one in map(coarse.descend, _tries_of(like, relaxed)) if one is not None]
    if not tried:
        return
    yield from descend_repeatedly(search, each, min(tried, key=lambda one: one[0])[1])


def descend_repeatedly(search: Search, each: Search, committed: Floats, turns: int = POLISHES + 1) -> Iterator[Fleet]:
    """Fleets by repeated descent from committed machines, each time with choices that fit the last ones."""
    place = {p: number for number, periods in enumerate(search.equal_periods) for p in periods}
    for turn in range(turns):
        search.ask.note(Event("fleet", detail=f"whole machines, pass {turn + 1}", bound=each.hourly_bound))
        down = Descent(each, each.hourly())
        found = down.descend(committed)
        if found is None:
            return
        _, committed, taken = found
        fleet = down.fleet(search, committed, [taken[place[p]] for p in range(search.wish.periods)])
        if fleet is None:
            return
        yield fleet
        if is_over(search.ask) or (turn + 1 == turns and len(search.pairs) > FEW_PAIRS):
            return
        wanted, known = [], search.n_choices
        for p, own in enumerate(taken):
            for number, app in enumerate(each.wish.apps):
                others = own.sum(axis=0) - own[number]
                paid = np.maximum(committed, whole_up(others)) if search.wish.places else committed
                free = np.maximum(paid - others, 0.0)
                wanted.append((app, each.wish.rate(app, p), search.bar_prices(search.wish.prices), free))
        if turn and search.menus.n_programs + len(wanted) > MOST_PROGRAMS * MORE:
            return
        with suppress(Interrupted):
            search.menus.beyond(search.ask, wanted)
        if search.n_choices == known:
            return


def _moves_of(wish: FleetRequest, fleet: Fleet) -> int:
    """The most machines that applications get anew between two periods, or of those that run."""

    def between(p: int, before: Callable[[str], Floats]) -> int:
        new = (np.maximum(fleet.choices[app.name, p].array - before(app.name), 0.0) for app in wish.apps)
        return int(sum(float(one.sum()) for one in new))

    found = [between(0, wish.runs)] if wish.stated else []
    first = 0 if wish.again else 1
    return max(
        (*found, *(between(p, lambda name, p=p: fleet.choices[name, (p - 1) % wish.periods].array)  # type: ignore[misc]
                   for p in range(first, wish.periods)))
    )  # fmt: skip


def _still(search: Search) -> Fleet | None:
    """The cheapest fleet that is the same in all periods: no machine moves."""
    every = list(range(search.wish.periods))
    found = planned(search.over([every]), gap=search.wish.options.gap).fleet
    return None if found is None else _of_all(search, found, {0: every})


def _tries_of(search: Search, relaxed: Relaxation) -> list[Floats]:
    """Whole committed counts: the relaxed ones rounded down, to the nearest, and up."""
    found: list[Floats] = []
    for shift in (0.5, 0.25, 0.75, 0.0):
        counts = np.floor(relaxed.committed + shift + 1e-6)
        counts = np.minimum(counts, search.wish.stock)
        if not any(np.array_equal(counts, one) for one in found):
            found.append(counts)
    return found[:TRIES]


def _tight(wish: FleetRequest, fleet: Fleet) -> Fleet:
    """The same without rented machines that nobody takes, unless a limit asks for them."""
    if wish.request.shares or any(least for least, _ in wish.request.instances.values()):
        return fleet
    rented = []
    for p, counts in enumerate(fleet.rented):
        if not counts:
            rented.append(counts)
            continue
        taken = sum((fleet.choices[app.name, p].array for app in wish.apps), np.zeros(len(wish.offers)))
        needed = whole_up(np.maximum(taken - np.array(fleet.committed), 0.0))
        rented.append(to_whole(np.minimum(needed, np.array(counts, dtype=float))))
    return Fleet(fleet.committed, fleet.choices, tuple(rented))
