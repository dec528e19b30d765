"""A fleet soon: one look from where the last search ended, with the bound that its prices prove of the new files.

The prices of any search bound every fleet: at them the cheapest machines of each application are found anew, and what
limits and purchases add. So the gap is that of the files now, whatever the prices were found for. Whole machines are
looked for from those committed before, among the choices known that still carry what they should.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.part import Part
from hetplan.problems.fleet.menus import LARGEST, Counts
from hetplan.problems.fleet.remembered import Recalled
from hetplan.problems.fleet.search import Fleet, Search
from hetplan.problems.fleet.ways import Found, settled_by
from hetplan.problems.fleet.whole import hours, polished
from hetplan.problems.fleet.wish import Wish

Floats = NDArray[np.float64]
ROUNDS = 4
TINY = 1e-12
MOST_ENDED = 4
"""Where so many searches ended is known, each under other limits."""

__all__ = ["Ended", "ended", "looked"]


@dataclass(frozen=True)
class Ended:
    """Where a search ended: what it committed, and the choices of each application by rate.

    `prices` are those of its bound, by period: of machines in the order of offers, and of `limits`.
    """

    prices: tuple[Floats, ...]
    limits: tuple[str, ...]
    committed: Counts
    choices: Mapping[tuple[str, float], tuple[Counts, ...]]


Known = Mapping[tuple[str, ...], Ended]
"""Where searches ended, by the limits that there were."""


def _shape(wish: Wish) -> object:
    """What two wishes have alike whose machines have prices in the same periods."""
    return (
        tuple(offer.name for offer in wish.offers),
        tuple(app.name for app in wish.apps),
        tuple(tuple(app.rates) for app in wish.apps),
        tuple(wish.length(p) for p in range(wish.periods)),
    )


def ended(before: MutableMapping[object, Known], found: Found) -> None:
    """Keep where a search ended."""
    each = found.search
    if each is None or each.best is None:
        return
    prices = tuple(each.best[each.rows_of(each.bare, p)] for p in range(each.wish.periods))
    choices = {key: tuple(one) for key, one in each.menus.found.items()}
    known, names = dict(before.get(_shape(found.wish), {})), _names(each)
    known.pop(names, None)
    known[names] = Ended(prices, names, found.fleet.committed, choices)  # the last is the newest
    before[_shape(found.wish)] = dict(list(known.items())[-MOST_ENDED:])


def _names(search: Search) -> tuple[str, ...]:
    return tuple(f"{limit.name}[{limit.label}]" for limit in search.limits)


def _nearest(known: Mapping[tuple[str, ...], Ended], search: Search) -> Ended | None:
    """Where a search ended under the same limits; else under the most alike, of equal ones the newest."""
    names = set(_names(search))
    return min(reversed(known.values()), key=lambda one: len(names.symmetric_difference(one.limits)), default=None)


def looked(
    wish: Wish, parts: Mapping[str, Part], ask: Ask, before: Mapping[object, Known], recalled: Recalled | None = None
) -> Found | None:
    """The fleet of one descent, its parts settled; None where there was no search alike, or nothing comes of it.

    Where limits are in the way of the descent, each period is a program with what was committed before.
    """
    search = Search.of(wish, parts, ask)
    known = _nearest(before.get(_shape(wish), {}), search)
    if known is None or search.contradictions() is not None:
        return None
    if recalled is not None:
        search.menus.known = recalled.hand_out()
    each = search.over(search.same)
    if len(known.prices) != each.wish.periods:
        return None
    prices = _afforded(each, known)
    bound, _ = each.worth(each.bare, prices)
    if not np.isfinite(bound):
        return None
    each.best, each.bound = prices, max(bound, 0.0)
    stock = [offer.stock for offer in wish.offers]
    for app in wish.apps:
        for rate in {wish.rate(app, p) for p in range(wish.periods)}:
            for machines in known.choices.get((app.name, rate), ()):
                there = all(n <= most for n, most in zip(machines, stock, strict=True))
                if there and search.menus.holds(app, rate, machines):
                    search.menus.add(app, rate, machines)
    committed = np.minimum(np.array(known.committed, dtype=float), stock)
    fleet = next(polished(search, each, committed, turns=1), None) or _by_period(search, each, committed)
    if fleet is None:
        return None
    settled, refused = settled_by(search, fleet)
    if refused:
        return None
    said = tuple(each.said(search.same if len(search.same) < wish.periods else [[p] for p in range(wish.periods)]))
    notices = recalled.notices() if recalled is not None else ()
    return Found(
        wish, fleet, settled, each.bound, 0, notices=notices, prices=said, served=each.served(), search=each
    )


def _by_period(search: Search, each: Search, committed: Floats) -> Fleet | None:
    """The cheapest machines of each period, where so much is committed and limits hold; of the same rates once."""
    if search.wish.inputs.slo.limits.moves is not None:
        return None
    found = hours(each, committed)
    if found is None:
        return None
    place = [next(n for n, group in enumerate(search.same) if p in group) for p in range(search.wish.periods)]
    choices = {(app.name, p): found.choices[app.name, place[p]] for app, p in search.pairs}
    return Fleet(found.committed, choices, tuple(found.rented[n] for n in place))


def _afforded(each: Search, known: Ended) -> Floats:
    """Those prices as prices of rows, lowered where as many machines as wanted are sold for less."""
    bare, names = each.bare, _names(each)
    prices = np.zeros_like(bare.duals)
    for p, own in enumerate(known.prices):
        of_limits = dict(zip(known.limits, own[-len(known.limits) :] if known.limits else (), strict=True))
        machines = own[: len(own) - len(known.limits)]  # prices of rows: first machines, then limits
        prices[each.rows_of(bare, p)] = [*machines, *(of_limits.get(name, 0.0) for name in names)]
    rows = bare.form.matrix[: len(prices)].tocoo()
    mine = rows.col < bare.bought
    row, col, part = rows.row[mine], rows.col[mine], rows.data[mine]
    for _ in range(ROUNDS):
        taken = np.bincount(col, weights=part * prices[row], minlength=bare.bought)
        over = (taken > bare.form.cost[: bare.bought] + TINY) & (bare.form.upper[: bare.bought] >= LARGEST)
        if not over.any():
            break
        lower = np.where(over, bare.form.cost[: bare.bought] / np.where(over, taken, 1.0), 1.0)
        least = np.ones_like(prices)
        np.minimum.at(least, row[part > 0], lower[col[part > 0]])
        prices = np.where(prices > 0, prices * least, prices)
    return prices
