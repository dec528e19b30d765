"""A fleet soon: one look from where the last search ended, with the bound that its prices prove of the new files.

The prices of any search bound every fleet: at them the cheapest machines of each application are found anew, and what
limits and purchases add. So the gap is that of the files now, whatever the prices were found for. Whole machines are
looked for from those committed before, among the choices known that still carry what they should.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.part import Part
from hetplan.problems.fleet.descent import keeps_limits
from hetplan.problems.fleet.menus import LARGEST
from hetplan.problems.fleet.remembered import Recalled
from hetplan.problems.fleet.search import FEW, Fleet, Search
from hetplan.problems.fleet.ways import Found, settled_by
from hetplan.problems.fleet.whole import cost_of, hours, moves_of, polished, tries_of
from hetplan.problems.fleet.wish import Wish
from hetplan.problems.fleet.zones import Counts

Floats = NDArray[np.float64]
ROUNDS = 4
NEAR, FAR = 0.01, 0.05
"""So near to the bound a fleet of before is a first plan; where one is further from it, other prices are asked for."""
TINY = 1e-12
DEARER = 4.0
"""So many times as unlike is a search in which a machine cost more than now, as one in which it cost less."""
MOST_ENDED = 8
"""Where so many searches ended is known, each under other limits or with other offers."""

__all__ = ["Ended", "ended", "looked"]


@dataclass(frozen=True)
class Ended:
    """Where a search ended: its fleet, and the choices of each application by rate.

    `prices` are those of its bound, by period: of machines in the order of offers, and of `limits`.
    """

    prices: tuple[Floats, ...]
    limits: tuple[str, ...]
    sold: tuple[tuple[float, int], ...]
    """Of each offer what it cost, and how many there were."""
    wished: str
    """What was wished of the applications."""
    fleet: Fleet
    choices: Mapping[tuple[str, float], tuple[Counts, ...]]


Known = tuple[Ended, ...]
"""Where searches ended, the newest last."""


def _shape(wish: Wish) -> object:
    """What two wishes have alike whose machines have prices in the same periods."""
    return (
        tuple(offer.name for offer in wish.offers),
        tuple(app.name for app in wish.apps),
        tuple(tuple(app.rates) for app in wish.apps),
        tuple(wish.length(p) for p in range(wish.periods)),
        repr(wish.slices),
    )


def ended(before: MutableMapping[object, Known], found: Found) -> None:
    """Keep where a search ended, of a fleet without room to wait: prices with room are further from those without.

    Nor is it one of a look, whose prices only ever get lower.
    """
    each = found.search
    if each is None or each.best is None:
        return
    prices = tuple(each.best[each.rows_of(each.bare, p)] for p in range(each.wish.periods))
    choices = {key: tuple(one) for key, one in each.menus.found.items()}
    this = Ended(prices, _names(each), _sold(found.wish), _wished(found.wish), found.fleet, choices)
    known = [one for one in before.get(_shape(found.wish), ()) if _under(one) != _under(this)]
    before[_shape(found.wish)] = (*known[-MOST_ENDED + 1 :], this)


def _under(one: Ended) -> object:
    """What a search was asked for."""
    return one.limits, one.sold, one.wished


def _names(search: Search) -> tuple[str, ...]:
    return tuple(f"{limit.name}[{limit.label}]" for limit in search.limits)


def _sold(wish: Wish) -> tuple[tuple[float, int], ...]:
    return tuple((offer.price, offer.stock) for offer in wish.offers)


def _wished(wish: Wish) -> str:
    return repr(wish.inputs.slo.apps)


def _nearest(known: Sequence[Ended], search: Search) -> Ended | None:
    """Where a search ended that was asked for most alike: limits before offers before applications; then the newest."""
    names, sold, wished = set(_names(search)), _sold(search.wish), _wished(search.wish)

    def unlike(one: Ended) -> tuple[int, float, bool]:
        others = 0.0
        for (price, stock), (then, there) in zip(sold, one.sold, strict=True):
            # Prices of dearer machines are lowered first (`_afforded`), and bound what has to be found anew.
            others += abs(price - then) / max(price, then, TINY) * (DEARER if then > price else 1.0)
            others += abs(stock - there) / max(stock, there, 1)
        return len(names.symmetric_difference(one.limits)), round(others, 9), one.wished != wished

    return min(reversed(known), key=unlike, default=None)


def looked(
    wish: Wish, parts: Mapping[str, Part], ask: Ask, before: Mapping[object, Known], recalled: Recalled | None = None
) -> Found | None:
    """The fleet of one descent, its parts settled; None where there was no search alike, or nothing comes of it.

    Where limits are in the way of the descent, each period is a program with what was committed before.
    """
    search = Search.of(wish, parts, ask)
    known = _nearest(before.get(_shape(wish), ()), search)
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
                there = all(n <= most * one for n, most, one in zip(machines, stock, wish.each(app.name), strict=True))
                if there and search.menus.holds(app, rate, machines):
                    search.menus.add(app, rate, machines)
    committed = np.minimum(np.array(known.fleet.committed, dtype=float), stock)
    fleet = _as_before(search, each, known.fleet) or _anew(search, each, committed)
    moves = wish.request.moves
    if fleet is None or (moves is not None and wish.periods > 1 and moves_of(wish, fleet) > moves):
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
    if search.wish.request.moves is not None:
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
