"""One period, exactly: all applications' rows and all limits in one program, asked until its machines hold.

In one period nothing starts and nothing moves, so no prices are needed: where the rows of a part allow machines that
do not carry the rate, the part says why, and the program is asked again with what it said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.fleet.master import add_machines
from hetplan.problems.fleet.menus import Choice, add_part
from hetplan.problems.fleet.search import Fleet, Search

__all__ = ["Once", "asked_once", "cheapest_once"]


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
    committed: NDArray[np.int64]
    rented: NDArray[np.int64]
    apps: Mapping[str, NDArray[np.int64]]


def asked_once(search: Search, p: int, *, stocked: bool = True, gap: float = 0.0) -> Once:
    """The cheapest machines of one period; without `stocked` stock is a row, so that what is in the way is named."""
    wish = search.wish
    while True:
        form, columns = _form(search, p, stocked=stocked)
        search.menus.counted[0] += 1
        answer = search.ask(form, gap=gap, about=f"p{p} by itself")
        if answer.status is Status.INFEASIBLE or answer.point is None:
            return Once(form, answer, None)
        taken = {app.name: _whole(answer.point[columns.apps[app.name]]) for app in wish.apps}
        held = [search.menus.holds(app, wish.rate(app, p), taken[app.name]) for app in wish.apps]
        if all(held):  # each is asked, so that each says what its rows lacked
            choices = {(name, p): Choice(machines) for name, machines in taken.items()}
            committed, rented = _whole(answer.point[columns.committed]), _whole(answer.point[columns.rented])
            return Once(form, answer, Fleet(committed, choices, (rented,)))


def cheapest_once(search: Search) -> Once:
    """The cheapest fleet of a wish with one period."""
    return asked_once(search, 0)


def _form(search: Search, p: int, *, stocked: bool) -> tuple[Milp, _Columns]:
    wish, m = search.wish, Builder("min", name=f"period p{p}")
    committed, rented, cover = add_machines(m, wish, search.limits, [p], whole=True, stocked=stocked)
    columns = {}
    for app in wish.apps:
        x = search.menus.columns(m, app, stocked=stocked)
        m.add(cover[p], x, -1.0)
        add_part(m, wish, search.menus.parts[app.name], x, wish.rate(app, p))
        columns[app.name] = x
    return m.build(), _Columns(committed, rented[p], columns)


def _whole(counts: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.rint(counts))
