"""What the checks of all forms share: a check, a form with a known answer, manners, and an ear for what is written.

Manners of engines that do not depend on the form: what is asked is left alone, twice asked is twice the same answer,
a family is answered one by one, and nobody hears a word.
"""

from __future__ import annotations

import ctypes
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.form import Form, certify
from hetplan.planner.tolerances import VALUE

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = [
    "Check",
    "KnownCase",
    "Skipped",
    "Taken",
    "another_form",
    "leaves_the_form",
    "manners",
    "overheard",
    "same",
    "same_twice",
]


class Skipped(Exception):
    """A check that does not apply to this engine; the message says why."""


@dataclass(frozen=True)
class Check:
    """One thing an engine must do; `run` raises AssertionError where it does not, `Skipped` where it need not."""

    name: str
    run: Callable[[Solver], None]

    def __str__(self) -> str:
        return self.name


def another_form(solver: Solver) -> None:
    """It refuses a form of another kind."""

    class Other(Form[Any]):
        kind = "another"

    assert solver.refuses(Other()), "it takes a form of another kind"


F = TypeVar("F", bound="Form[Any]")


@dataclass(frozen=True)
class KnownCase(Generic[F]):
    """One form and the best value that there is (None: it has no answer)."""

    name: str
    write: Callable[[], F]
    best: float | Callable[[], float] | None

    @cached_property
    def value(self) -> float | None:
        """The best value; where it takes long to find, it is found when first asked for."""
        return self.best() if callable(self.best) else self.best

    @cached_property
    def form(self) -> F:
        """The form, written when first asked for."""
        return self.write()

    def taken_by(self, solver: Solver) -> F:
        """The form for an engine to solve; raises `Skipped` where the engine refuses it."""
        if reason := solver.refuses(self.form):
            raise Skipped(reason)
        return self.form

    def judge(self, answer: Answer[Any], *, form: F | None = None, exact: bool = False, near: float = 0.0) -> None:
        """AssertionError where the answer is none to this form (or `form`, the same one written anew).

        An engine need not find the best, unless it is `exact`; what it returns must be a point of the form, be worth
        what it says, and bound nothing away that there is. What it calls optimal is within the share `near` of it.
        """
        certificate = certify(self.form if form is None else form, answer)
        assert certificate.sound, f"certify refutes the answer: {certificate.faults}"
        assert answer.status is not Status.UNBOUNDED, "there is a best value"
        if self.value is None:
            assert answer.point is None, "a point where there is none"
            return
        assert answer.status is not Status.INFEASIBLE, "infeasible, and it is not"
        assert certificate.infeasible is not Vouched.CERTIFIED, "proved infeasible, and it is not"
        sign, slack = 1.0 if _sense(self.form) == "max" else -1.0, VALUE * max(1.0, abs(self.value))
        for bound in (certificate.bound, certificate.certified_bound):
            assert bound is None or sign * (bound - self.value) >= -slack, f"bounds away {self.value}: {bound}"
        if certificate.value is not None:
            assert sign * (certificate.value - self.value) <= slack, f"{certificate.value} is better than best"
        if exact or answer.status is Status.OPTIMAL:
            assert certificate.value is not None, f"no point where {self.value} is best"
            missed = sign * (self.value - certificate.value)
            assert missed <= slack + near * abs(self.value), f"{certificate.value} where {self.value} is best"

    def answered_by(self, solver: Solver, *, exact: bool = False, near: float = 0.0) -> None:
        """Have an engine answer it, and judge; an engine that finds no point where there is one fails."""
        answer = solver.solve(self.taken_by(solver), Limits())
        self.judge(answer, exact=exact, near=near)
        assert self.value is None or answer.point is not None, f"no point where {self.value} is best"


def _sense(form: Any) -> str:
    return str(form.sense)


@contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect what is written meanwhile; the list holds it once the block has ended.

    It redirects Python's streams and the descriptors of the whole process, which is for tests only.
    """
    heard: list[str] = []
    said = io.StringIO()
    _flush()
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as sink:
        try:
            for descriptor, _ in kept:
                os.dup2(sink.fileno(), descriptor)
            with redirect_stdout(said), redirect_stderr(said):
                yield heard
        finally:
            _flush()
            for descriptor, copy in kept:
                os.dup2(copy, descriptor)
                os.close(copy)
            sink.seek(0)
            heard.append(said.getvalue() + sink.read().decode(errors="replace"))


def _flush() -> None:
    """Write out what C and C++ still hold in their buffers."""
    ctypes.CDLL(None).fflush(None)


Taken = Callable[["Solver"], "Form[Any]"]
"""Picks a form that an engine takes; raises `Skipped` where it takes none."""


def manners(taken: Taken, family: Callable[[Any], Sequence[Form[Any]]]) -> list[Check]:
    """The checks, on the form that is picked and on the family that is made of it."""
    return [
        Check("refuses another form", another_form),
        Check("leaves the form as it was", partial(leaves_the_form, taken)),
        Check("answers a family as one by one", partial(_family, taken, family)),
        Check("gives the same answer twice", partial(same_twice, taken)),
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


def leaves_the_form(taken: Taken, solver: Solver) -> None:
    """Nothing of the form that it solves is changed."""
    form = taken(solver)
    before = deepcopy(form)
    solver.solve(form, Limits())
    assert same(before, form), "the form was changed"


def _family(taken: Taken, family: Callable[[Any], Sequence[Form[Any]]], solver: Solver) -> None:
    forms = family(taken(solver))
    together = solver.solve_all(forms, Limits())
    assert [answer.value for answer in together] == [solver.solve(one, Limits()).value for one in forms]


def same_twice(taken: Taken, solver: Solver) -> None:
    """The same question twice is the same answer twice."""
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
