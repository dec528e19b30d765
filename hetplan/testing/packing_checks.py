"""Checks for engines of the Packing form: known cases with their best values, limits and starts.

An engine need not find the best choice; one that always does says so with ``exact = True``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.packing import Choice, Items, Packing
from hetplan.planner.tolerances import VALUE
from hetplan.testing.known_case import Check, KnownCase, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["packing_cases", "packing_checks"]


@cache
def packing_cases() -> list[KnownCase[Packing]]:
    """Every known case."""
    return [*_in_totals(), *_on_machines(), *_at_least_cost(), *_at_the_edge(), *_drawn()]


def _form(sense: str, groups: list[list[tuple[float, list[float]]]], capacity: list[float]) -> Packing:
    """Groups of options (worth, demand)."""
    options = [option for group in groups for option in group]
    return Packing(
        sense,  # type: ignore[arg-type]
        np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64),
        np.array([worth for worth, _ in options], dtype=float),
        np.array([demand for _, demand in options], dtype=float).reshape(len(options), len(capacity)),
        np.array(capacity, dtype=float),
    )


def _placed(
    sense: str, groups: list[list[tuple[float, list[tuple[int, list[float]]]]]], machines: list[float],
    room: list[list[float]], price: list[float],
) -> Packing:  # fmt: skip
    """Groups of options (worth, items of (tier, size)), on machines of so much room at such a price each."""
    options = [option for group in groups for option in group]
    flat = [item for _, items in options for item in items]
    items = Items(
        first=np.concatenate([[0], np.cumsum([len(items) for _, items in options])]).astype(np.int64),
        tier=np.array([tier for tier, _ in flat], dtype=np.int64),
        size=np.array([size for _, size in flat], dtype=float).reshape(len(flat), len(room[0])),
        machines=np.array(machines, dtype=float),
        room=np.array(room, dtype=float),
        price=np.array(price, dtype=float),
    )
    first = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    worth = np.array([worth for worth, _ in options], dtype=float)
    return Packing(sense, first, worth, np.zeros((len(options), 0)), np.zeros(0), items)  # type: ignore[arg-type]


def _in_totals() -> list[KnownCase[Packing]]:
    taking_turns = [[(1.0, [0.9, 0.0]), (1.0, [0.0, 1.0])]] * 2 + [[(1.0, [1.0, 0.0])], [(1.0, [1.5, 0.0])]]
    return [
        KnownCase("norms mislead", partial(_form, "max", taking_turns, [2.0, 2.0]), 3.0),
        KnownCase("all fit", partial(_form, "max", [[(2.0, [1.0])], [(3.0, [1.0])]], [2.0]), 5.0),
        KnownCase("a knapsack", partial(_form, "max", [[(6.0, [4.0])], [(5.0, [3.0])], [(5.0, [3.0])]], [6.0]), 10.0),
        KnownCase("one option of two", partial(_form, "max", [[(3.0, [1.0]), (4.0, [2.0])]], [2.0]), 4.0),
        KnownCase("a resource without end", partial(_form, "max", [[(1.0, [9.0])]] * 2, [np.inf]), 2.0),
        KnownCase("ties", partial(_form, "max", [[(1.0, [1.0])]] * 4, [2.0]), 2.0),
    ]


def _on_machines() -> list[KnownCase[Packing]]:
    three = [[(1.0, [(0, [0.6])])]] * 3
    memory = [[(1.0, [(0, [0.2, 9.0])])], [(1.0, [(0, [0.2, 9.0])])], [(1.0, [(0, [0.2, 2.0])])]]
    pair = [[(1.0, [(0, [0.5]), (0, [0.75])])], [(1.0, [(0, [0.5])])]]
    one = partial(_placed, "max", room=[[1.0]], price=[0.0])
    return [
        KnownCase("totals would hold three, machines two", partial(one, three, [2.0]), 2.0),
        KnownCase("operators of one plan on two machines", partial(one, pair, [2.0]), 2.0),
        KnownCase("memory binds before shares", partial(_placed, "max", memory, [1.0], [[1.0, 12.0]], [0.0]), 2.0),
        KnownCase("no machine is large enough", partial(one, [[(1.0, [(0, [1.5])])]], [3.0]), 0.0),
    ]


def _at_least_cost() -> list[KnownCase[Packing]]:
    share = [[(0.0, [(1, [0.75])])], [(0.0, [(0, [0.3])]), (0.0, [(1, [0.25])])]]
    tight = [[(1.0, [1.0]), (5.0, [0.0])]] * 3
    short = [[(0.0, [(0, [0.6])])]] * 3
    return [
        KnownCase(
            "an opened machine is filled",
            partial(_placed, "min", share, [np.inf, np.inf], [[1.0], [1.0]], [2.48, 3.67]), 3.67,
        ),
        KnownCase("some pay more that all are served", partial(_form, "min", tight, [1.0]), 11.0),
        KnownCase("more than there is", partial(_form, "min", [[(1.0, [1.0])]] * 3, [2.0]), None),
        KnownCase("a machine too few", partial(_placed, "min", short, [2.0], [[1.0]], [1.0]), None),
    ]  # fmt: skip


def _at_the_edge() -> list[KnownCase[Packing]]:
    return [
        KnownCase("no groups", partial(_form, "max", [], [1.0]), 0.0),
        KnownCase("no groups at least cost", partial(_form, "min", [], [1.0]), 0.0),
        KnownCase("a group without options", partial(_form, "max", [[], [(1.0, [1.0])]], [1.0]), 1.0),
        KnownCase("a group without options at least cost", partial(_form, "min", [[]], [1.0]), None),
        KnownCase("nothing there", partial(_form, "max", [[(1.0, [1.0])]], [0.0]), 0.0),
        KnownCase("nothing there and nothing taken", partial(_form, "max", [[(1.0, [0.0])]], [0.0]), 1.0),
        KnownCase("worth nothing", partial(_form, "max", [[(0.0, [1.0])]] * 2, [2.0]), 0.0),
        KnownCase("no resources", partial(_form, "max", [[(1.0, [])], [(2.0, [])]], []), 3.0),
    ]


def _drawn() -> list[KnownCase[Packing]]:
    """Small enough for every choice to be tried."""
    cases = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups = [
            [(float(rng.integers(1, 9)), rng.integers(0, 5, 2).astype(float).tolist()) for _ in range(3)]
            for _ in range(5)
        ]
        for sense in ("max", "min"):
            form = _form(sense, groups, [8.0, 8.0])
            cases.append(KnownCase(f"drawn {seed} ({sense})", partial(_form, sense, groups, [8.0, 8.0]), _tried(form)))
    return cases


def _tried(form: Packing) -> float | None:
    """The best of all choices, one by one."""
    values = []
    for option in product(*([*form.options_of(i), -1] for i in range(form.first.size - 1))):
        chosen = [o for o in option if o >= 0]
        fits = (form.demand[chosen].sum(axis=0) <= form.capacity).all()
        if fits and (form.sense == "max" or len(chosen) == len(option)):
            values.append(float(form.worth[chosen].sum()))
    return (max(values) if form.sense == "max" else min(values)) if values else None


def packing_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    return [
        *(Check(f"answers: {case.name}", partial(_answers, case)) for case in packing_cases()),
        *manners(_first_form, _of_three_rooms),
        Check("is sound without time", _no_time),
        Check("is not misled by a bad start", _bad_start),
        Check("loses nothing by a good start", _good_start),
    ]


def _judge(solver: Solver, case: KnownCase[Packing], answer: Answer[Choice]) -> None:
    case.judge(answer, exact=getattr(solver, "exact", False))
    assert answer.point is not None or case.form.sense == "min", "benefit can always be nothing: no choice is given"


def _answers(case: KnownCase[Packing], solver: Solver) -> None:
    _judge(solver, case, solver.solve(case.taken_by(solver), Limits()))


def _first(solver: Solver) -> KnownCase[Packing]:
    case = packing_cases()[0]
    case.taken_by(solver)
    return case


def _first_form(solver: Solver) -> Packing:
    return _first(solver).form


def _of_three_rooms(form: Packing) -> list[Packing]:
    return [replace(form, capacity=np.array([room, room])) for room in (1.0, 2.0, 3.0)]


def _no_time(solver: Solver) -> None:
    case = _first(solver)
    case.judge(solver.solve(case.form, Limits(seconds=0.0)))


def _bad_start(solver: Solver) -> None:
    case = _first(solver)
    for option in (np.zeros(1, dtype=np.int64), np.full(4, 99), np.array([0, 2, 4, 5])):
        _judge(solver, case, solver.solve(case.form, Limits(), start=Choice(option.astype(np.int64))))


def _good_start(solver: Solver) -> None:
    case = _first(solver)
    answer = solver.solve(case.form, Limits(), start=Choice(np.array([1, 3, 4, -1])))
    _judge(solver, case, answer)
    alone = solver.solve(case.form, Limits())
    assert answer.value is not None
    assert alone.value is not None
    assert answer.value >= alone.value - VALUE, "worse with a start than without one"
