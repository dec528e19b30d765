"""Finds whole fleets step by step: commitments change by one machine while the bill falls.

At given committed machines R each application in each period takes the choice that rents least beyond what the others
leave of R, one application after the other until none changes.
Choices are those of its rate or more in all orders of zones that are alike. Moves of R are a machine more, one less, or
one for another. Work is counted, never timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.machine_limits import keeps
from hetplan.problems.fleet.alike import zone_orders
from hetplan.problems.fleet.menus import Choice
from hetplan.problems.fleet.search import Fleet, Search, is_over

__all__ = ["Descent", "keeps_limits", "whole_up"]

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
        self.cost = np.where(self.search.barred(wish.prices) > wish.prices, 1e6, wish.prices)
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
        return tuple(int(n) for n in np.rint(machines * np.array(self.search.wish.each(name))))

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

    def found(self, committed: Floats) -> tuple[float, Floats, list[Floats]] | None:
        """The fleet at the end of a descent from these committed machines: its bill, R, and x per period."""
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

    def mended(self, committed: Floats, taken: list[Floats], others: Iterable[tuple[int, int]]) -> list[Floats] | None:
        """The same but in the periods of these (period, application), who take others first, and then all."""
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
