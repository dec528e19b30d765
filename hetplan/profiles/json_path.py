"""How a place inside a JSON document, and a value found there, are written in messages."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["closest", "json_path", "shortened", "walk", "write_at"]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+\Z")
_LONGEST = 60


def json_path(steps: Iterable[str | int]) -> str:
    """The JSON path of these steps from the top.

    >>> json_path(["tables", "yn-g4dn", "mean", 2]), json_path(["variants", "qwen-2.5"])
    ('$.tables.yn-g4dn.mean[2]', '$.variants["qwen-2.5"]')
    """
    written = ["$"]
    for step in steps:
        if isinstance(step, int):
            written.append(f"[{step}]")
        elif _PLAIN.match(step):
            written.append(f".{step}")
        else:
            written.append(f"[{json.dumps(shortened_text(step))}]")
    return "".join(written)


def shortened_text(text: str) -> str:
    """The text itself, or its beginning, printable and encodable."""
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 3]}..."


def shortened(value: Any) -> str:
    """A value as it is shown in a message: never more than a line.

    >>> shortened(74.9), shortened("fast"), shortened({"a": 1}), shortened([1, 2])
    ('74.9', '"fast"', 'an object with 1 key', 'a list of 2')
    """
    if isinstance(value, Mapping):
        return f"an object with {len(value)} key{'' if len(value) == 1 else 's'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return json.dumps(shortened_text(value), ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        return shortened_text(str(value))
    except ValueError:
        return "a number of thousands of digits"


def walk(document: Any, location: Iterable[str | int]) -> tuple[tuple[str | int, ...], Any, int]:
    """Follow a validator's location through a document: the steps that exist, the value there, how many did not.

    Validators put labels of their own (a union's branch, "[key]") between the true steps; those are skipped.
    """
    steps: list[str | int] = []
    here, skipped = document, 0
    for step in location:
        in_list = isinstance(here, list | tuple) and isinstance(step, int) and 0 <= step < len(here)
        if in_list or (isinstance(here, Mapping) and step in here):
            here = here[step]  # type: ignore[index, unused-ignore]  # pyright: ignore
            steps.append(step)
        else:
            skipped += 1
    return tuple(steps), here, skipped


def write_at(document: Any, path: Sequence[str | int], value: Any) -> None:
    """Write a value at a place of a document, in place; what the path goes through is made where it is not there.

    Zones that are listed become zones of which each says what differs there.

    >>> said = {"machines": {"t4": {"zones": ["east", "west"]}}}
    >>> write_at(said, ("machines", "t4", "zones", "east", "stock"), 3)
    >>> said
    {'machines': {'t4': {'zones': {'east': {'stock': 3}, 'west': {}}}}}
    """
    at: Any = document
    for number, step in enumerate(path[:-1]):
        below = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
        if isinstance(below, list) and isinstance(path[number + 1], str):
            below = at[step] = {str(name): {} for name in below}
        at = below
    at[path[-1]] = value


def closest(word: object, known: Iterable[str]) -> str:
    """'Did you mean "latency"? ' where some known word is near, else nothing.

    >>> closest("latncy", ["latency", "rate"])
    'Did you mean "latency"? '
    """
    if not isinstance(word, str) or len(word) > _LONGEST:
        return ""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"? ' if near else ""
