"""The conversation about a fleet: prices, menus and a bound; then whole machines, hour by hour and all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask, Event
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.part import Part
from hetplan.problems.fleet.master import Limit, add_machines, limits_of
from hetplan.problems.fleet.menus import Choice, Menus
from hetplan.problems.fleet.wish import Application, Wish

__all__ = ["Fleet", "Relaxed", "Search"]

Floats = NDArray[np.float64]

MISSING = 1e4
"""What a period costs per hour in which an application gets nothing: above any price that is met."""
CENTRE = 1e-3
"""How much of all prices is taken from those at which machines are sold, so that none is free."""
MIXED = 0.5
"""How much of the prices of the best bound goes into the next ones, at first."""


@dataclass(frozen=True)
class Fleet:
    """What is committed, and per period what each application gets, and what is rented."""

    committed: tuple[int, ...]
    choices: Mapping[tuple[str, int], Choice]
    rented: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Relaxed:
    """The cheapest mixture, and the prices of its rows (all but those that say that each application gets one)."""

    value: float
    missing: float
    duals: Floats
    committed: Floats
    form: Milp
    cover: Mapping[int, NDArray[np.int64]]
    bought: int


@dataclass
class Search:
    """One search; `bound` is per horizon, in currency units."""

    wish: Wish
    ask: Ask
    menus: Menus
    bound: float = 0.0
    rounds: int = 0
    limits: Sequence[Limit] = ()
    impossible: list[tuple[Application, int]] = field(default_factory=list)
    answer: Answer[Floats] | None = None

    @classmethod
    def of(cls, wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Search:
        """An empty search."""
        return cls(wish, ask, Menus(wish, parts), limits=tuple(limits_of(wish)))

    @property
    def pairs(self) -> list[tuple[Application, int]]:
        """Applications and periods."""
        return [(app, p) for p in range(self.wish.periods) for app in self.wish.apps]

    def lowest(self) -> Floats:
        """The least that a machine of each offer can cost per hour: prices that no purchase undercuts."""
        wish = self.wish
        committed = wish.committed if wish.commits else np.full(len(wish.offers), np.inf)
        return np.minimum(wish.prices, committed)

    def begin(self) -> bool:
        """Menus at the prices of the offers; whether each application has a choice in each period."""
        wish = self.wish
        plain = [wish.prices, self.lowest()]
        if not wish.spot or not wish.commits:
            plain = plain[:1]
        for prices in plain:
            rates = {(app.name, wish.rate(app, p)): app for app, p in self.pairs}
            wanted = [(app, rate, self.barred(prices)) for (_, rate), app in rates.items()]
            found = dict(zip(rates, self.menus.price(self.ask, wanted), strict=True))
            self.impossible = [(a, p) for a, p in self.pairs if found[a.name, wish.rate(a, p)][1] is None]
            if self.impossible:
                return False
        return True

    def barred(self, prices: Floats) -> Floats:
        """Prices under which nobody takes what may not be rented."""
        spot = np.array([offer.spot and not self.wish.spot for offer in self.wish.offers])
        return np.where(spot, MISSING, prices)

    def relaxed(self, menus: Mapping[tuple[str, int], Sequence[Choice]] | None = None) -> Relaxed:
        """The cheapest mixture of the choices known, machines in parts allowed."""
        wish, m = self.wish, Builder("min", name="fleet, relaxed")
        committed, rented, cover = add_machines(m, wish, self.limits, range(wish.periods), whole=False)
        bought = int(rented[wish.periods - 1][-1]) + 1
        priced = int(cover[wish.periods - 1][-1]) + 1 + len(self.limits)
        pairs = self.pairs
        each = m.rows("each", str, size=len(pairs), lower=1.0, upper=1.0)
        missing = m.columns("missing", str, size=len(pairs), cost=MISSING * wish.hours)
        m.add(each, missing, 1.0)
        for row, (app, p) in zip(each, pairs, strict=True):
            choices = self.menus.of(app, p) if menus is None else menus[app.name, p]
            y = m.columns(f"{app.name} in {p}", str, size=len(choices))
            m.add(row, y, 1.0)
            for column, choice in zip(y, choices, strict=True):
                used = np.flatnonzero(choice.machines)
                m.add(cover[p][used], column, -choice.array[used])
        form = m.build()
        answer = self.ask(form, gap=0.0, about="cheapest mixture of machines")
        if answer.point is None or answer.row_duals is None:
            raise SolverFailed(answer.engine, f"the relaxed fleet has no answer: {answer.status}")
        duals = answer.row_duals[:priced].copy()
        duals = np.where((duals > 0) & ~np.isfinite(form.row_lower[:priced]), 0.0, duals)
        duals = np.where((duals < 0) & ~np.isfinite(form.row_upper[:priced]), 0.0, duals)
        return Relaxed(
            value=float(answer.value or 0.0), missing=float(answer.point[missing].sum()), duals=duals,
            committed=answer.point[committed], form=form, cover=cover, bought=bought,
        )  # fmt: skip

    def worth(self, found: Relaxed, duals: Floats) -> tuple[float, bool]:
        """What no fleet costs less than, by these prices of rows; whether they showed a choice that was not known."""
        wish, before = self.wish, sum(len(one) for one in self.menus.found.values())
        wanted = [
            (app, wish.rate(app, p), np.minimum(np.maximum(duals[found.cover[p]], 0.0), MISSING))
            for app, p in self.pairs
        ]
        cheapest = self.menus.price(self.ask, wanted)
        rows = found.form.matrix[: len(duals)]
        reduced = found.form.cost[: found.bought] - (rows.T @ duals)[: found.bought]
        undercut = np.where(reduced < 0, reduced * np.minimum(found.form.upper[: found.bought], 1e6), 0.0)
        ends = np.where(duals > 0, found.form.row_lower[: len(duals)], found.form.row_upper[: len(duals)])
        limits = float(np.sum(duals[duals != 0] * ends[duals != 0]))
        bound = sum(value for value, _ in cheapest) + limits + float(undercut.sum())
        return bound, sum(len(one) for one in self.menus.found.values()) > before

    def converge(self, gap: float) -> Relaxed:
        """Prices and menus in turn until the bound meets the relaxed fleet."""
        wish, best = self.wish, None
        while True:
            found = self.relaxed()
            centre = np.zeros_like(found.duals)
            for p in range(wish.periods):
                centre[found.cover[p]] = self.lowest() * wish.hours
            best = centre if best is None else best
            fresh = False
            for mixed in (MIXED, 0.0):
                duals = mixed * best + (1 - mixed) * found.duals
                bound, fresh = self.worth(found, (1 - CENTRE) * duals + CENTRE * centre)
                if bound > self.bound:
                    self.bound, best = bound, duals
                if fresh:
                    break
            self.rounds += 1
            self.ask.note(Event("fleet", detail=f"round {self.rounds}", value=found.value, bound=self.bound))
            closed = not found.missing and found.value - self.bound <= gap * abs(found.value)
            if not fresh or closed or self.rounds >= wish.options.rounds:
                return found
