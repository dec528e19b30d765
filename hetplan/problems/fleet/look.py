"""A fleet soon: one look from where the last search ended, with the bound that its prices prove of the new files.

The prices of any search bound every fleet: at them the cheapest machines of each application are found anew, and what
limits and purchases add. So the gap is that of the files now, whatever the prices were found for. Whole machines are
looked for from those committed before, among the choices known that still carry what they should.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.part import Part
from hetplan.problems.fleet.descent import keeps_limits
from hetplan.problems.fleet.menus import LARGEST, Counts
from hetplan.problems.fleet.remembered import Recalled
from hetplan.problems.fleet.search import FEW, Fleet, Search
from hetplan.problems.fleet.ways import Found, settled_by
from hetplan.problems.fleet.whole import cost_of, hours, moves_of, polished, tries_of
from hetplan.problems.fleet.wish import Wish

Floats = NDArray[np.float64]
ROUNDS = 4
NEAR, FAR = 0.01, 0.05
"""So near to the bound a fleet of before is a first plan; where one is further from it, other prices are asked for."""
TINY = 1e-12
MOST_ENDED = 4
"""Where so many searches ended is known, each under other limits."""

__all__ = ["Ended", "ended", "looked"]


@dataclass(frozen=True)
class Ended:
    """Where a search ended: its fleet, and the choices of each application by rate.

    `prices` are those of its bound, by period: of machines in the order of offers, and of `limits`.
    """

    prices: tuple[Floats, ...]
    limits: tuple[str, ...]
    fleet: Fleet
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
    known[names] = Ended(prices, names, found.fleet, choices)  # the last is the newest
    before[_shape(found.wish)] = dict(list(known.items())[-MOST_ENDED:])


def _names(search: Search) -> tuple[str, ...]:
    return tuple(f"{limit.name}[{limit.label}]" for limit in search.limits)


def _nearest(known: Mapping[tuple[str, ...], Ended], search: Search) -> Ended | None:
    """Where a search ended under the same limits; else under the most alike, of equal ones the newest."""
    names = set(_names(search))
    return min(reversed(tuple(known.values())), key=lambda one: len(names.symmetric_difference(one.limits)), default=None)


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
    committed = np.minimum(np.array(known.fleet.committed, dtype=float), stock)
    fleet = _as_before(search, each, known.fleet) or _anew(search, each, committed)
    if fleet is None or moves_of(wish, fleet) > (wish.inputs.slo.limits.moves or np.inf):
        return None
    settled, refused = settled_by(search, fleet)
    if refused:
        return None
    said = tuple(each.said(search.same if len(search.same) < wish.periods else [[p] for p in range(wish.periods)]))
    notices = recalled.notices() if recalled is not None else ()
    return Found(wish, fleet, settled, each.bound, 0, notices=notices, prices=said, served=each.served(), search=each)


def _as_before(search: Search, each: Search, fleet: Fleet) -> Fleet | None:
    """The fleet of before, where it still keeps everything and is as near to the bound as a first plan has to be."""
    wish, menus = search.wish, search.menus
    if any(count and not sold for count, sold in zip(fleet.committed, np.isfinite(wish.committed), strict=True)):
        return None
    wanted = {(app.name, wish.rate(app, p), fleet.choices[app.name, p].machines): app for app, p in search.pairs}
    if not all(menus.holds(app, rate, machines) for (_, rate, machines), app in wanted.items()):
        return None
    if not keeps_limits(search, fleet.committed, fleet.rented):
        return None
    cost = cost_of(wish, fleet)
    if cost - each.bound > NEAR * cost:
        return None
    choices = {(app.name, p): menus.add(app, wish.rate(app, p), fleet.choices[app.name, p].machines)
               for app, p in search.pairs}  # fmt: skip
    return replace(fleet, choices=choices)


def _anew(search: Search, each: Search, committed: Floats) -> Fleet | None:
    """The fleet of one descent; where limits are in its way, or it is far from the bound, of programs by period."""
    found = next(polished(search, each, committed, turns=1), None)
    if found is not None and cost_of(search.wish, found) * (1.0 - FAR) <= each.bound:
        return found
    fleets = [one for one in (found, _by_period(search, each, committed)) if one is not None]
    return min(fleets, key=lambda one: cost_of(search.wish, one), default=None)


def _by_period(search: Search, each: Search, committed: Floats) -> Fleet | None:
    """The cheapest machines of each period, where so much is committed and limits hold; of the same rates once.

    Where limits leave no room for what was committed, or it is far from the bound, a few rounds of prices say what else
    to commit.
    """
    if search.wish.inputs.slo.limits.moves is not None:
        return None
    found = hours(each, committed, gap=NEAR)
    if found is None or cost_of(each.wish, found) - each.bound > FAR * cost_of(each.wish, found):
        each.menus.known = None  # who knows a bound shows no machines
        mixture = each.converge(NEAR, ROUNDS)
        if mixture.missing > FEW:
            return None
        tried = [hours(each, counts, gap=NEAR) for counts in tries_of(each, mixture)]
        fleets = [one for one in (found, *tried) if one is not None]
        found = min(fleets, key=lambda one: cost_of(each.wish, one), default=None)
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
