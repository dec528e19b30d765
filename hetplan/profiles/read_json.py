"""Reading a JSON document strictly: one meaning or an error, never a guess."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from hetplan.errors import InputError
from hetplan.profiles.plain_data import MOST_LEVELS, plain, too_deep

__all__ = ["Source", "read_json", "source_name"]

Source = str | os.PathLike[str] | bytes | Mapping[str, Any]
"""A path, the bytes of a file, or a document that is parsed already."""


_CONTAINERS = frozenset({dict, list})
_MOST_BYTES = 1 << 30
_LEVELLED = bytes.maketrans(b"123456789E", b"000000000e")
_SPACED_PAIR = re.compile(r'"\s+:')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


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
    document = _parsed(text, file, **(_hooks("parse_float", "parse_int") if huge else {}))
    if _pairs_in(document, file) < text.count('":') + len(_SPACED_PAIR.findall(text)):
        # Some key may be there twice (or some text looks like a key): parse again, slowly, to know.
        _parsed(text, file, **_hooks("object_pairs_hook"))
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
    except (OSError, ValueError) as error:
        from hetplan.profiles.json_faults import unreadable

        raise unreadable(error, path, file) from None


def _hooks(*names: str) -> dict[str, Any]:
    """What the parser asks about each number or object of a text that may hold what JSON cannot mean."""
    from hetplan.profiles.json_faults import HOOKS

    return {name: HOOKS[name] for name in names}


def _parsed(text: str, file: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, **hooks)
    except (RecursionError, ValueError) as error:
        from hetplan.profiles.json_faults import not_json

        raise not_json(error, text, file) from None


def _refuse_constant(name: str) -> NoReturn:
    from hetplan.profiles.json_faults import NotFinite

    raise NotFinite(name)


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
            remedy="`hetplan init` writes a first profile and SLO; `hetplan schema` says what may be there.",
        )
    return text


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
