"""What engines without a warm model share: a form is refused or answered, and a family is answered form by form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.form import Form

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["OneByOne"]

FormT = TypeVar("FormT", bound=Form[Any])
X = TypeVar("X")


class OneByOne(Generic[FormT, X]):
    """The half of the solver protocol that is the same for all of them; an engine adds `answer` and `why_not`."""

    name: ClassVar[str]
    form: ClassVar[str]
    takes: ClassVar[type[Form[Any]]]
    """The class of the forms that it answers."""

    def why_not(self, form: FormT) -> str:
        """Why a form of its kind is refused ("" when it is not)."""
        del form
        return ""

    def answer(self, form: FormT, limits: Limits, *, start: X | None, on_event: OnEvent | None) -> Answer[X]:
        """The answer to a form that is not refused."""
        raise NotImplementedError

    def refuses(self, form: Form[Any]) -> str:
        """Why this engine cannot take the form ("" when it can)."""
        if not isinstance(form, self.takes):
            return f"takes {self.form} forms, not {form.kind}"
        return self.why_not(cast("FormT", form))

    def solve(
        self, form: FormT, limits: Limits, *, start: X | None = None, on_event: OnEvent | None = None
    ) -> Answer[X]:
        """The answer; raises NoSolver where the form is refused."""
        reason = self.refuses(form)
        if reason:
            raise NoSolver(form.kind, {self.name: reason})
        return self.answer(form, limits, start=start, on_event=on_event)

    def solve_all(self, forms: Iterable[FormT], limits: Limits, *, on_event: OnEvent | None = None) -> list[Answer[X]]:
        """One after another."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]
