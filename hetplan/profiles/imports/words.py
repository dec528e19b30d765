"""Names and counts of other tools' files as hetplan writes them."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.json_path import shortened

__all__ = ["count_of", "id_of"]

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
