"""One period, exactly: all applications' rows and all limits in one program, asked until its machines hold.

In one period no prices are needed: where the rows of a part allow machines that do not carry the rate, the part says
why, and the program is asked again with what it said. Where machines run already, a *move* is a machine that an
application gets anew: ``sum (x_ao - running_ao)+``, limited by `limits.moves`, or what is least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import Expression, Rented, limit_moves
from hetplan.problems.fleet.menus import Choice, add_part
from hetplan.problems.fleet.search import Fleet, Search, add_machines
from hetplan.problems.fleet.wish import Wish

__all__ = ["Once", "asked_of", "asked_once", "cheapest_once", "moves_of"]

MOVE = 1e5
"""What a move weighs beside a cost per hour, where the fewest are wanted: more than any fleet's cost."""
SAME = 1e-9


@dataclass(frozen=True)
class Once:
    """The program of one period, its answer, and the fleet that it gives: None where there is none."""

    form: Milp
    answer: Answer[NDArray[np.float64]]
    fleet: Fleet | None

    @property
    def impossible(self) -> bool:
        """Whether the engine says that there is no such fleet."""
        return self.answer.status is Status.INFEASIBLE


@dataclass(frozen=True)
class _Columns:
    machines: Rented
    apps: Mapping[tuple[str, int], NDArray[np.int64]]


def asked_once(
    search: Search, p: int, *, stocked: bool = True, gap: float = 0.0, still: bool = False, most: float = np.inf
) -> Once:
    """The cheapest machines of one period; without `stocked` stock is a row, so that what is in the way is named.

    `still`: the fewest moves first. `most`: what it may cost per hour.
    """
    return _asked(search, [p], lambda: _form(search, [p], stocked=stocked, still=still, most=most), gap)


def asked_of(
    search: Search,
    periods: Sequence[int],
    *,
    committed: Sequence[int] | None = None,
    only: Sequence[bool] | None = None,
    gap: float,
) -> Once:
    """The cheapest machines of these periods by all rows of their parts.

    `committed`: what is, else it is chosen. `only`: the offers that are looked at, else all.
    """
    return _asked(search, periods, lambda: _form(search, periods, ahead=committed, only=only), gap)


def _asked(search: Search, periods: Sequence[int], form_of: Callable[[], tuple[Milp, _Columns]], gap: float) -> Once:
    """A program asked until its machines hold."""
    wish, name = search.wish, "-".join(dict.fromkeys(f"p{p}" for p in (periods[0], periods[-1])))
    while True:
        form, columns = form_of()
        search.menus.counted[0] += 1
        answer = search.ask(form, gap=gap, about=f"{name} by itself")
        if answer.status is Status.INFEASIBLE or answer.point is None:
            return Once(form, answer, None)
        taken = {key: _whole(answer.point[mine]) for key, mine in columns.apps.items()}
        held = [search.menus.holds(app, wish.rate(app, p), taken[app.name, p]) for p in periods for app in wish.apps]
        if all(held):  # each is asked, so that each says what its rows lacked
            choices = {key: Choice(machines, wish.each(key[0])) for key, machines in taken.items()}
            hourly = tuple(_whole(answer.point[columns.machines.hourly[p]]) for p in periods)
            return Once(form, answer, Fleet(_whole(answer.point[columns.machines.committed]), choices, hourly))


def cheapest_once(search: Search) -> Once:
    """The cheapest fleet of a wish with one period, or the one of the fewest moves, or one and then the other."""
    goal = search.wish.goal
    found = asked_once(search, 0, still=goal == "moves")
    if goal != "cost, then moves" or found.fleet is None:
        return found
    again = asked_once(search, 0, still=True, most=_hourly(search, found.fleet) + SAME)
    return found if again.fleet is None else replace(found, fleet=again.fleet)


def moves_of(wish: Wish, choices: Mapping[tuple[str, int], Choice]) -> int:
    """Machines that applications get anew, of those that run."""
    return round(
        sum(float(np.maximum(choice.array - wish.runs(name), 0.0).sum()) for (name, _), choice in choices.items())
    )


def _hourly(search: Search, fleet: Fleet) -> float:
    wish = search.wish
    ahead = sum(n * (o.committed or 0.0) for n, o in zip(fleet.committed, wish.offers, strict=True) if n)
    return ahead + sum(n * o.price for n, o in zip(fleet.rented[0], wish.offers, strict=True))


def _form(
    search: Search,
    periods: Sequence[int],
    *,
    stocked: bool = True,
    still: bool = False,
    most: float = np.inf,
    ahead: Sequence[int] | None = None,
    only: Sequence[bool] | None = None,
) -> tuple[Milp, _Columns]:
    wish, m = search.wish, Builder("min", name=f"period p{periods[0]}")
    machines = add_machines(m, wish, search.limits, periods, whole=True, stocked=stocked)
    columns = dict[tuple[str, int], NDArray[np.int64]]()
    if ahead is not None:
        row = m.rows("committed before", [offer.name for offer in wish.offers], lower=ahead, upper=ahead)
        m.add(row, machines.committed, 1.0)
    for p in periods:
        for app in wish.apps:
            x = search.menus.columns(m, app, stocked=stocked, only=only)
            m.add(machines.cover[p], x, -1.0 / np.array(wish.each(app.name)))
            there = search.menus.most(app, stocked=stocked)
            add_part(m, wish, search.menus.parts[app.name], x, wish.rate(app, p), there)
            columns[app.name, p] = x
    if wish.stated and list(periods) == [0]:
        _moved(m, search, {name: x for (name, _), x in columns.items()}, MOVE if still else 0.0)
    if most < np.inf:
        pay = np.where(np.isfinite(wish.committed), wish.committed, 0.0)
        row = m.rows("what the cheapest cost", ["all"], upper=most)
        m.add(row, machines.committed, pay)
        m.add(row, machines.hourly[periods[0]], wish.prices)
    return m.build(), _Columns(machines, columns)


def _moved(m: Builder, search: Search, columns: Mapping[str, NDArray[np.int64]], cost: float) -> None:
    """What each application gets anew of each offer, and how much that may be."""
    wish, (names, each) = search.wish, (list(columns), list(columns.values()))
    running = np.concatenate([wish.runs(name) for name in names])
    groups = np.arange(running.size)
    anew = Expression(np.concatenate(each))
    limit_moves(m, anew, groups, running, wish.request.moves, unit="machines", cost=cost)


def _whole(counts: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.rint(counts))
