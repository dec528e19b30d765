"""The pages of the reference that say what the code says: commands, options, fields.

    python docs/make_reference.py

It writes them into `docs/reference/`. `tests/test_reference.py` fails where one of them is not current.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "reference"
PROBLEMS = ("pool", "variants", "pipeline", "policy", "compound", "llm", "fleet")
FILES = {"profile": "what was measured, and what machines cost", "slo": "what is wanted", "state": "what runs now"}


def main() -> None:
    """Write every generated page anew."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


def pages() -> dict[str, str]:
    """File name -> text."""
    return {"commands.md": commands(), "options.md": options(), "fields.md": fields()}


def commands() -> str:
    """Each command with its arguments and flags, in the groups of `hetplan --help`."""
    from typer.main import get_command

    from hetplan.cli.app import build_app

    app: Any = get_command(build_app())
    lines = [
        "# Commands", "", "```text", "hetplan COMMAND [FILES...] [FLAGS]", "```", "",
        "Files come in any order: each says what it is by its `format`. A folder stands for the files in it.", "",
    ]  # fmt: skip
    group = ""
    for name in app.list_commands(None):
        command = app.get_command(None, name)
        if command.rich_help_panel != group:
            group = command.rich_help_panel
            lines += [f"## {group}", ""]
        lines += [f"### {name}", "", command.help.split("\n\n")[0].replace("\n", " "), ""]
        context = command.context_class(command, info_name=name)
        records = [one.get_help_record(context) for one in command.get_params(context)]
        rows = [one for one in records if one is not None and not one[0].startswith("--help")]
        lines += [*table(("", "meaning"), [(code(flag), meaning) for flag, meaning in rows]), ""]
    return "\n".join(lines)


def options() -> str:
    """What `--set NAME=VALUE` takes, by problem and formulation."""
    from hetplan.cli.catalog import option_rows
    from hetplan.registry import formulations, problem

    lines = [
        "# Options", "", "```console", "$ hetplan list options pool", "```", "",
        "Set one with `--set NAME=VALUE`, or in Python with `options=`. The first formulation is the default.",
        "",
    ]  # fmt: skip
    for name in PROBLEMS:
        ways = {
            one: way
            for one, way in formulations(problem(name)).items()
            if way.options.__module__.startswith("hetplan.")  # other packages may add some
        }
        found: dict[tuple[str, str, str, str], list[str]] = {}
        for one, way in ways.items():
            for row in option_rows(way.options.model_json_schema()):
                found.setdefault(row, []).append(one)
        lines += [f"## {name}", "", f"Formulations: {', '.join(f'`{one}`' for one in ways)}.", ""]
        rows = [
            (code(option), code(default), code(takes), "all" if len(users) == len(ways) else ", ".join(users), meaning)
            for (option, default, takes, meaning), users in found.items()
        ]
        lines += [*table(("option", "default", "takes", "of", "meaning"), rows), ""]
    return "\n".join(lines)


def fields() -> str:
    """Every field of the files that people write, from their JSON Schemas."""
    lines = [
        "# Fields of the files", "", "```console", "$ hetplan check --schema slo", "```", "",
        "The schemas say the same to editors; `hetplan check --schema plan` has the plan's. A type that is a link is a "
        "section below. [What each problem does with a field](marks.md) is another page.", "",
    ]  # fmt: skip
    for kind, about in FILES.items():
        schema = schema_of(kind)
        lines += [f"## {kind}", "", f"{about[0].upper()}{about[1:]}.", ""]
        for title, section in [(kind, schema), *schema.get("$defs", {}).items()]:
            if "properties" not in section:
                continue
            if title != kind:
                about_it = section.get("description", "").split("\n\n")[0].replace("\n", " ")
                lines += [f"### {kind}: {title.lstrip('_')}", "", *([about_it, ""] if about_it else [])]
            rows = [
                (code(name), type_of(one, kind), default_of(one), one.get("description", ""))
                for name, one in section["properties"].items()
            ]
            lines += [*table(("field", "type", "default", "meaning"), rows), ""]
    return "\n".join(lines)


def schema_of(kind: str) -> Mapping[str, Any]:
    """The JSON Schema that `hetplan check --schema` prints."""
    from hetplan.profiles.schema import schema

    return schema(kind)


def type_of(about: Mapping[str, Any], kind: str) -> str:
    """What a field takes, in a few words, with links to sections."""
    return " or ".join(dict.fromkeys(_types(about, kind)))


def _types(about: Mapping[str, Any], kind: str) -> Iterator[str]:
    if isinstance(about.get("type"), list):
        for one in about["type"]:
            if one != "null":
                yield from _types({**about, "type": one}, kind)
    elif "$ref" in about:
        name = about["$ref"].rpartition("/")[2].lstrip("_")
        yield f"[{name}](#{kind}-{name.lower()})"
    elif "enum" in about:
        yield ", ".join(code(str(one)) for one in about["enum"])
    elif "const" in about:
        yield code(str(about["const"]))
    elif "anyOf" in about or "oneOf" in about:
        for one in about.get("anyOf", about.get("oneOf")):
            if one.get("type") != "null":
                yield from _types(one, kind)
    elif about.get("type") == "array":
        inside = about.get("items", about.get("prefixItems", {}))
        yield f"list of {type_of(inside, kind) or 'values'}" if isinstance(inside, dict) else "list"
    elif about.get("type") == "object":
        kinds = [*about.get("patternProperties", {}).values(), about.get("additionalProperties")]
        inside = next((one for one in kinds if isinstance(one, dict)), None)
        yield f"by name: {type_of(inside, kind) or 'value'}" if inside is not None else "object"
    else:
        yield {"string": "text", "boolean": "true or false"}.get(about.get("type", ""), about.get("type", "any"))


def default_of(about: Mapping[str, Any]) -> str:
    """The default as it would be written, nothing where the field may be left out without one."""
    value = about.get("default")
    return "" if value is None or value in ([], {}) else code(json.dumps(value))


def code(text: str) -> str:
    """Text as code, if there is any."""
    return f"`{text}`" if text else ""


def table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        cells = (" ".join(cell.replace("|", "\\|").split()) for cell in row)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
