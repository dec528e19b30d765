"""YAML as another way to write the same documents: read as JSON would be, written with comments, edited with them kept.

A YAML file says what a JSON file can say and no more: objects, lists, texts, numbers, true, false and null, read by the
rules of JSON (``2024-01-01`` is a text). Tags of other kinds, anchors and several documents are refused, as is a key
that is there twice, and a word without quotes that other readers take for true, false or null (``on``, ``n``,
``Null``). So a document has the same digest in both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from hetplan.errors import Fault, InputError
from hetplan.profiles.json_path import json_path, shortened_text, write_at
from hetplan.profiles.plain_data import MOST_LEVELS, nothing_in, plain, too_deep

__all__ = ["edited_yaml", "is_yaml", "read_yaml", "with_lines", "write_yaml"]

Steps = tuple[str | int, ...]

_KNOWN = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map", "timestamp")}
_KNOWN |= {"tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
_BOOLEANS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false"])
"""What YAML 1.1 reads as true or false, in small letters, with a first capital or in capitals."""
_NO_TEXT = _BOOLEANS | {"null"}
"""What some reader takes for no text where it has no quotes."""
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")


def is_yaml(name: object) -> bool:
    """Whether a file is YAML, by its name.

    >>> is_yaml("slo.yaml"), is_yaml("slo.json")
    (True, False)
    """
    return str(name).lower().endswith((".yaml", ".yml"))


def read_yaml(text: str, *, file: str, is_own: bool = True) -> Any:
    """The document of a YAML text; InputError names the line of what is no plain data.

    A file of another tool (not `is_own`) may have words in it that others read as true, false or null.
    """
    from ruamel.yaml.error import YAMLError

    try:
        node = _ruamel().compose(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        remedy = "Mend the text there; an object's lines have one depth, and texts with a colon are quoted."
        raise InputError.one(file=file, why=f"YAML; {at}{shortened_text(problem)}", remedy=remedy) from None
    except RecursionError:
        too_deep(file)
    if node is None:
        nothing_in(file)
    if is_own:
        _refuse_words(node, (), file)
    found = _value(node, (), file, set())
    if "\\" in text:
        plain(found, (), file)  # an escape may say half a character
    return found


def with_lines(faults: Iterable[Fault]) -> list[Fault]:
    """The faults, those in YAML files with the line and column of their place."""
    found: list[Fault] = []
    marks: dict[str, dict[str, str]] = {}
    for fault in faults:
        if is_yaml(fault.file) and fault.path and not fault.path.endswith(")"):
            if fault.file not in marks:
                marks[fault.file] = _marks_in(fault.file)
            at = _nearest(fault.path, marks[fault.file])
            fault = replace(fault, path=f"{fault.path} ({at})") if at else fault
        found.append(fault)
    return found


def _marks_in(file: str) -> dict[str, str]:
    """JSON path -> line and column of it, of a YAML file that can be read."""
    from ruamel.yaml.error import YAMLError

    try:
        node = _ruamel().compose(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, YAMLError):
        return {}
    marks: dict[str, str] = {}

    def add(here: Any, steps: Steps, begins: Any) -> None:
        marks[json_path(steps)] = _mark(begins)
        if here.id == "mapping":
            for key, value in here.value:
                add(value, (*steps, key.value), key)
        elif here.id == "sequence":
            for place, one in enumerate(here.value):
                add(one, (*steps, place), one)

    if node is not None:
        add(node, (), node)
    return marks


def _mark(node: Any) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


def _nearest(path: str, marks: Mapping[str, str]) -> str:
    """Where a place is, or the last part of it that is there: a key may be missing."""
    return max(((len(at), mark) for at, mark in marks.items() if path.startswith(at)), default=(0, ""))[1]


def _ruamel() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 120
    return yaml


def _value(node: Any, steps: Steps, file: str, seen: set[int]) -> Any:
    if len(steps) > MOST_LEVELS:
        too_deep(file)
    if node.anchor is not None or id(node) in seen:
        _refuse(node, steps, file, "no anchors: each thing is written out", "Write it out where it is meant.")
    if str(node.tag) not in _KNOWN:
        _refuse(node, steps, file, f"plain data; {node.tag} is a tag", "Take the tag out.")
    seen.add(id(node))
    if node.id == "scalar":
        return _scalar(node, steps, file)
    if node.id == "sequence":
        return [_value(one, (*steps, place), file, seen) for place, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            _refuse(key, steps, file, "keys that are texts", "Write a name before the colon.")
        if key.value in found:
            _refuse(key, (*steps, key.value), file, "every key once per object; this one is there twice",
                    "Remove or rename one of the two.")  # fmt: skip
        found[key.value] = _value(value, (*steps, key.value), file, seen)
    return found


def _scalar(node: Any, steps: Steps, file: str) -> Any:
    text: str = node.value
    if node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.match(text) and len(text) < 300:
        return int(text)
    if _NUMBER.match(text):
        value = float(text)
        if not math.isfinite(value):
            _refuse(node, steps, file, "finite numbers that fit a double", "Leave a key out where there is no limit.")
        return value
    return text


def _refuse_words(node: Any, steps: Steps, file: str, *, is_key: bool = False) -> None:
    """Refuse the first word that some readers take for true, false or null, and this one for a text."""
    if node.id != "scalar":
        pairs = node.value if node.id == "mapping" else [(None, one) for one in node.value]
        for place, (key, value) in enumerate(pairs):
            inside = (*steps, place if key is None else str(key.value))
            if key is not None and key.id == "scalar":
                _refuse_words(key, inside, file, is_key=True)
            if len(steps) < MOST_LEVELS and value.anchor is None:
                _refuse_words(value, inside, file)
        return
    text: str = node.value
    word = text.lower()
    known = text in _WORDS and not is_key
    if node.style is None and word in _NO_TEXT and not known and text in (word, text.capitalize(), text.upper()):
        remedy = f'Write "{text}"' + (f" or {word}." if word in _WORDS and not is_key else ".")
        read_as = "null" if word == "null" else "true or false"
        why = f"text in quotes; {'other' if word == 'null' else 'older'} YAML reads {text} as {read_as}"
        _refuse(node, steps, file, why, remedy)


def _refuse(node: Any, steps: Steps, file: str, why: str, remedy: str) -> NoReturn:
    at = f"{json_path(steps)} ({_mark(node)})"
    raise InputError.one(file=file, path=at, why=why, remedy=remedy)


def edited_yaml(text: str, edits: Sequence[tuple[Steps, Any]], *, file: str) -> str:
    """The text with values changed or added; comments, order and quotes are kept.

    >>> print(edited_yaml("limits:  # spent\\n  cost_per_hour: '3'\\n", [(("limits", "changes"), 2)], file=""), end="")
    limits:  # spent
      cost_per_hour: '3'
      changes: 2
    """
    import io

    read_yaml(text, file=file)
    yaml = _ruamel()
    document = yaml.load(text)
    for steps, value in edits:
        write_at(document, steps, value)
    to = io.StringIO()
    yaml.dump(document, to)
    return to.getvalue()


def write_yaml(document: Mapping[str, Any], comments: Mapping[Steps, str] | None = None) -> str:
    """A document as YAML, with comments before the places that have one (`()`: at the top).

    >>> print(write_yaml({"limits": {"cost_per_hour": "3"}, "apps": {}}, {("limits",): "what may be spent"}), end="")
    # what may be spent
    limits:
      cost_per_hour: "3"
    apps: {}
    """
    said = comments or {}
    lines = [f"# {line}".rstrip() for line in said.get((), "").splitlines()]
    return "\n".join([*lines, *_block(document, (), "", said)]) + "\n"


def _block(value: Any, steps: Steps, indent: str, said: Mapping[Steps, str]) -> Iterator[str]:
    items: list[tuple[str, str | int, Any]]
    if isinstance(value, Mapping):
        items = [(f"{_key(key)}:", key, one) for key, one in value.items()]
    else:
        items = [("-", place, one) for place, one in enumerate(value)]
    for head, step, one in items:
        at = (*steps, step)
        yield from (f"{indent}# {line}" for line in said.get(at, "").splitlines())
        if isinstance(one, str) and _is_lines(one):
            yield f"{indent}{head} |"
            yield from (f"{indent}  {line}".rstrip() for line in one.splitlines())
        elif _is_flow(one):
            yield f"{indent}{head} {_flow(one)}"
        elif head == "-":
            first, *rest = _block(one, at, indent + "  ", said)
            yield f"{indent}- {first.strip()}" if not first.lstrip().startswith("#") else f"{indent}-\n{first}"
            yield from rest
        else:
            yield f"{indent}{head}"
            yield from _block(one, at, indent + "  ", said)


def _is_flow(value: Any) -> bool:
    """Scalars, what is empty, and lists without objects are written in one line."""
    if isinstance(value, Mapping):
        return not value
    if isinstance(value, list | tuple):
        return not value or all(not isinstance(one, Mapping) and _is_flow(one) for one in value)
    return True


def _is_lines(text: str) -> bool:
    r"""Whether a text is written line by line: it begins with a sign, ends with a line's end, and no line with a space.

    >>> _is_lines("a\n  b\n"), _is_lines("a"), _is_lines(" a\n"), _is_lines("a \n"), _is_lines("a\n\n")
    (True, False, False, False, False)
    """
    lines = text.split("\n")
    plain = all(line == line.rstrip() and line.isascii() and line.isprintable() for line in lines)
    return plain and len(lines) > 1 and not lines[-1] and bool(lines[-2]) and lines[0][:1].strip() != ""


def _flow(value: Any) -> str:
    # YAML takes these for ends of lines, or for nothing that a file may hold.
    said = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda sign: f"\\u{ord(sign[0]):04x}", said)


def _key(key: str) -> str:
    is_plain = _PLAIN.match(key) and key.lower() not in _BOOLEANS | _WORDS.keys()
    return key if is_plain else json.dumps(key, ensure_ascii=False)
