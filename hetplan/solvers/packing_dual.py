"""Packing by prices, with the bound that they prove: the best of greedy by benefit per price and by the four norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.solvers.packing_counts import in_fewer_machines
from hetplan.solvers.packing_greedy import PackingEngine, better, fill, in_order, norms
from hetplan.solvers.packing_machines import at_least_cost, machine_orders
from hetplan.solvers.packing_moves import by_moves
from hetplan.solvers.packing_prices import best_prices

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Dual", "portfolio", "sound_start"]

Vector = NDArray[np.float64]

EPS = 1e-9


def greedy_by(form: Packing, prices: Vector) -> Choice | None:
    """Greedy by benefit per price paid."""
    finite = np.where(np.isfinite(form.limit) & (form.limit > 0), form.limit, np.inf)
    return fill(form, in_order(form, form.taken @ (prices + EPS / finite)))


class Dual(PackingEngine):
    """Prices with their bound; the choice by them or by one of the norms, whichever is best."""

    name: ClassVar[str] = "dual"

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """Choose, with a bound that the prices prove."""
        del on_event
        prices = best_prices(form, limits)
        choice = better(form, portfolio(form, prices), sound_start(form, start))
        return self.answer(form, choice, prices=form.prices(prices), stop=Stop.FINISHED)


def portfolio(form: Packing, prices: Vector) -> Choice | None:
    """The best choice among those by prices and by norms."""
    if form.sense == "min" and form.items is not None:
        found = better(form, at_least_cost(form, prices), fill(form, in_order(form, norms(form)["sum"])))
        fewer = in_fewer_machines(form, found, form.whole(form.bound(prices)))
        return found if fewer is None else fewer
    best = greedy_by(form, prices)
    for demand in norms(form).values():
        best = better(form, best, fill(form, in_order(form, demand)))
    if form.items is not None:
        for found in machine_orders(form, prices):
            best = better(form, best, found)
    if form.sense == "min":
        best = better(form, best, fill(form, by_price(form, prices)))
        best = better(form, best, by_moves(form, prices, best))
    return best


def by_price(form: Packing, prices: Vector) -> NDArray[np.int64]:
    """For least cost: groups' options in order of regret, the group that would lose most by waiting first."""
    paid = np.where(form.fits, form.worth + form.taken @ prices, np.inf)
    order = np.lexsort((paid, form.group))
    order = order[np.isfinite(paid[order])]
    best = np.full(form.first.size - 1, np.inf)
    np.minimum.at(best, form.group, paid)
    extra = paid[order] - best[form.group[order]]
    return order[np.argsort(extra, kind="stable")]


def sound_start(form: Packing, start: Choice | None) -> Choice | None:
    """A choice to begin from, if it is one."""
    if start is None:
        return None
    return start if not form.certify(Answer(Status.FEASIBLE, point=start)).faults else None
