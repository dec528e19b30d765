"""Checks for engines of the Catalog form: small catalogs whose best candidate is known, limits and starts."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Limits, Status, Stop
from hetplan.planner.forms.catalog import Catalog
from hetplan.testing.known_case import Check, KnownCase, Skipped, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["catalog_cases", "catalog_checks"]

TOP = 100.0


def catalog_cases() -> list[KnownCase[Catalog]]:
    """Every known case."""
    return [
        KnownCase("one candidate", partial(_hill, 1), 76.0),
        KnownCase("bounds a little above", _hill, TOP),
        KnownCase("no bounds", partial(_hill, bounded=False), TOP),
        KnownCase("nothing may be left out", partial(_hill, prune=False), TOP),
        KnownCase("all alike", partial(_flat, 7), 2.0),
        KnownCase("nothing to choose from", partial(_flat, 0), None),
    ]


def _hill(size: int = 6, *, bounded: bool = True, **how: Any) -> Catalog:
    """A grid with one top, at (4, 2), and bounds up to 0.3 above the values."""
    place = np.array([[x, y] for x in range(size) for y in range(size)])
    worth = [TOP - float((x - 4) ** 2 + 2 * (y - 2) ** 2) for x, y in place]
    above = 0.3 * np.random.default_rng(0).random(len(worth))
    return Catalog(place, worth.__getitem__, bound=np.array(worth) + above if bounded else None, **how)


def _flat(size: int) -> Catalog:
    return Catalog(np.arange(size)[:, None], lambda _: 2.0, bound=np.full(size, 2.0))


def catalog_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    return [
        *(Check(f"answers: {case.name}", partial(_answers, case)) for case in catalog_cases()),
        *manners(_taken, lambda form: [replace(form, evaluate=by, journal={}) for by in (form.evaluate, float)]),
        Check("values no candidate twice", _never_twice),
        Check("keeps to the number of candidates", _keeps_to_most),
        Check("begins with the start", _begins_with_the_start),
        Check("does not begin without time", partial(_nothing_tried, Limits(seconds=0.0), Stop.TIME)),
        Check("does not begin when cancelled", _cancelled),
    ]


def _answers(case: KnownCase[Catalog], solver: Solver) -> None:
    # A journal is filled while an engine works, so each gets a form of its own.
    case.taken_by(solver)
    form = case.write()
    case.judge(solver.solve(form, Limits()), form=form, exact=True)


def _taken(solver: Solver) -> Catalog:
    form = _hill()
    if reason := solver.refuses(form):
        raise Skipped(reason)
    return form


def _never_twice(solver: Solver) -> None:
    asked: list[int] = []
    form = _taken(solver)

    def value(i: int) -> float:
        asked.append(i)
        return form.evaluate(i)

    solver.solve(replace(form, evaluate=value, journal={}), Limits())
    assert len(asked) == len(set(asked)), "a candidate was valued twice"


def _keeps_to_most(solver: Solver) -> None:
    for form, limits in (
        (replace(_taken(solver), most=4, prune=False), Limits()),
        (replace(_taken(solver), prune=False), Limits(work=4)),
    ):
        answer = solver.solve(form, limits)
        KnownCase("cut short", _hill, TOP).judge(answer, form=form)
        assert len(form.journal) == 4, f"{len(form.journal)} candidates were valued, 4 may be"
        assert (answer.status, answer.stop) == (Status.FEASIBLE, Stop.WORK)


def _begins_with_the_start(solver: Solver) -> None:
    form = _taken(solver)
    solver.solve(form, Limits(work=1), start=7)
    assert list(form.journal) == [7], "it began elsewhere"


def _nothing_tried(limits: Limits, stop: Stop, solver: Solver) -> None:
    form = _taken(solver)
    answer = solver.solve(form, limits)
    assert (answer.status, answer.stop, len(form.journal)) == (Status.NO_ANSWER, stop, 0)


def _cancelled(solver: Solver) -> None:
    cancel = threading.Event()
    cancel.set()
    _nothing_tried(Limits(cancel=cancel), Stop.CANCELLED, solver)
