"""Reading a JSON document strictly: one meaning or an error, never a guess."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from hetplan.errors import InputError
from hetplan.profiles.json_path import shortened, shortened_text
from hetplan.profiles.plain_data import MOST_LEVELS, plain, too_deep

__all__ = ["Source", "read_json", "source_name"]

Source = str | os.PathLike[str] | bytes | Mapping[str, Any]
"""A path, the bytes of a file, or a document that is parsed already."""


_CONTAINERS = frozenset({dict, list})
_MOST_BYTES = 1 << 30
_LEVELLED = bytes.maketrans(b"123456789E", b"000000000e")
_SPACED_PAIR = re.compile(r'"\s+:')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


class _NotFinite(ValueError):
    pass


def source_name(source: object, kind: str) -> str:
    """The name under which messages speak of a source: the path as given, else its kind."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return kind


def read_json(source: Source, *, file: str) -> Any:
    """The document: parsed from a path or bytes, or checked to be plain JSON where it is a mapping already.

    Refused: no UTF-8, no JSON, a key twice in one object, NaN, infinities and numbers beyond a double, lone
    surrogates, nesting beyond any sense.
    """
    if isinstance(source, Mapping):
        return plain(source, (), file)
    data = source if isinstance(source, bytes) else _read_file(source, file)
    text = _decoded(data, file)
    if isinstance(source, str | os.PathLike) and os.fspath(source).endswith((".yaml", ".yml")):
        from hetplan.profiles.yaml_text import read_yaml

        return read_yaml(text, file=file)
    # Checking each number costs; only a text that may hold one beyond a double pays.
    levelled = data.translate(_LEVELLED, b"+")
    huge = b"0e000" in levelled or b"0" * 300 in levelled
    document = _parsed(text, file, **({"parse_float": _finite, "parse_int": _bounded} if huge else {}))
    if _pairs_in(document, file) < text.count('":') + len(_SPACED_PAIR.findall(text)):
        # Some key may be there twice (or some text looks like a key): parse again, slowly, to know.
        _parsed(text, file, object_pairs_hook=_unique)
    if _SURROGATE.search(text):
        plain(document, (), file)
    return document


def _read_file(source: str | os.PathLike[str], file: str) -> bytes:
    path = Path(source)
    try:
        if path.is_dir():
            raise InputError.one(file=file, why="a file, not a directory", remedy="Give the path of a JSON file.")
        if path.stat().st_size > _MOST_BYTES:
            raise InputError.one(file=file, why="a file of less than 1 GiB", remedy="Split the profile into several.")
        return path.read_bytes()
    except FileNotFoundError:
        remedy = "Check the path" + _neighbour(path) + "."
        raise InputError.one(file=file, why="there is no such file", remedy=remedy) from None
    except (OSError, ValueError) as error:
        why = f"the file cannot be read ({getattr(error, 'strerror', None) or error})"
        raise InputError.one(file=file, why=why, remedy="Check the path and who may read it.") from None


def _neighbour(path: Path) -> str:
    """A file of nearly that name in the same folder."""
    import difflib

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "; its folder does not exist either"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; beside it lies {near[0]}" if near else ""


def _decoded(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        remedy = "Save the file as UTF-8"
        remedy += " (it looks like UTF-16)." if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "."
        why = f"text in UTF-8; byte {error.start} is none"
        raise InputError.one(file=file, value=f"0x{data[error.start]:02x}", why=why, remedy=remedy) from None
    if not text.strip():
        raise InputError.one(
            file=file,
            why="a JSON object; the file is empty",
            remedy='Start with {"format": "hetplan/profile/1.0"}; `hetplan schema` says what may be there.',
        )
    return text


def _parsed(text: str, file: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, **hooks)
    except json.JSONDecodeError as error:
        raise InputError.one(
            file=file,
            value=shortened_text(text[error.pos : error.pos + 20].strip()),
            why=f"JSON; line {error.lineno}, column {error.colno}: {error.msg.lower()}",
            remedy=_cure(text, error.pos),
        ) from None
    except _Twice as error:
        raise InputError.one(
            file=file,
            value=shortened(error.key),
            why=f"every key once per object; this one is there twice{_lines_of(text, error.key)}",
            remedy="Remove or rename one of the two.",
        ) from None
    except _NotFinite as error:
        raise InputError.one(
            file=file,
            value=shortened_text(str(error)),
            why="finite numbers that fit a double",
            remedy="Write null where nothing was measured, and leave a key out where there is no limit.",
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, RecursionError):
            too_deep(file)
        raise InputError.one(
            file=file, why="numbers that fit a double", remedy="Shorten the number of thousands of digits."
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(key)
            seen.add(key)
    return found


def _lines_of(text: str, key: str) -> str:
    written = json.dumps(key)
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if written in line]
    return f" (see line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:6]))})" if lines else ""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFinite(name)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _NotFinite(text)
    return value


def _bounded(text: str) -> int:
    _finite(text)
    return int(text)


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


def _pairs_in(document: Any, file: str) -> int:
    """How many key-value pairs the document holds; refuses one that is nested too deeply."""
    pairs = 0
    level = [document]
    for levels in count():
        if levels == MOST_LEVELS:
            too_deep(file)
        objects = [item for item in level if type(item) is dict]
        pairs += sum(map(len, objects))
        inside = [item.values() for item in objects] + [item for item in level if type(item) is list]
        level = [item for items in inside for item in items if type(item) in _CONTAINERS]
        if not level:
            break
    return pairs
