"""The body of a query: its place on the tables (`at`) and what the model is to work on.

JSON, ``{"at": {"batch": 64}, "inputs": ...}``, or any other bytes, which go to the model unread; these travel between
router and worker with their `at` packed before them.

>>> read_query(b'{"at": {"batch": 64}}')
Query(at={'batch': 64.0}, inputs=None)
>>> read_query(packed({"batch": 2.0}, b"any bytes"))
Query(at={'batch': 2.0}, inputs=b'any bytes')
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any, NamedTuple

__all__ = ["BadQuery", "Query", "packed", "read_at", "read_query"]

_MARK = Struct("!BI")
_MOST = 1e15
"""A number above this is no place on a table; it might not even be a float."""
_REMEMBERED_BYTES, _REMEMBERED = 256, 4096
_known: dict[bytes, Query] = {}


class BadQuery(ValueError):
    """The body is none that a query may have."""


class Query(NamedTuple):
    """A query as a model sees it."""

    at: dict[str, float]
    inputs: Any = None


def read_query(body: bytes) -> Query:
    """The query that a body holds; BadQuery where it holds none."""
    found = _known.get(body)
    if found is None:
        found = _read(body)
        if len(body) <= _REMEMBERED_BYTES:
            if len(_known) >= _REMEMBERED:
                _known.clear()
            _known[body] = found
    return found


def packed(at: dict[str, float], content: bytes) -> bytes:
    """Bytes that are not JSON, with what the query says of itself."""
    said = json.dumps(at).encode()
    return _MARK.pack(0, len(said)) + said + content


def read_at(text: str) -> dict[str, float]:
    """The header's way to write `at`.

    >>> read_at("batch=64; input_tokens=128")
    {'batch': 64.0, 'input_tokens': 128.0}
    """
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    try:
        return _numbers({name.strip(): float(value) for name, _, value in pairs})
    except ValueError:
        raise BadQuery("hetplan-at is written name=number;name=number") from None


def _read(body: bytes) -> Query:
    if not body:
        return Query({})
    try:
        if body[0] == 0 and len(body) >= _MARK.size:
            _, said = _MARK.unpack_from(body)
            return Query(_numbers(json.loads(body[_MARK.size : _MARK.size + said])), body[_MARK.size + said :])
        data = json.loads(body)
    except BadQuery:
        raise
    except (ValueError, RecursionError):
        raise BadQuery("the body is no JSON; send other content under another content-type") from None
    if not isinstance(data, dict):
        raise BadQuery('the body is an object: {"at": {...}, "inputs": ...}')
    return Query(_numbers(data.get("at", {})), data.get("inputs"))


def _numbers(given: Any) -> dict[str, float]:
    if not isinstance(given, dict):
        raise BadQuery('"at" names numbers: {"batch": 64}')
    for value in given.values():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            raise BadQuery(f'"at" names numbers of 0 and more, not {value!r:.100}')
    return {str(name): float(value) for name, value in sorted(given.items())}
