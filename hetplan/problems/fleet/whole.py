"""Whole fleets from menus: which machines are committed, and hour by hour what each application gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.planner.contract import Event
from hetplan.problems.fleet.descent import Descent, whole_up
from hetplan.problems.fleet.program import planned
from hetplan.problems.fleet.search import MOST_PROGRAMS, Fleet, Relaxed, Search, is_over
from hetplan.problems.fleet.wish import Wish

__all__ = ["FEW_PAIRS", "best_fleet", "cost_of", "polished", "refined", "starts_of"]

Floats = NDArray[np.float64]
TRIES = 4
FEW_PAIRS = 72
"""Up to so many applications and periods hours are looked at alone, too, and what their machines leave."""
HOUR_GAP = 0.01
"""How near the cheapest each hour is looked for by itself, then."""
POLISHES = 2
MORE = 1.5
"""Up to so many times the programs that set prices, choices are made a second time."""


def cost_of(wish: Wish, fleet: Fleet) -> float:
    """What a fleet costs over the horizon: committed, rented, and while machines start."""
    committed = np.array(fleet.committed, dtype=float)
    pay = np.where(committed > 0, np.where(np.isfinite(wish.committed), wish.committed, 0.0), 0.0)
    total = float(pay @ committed) * wish.hours * wish.periods
    for rented in fleet.rented:
        total += float(wish.prices @ np.array(rented, dtype=float)) * wish.hours
    return total + float(sum(wish.prices @ started for started in starts_of(wish, fleet)))


def starts_of(wish: Wish, fleet: Fleet) -> list[Floats]:
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


def best_fleet(search: Search, each: Search, like: Search, relaxed: Relaxed) -> Fleet | None:
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
        best = best or _hour_by_hour(search, _rounded(committed))
    return refined(search, best)


def refined(search: Search, fleet: Fleet | None) -> Fleet | None:
    """The same, or a cheaper one by all rows of its parts, where it is not near its bound, or slices share machines.

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
    wish, each, fleet = search.wish, search.over(search.same), beside
    used = [any(counts) for counts in zip(committed, *beside.rented, strict=True)] if beside is not None else None
    if wish.request.changes is not None and wish.periods > 1:
        return beside
    for n, same in enumerate(search.same):
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


def _descents(search: Search, each: Search, like: Search, relaxed: Relaxed) -> Iterator[Fleet]:
    """Fleets by descent, the later ones with choices that were made for what the earlier ones commit."""
    coarse = Descent(like, like.hourly())
    tried = [one for one in map(coarse.found, _tries_of(like, relaxed)) if one is not None]
    if not tried:
        return
    yield from polished(search, each, min(tried, key=lambda one: one[0])[1])


def polished(search: Search, each: Search, committed: Floats, turns: int = POLISHES + 1) -> Iterator[Fleet]:
    """Fleets by descent from what is committed, each time with choices that fit what was committed before."""
    place = {p: number for number, periods in enumerate(search.same) for p in periods}
    for turn in range(turns):
        search.ask.note(Event("fleet", detail=f"whole machines, pass {turn + 1}", bound=each.hourly_bound))
        down = Descent(each, each.hourly())
        found = down.found(committed)
        if found is None:
            return
        _, committed, taken = found
        fleet = down.fleet(search, committed, [taken[place[p]] for p in range(search.wish.periods)])
        if fleet is None:
            return
        yield fleet
        if is_over(search.ask) or (turn + 1 == turns and len(search.pairs) > FEW_PAIRS):
            return
        wanted, known = [], search.known
        for p, own in enumerate(taken):
            for number, app in enumerate(each.wish.apps):
                others = own.sum(axis=0) - own[number]
                paid = np.maximum(committed, whole_up(others)) if search.wish.places else committed
                free = np.maximum(paid - others, 0.0)
                wanted.append((app, each.wish.rate(app, p), search.barred(search.wish.prices), free))
        if turn and search.menus.asked + len(wanted) > MOST_PROGRAMS * MORE:
            return
        with suppress(Interrupted):
            search.menus.beyond(search.ask, wanted)
        if search.known == known:
            return


def _moves_of(wish: Wish, fleet: Fleet) -> int:
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


def _tries_of(search: Search, relaxed: Relaxed) -> list[Floats]:
    """Whole committed counts: the relaxed ones rounded down, to the nearest, and up."""
    found: list[Floats] = []
    for shift in (0.5, 0.25, 0.75, 0.0):
        counts = np.floor(relaxed.committed + shift + 1e-6)
        counts = np.minimum(counts, search.wish.stock)
        if not any(np.array_equal(counts, one) for one in found):
            found.append(counts)
    return found[:TRIES]


def _tight(wish: Wish, fleet: Fleet) -> Fleet:
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
        rented.append(_rounded(np.minimum(needed, np.array(counts, dtype=float))))
    return Fleet(fleet.committed, fleet.choices, tuple(rented))


def _rounded(counts: Floats) -> tuple[int, ...]:
    return tuple(int(n) for n in np.rint(counts))
