"""A form with a known answer, for the conformance checks of every kind of form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
