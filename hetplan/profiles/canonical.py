"""Canonical JSON (RFC 8785) and the digests made from it: equal content, equal digest, however a file is laid out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

__all__ = ["canonical_bytes", "digest", "number_text", "rounded"]

_WHOLE = 1 << 53
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_KEYS_OF_A_SHAPE = 24


def number_text(value: float) -> str:
    """A double as ECMAScript writes it, which RFC 8785 prescribes.

    >>> number_text(1.0), number_text(1e21), number_text(1e-7), number_text(0.000001)
    ('1', '1e+21', '1e-7', '0.000001')
    """
    text = repr(value)
    if text[-2:] == ".0":
        return text[:-2] if value else "0"
    if "e" not in text:
        if not math.isfinite(value):
            raise ValueError(f"{value} has no JSON form")
        return text
    mantissa, exponent_text = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    point = int(exponent_text) + 1  # the decimal point comes after so many digits
    if len(digits) <= point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def canonical_bytes(document: Any) -> bytes:
    """The canonical JSON of plain data (dictionaries, lists or tuples, text, numbers, booleans, None).

    >>> canonical_bytes({"b": [1.0, 2.50], "a": None})
    b'{"a":null,"b":[1,2.5]}'
    """
    return _text(document).encode("utf-8")


def digest(document: Any) -> str:
    """SHA-256 of the canonical JSON.

    >>> digest({"a": 1, "b": 2.0}) == digest({"b": 2, "a": 1.0})
    True
    """
    return f"sha256:{hashlib.sha256(canonical_bytes(document)).hexdigest()}"


def rounded(document: Any) -> Any:
    """The document with every float rounded to 12 significant digits, as plans are written.

    >>> rounded({"gap": 1 / 3, "counts": (1, 2)})
    {'gap': 0.333333333333, 'counts': [1, 2]}
    """
    kind = type(document)
    if kind is dict:
        return {key: value if type(value) in _AS_THEY_ARE else rounded(value) for key, value in document.items()}
    if kind is list or kind is tuple:
        return [value if type(value) in _AS_THEY_ARE else rounded(value) for value in document]
    if isinstance(document, float):
        return float(f"{document:.12g}")
    if isinstance(document, Mapping):
        return {key: rounded(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [rounded(value) for value in document]
    return document


def _text(value: Any) -> str:
    return _WRITERS.get(type(value), _other_text)(value)


def _object_text(value: Mapping[str, Any]) -> str:
    writers = _WRITERS
    keys = tuple(value)
    written = _common_shape(keys) if len(keys) <= _KEYS_OF_A_SHAPE else _shape(keys)
    members = [f"{key_text}{writers.get(type(item := value[key]), _other_text)(item)}" for key, key_text in written]
    return f"{{{','.join(members)}}}"


def _shape(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """Keys in their order, each with its text."""
    order = sorted(keys)
    if not "".join(order).isascii():
        # The standard sorts by UTF-16 units, in which characters beyond U+FFFF come before U+E000.
        order.sort(key=lambda key: key.encode("utf-16-be"))
    return [(key, f"{encode_basestring(key)}:") for key in order]


_common_shape = lru_cache(maxsize=1024)(_shape)
"""Most objects of a file have one of a few shapes."""


def _list_text(value: Iterable[Any]) -> str:
    writers = _WRITERS
    return f"[{','.join([writers.get(type(item), _other_text)(item) for item in value])}]"


def _integer_text(value: int) -> str:
    return str(value) if -_WHOLE <= value <= _WHOLE else number_text(float(value))


def _other_text(value: Any) -> str:
    """Subclasses of the plain types, and what has no JSON form."""
    for kind in (str, float, int):
        if isinstance(value, kind):
            return _WRITERS[kind](kind(value))
    if isinstance(value, Mapping):
        return _object_text(value)
    if isinstance(value, list | tuple):
        return _list_text(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    float: number_text,
    int: _integer_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    dict: _object_text,
    list: _list_text,
    tuple: _list_text,
}
