"""Checks for engines of the Priced form: known cases with the value of their best mixture, and limits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.priced import Choice, Menu, Options, Priced
from hetplan.testing.known_case import Check, KnownCase, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["priced_cases", "priced_checks"]

Option = tuple[int, float, Sequence[float]]
"""Its kind, its time, its rate on each resource."""

NEAR = 2e-5
"""Engines stop at a gap; the value that is called optimal may be this far, relatively, from the best."""


@cache
def priced_cases() -> list[KnownCase[Priced]]:
    """Every known case."""
    return [*_of_one_task(), *_of_paths(), *_of_two_trees(), *_drawn()]


def _single(*options: Option, demand: float = 20.0, weight: float = 1.0) -> Menu:
    """One task; kinds 0 and 1 of quality 1 and 0.5, 10 ms in all."""
    return _menu((-1,), [(1.0, 0.5)], [{}], [options], {0: 10.0}, demand=demand, weight=weight)


def _menu(
    parent: tuple[int, ...],
    quality: Sequence[Sequence[float]],
    factor: Sequence[dict[int, Sequence[float]]],
    options: Sequence[Sequence[Option]],
    limit_ms: dict[int, float],
    *,
    demand: float = 1.0,
    weight: float = 1.0,
    additive: bool = False,
) -> Menu:
    return Menu(
        name="tree",
        parent=parent,
        quality=tuple(np.array(own, dtype=float) for own in quality),
        factor=tuple({child: np.array(own, dtype=float) for child, own in below.items()} for below in factor),
        options=tuple(
            Options(
                np.array([kind for kind, _, _ in own], dtype=np.int64),
                np.array([ms for _, ms, _ in own], dtype=float),
                np.array([rate for _, _, rate in own], dtype=float),
            )
            for own in options
        ),
        limit_ms=limit_ms,
        demand=demand,
        weight=weight,
        additive=additive,
    )


def _form(menus: Sequence[Menu], capacity: Sequence[float]) -> Priced:
    return Priced(tuple(menus), np.array(capacity, dtype=float))


GOOD, FAST = (0, 5.0, (10.0,)), (1, 5.0, (50.0,))
"""Of 20 queries/s the good one takes 2 of the resource, the fast one 0.4."""


def _of_one_task() -> list[KnownCase[Priced]]:
    late = (0, 11.0, (1000.0,))
    two = [(0, 5.0, (10.0, 0.0)), (1, 5.0, (0.0, 50.0))]
    return [
        KnownCase("room for the best", partial(_form, [_single(GOOD, FAST)], [2.0]), 1.0),
        KnownCase("a mixture of two", partial(_form, [_single(GOOD, FAST)], [1.0]), 0.6875),
        KnownCase("only the lesser fits", partial(_form, [_single(GOOD, FAST)], [0.4]), 0.5),
        KnownCase("nothing fits", partial(_form, [_single(GOOD, FAST)], [0.39]), None),
        KnownCase("the best is too late", partial(_form, [_single(late, FAST)], [9.0]), 0.5),
        KnownCase("each on a resource of its own", partial(_form, [_single(*two)], [1.0, 9.0]), 0.75),
        KnownCase("the cheaper of two resources", partial(_form, [_single((0, 5.0, (10.0, 5.0)))], [0.0, 4.0]), 1.0),
        KnownCase("nothing is asked for", partial(_form, [_single(GOOD, demand=0.0)], [0.0]), 1.0),
    ]


def _chain(limit_ms: float, *, additive: bool = False) -> Menu:
    """Two tasks, each good (1, 10 ms, 1/s) or fast (0.5, 5 ms, 2/s); the good first one sends two queries on."""
    own = [(0, 10.0, (1.0,)), (1, 5.0, (2.0,))]
    quality = [(1.0, 0.5), (1.0, 0.5)]
    return _menu((-1, 0), quality, [{1: (2.0, 1.0)}, {}], [own, own], {1: limit_ms}, additive=additive)


def _fork(limit_ms: float) -> Menu:
    """A task, then two side by side: the mean of both ends counts."""
    own = [(0, 10.0, (1.0,)), (1, 5.0, (2.0,))]
    below: list[dict[int, Sequence[float]]] = [{1: (1.0, 1.0), 2: (1.0, 1.0)}, {}, {}]
    return _menu((-1, 0, 0), [(1.0, 0.5)] * 3, below, [own] * 3, {1: limit_ms, 2: limit_ms})


def _of_paths() -> list[KnownCase[Priced]]:
    return [
        KnownCase("a path to its limit", partial(_form, [_chain(20.0)], [3.0]), 1.0),
        KnownCase("a path over its limit", partial(_form, [_chain(19.0)], [3.0]), 0.5),
        KnownCase("sending on costs", partial(_form, [_chain(20.0)], [1.5]), 0.5),
        KnownCase("no path in time fits", partial(_form, [_chain(20.0)], [0.9]), None),
        KnownCase("qualities that add up", partial(_form, [_chain(20.0, additive=True)], [1.5]), 1.5),
        KnownCase("two ends", partial(_form, [_fork(20.0)], [2.5]), 0.75),
        KnownCase("two ends, one in time for both", partial(_form, [_fork(15.0)], [9.0]), 0.5),
    ]


def _of_two_trees() -> list[KnownCase[Priced]]:
    heavy, light = partial(_single, GOOD, FAST, weight=0.75), partial(_single, GOOD, FAST, weight=0.25)
    return [
        KnownCase("the heavier tree first", partial(_form, [heavy(), light()], [2.4]), 0.875),
        KnownCase("room for both", partial(_form, [heavy(), light()], [4.0]), 1.0),
        KnownCase("one too many", partial(_form, [heavy(), light()], [0.7]), None),
    ]


def _drawn() -> list[KnownCase[Priced]]:
    """Small enough for all choices to be tried."""
    cases = []
    for seed in range(6):
        rng = np.random.default_rng(seed)

        def own(rng: np.random.Generator = rng) -> list[Option]:
            return [(int(kind), float(rng.integers(2, 9)), rng.uniform(0.5, 4.0, 2).tolist()) for kind in (0, 0, 1)]

        menus = [
            _menu(
                (-1, 0, 0), rng.uniform(0.4, 1.0, (3, 2)).tolist(),
                [{1: rng.uniform(0.5, 2.0, 2).tolist(), 2: rng.uniform(0.5, 2.0, 2).tolist()}, {}, {}],
                [own(), own(), own()], {1: 12.0, 2: 12.0}, weight=0.5, additive=bool(seed % 2),
            )
            for _ in range(2)
        ]  # fmt: skip
        write = partial(_form, menus, [float(rng.uniform(0.8, 2.5)), float(rng.uniform(0.8, 2.5))])
        cases.append(KnownCase(f"drawn {seed}", write, _tried(write())))
    return cases


def _tried(form: Priced) -> float | None:
    """The best mixture of all choices there are, as one linear program."""
    from scipy.optimize import linprog

    values, uses, trees = [], [], []
    for number, menu in enumerate(form.menus):
        ranges = [range(option.kind.size) for option in menu.options]
        for option in product(*ranges):
            for resource in product(range(form.capacity.size), repeat=len(ranges)):
                value, use, in_time = form.worth(number, Choice(option, resource))
                if in_time:
                    values.append(value)
                    uses.append(use)
                    trees.append(number)
    if len(set(trees)) < len(form.menus):
        return None
    whole = np.array([[float(tree == number) for tree in trees] for number in range(len(form.menus))])
    found = linprog(-np.array(values), A_ub=np.array(uses).T, b_ub=form.capacity, A_eq=whole, b_eq=np.ones(len(whole)))
    return None if found.fun is None else -float(found.fun)


def priced_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    return [
        *(Check(f"answers: {case.name}", partial(case.answered_by, near=NEAR)) for case in priced_cases()),
        *manners(_drawn_form, _of_three_rooms),
        Check("is sound without time", partial(_sound_under, Limits(seconds=0.0))),
        Check("is sound without work", partial(_sound_under, Limits(work=1))),
        Check("does not go on when cancelled", _cancelled),
    ]


def _first(solver: Solver) -> KnownCase[Priced]:
    case = next(case for case in priced_cases() if case.name == "drawn 0")
    case.taken_by(solver)
    return case


def _drawn_form(solver: Solver) -> Priced:
    return _first(solver).form


def _of_three_rooms(form: Priced) -> list[Priced]:
    return [replace(form, capacity=share * form.capacity) for share in (0.5, 1.0, 2.0)]


def _sound_under(limits: Limits, solver: Solver) -> None:
    case = _first(solver)
    case.judge(solver.solve(case.form, limits), near=NEAR)


def _cancelled(solver: Solver) -> None:
    case, cancel = _first(solver), threading.Event()
    cancel.set()
    answer = solver.solve(case.form, Limits(cancel=cancel))
    case.judge(answer, near=NEAR)
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"
