"""The mathematics of files as text, for other tools and for reading: `hetplan render --to lp` and `--to mps`."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.api.solve import Choice
    from hetplan.cli.output import Output
    from hetplan.planner.answer import Answer
    from hetplan.planner.forms.form import Form
    from hetplan.planner.solver_calls import Asking
    from hetplan.profiles.inputs import Inputs

__all__ = ["program_text"]


def program_text(inputs: Inputs, choice: Choice, *, to: str, number: int, out: Output) -> tuple[str, dict[str, int]]:
    """The program of a problem, with readable names of rows and columns, and its size.

    A problem may ask several programs, each depending on the answers before it; `number` picks one, from 1 on, and
    those before it are solved.
    """
    from hetplan.api.solve import pose
    from hetplan.cli.long_work import quiet_engines
    from hetplan.registry import tools_of

    problem = pose(inputs, choice, tools=tools_of(choice.problem.question))
    with quiet_engines(out):
        asked = _asked(problem, number)
    return _text(asked, to), asked.size()


class _Reached(Exception):
    """The wanted form was asked."""

    def __init__(self, form: Form[Any]) -> None:
        self.form = form


class _Listening:
    """An `Ask` that stops the conversation at the wanted form and passes the ones before it on."""

    def __init__(self, asking: Asking, wanted: int) -> None:
        self._asking, self._left, self.heard = asking, wanted, 0
        self.limits = asking.limits

    def __call__(self, form: Form[Any], **how: Any) -> Answer[Any]:
        self._hear([form])
        return self._asking(form, **how)

    def all(self, forms: Iterable[Form[Any]], **how: Any) -> list[Answer[Any]]:
        family = list(forms)
        self._hear(family)
        return self._asking.all(family, **how)

    def without_infeasibility_checks(self, *, gap: float | None = None) -> _Listening:
        del gap
        return self

    def keep(self, make: Any, **about: Any) -> None:
        """What is asked is handed out, and no plan."""
        del make, about

    @property
    def remaining(self) -> float:
        return self._asking.remaining

    def note(self, event: Any) -> None:
        self._asking.note(event)

    def _hear(self, forms: list[Form[Any]]) -> None:
        self.heard += len(forms)
        if self._left <= len(forms):
            raise _Reached(forms[self._left - 1])
        self._left -= len(forms)


def _asked(problem: Any, number: int) -> Form[Any]:
    from hetplan.planner.solver_calls import Asking
    from hetplan.registry import Engines

    listening = _Listening(Asking(Engines()), number)
    try:
        problem.decide(listening)
    except _Reached as reached:
        return reached.form
    raise InputError.one(
        file="--set",
        path="ask",
        value=number,
        why=f"the conversation has {listening.heard} forms",
        remedy=f"Choose a number from 1 to {listening.heard}."
        if listening.heard
        else "This method asks no form at all.",
    )


def _text(form: Form[Any], to: str) -> str:
    from hetplan.planner.forms.milp import Milp
    from hetplan.planner.forms.write_milp import write_lp, write_mps

    if not isinstance(form, Milp):
        raise InputError.one(
            file="--to",
            value=to,
            why=f"this is a {form.kind} form, which {to} cannot express",
            remedy="Choose a formulation that asks mixed-integer programs (see `hetplan list options PROBLEM`).",
        )
    text = StringIO()
    (write_lp if to == "lp" else write_mps)(form, text)
    return text.getvalue()
