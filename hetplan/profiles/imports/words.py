"""Names and counts of other tools' files as hetplan writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NoReturn

from hetplan.errors import InputError
from hetplan.profiles.json_path import shortened

__all__ = ["above_0", "count_of", "digits", "id_of", "ill_written", "refuse", "section"]

_LONGEST_ID = 30


def id_of(text: str, otherwise: str) -> str:
    """The text as an id; a long one ends with a digest, so that two models of a family do not become one.

    >>> id_of("Org 8B!", "model"), id_of("meta-llama-3.1-405b-instruct-fp8", "model")
    ('org-8b', 'meta-llama-3.1-405b-ins-ec2b26')
    """
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    if len(plain) > _LONGEST_ID:
        plain = f"{plain[: _LONGEST_ID - 7].rstrip('._-')}-{sha256(plain.encode()).hexdigest()[:6]}"
    return plain or otherwise


def count_of(value: Any, at: str, file: str) -> int:
    """A whole number of at least 1, which reports may write as text; 1 where nothing is written."""
    try:
        found = float(value if value is not None else 1)
    except (TypeError, ValueError):
        found = 0.0
    if not 1.0 <= found < 1e15 or found != int(found):
        raise InputError.one(
            file=file, path=at, value=shortened(value), why="a whole number of at least 1",
            remedy="Write such a number.",
        )  # fmt: skip
    return int(found)


def digits(value: float, count: int = 6) -> float:
    """A number to so many significant digits."""
    return float(f"{float(value):.{count}g}")


def refuse(file: str, path: str, value: Any, why: str, remedy: str) -> NoReturn:
    """The file cannot be read."""
    raise InputError.one(file=file, path=path, value=shortened(value), why=why, remedy=remedy)


# Files about models and GPUs that somebody writes for one of the tools


def section(document: Mapping[str, Any], name: str, file: str) -> dict[str, Mapping[str, Any]]:
    """Named entries, at least one, each an object."""
    held = document.get(name)
    if not isinstance(held, Mapping) or not held or not all(isinstance(one, Mapping) for one in held.values()):
        raise ill_written(file, f"$.{name}", held, f"at least one of {name}, each an object")
    return dict(held)


def above_0(
    held: Mapping[str, Any], name: str, at: str, file: str, usual: float | None = None, *, most: float = 1e18
) -> float:
    """A number above 0, the usual one where none is written."""
    value = held.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < most:
        raise ill_written(file, f"{at}.{name}", value, "a number above 0")
    return float(value)


def ill_written(file: str, path: str, value: object, why: str) -> InputError:
    """What to raise where such a file is not as the page about it says."""
    return InputError.one(
        file=file, path=path, value=shortened(value), why=why, remedy="Write it as in docs/howto/exchange.md."
    )
