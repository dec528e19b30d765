"""Manners of engines that do not depend on the form: what is asked is left alone, twice asked is twice the same answer,
a family is answered one by one, and nobody hears a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Limits
from hetplan.testing.conformance import Check, Skipped, another_form
from hetplan.testing.silence import overheard

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver
    from hetplan.planner.forms.form import Form

__all__ = ["Taken", "manners", "same"]

Taken = Callable[["Solver"], "Form[Any]"]
"""Picks a form that an engine takes; raises `Skipped` where it takes none."""


def manners(taken: Taken, family: Callable[[Any], Sequence[Form[Any]]]) -> list[Check]:
    """The checks, on the form that is picked and on the family that is made of it."""
    return [
        Check("refuses another form", another_form),
        Check("leaves the form as it was", partial(_leaves_the_form, taken)),
        Check("answers a family as one by one", partial(_family, taken, family)),
        Check("gives the same answer twice", partial(_same_twice, taken)),
        Check("is silent", partial(_silent, taken)),
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two forms, points or parts of them hold the same, number by number.

    >>> same((1, np.array([np.nan])), (1, np.array([np.nan])))
    True
    """
    if callable(one) and callable(other):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if hasattr(one, "indptr"):  # a sparse matrix
        return all(same(getattr(one, part), getattr(other, part)) for part in ("shape", "data", "indices", "indptr"))
    if is_dataclass(one):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one) if part.compare)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one is other or one == other)


def _leaves_the_form(taken: Taken, solver: Solver) -> None:
    form = taken(solver)
    before = deepcopy(form)
    solver.solve(form, Limits())
    assert same(before, form), "the form was changed"


def _family(taken: Taken, family: Callable[[Any], Sequence[Form[Any]]], solver: Solver) -> None:
    forms = family(taken(solver))
    together = solver.solve_all(forms, Limits())
    assert [answer.value for answer in together] == [solver.solve(one, Limits()).value for one in forms]


def _same_twice(taken: Taken, solver: Solver) -> None:
    form = taken(solver)
    one, other = (solver.solve(deepcopy(form), Limits(seed=1)) for _ in range(2))
    if not one.deterministic:
        raise Skipped("it says itself that it is not deterministic")
    assert one.point is not None, "no point"
    assert (one.status, one.value, one.bound) == (other.status, other.value, other.bound)
    assert same(one.point, other.point), "two points from the same question"


def _silent(taken: Taken, solver: Solver) -> None:
    form = taken(solver)
    with overheard() as heard:
        solver.solve(form, Limits(seconds=60.0))
    assert not heard[0], f"it writes: {heard[0][:500]!r}"
