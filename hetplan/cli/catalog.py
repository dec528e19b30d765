"""What there is: `hetplan list problems`, `list options PROBLEM`, `list solvers`, `list laws`, `list formats`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from hetplan.cli.arguments import AsJson
from hetplan.cli.output import Output
from hetplan.errors import InputError

__all__ = ["Catalog", "list_catalog", "option_rows", "takes"]


class Catalog(StrEnum):
    """What can be listed."""

    PROBLEMS = "problems"
    OPTIONS = "options"
    SOLVERS = "solvers"
    LAWS = "laws"
    FORMATS = "formats"


def _problems() -> list[str]:
    from hetplan.registry import problem_names

    return problem_names()


def list_catalog(
    what: Annotated[
        Catalog, typer.Argument(metavar="WHAT", help="What to list: problems, options, solvers, laws or formats.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD...]",
            help="options: a problem; laws: a model, GPU, engine ...",
            autocompletion=_problems,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List problems, options, solvers, laws of engines, formats.

    `hetplan solve` takes the most specific problem that fits the files. Laws of LLM engines ship with hetplan, each
    with its source and its error: `hetplan list laws llama h100`.
    """
    with Output("list", as_json=as_json) as out:
        if what is Catalog.LAWS:
            _list_laws(out, words or ())
            return
        if len(words or ()) != (what is Catalog.OPTIONS):
            why = "the options of one problem" if what is Catalog.OPTIONS else f"{what.value} are listed all together"
            remedy = f"Name one of {', '.join(_problems())}: hetplan list options pool."
            remedy = remedy if what is Catalog.OPTIONS else "Leave it out."
            raise InputError.one(file="WORD", value=" ".join(words or ()), why=why, remedy=remedy)
        if words:
            _list_options(out, words[0])
        else:
            listed = {Catalog.PROBLEMS: _list_problems, Catalog.SOLVERS: _list_solvers, Catalog.FORMATS: _list_formats}
            listed[what](out)


def _list_problems(out: Output) -> None:
    from hetplan.registry import formulations, problem, problem_names

    rows = []
    for name in problem_names():
        asked = problem(name)
        named, about = list(formulations(asked)), _opening(asked)
        rows.append((name, ", ".join(named), about))
        out.send({"problem": name, "formulations": named, "about": about})
    out.people.table(("problem", "formulations (default first)", "decides"), rows)
    out.people.line()
    out.people.line("`hetplan list options PROBLEM` lists what can be set.")


def _opening(question: type) -> str:
    """What a question decides: the first line of its package, or of its module where it is one file."""
    package, _, room = question.__module__.rpartition(".")
    return (sys.modules[package if room == "question" else question.__module__].__doc__ or "").strip().split("\n")[0]


def _list_options(out: Output, name: str) -> None:
    from hetplan.registry import formulations, problem

    for position, (formulation, way) in enumerate(formulations(problem(name)).items()):
        rows = option_rows(way.options.model_json_schema())
        default = " (the default)" if position == 0 else ""
        out.people.line(f"{formulation}{default}: {_summary(way.options)}")
        out.people.table(("option", "default", "takes", "meaning"), rows)
        out.people.line()
        for option, default_text, accepted, meaning in rows:
            body = {"name": option, "default": default_text, "takes": accepted, "meaning": meaning}
            out.send({"formulation": formulation, "option": body})
    out.people.line("Set one with --set NAME=VALUE; choose a formulation with --formulation NAME.")


def option_rows(schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, default, accepted values and meaning of every option in a JSON Schema."""
    return [
        (name, _default(about), takes(about), str(about.get("description", "")))
        for name, about in schema.get("properties", {}).items()
    ]


def takes(about: dict[str, Any]) -> str:
    """What a JSON Schema accepts, in few words.

    >>> takes({"enum": ["mean", "p99"]}), takes({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
    ('mean|p99', 'number > 0, <= 1')
    >>> takes({"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "null"}]}), takes({"type": "string"})
    ('name|none', 'text')
    """
    if "enum" in about:
        return "|".join(map(str, about["enum"]))
    if "const" in about:
        return str(about["const"])
    if "anyOf" in about:
        return "|".join(takes(one) for one in about["anyOf"])
    if about.get("type") == "object":
        # Keys that have a pattern are said beside it.
        (values,) = about.get("patternProperties", {"": about.get("additionalProperties", {})}).values()
        return f"{{name: {takes(values) if isinstance(values, dict) else 'value'}}}"
    if "pattern" in about:
        return "name"
    words = {"string": "text", "boolean": "true|false", "null": "none", "array": "list"}
    word = words.get(about.get("type", ""), about.get("type", "value"))
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = ", ".join(f"{sign} {about[key]:g}" for key, sign in signs.items() if key in about)
    return f"{word} {limits}".strip()


def _default(about: dict[str, Any]) -> str:
    value = about.get("default")
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _summary(model: type) -> str:
    text = (model.__doc__ or "").strip().split("\n")[0]
    return text.split(": ", 1)[-1]


def _list_solvers(out: Output) -> None:
    from hetplan.registry import solvers

    rows = []
    for engine in solvers():
        version = engine.version()
        summary = (type(engine).__doc__ or "").strip().split("\n")[0]
        rows.append((engine.name, engine.form, version or "not installed", summary))
        out.send({"solver": engine.name, "form": engine.form, "version": version or None, "about": summary})
    out.people.table(("solver", "form", "version", "what it is"), rows)
    out.people.line()
    out.people.line("`hetplan solve --solver NAME` picks one; `hetplan doctor` says how to install the others.")


def _list_formats(out: Output) -> None:
    from hetplan.cli.inputs import Schema
    from hetplan.registry import importers

    rows = [(one.value, "an own file", f"hetplan check --schema {one.value}") for one in Schema]
    rows += [(name, "another tool's file", f"hetplan import FILE --as {name}") for name in sorted(importers())]
    for name, what, command in rows:
        out.send({"format": name, "what": what, "command": command})
    out.people.table(("format", "what it is", "command"), rows)


def _list_laws(out: Output, words: Sequence[str]) -> None:
    from hetplan.profiles.catalogue import known_laws

    rows = []
    for one in known_laws(words):
        law = one.law
        said = law.model_dump(mode="json", exclude_defaults=True)
        out.send({"name": one.name, "engine": one.identity, "date": one.date, "law": said})
        experts = f"{law.experts_ms:.3g}" if law.experts_ms else "-"
        error, fit = (f"{100.0 * (value or 0.0):.1f}%" for value in (law.error_mean, (law.fit_error or (0.0,))[0]))
        rows.append((one.name, f"{law.base_ms:.3g}", experts, law.basis, error, fit))
    if not rows:
        raise InputError.one(
            file="list", value=" ".join(words), why="no law is of all of these",
            remedy="Leave a word out; `hetplan list laws` shows all.",
        )  # fmt: skip
    titles = ("law", "base ms", "experts ms", "basis", "off", "fit off")
    out.people.table(titles, rows, right=("base ms", "experts ms", "off", "fit off"))
    out.people.line()
    out.people.line('A run of a profile takes one by its name: "law": "catalogue/...". `--json` shows its numbers.')
