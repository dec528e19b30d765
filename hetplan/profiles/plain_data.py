"""Data that a program hands over in place of a file: plain JSON data, or an error that says where it is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

from hetplan.errors import InputError
from hetplan.profiles.json_path import json_path, shortened

__all__ = ["MOST_LEVELS", "finite", "is_number", "nothing_in", "plain", "too_deep", "whole_if_it_is"]

MOST_LEVELS = 64
"""Deeper nesting is a slip or an attack; no format of ours comes near."""


_TOO_LARGE = 10**308


def too_deep(file: str) -> NoReturn:
    """Refuse a document that is nested too deeply."""
    raise InputError.one(
        file=file, why=f"at most {MOST_LEVELS} levels of nesting", remedy="Flatten it; no section needs ten."
    ) from None


def nothing_in(file: str) -> NoReturn:
    """Refuse a file without a document: what was to be in it is not known."""
    remedy = "Give a profile, an SLO, a state or a plan: `hetplan init` writes a first profile and SLO; "
    remedy += "`hetplan check --schema` says of each what may be there."
    raise InputError.one(file=file, why="an object; the file is empty", remedy=remedy)


def plain(value: Any, at: tuple[str | int, ...], file: str) -> Any:
    """The value as plain JSON data, or an error that says where it is none."""
    if len(at) > MOST_LEVELS:
        too_deep(file)
    if isinstance(value, Mapping):
        return {_plain_key(key, at, file): plain(item, (*at, key), file) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, (*at, number), file) for number, item in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return _encodable(value, at, file) if isinstance(value, str) else value
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()  # a NumPy scalar
    if (isinstance(value, int) and abs(value) < _TOO_LARGE) or (isinstance(value, float) and math.isfinite(value)):
        return value
    is_a_number = isinstance(value, int | float)
    raise InputError.one(
        file=file,
        path=json_path(at),
        value=shortened(value) if is_a_number else type(value).__name__,
        why="finite numbers that fit a double"
        if is_a_number
        else "plain JSON data: finite numbers, text, true, false, null, lists, objects",
        remedy="Write null where nothing was measured, and leave a key out where there is no limit."
        if is_a_number
        else "Turn it into one of these.",
    )


def _plain_key(key: Any, at: tuple[str | int, ...], file: str) -> str:
    if not isinstance(key, str):
        raise InputError.one(
            file=file, path=json_path(at), value=shortened(key), why="keys that are text", remedy=f'Write "{key}".'
        )
    return _encodable(key, at, file)


def _encodable(text: str, at: tuple[str | int, ...], file: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError.one(
            file=file, path=json_path(at), value=shortened(text), why="whole Unicode characters", remedy="Retype it."
        ) from None
    return text


def finite(value: Any) -> Any:
    """What is written as JSON, which has no infinity: a bound that is not there yet is null.

    >>> finite({"bound": float("inf"), "value": (1, 2.5)})
    {'bound': None, 'value': [1, 2.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole_if_it_is(value: float) -> float | int:
    """A whole number without a point, as files are written."""
    return int(value) if float(value).is_integer() else value
