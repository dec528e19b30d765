"""The one program of a fleet: machines of all offers, applications, failures, starts and moves of its periods.

With the letters of the package: (1), (3) and the bill are those of `planner/program`; (2) are the rows of each part, of
every situation (`candidate_columns.add_part`); the first period follows the last, or what runs. Where rows allow
machines that do not carry the rate, the part says why, and the program is asked again with what it said.

Periods without those beside them, machines committed before, or stock that is a row, so that what is in the way is
named, are the same program with less in it. Machines that an application gets anew are its *moves*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import Expression, Rented, limit_moves, pay_starts, weighted_sum
from hetplan.problems.fleet.candidate_columns import Choice, add_part
from hetplan.problems.fleet.request import FleetRequest
from hetplan.problems.fleet.search import Fleet, Search, add_machines, cost_per_hour
from hetplan.problems.fleet.zones import to_whole

__all__ = ["Planned", "cheapest_of_one", "form_of", "moves_of", "planned"]

Columns = NDArray[np.int64]
MOVE = 1e5
"""What a move weighs beside a cost per hour, where the fewest are wanted: more than any fleet's cost."""
SAME = 1e-9


@dataclass(frozen=True)
class Planned:
    """The program, its answer, and the fleet that it gives: None where there is none."""

    form: Milp
    answer: Answer[NDArray[np.float64]]
    fleet: Fleet | None

    @property
    def impossible(self) -> bool:
        """Whether the engine says that there is no such fleet."""
        return self.answer.status is Status.INFEASIBLE


@dataclass(frozen=True)
class _Written:
    form: Milp
    machines: Rented
    apps: Mapping[tuple[str, int], Columns]


def planned(search: Search, periods: Iterable[int] | None = None, *, gap: float = 0.0, **less: Any) -> Planned:
    """The cheapest machines of these periods, of all as a rule: then starts and moves between them count.

    What the program has `less`, or more, than all there is: see `_written`.
    """
    wish, wanted = search.wish, list(range(search.wish.periods) if periods is None else periods)
    about = "the program of " + "-".join(dict.fromkeys(f"p{p}" for p in (wanted[0], wanted[-1])))
    while True:
        written = _written(search, wanted, **less)
        search.menus.counted[0] += 1
        try:
            answer = search.ask(written.form, gap=gap, about=about)
        except SolverFailed:  # no engine's word held: where columns end too soon, no row says why there is nothing
            return Planned(written.form, Answer(Status.NO_ANSWER), None)
        if answer.status is Status.INFEASIBLE or answer.point is None:
            return Planned(written.form, answer, None)
        taken = {key: to_whole(answer.point[mine]) for key, mine in written.apps.items()}
        held = [search.menus.holds(app, wish.rate(app, p), taken[app.name, p]) for p in wanted for app in wish.apps]
        if all(held):  # each is asked, so that each says what its rows lacked
            choices = {key: Choice(machines, wish.each(key[0])) for key, machines in taken.items()}
            hourly = tuple(to_whole(answer.point[written.machines.hourly[p]]) for p in wanted)
            ahead = to_whole(answer.point[written.machines.committed])
            return Planned(written.form, answer, Fleet(ahead, choices, hourly))


def form_of(search: Search) -> Milp:
    """The program of all periods by the rows that are known of the parts."""
    return _written(search, range(search.wish.periods)).form


def cheapest_of_one(search: Search) -> Planned:
    """The cheapest fleet of a wish with one period, or the one of the fewest moves, or one and then the other."""
    goal = search.wish.goal
    found = planned(search, still=goal == "changes")
    if goal != "cost, then changes" or found.fleet is None:
        return found
    again = planned(search, still=True, most=cost_per_hour(search.wish, found.fleet) + SAME)
    return found if again.fleet is None else replace(found, fleet=again.fleet)


def moves_of(wish: FleetRequest, choices: Mapping[tuple[str, int], Choice]) -> int:
    """Machines that applications get anew, of those that run."""
    return round(
        sum(float(np.maximum(choice.array - wish.runs(name), 0.0).sum()) for (name, _), choice in choices.items())
    )


def _written(
    search: Search,
    periods: Sequence[int],
    *,
    stocked: bool = True,
    still: bool = False,
    most: float = np.inf,
    committed: Sequence[int] | None = None,
    only: Sequence[bool] | None = None,
) -> _Written:
    """The program, where stock ends columns (`stocked`), or is a row.

    `still`: the fewest moves come first. `most`: what it may cost per hour. `committed`: what is, else it is chosen.
    `only`: the offers that are looked at, else all.
    """
    wish, m = search.wish, Builder("min", name="fleet")
    # Ends that no plan needs to pass: with far ones HiGHS called points optimal that were 3% dearer than others.
    of_use = {
        (app.name, p): search.menus.max_machines(app, stocked=stocked, rate=wish.rate(app, p))
        for p in periods
        for app in wish.apps
    }
    each = {app.name: np.array(wish.each(app.name)) for app in wish.apps}
    taken = [[np.ceil(of_use[app.name, p] / each[app.name]) for app in wish.apps] for p in periods]
    used = np.maximum(np.max(np.sum(taken, axis=1), axis=0), 0 if committed is None else committed)
    machines = add_machines(m, wish, search.limits, periods, whole=True, stocked=stocked, most=used)
    apps = dict[tuple[str, int], Columns]()
    if committed is not None:
        names = [offer.name for offer in wish.offers]
        m.add(m.rows("committed before", names, lower=committed, upper=committed), machines.committed, 1.0)
    for p in periods:
        for app in wish.apps:
            there = of_use[app.name, p]
            x = search.menus.columns(m, app, most=there, only=only, when=f" in {p}")
            m.add(machines.cover[p], x, -1.0 / each[app.name])
            add_part(m, wish, search.menus.parts[app.name], x, wish.rate(app, p), there, when=f" in {p}")
            apps[app.name, p] = x
    _join(m, search, machines, apps, still=still)
    if most < np.inf:
        pay = np.where(np.isfinite(wish.committed), wish.committed, 0.0)
        row = m.rows("what the cheapest cost", ["all"], upper=most)
        m.add(row, machines.committed, pay)
        m.add(row, machines.hourly[periods[0]], wish.prices)
    return _Written(m.build(), machines, apps)


def _join(
    m: Builder, search: Search, machines: Rented, apps: Mapping[tuple[str, int], Columns], *, still: bool
) -> None:
    """(4) and what is paid while machines start: each period follows the one before it, the first what runs."""
    wish, several = search.wish, len(machines.hourly) == search.wish.periods > 1
    offers, none = np.arange(len(wish.offers)), np.zeros(len(wish.offers))

    def follow(when: str, p: int, before: int | None, running: ArrayLike) -> None:
        if wish.request.changes is None and not still:
            return
        sides = [(p, 1.0)] if before is None else [(p, 1.0), (before, -1.0)]
        new = weighted_sum(
            (Expression(np.concatenate([apps[app.name, n] for app in wish.apps])), by) for n, by in sides
        )
        groups = np.tile(np.arange(len(wish.apps) * len(offers)), len(sides))
        there = np.broadcast_to(running, len(wish.apps) * len(offers))
        cost = MOVE if still else 0.0
        limit_moves(m, new, groups, there, wish.request.changes, unit="machines", cost=cost, about=when)

    pay, both = partial(pay_starts, m, wish.offers, most=machines.most), np.tile(offers, 2)
    for p in range(wish.periods) if several else ():
        before, share = (p - 1) % wish.periods, wish.again if p == 0 else 1.0
        if share:
            more = weighted_sum([(Expression(machines.hourly[p]), 1.0), (Expression(machines.hourly[before]), -1.0)])
            pay(more, both, none, share=share, about=f"before {p}")
            follow(f" before {p}", p, before, 0.0)
    if wish.stated and (several or list(machines.hourly) == [0]):
        if several:
            there = weighted_sum([(Expression(machines.hourly[0]), 1.0), (Expression(machines.committed), 1.0)])
            pay(there, both, wish.all_running, share=1.0 - wish.again, about="at first")
        follow(" at first", 0, None, np.concatenate([wish.runs(app.name) for app in wish.apps]))
