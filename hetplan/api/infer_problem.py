"""Says which problem is meant where no problem of hetplan's fits the files at once, or why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetplan import registry
from hetplan.errors import InputError
from hetplan.planner.old_names import OLD_FORMULATIONS
from hetplan.planner.request import read_request
from hetplan.planner.written_paths import error_as_written
from hetplan.problems.infer_problem import LADDER

if TYPE_CHECKING:
    from hetplan.planner.contract import Problem
    from hetplan.planner.terms import Formulation, Obstacle
    from hetplan.profiles.inputs import Inputs

__all__ = ["formulation_meant", "further", "not_asked"]


def further(inputs: Inputs) -> str:
    """The one question of other packages that fits, else `fleet` for files of one period that it can divide."""
    others = [name for name in registry.problem_names() if name not in LADDER]
    found = {name: registry.obstacles(name, inputs) for name in (*LADDER, *others)}
    fitting = [name for name in others if not found[name]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError.one(
            file=inputs.files.get("slo", "slo"),
            path="$.apps",
            why=f"this fits several questions: {', '.join(fitting)}",
            remedy="Name one with --formulation.",
        )
    if _between(inputs):
        return "fleet"
    _refuse_what_never_ran(inputs)
    nearest = min(found, key=lambda name: (sum(one.essential for one in found[name]), len(found[name])))
    first = found[nearest][0]
    error = InputError.one(
        file=inputs.files.get(first.file, first.file),
        path=first.path,
        why=f"no question fits these files. The nearest is {nearest}, but {first.why}",
        remedy=f"{first.remedy} `hetplan list problems` lists the others.",
    )
    raise error_as_written(error, inputs.profile)


def _refuse_what_never_ran(inputs: Inputs) -> None:
    request = read_request(inputs)
    for name, app in request.apps.items():
        if app.variants and not request.choices(variants=app.variants):
            raise InputError.one(
                file=inputs.files.get("profile", "profile"),
                path=f"$.models.{app.variants[0]}.runs",
                why=f"a run on some machine type of a model that {name} may run",
                remedy="Measure it there, or take a law of the catalogue.",
            )


def _between(inputs: Inputs) -> bool:
    """Whether files that no question's own program answers are a fleet of one period."""
    from hetplan.problems.fleet.request import between

    return not any(between(inputs))


def not_asked(question: str, first: Obstacle, inputs: Inputs) -> InputError:
    """The files do not ask the question that was named."""
    error = InputError.one(
        file=inputs.files.get(first.file, first.file),
        path=first.path,
        why=f"the files do not ask the question {question}: {first.why}",
        remedy=first.remedy or "Change the file, or leave --formulation out to have it inferred.",
    )
    return error_as_written(error, inputs.profile)


def formulation_meant(kind: type[Problem], name: str) -> tuple[str, Formulation]:
    """The formulation of this name, however it is spelt."""
    wanted, known = name.lower().replace("_", "-"), registry.formulations(kind)
    if wanted in known:
        return wanted, known[wanted]
    choose = f"Choose one of {', '.join(known)}; `hetplan list options {kind.question}` describes them."
    raise InputError.one(
        path="formulation",
        value=name,
        why=f"the question {kind.question} has no such formulation",
        remedy=f"Write {OLD_FORMULATIONS[wanted]}." if wanted in OLD_FORMULATIONS else choose,
    )
