"""Whole fleets from menus: which machines are committed, and hour by hour what each application gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Cancelled
from hetplan.planner.bridge import Cone
from hetplan.planner.contract import Event
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import Expression, Rented, limit_moves, pay_starts, weighted
from hetplan.problems.fleet.alike import zone_orders
from hetplan.problems.fleet.descent import Descent, whole_up
from hetplan.problems.fleet.menus import Choice
from hetplan.problems.fleet.once import asked_of
from hetplan.problems.fleet.search import Fleet, Relaxed, Search, add_machines, is_over
from hetplan.problems.fleet.wish import Wish

__all__ = ["FEW_PAIRS", "best_fleet", "cost_of", "polished", "refined", "starts_of"]

Floats = NDArray[np.float64]
TRIES = 4
FEW_PAIRS = 72
"""Up to so many applications and periods programs over whole menus are asked, too."""
FEW_TOGETHER = 24
"""Up to so many of them are one program, where slices share machines."""
FEW_TYPES = 2
"""Of so many types the fewest machines are found by halving, one search for each number of machines of the first."""
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


MOST_ORDERED = 250
"""Choices of an application in a period that are made in all orders of zones, at most."""


def best_fleet(search: Search, each: Search, like: Search, relaxed: Relaxed) -> Fleet | None:
    """The cheapest whole fleet found from the menus: by descent, then by programs where that is not near the bound.

    `each` has every rate once, `like` is the search over groups of periods that set the first prices. Where moves
    are limited, all hours are one program; where that is too large, a fleet found by descent
    is kept if it moves so few, beside one that has the same machines in all hours.
    """
    wish, best, best_cost = search.wish, None, np.inf
    if wish.request.moves is not None and wish.periods > 1:
        if len(search.pairs) <= FEW_PAIRS:
            return _together(search)
        few = [one for one in _descents(search, each, like, relaxed) if _moves_of(wish, one) <= wish.request.moves]
        still = _still(search)
        few += [still] if still is not None and _moves_of(wish, still) <= wish.request.moves else []
        return min(few, key=lambda one: cost_of(wish, one), default=None)
    for found in _descents(search, each, like, relaxed):
        cost = cost_of(wish, found)
        if cost < best_cost - 1e-9:
            best, best_cost = found, cost

    def near() -> bool:
        return best is not None and best_cost - search.bound <= wish.options.gap * best_cost

    if near() or (best is not None and (len(search.pairs) > FEW_PAIRS or is_over(search.ask))):
        return best
    if best is None:
        _in_all_orders(search)
    with suppress(Cancelled):
        for committed in _tries_of(search, relaxed):
            tried = _hours(search, committed)
            if tried is not None and cost_of(wish, tried) < best_cost - 1e-9:
                best, best_cost = tried, cost_of(wish, tried)
        if not near() and len(search.pairs) <= FEW_PAIRS:
            together = _together(search)
            if together is not None and cost_of(wish, together) < best_cost - 1e-9:
                best = together
    return best


def _in_all_orders(search: Search) -> None:
    """Makes the cheapest choices known in all orders of zones that are alike: by programs stock is kept, too."""
    wish, orders = search.wish, zone_orders(search.wish)
    for app, p in search.pairs:
        choices = sorted(search.menus.of(app, p), key=lambda one: float(one.array @ wish.prices))
        for choice in choices[: MOST_ORDERED // len(orders)]:
            for order in orders:
                search.menus.add(app, wish.rate(app, p), tuple(choice.machines[n] for n in order))


def refined(search: Search, fleet: Fleet | None) -> Fleet | None:
    """The same by all rows of its parts, where slices share machines: menus know few ways to fill one.

    Where there are few applications and periods, in one program of all of them; else hour by hour, beside what is
    committed, of the offers that are used. Such a program is also asked where the fleet is not near its bound: menus
    have no machines that are the cheapest at no prices, such as some of each of two offers where a share is limited.
    """
    wish, each = search.wish, search.over(search.same)
    together = len(each.pairs) <= FEW_TOGETHER
    if not (wish.places or (together and _is_far(search, fleet))) or (fleet is None and not together):
        return fleet
    used = [any(counts) for counts in zip(fleet.committed, *fleet.rented, strict=True)] if fleet else []
    for group in [[*range(each.wish.periods)]] if together else [[n] for n in range(each.wish.periods)]:
        if is_over(search.ask):
            break
        search.ask.note(Event("fleet", detail=f"shared machines of {len(group)} hours", bound=search.hourly_bound))
        with suppress(Cancelled):
            how: dict[str, Any] = {"committed": fleet.committed, "only": used} if fleet and not together else {}
            found = asked_of(each, group, gap=wish.options.gap / 3 if together else HOUR_GAP, **how).fleet
            if found is None:
                continue
            choices = dict(fleet.choices) if fleet else {}
            rented: list[tuple[int, ...]] = list(fleet.rented) if fleet else [()] * wish.periods
            for n, counts in zip(group, found.rented, strict=True):
                for p in search.same[n]:
                    rented[p] = counts
                    for app in wish.apps:
                        taken = found.choices[app.name, n].machines
                        choices[app.name, p] = search.menus.add(app, wish.rate(app, p), taken)
            other = _tight(wish, Fleet(found.committed, choices, tuple(rented)))
            fleet = min([one for one in (fleet, other) if one], key=lambda one: cost_of(wish, one))
    return fleet


def _is_far(search: Search, fleet: Fleet | None) -> bool:
    """Whether a fleet costs more than its bound by more than is asked for, and its parts have rows that are soon made.

    A question that has no linear program is asked for each least number of machines, so it may run on few types. Where
    parts are played, rows do not say how much room their queues need.
    """
    wish = search.wish
    if fleet is None or wish.options.size != "planned" or wish.request.moves is not None:
        return False
    cost, parts = cost_of(wish, fleet), search.menus.parts.values()
    soon = all(isinstance(part, Cone) or len(part.hardware) <= FEW_TYPES for part in parts)
    return soon and cost - search.bound > wish.options.gap * cost


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
        if turn and search.menus.asked + len(wanted) > search.wish.options.programs * MORE:
            return
        with suppress(Cancelled):
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
    """The cheapest fleet found that is the same in all periods: no machine moves."""
    peak = search.over([list(range(search.wish.periods))])
    if not peak.begin():
        return None
    relaxed = peak.converge(search.wish.options.gap / 3, search.wish.options.rounds)
    down = Descent(peak, peak.hourly())
    tried = [one for one in map(down.found, _tries_of(peak, relaxed)) if one is not None]
    for _, committed, taken in sorted(tried, key=lambda one: one[0]):
        fleet = down.fleet(search, committed, taken * search.wish.periods)
        if fleet is not None:
            return fleet
    return None


def _tries_of(search: Search, relaxed: Relaxed) -> list[Floats]:
    """Whole committed counts: the relaxed ones rounded down, to the nearest, and up."""
    found: list[Floats] = []
    for shift in (0.5, 0.25, 0.75, 0.0):
        counts = np.floor(relaxed.committed + shift + 1e-6)
        counts = np.minimum(counts, search.wish.stock)
        if not any(np.array_equal(counts, one) for one in found):
            found.append(counts)
    return found[:TRIES]


def _hours(search: Search, committed: Floats) -> Fleet | None:
    """Each period by itself, where so much is committed."""
    wish = search.wish
    rented: list[tuple[int, ...]] = []
    choices: dict[tuple[str, int], Choice] = {}
    forms = [_program(search, [p], committed=committed) for p in range(wish.periods)]
    if any(form is None for form in forms):
        return None
    answers = search.ask.all(
        [form.form for form in forms if form], gap=wish.options.gap / 3, about="periods by themselves"
    )
    for p, (form, answer) in enumerate(zip(forms, answers, strict=True)):
        if answer.point is None or form is None:
            return None
        rented.append(_rounded(answer.point[form.machines.hourly[p]]))
        for app in wish.apps:
            choices[app.name, p] = _chosen(search, app.name, p, answer.point[form.taken[app.name, p]])
    return _tight(wish, Fleet(_rounded(committed), choices, tuple(rented)))


def _together(search: Search) -> Fleet | None:
    """All periods in one program, with starts and moves."""
    wish = search.wish
    made = _program(search, list(range(wish.periods)), committed=None)
    if made is None:
        return None
    answer = search.ask(made.form, gap=wish.options.gap, about="all periods together")
    if answer.point is None:
        return None
    choices = {key: _chosen(search, *key, answer.point[columns]) for key, columns in made.taken.items()}
    counts = tuple(_rounded(answer.point[made.machines.hourly[p]]) for p in range(wish.periods))
    return _tight(wish, Fleet(_rounded(answer.point[made.machines.committed]), choices, counts))


def _tight(wish: Wish, fleet: Fleet) -> Fleet:
    """The same without rented machines that nobody takes, unless a limit asks for them."""
    if wish.request.shares or any(least for least, _ in wish.request.instances.values()):
        return fleet
    rented = []
    for p, counts in enumerate(fleet.rented):
        taken = sum((fleet.choices[app.name, p].array for app in wish.apps), np.zeros(len(wish.offers)))
        needed = whole_up(np.maximum(taken - np.array(fleet.committed), 0.0))
        rented.append(_rounded(np.minimum(needed, np.array(counts, dtype=float))))
    return Fleet(fleet.committed, fleet.choices, tuple(rented))


def _rounded(counts: Floats) -> tuple[int, ...]:
    return tuple(int(n) for n in np.rint(counts))


def _chosen(search: Search, name: str, period: int, y: Floats) -> Choice:
    app = next(app for app in search.wish.apps if app.name == name)
    return search.menus.of(app, period)[int(np.argmax(y))]


@dataclass(frozen=True)
class _Made:
    """A program of whole machines, and the columns of what is rented, and of the choice of each application."""

    form: Milp
    machines: Rented
    taken: Mapping[tuple[str, int], NDArray[np.int64]]


def _program(search: Search, periods: Sequence[int], *, committed: Floats | None) -> _Made | None:
    """Whole machines and one choice each in these periods; where nothing is committed yet, with starts and moves."""
    wish, m = search.wish, Builder("min", name="fleet")
    machines = add_machines(m, wish, search.limits, periods, whole=True)
    taken: dict[tuple[str, int], NDArray[np.int64]] = {}
    if committed is not None:
        row = m.rows("committed before", [offer.name for offer in wish.offers], lower=committed, upper=committed)
        m.add(row, machines.committed, 1.0)
    for p in periods:
        for app in wish.apps:
            choices = search.menus.of(app, p)
            if not choices:
                return None
            y = m.columns(f"{app.name} in {p}", str, size=len(choices), upper=1.0, whole=True)
            m.add(m.rows(f"one for {app.name} in {p}", ["all"], lower=1.0, upper=1.0), y, 1.0)
            for column, choice in zip(y, choices, strict=True):
                used = np.flatnonzero(choice.machines)
                m.add(machines.cover[p][used], column, -choice.array[used])
            taken[app.name, p] = y
    if committed is None and wish.periods > 1:
        _couple(m, search, machines, taken)
    return _Made(m.build(), machines, taken)


def _couple(m: Builder, search: Search, machines: Rented, taken: Mapping[tuple[str, int], NDArray[np.int64]]) -> None:
    """What starts from one period to the next is paid while it starts; no more machines change than may."""
    wish, offers = search.wish, np.arange(len(search.wish.offers))
    for p in range(wish.periods):
        before, share = (p - 1) % wish.periods, wish.again if p == 0 else 1.0
        if share:
            more = weighted([(Expression(machines.hourly[p]), 1.0), (Expression(machines.hourly[before]), -1.0)])
            none = np.zeros(len(wish.offers))
            pay_starts(m, wish.offers, more, np.tile(offers, 2), none, share=share, about=f"before {p}")
            _limit_changes(m, search, f" before {p}", taken, [(p, 1.0), (before, -1.0)])
    if wish.stated:
        there = weighted([(Expression(machines.hourly[0]), 1.0), (Expression(machines.committed), 1.0)])
        share, running = 1.0 - wish.again, wish.all_running
        pay_starts(m, wish.offers, there, np.tile(offers, 2), running, share=share, about="at first")
        running = np.concatenate([wish.runs(app.name) for app in wish.apps])
        _limit_changes(m, search, " at first", taken, [(0, 1.0)], running)


def _limit_changes(
    m: Builder,
    search: Search,
    when: str,
    taken: Mapping[tuple[str, int], NDArray[np.int64]],
    sides: Sequence[tuple[int, float]],
    running: Floats | float = 0.0,
) -> None:
    """No more machines get to other applications, or start, than may: those of the first side beyond the others."""
    wish, offers = search.wish, len(search.wish.offers)
    if wish.request.moves is None:
        return
    columns, counts, groups = list[int](), list[float](), list[int]()
    for number, app in enumerate(wish.apps):
        for p, sign in sides:
            for column, choice in zip(taken[app.name, p], search.menus.of(app, p), strict=True):
                used = np.flatnonzero(choice.machines)
                columns += [int(column)] * len(used)
                counts += (sign * choice.array[used]).tolist()
                groups += (number * offers + used).tolist()
    changed = Expression(np.array(columns, dtype=np.int64), np.array(counts))
    there = np.broadcast_to(running, len(wish.apps) * offers)
    limit_moves(m, changed, np.array(groups), there, wish.request.moves, unit="machines", about=when)
