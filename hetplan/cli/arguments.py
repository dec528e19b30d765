"""What several commands take: arguments with their help texts, and `name=value` settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hetplan.errors import Fault, InputError

__all__ = [
    "AsJson",
    "Files",
    "Formulation",
    "PlanAndFiles",
    "PlanFile",
    "Settings",
    "Unchecked",
    "file_option",
    "method_from",
    "option",
    "read_settings",
]


def option(names: str, metavar: str, text: str) -> Any:
    """An option with a value: `-o --output`, what stands for the value in the help, and the help."""
    return typer.Option(*names.split(), metavar=metavar, help=text)


def file_option(names: str, metavar: str, text: str) -> Any:
    """An option that names a file; who reads it says what is wrong with it."""
    return typer.Option(*names.split(), metavar=metavar, readable=False, help=text)


def _formulations() -> list[str]:
    from hetplan.registry import formulations, problem, problem_names

    names = problem_names()
    return [*names, *(one for name in names for one in formulations(problem(name)))]


Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES...", readable=False, help="Profiles, SLO, state, measurements; or their folder."),
]
PlanAndFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES...", readable=False, help="A plan and the files that it was made from; or their folder."
    ),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", readable=False, help="Plan file written by `hetplan solve`.")]
Formulation = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How to plan, or the problem: `hetplan list problems` names them; default: what fits the files.",
        autocompletion=_formulations,
    ),
]
Settings = Annotated[
    list[str] | None, option("--set", "NAME=VALUE", "Set an option of the formulation; repeatable; @FILE reads many.")
]
Unchecked = Annotated[
    bool,
    typer.Option("--allow-unchecked", help="Accept a plan of a problem that another package adds without a verifier."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print NDJSON: a format line, events, and a last object with `exit`.")
]


def method_from(settings: list[str] | None, *, formulation: str | None) -> tuple[str | None, dict[str, Any]]:
    """Formulation and options out of `--set` and the flags; `--set @FILE` names a file with any of these.

    What is said later wins, and flags win over files.

    >>> method_from(["allow-late=0.1", "derate=0.9"], formulation="pool-lp")
    ('pool-lp', {'allow_late': 0.1, 'derate': 0.9})
    """
    options: dict[str, Any] = {}
    for setting in settings or []:
        if not setting.startswith("@"):
            options |= read_settings([setting])
            continue
        from hetplan.cli.read_files import read_method

        method = read_method(Path(setting[1:]))
        options |= {name.replace("-", "_"): value for name, value in method.get("options", {}).items()}
        formulation = formulation or method.get("formulation")
    return formulation, options


def read_settings(settings: list[str]) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`, with names in Python's spelling."""
    options: dict[str, Any] = {}
    faults = []
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign or not name.strip():
            faults.append(Fault("--set", "", repr(setting), "a setting is NAME=VALUE", "Write --set derate=0.8."))
            continue
        options[name.strip().replace("-", "_")] = _value(text)
    if faults:
        raise InputError(faults)
    return options


def _value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
