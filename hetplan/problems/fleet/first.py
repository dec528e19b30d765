"""A first fleet, soon: the same machines in all periods, of each application the cheapest that carry its highest rate.

It takes one program for each application and one plan of each for every failure, whatever the number of periods. Where
limits allow no such fleet, as applications are busy at unlike hours, there is none so soon. Pools leave room to wait by
their formula. It says nothing of how good it is, and is only there until the search has a better one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, without_bound
from hetplan.planner.part import Part
from hetplan.problems.fleet.alike import grouped
from hetplan.problems.fleet.descent import keeps_limits, whole_up
from hetplan.problems.fleet.draft import drafted
from hetplan.problems.fleet.menus import left_of
from hetplan.problems.fleet.search import Fleet, Search
from hetplan.problems.fleet.ways import Found, foreseen, settled_by
from hetplan.problems.fleet.whole import cost_of, hours
from hetplan.problems.fleet.wish import Wish

__all__ = ["keep_first"]

MOST_RETRIES = 3
"""So often other machines are looked for where those of an application do not settle into a plan of its question."""


def keep_first(wish: Wish, parts: Mapping[str, Part], ask: Ask) -> None:
    """Keep such a fleet, where there is one."""
    found = _first(wish, parts, ask)
    if found is not None:
        ask.keep(lambda: _as_draft(found, parts), rank=(0, -cost_of(wish, found.fleet)))


def _as_draft(found: Found, parts: Mapping[str, Part]) -> Draft:
    return without_bound(drafted(found, (), parts))


def _first(wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Found | None:
    """The fleet with its parts, settled once for all periods."""
    search = Search.of(grouped(wish, [[*range(wish.periods)]]), parts, ask)
    if not search.begin():
        return None
    roomy = foreseen(search, search)
    if roomy.room != search.wish.room:
        search = Search(roomy, ask, search.menus.roomier(roomy), limits=search.limits)
        if not search.begin():
            return None
    for _ in range(MOST_RETRIES):
        fleet = _cheapest(search)
        if fleet is None:
            return None
        settled, refused = settled_by(search, fleet)
        if not refused:
            return _in_all_periods(wish, search, fleet, {name: part for (name, _), part in settled.items()})
        for name, p in refused:
            search.menus.drop(name, p, fleet.choices[name, p])
    return None


def _cheapest(search: Search) -> Fleet | None:
    """Machines for every application by itself; where limits are in the way of these, by a program of all."""
    wish, none = search.wish, np.zeros(len(search.wish.offers))
    paid = search.barred(wish.prices)
    menus = {app.name: search.menus.of(app, 0) for app in wish.apps}
    if not all(menus.values()):
        return None
    chosen = {name: min(menu, key=lambda one: float(one.array @ paid)) for name, menu in menus.items()}
    rented = whole_up(sum((one.array for one in chosen.values()), none))
    stock = np.array([offer.stock for offer in wish.offers])
    if (rented <= stock).all() and keeps_limits(search, none, [rented]):
        counts = tuple(int(count) for count in rented)
        return Fleet((0,) * len(counts), {(name, 0): one for name, one in chosen.items()}, (counts,))
    return hours(search, none)


def _in_all_periods(wish: Wish, search: Search, fleet: Fleet, settled: Mapping[str, object]) -> Found:
    """The same fleet in every period, with what is left of it after every failure."""
    found, after, choices = {}, {}, {}
    for app, peak in zip(wish.apps, search.wish.apps, strict=True):
        choice, rate = fleet.choices[app.name, 0], search.wish.rate(peak, 0)
        part = search.menus.parts[app.name]
        for p in range(wish.periods):
            choices[app.name, p] = choice
            if app.name in settled:
                found[app.name, p] = settled[app.name]
        for situation in wish.situations[1:]:
            left = left_of(wish, part, choice.machines, situation)
            one = part.settle(left, rate * situation.keep).part if left else None
            after |= {(app.name, p, situation.name): one for p in range(wish.periods) if one is not None}
    every = Fleet(fleet.committed, choices, fleet.rented * wish.periods)
    return Found(wish, every, found, 0.0, 0, after=after)  # type: ignore[arg-type]
