"""A form with a known answer, and the judgement of what an engine makes of it: the same for every kind of form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.certificate import Vouched, certify
from hetplan.planner.tolerances import VALUE
from hetplan.testing.conformance import Skipped

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver
    from hetplan.planner.forms.form import Form

__all__ = ["KnownCase"]

F = TypeVar("F", bound="Form[Any]")


@dataclass(frozen=True)
class KnownCase(Generic[F]):
    """One form and the best value that there is (None: it has no answer)."""

    name: str
    write: Callable[[], F]
    value: float | None

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
        """Have an engine answer it, and judge; whoever finds no point where there is one fails."""
        answer = solver.solve(self.taken_by(solver), Limits())
        self.judge(answer, exact=exact, near=near)
        assert self.value is None or answer.point is not None, f"no point where {self.value} is best"


def _sense(form: Any) -> str:
    return str(form.sense)
