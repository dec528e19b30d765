"""`hetplan export`: the mathematics of a question, for other tools and for reading."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import Formulation, MethodFile, Profiles, Question, Settings, SloFile, StateFile, method_from
from hetplan.cli.output import Output
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer
    from hetplan.planner.ask import Asking
    from hetplan.planner.forms.form import Form

__all__ = ["FileForm", "export"]


class FileForm(StrEnum):
    """The text formats of mathematical programs."""

    LP = "lp"
    MPS = "mps"


def export(
    profiles: Profiles,
    slo: SloFile,
    form: Annotated[FileForm, typer.Option(help="LP is readable, MPS is what every solver reads.")] = FileForm.LP,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; - is stdout.")] = "-",
    number: Annotated[int, typer.Option("--ask", min=1, help="Which form of the conversation, counted from 1.")] = 1,
    question: Question = None,
    formulation: Formulation = None,
    settings: Settings = None,
    method: MethodFile = None,
    state: StateFile = None,
) -> None:
    """Write a question's mathematics as text.

    A mixed-integer program with readable names of rows and columns. A question may ask several, each depending on the
    answers before it; --ask picks one, solving those before it.
    """
    with Output("export", quiet=output == "-") as out:
        from hetplan.api.solve import choose, pose
        from hetplan.cli.long_work import quiet_engines
        from hetplan.profiles.load import load_inputs
        from hetplan.profiles.plan_file import write_atomically
        from hetplan.registry import tools_of

        question, formulation, options = method_from(method, settings, question=question, formulation=formulation)
        inputs = load_inputs(profiles, slo, state=state)
        choice = choose(inputs, question=question, formulation=formulation, options=options)
        problem = pose(inputs, choice, tools=tools_of(choice.problem.question))
        with quiet_engines(out):
            asked = _asked(problem, number)
        text = _text(asked, form)
        if output == "-":
            typer.echo(text, nl=False)
        else:
            write_atomically(Path(output), text.encode())
            size = ", ".join(f"{count} {what}" for what, count in asked.size().items())
            out.people.line(f"written to {output}: {size}")


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

    def untested(self, *, gap: float | None = None) -> _Listening:
        del gap
        return self

    def keep(self, make: Any, **about: Any) -> None:
        """An export hands out forms, and no plan."""
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
    from hetplan.planner.ask import Asking
    from hetplan.registry import Engines

    listening = _Listening(Asking(Engines()), number)
    try:
        problem.decide(listening)
    except _Reached as reached:
        return reached.form
    raise InputError.one(
        file="--ask",
        value=number,
        why=f"the conversation has {listening.heard} forms",
        remedy=f"Choose a number from 1 to {listening.heard}."
        if listening.heard
        else "This method asks no form at all.",
    )


def _text(form: Form[Any], kind: FileForm) -> str:
    from hetplan.planner.forms.milp import Milp
    from hetplan.planner.forms.write_milp import write_lp, write_mps

    if not isinstance(form, Milp):
        raise InputError.one(
            file="--form",
            value=kind.value,
            why=f"this is a {form.kind} form, which {kind.value} cannot express",
            remedy="Choose a formulation that asks mixed-integer programs (see `hetplan options QUESTION`).",
        )
    text = StringIO()
    (write_lp if kind is FileForm.LP else write_mps)(form, text)
    return text.getvalue()
