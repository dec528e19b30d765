"""Reading a JSON document strictly: one meaning or an error, never a guess; and whether this reader may read it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from hetplan.errors import Fault, InputError
from hetplan.profiles.json_path import closest, shortened
from hetplan.profiles.plain_data import MOST_LEVELS, nothing_in, plain, too_deep

__all__ = ["FEATURES", "VERSIONS", "Source", "format_faults", "format_of", "is_newer", "read_json", "source_name"]


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


def read_json(source: Source, *, file: str, is_own: bool = True) -> Any:
    """The document: parsed from a path or bytes, or checked to be plain JSON where it is a mapping already.

    A file of another tool is not `is_own`: words in it may be read as they are.
    Refused: no UTF-8, no JSON, a key twice in one object, NaN, infinities and numbers beyond a double, lone
    surrogates, nesting beyond any sense.
    """
    if isinstance(source, Mapping):
        return plain(source, (), file)
    data = source if isinstance(source, bytes) else _read_file(source, file)
    text = _decoded(data, file)
    if isinstance(source, str | os.PathLike) and os.fspath(source).endswith((".yaml", ".yml")):
        from hetplan.profiles.yaml_text import read_yaml

        return read_yaml(text, file=file, is_own=is_own)
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
        nothing_in(file)
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


VERSIONS = {"profile": (1, 0), "slo": (1, 0), "state": (1, 0), "plan": (1, 0)}
"""Kind of file -> the version that this hetplan writes; it reads every version up to it of the same major number."""

FEATURES: dict[str, frozenset[str]] = {
    "profile": frozenset(),
    "slo": frozenset({"series", "rate-range"}),
    "state": frozenset(),
}
"""What a file may list under `requires`; a reader that does not know one of them refuses the file."""

_FORMAT = re.compile(r"hetplan/([a-z]+)/(\d{1,6})\.(\d{1,6})\Z")


def format_faults(document: Any, kind: str, file: str) -> list[Fault]:
    """What is wrong with a document as a whole: no object, another kind, another major version, unknown features."""
    if not isinstance(document, Mapping):
        if file.lower().endswith((".yaml", ".yml")):
            remedy, what = f"Start with the line format: {format_of(kind)}, not with a dash.", "a YAML object"
        else:
            remedy, what = f'Start with {{"format": "{format_of(kind)}", ...}}.', "a JSON object"
        return [Fault(file, "$", shortened(document), f"{what} at the top", remedy)]
    return _version_faults(document, kind, file) + _feature_faults(document, kind, file)


def format_of(kind: str) -> str:
    """The newest format of a kind of file."""
    major, minor = VERSIONS[kind]
    return f"hetplan/{kind}/{major}.{minor}"


def _version_faults(document: Mapping[str, Any], kind: str, file: str) -> list[Fault]:
    given = document.get("format")

    def fault(why: str, remedy: str) -> list[Fault]:
        value = shortened(given) if "format" in document else ""
        return [Fault(file=file, path="$.format", value=value, why=why, remedy=remedy)]

    if "format" not in document:
        return fault("every file says its format", f'Add "format": "{format_of(kind)}".')
    matched = _FORMAT.match(given) if isinstance(given, str) else None
    if matched is None:
        return fault(f'"{format_of(kind)}"', f'Write "format": "{format_of(kind)}".')
    if matched[1] != kind:
        return fault(f"a {kind} file here, not a {matched[1]} file", f"Give the {kind} file in its place.")
    if int(matched[2]) != VERSIONS[kind][0]:
        newer = int(matched[2]) > VERSIONS[kind][0]
        cure = "Upgrade hetplan." if newer else f"Rewrite the file as {format_of(kind)}; see docs/reference/files.md."
        return fault(f"this hetplan reads {kind} files of version {VERSIONS[kind][0]}.x", cure)
    return []


def _feature_faults(document: Mapping[str, Any], kind: str, file: str) -> list[Fault]:
    required = document.get("requires", ())
    if not isinstance(required, list | tuple):
        return []  # the model says so
    known = FEATURES[kind]
    return [
        Fault(
            file=file,
            path=f"$.requires[{number}]",
            value=shortened(feature),
            why="the file needs a feature that this hetplan does not know",
            remedy=f"{closest(feature, known)}Upgrade hetplan.",
        )
        for number, feature in enumerate(required)
        if isinstance(feature, str) and feature not in known
    ]


def is_newer(document: Any) -> bool:
    """Whether the document says a newer minor version than this reader's (of any kind of file)."""
    given = document.get("format") if isinstance(document, Mapping) else None
    matched = _FORMAT.match(given) if isinstance(given, str) else None
    if matched is None:
        return False
    return (int(matched[2]), int(matched[3])) > VERSIONS.get(matched[1], (1, 0))
