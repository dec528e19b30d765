"""Why a text is no JSON with one meaning, and what to do: looked up when a file cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.json_path import shortened, shortened_text
from hetplan.profiles.plain_data import plain, too_deep

__all__ = ["HOOKS", "NotFinite", "not_json", "unreadable"]


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


class NotFinite(ValueError):
    """A number that no double holds."""


def unreadable(error: OSError | ValueError, path: Path, file: str) -> InputError:
    """The refusal of a file that is not there, or that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        remedy = "Check the path" + _neighbour(path) + "."
        if "examples" in path.parts:
            remedy = "`hetplan init --example all -o examples` copies the examples of the pages into this folder."
        return InputError.one(file=file, why="there is no such file", remedy=remedy)
    why = f"the file cannot be read ({getattr(error, 'strerror', None) or error})"
    return InputError.one(file=file, why=why, remedy="Check the path and who may read it.")


def _neighbour(path: Path) -> str:
    """A file of nearly that name in the same folder."""
    import difflib

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "; its folder does not exist either"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; beside it lies {near[0]}" if near else ""


def not_json(error: RecursionError | ValueError, text: str, file: str) -> InputError:
    """The refusal of a text that the parser stopped at."""
    if isinstance(error, json.JSONDecodeError):
        return InputError.one(
            file=file,
            value=shortened_text(text[error.pos : error.pos + 20].strip()),
            why=f"JSON; line {error.lineno}, column {error.colno}: {error.msg.lower()}",
            remedy=_cure(text, error.pos),
        )
    if isinstance(error, _Twice):
        return InputError.one(
            file=file,
            value=shortened(error.key),
            why=f"every key once per object; this one is there twice{_lines_of(text, error.key)}",
            remedy="Remove or rename one of the two.",
        )
    if isinstance(error, NotFinite):
        return _place_of_no_number(text, file)
    if isinstance(error, RecursionError):
        too_deep(file)
    return InputError.one(
        file=file, why="numbers that fit a double", remedy="Shorten the number of thousands of digits."
    )


def _place_of_no_number(text: str, file: str) -> InputError:
    """The refusal of a number that no double holds, with its field, which the parser that stopped did not know."""
    try:
        plain(json.loads(text), (), file)
    except InputError as refusal:
        return refusal
    except (RecursionError, ValueError) as error:
        return not_json(error, text, file)
    raise AssertionError("a number that no double holds is refused")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(key)
            seen.add(key)
    return found


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotFinite(text)
    return value


def _bounded(text: str) -> int:
    _finite(text)
    return int(text)


HOOKS: Mapping[str, Callable[[Any], Any]] = {
    "parse_float": _finite,
    "parse_int": _bounded,
    "object_pairs_hook": _unique,
}
"""What the parser asks about numbers and objects, by the name of its argument."""


def _lines_of(text: str, key: str) -> str:
    written = json.dumps(key)
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if written in line]
    return f" (see line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:6]))})" if lines else ""


def _cure(text: str, position: int) -> str:
    """What is usually wrong where the parser stopped."""
    if position >= len(text.rstrip()):
        return "The file ends too early: complete it, or fetch it again."
    before = text[:position].rstrip()[-1:]
    here = text[position]
    if here == "'":
        return 'Write double quotes "...".'
    if here in "/#":
        return "JSON has no comments: remove it, or put it under a source's note."
    if here in "}]" and before == ",":
        return "Remove the comma before it."
    if text[position:].startswith(("None", "True", "False")):
        return "Write null, true or false."
    if before == "}" and here == "{":
        return "One document per file: put a comma between entries of a list, or split the file."
    return "Mend the text there; any JSON editor shows the place."
