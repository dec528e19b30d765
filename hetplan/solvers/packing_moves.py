r"""All groups at least cost within totals: from the choice that prices make, repaired, then improved move by move.

What each group would take at the prices alone may be more than there is. Repair changes one group's option at a time,
each time the one that costs least per excess that it takes away. Then single changes and pairs of them are made while
they save anything and fit. A pair is looked for among the changes that cost least at the prices: where prices are good,
few others can be part of a better choice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.tolerances import FEASIBILITY
from hetplan.solvers.packing_prices import choose_by

__all__ = ["by_moves"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

MANY = 1_500
FACTORS = (1.0, 0.5, 0.7, 1.4, 2.0, 4.0)
MOST_REPAIRS = 5_000
MOST_MOVES = 2_000
PAIRED = 300
"""Changes that are tried in pairs."""
MOST_PAIRS = 60
SLIP = 1e-12


def by_moves(form: Packing, prices: Vector, known: Choice | None = None) -> Choice | None:
    """A choice of all groups within what there is, the best of several begins; None where no repair came to an end.

    Small forms are begun from prices that are lower and higher as well, and from a choice at hand.
    """
    if form.sense != "min" or form.items is not None:
        return None
    small = form.worth.size <= MANY
    begins = [choose_by(form, form.worth + form.taken @ (factor * prices)) for factor in (FACTORS if small else (1.0,))]
    begins += [known.option.copy()] if small and known is not None else []
    best: Choice | None = None
    for begin in begins:
        state = _State(form, prices, begin)
        if (begin >= 0).all() and state.repair():
            state.improve()
            found = Choice(state.chosen)
            best = found if best is None or form.value(found) < form.value(best) else best
    return best


class _State:
    """One option per group, and what all of them take of the resources that have an end."""

    def __init__(self, form: Packing, prices: Vector, chosen: Integers) -> None:
        self.form = form
        finite = np.isfinite(form.capacity)
        limit = form.capacity[finite]
        self.room = limit + FEASIBILITY / 2 * np.maximum(1.0, np.abs(limit))
        self.scale = np.where(limit > 0, limit, 1.0)
        self.taken = form.demand[:, finite]
        self.paid = form.worth + form.taken @ prices
        self.chosen = chosen
        self.load = self.taken[self.chosen[self.chosen >= 0]].sum(axis=0)

    def change(self, option: int) -> None:
        """Give an option's group this option."""
        group = int(self.form.group[option])
        self.load = self.load + self.taken[option] - self.taken[self.chosen[group]]
        self.chosen[group] = option

    def _changes(self) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Of every option: what taking it would add to the load and to the cost, and whether it may be taken."""
        now = self.chosen[self.form.group]
        allowed = self.form.fits & (np.arange(now.size) != now)
        return self.taken - self.taken[now], self.form.worth - self.form.worth[now], allowed

    def repair(self) -> bool:
        """Until nothing is exceeded; False where no change of one group, nor of two, takes any excess away."""
        for _ in range(MOST_REPAIRS):
            excess = self._excess(self.load)
            if excess <= 0:
                return True
            more, cost, allowed = self._changes()
            gain = np.where(allowed, excess - self._excess(self.load + more), 0.0)
            useful = np.flatnonzero(gain > SLIP)
            if not useful.size:
                return False
            rate = np.maximum(cost[useful], SLIP) / np.minimum(gain[useful], excess)
            self.change(int(useful[np.lexsort((-gain[useful], rate))[0]]))
        return False

    def _excess(self, load: Vector) -> Vector:
        over: Vector = np.maximum(load - self.room, 0.0) / self.scale
        return np.asarray(over.sum(axis=-1))

    def improve(self) -> None:
        """Single changes while one saves, then pairs, then again."""
        for _ in range(MOST_PAIRS):
            for _ in range(MOST_MOVES):
                more, cost, allowed = self._changes()
                cost = np.where(allowed & (self.load + more <= self.room).all(axis=1), cost, 0.0)
                best = int(np.argmin(cost)) if cost.size else 0
                if not cost.size or cost[best] >= -self._least:
                    break
                self.change(best)
            if not self._change_two():
                return

    @property
    def _least(self) -> float:
        """A saving below this is rounding."""
        return 1e-9 * max(1.0, float(np.abs(self.form.worth[self.chosen]).sum()))

    def _change_two(self) -> bool:
        """The pair of changes that saves most, if one does."""
        more, cost, allowed = self._changes()
        near = self.paid - self.paid[self.chosen[self.form.group]]
        order = np.argsort(np.where(allowed, near, np.inf), kind="stable")[:PAIRED]
        order = order[allowed[order]]
        both = cost[order][:, None] + cost[order][None, :]
        both[self.form.group[order][:, None] == self.form.group[order][None, :]] = 0.0
        for resource, room in enumerate(self.room):
            load = self.load[resource] + more[order, resource][:, None] + more[order, resource][None, :]
            both[load > room] = 0.0
        if not both.size or both.min() >= -self._least:
            return False
        one, other = np.unravel_index(int(np.argmin(both)), both.shape)
        self.change(int(order[one]))
        self.change(int(order[other]))
        return True
