"""Files that hold one JSON document, or one object per line, as tools that append their results write them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.read_json import read_json

__all__ = ["read_json_or_lines"]


def read_json_or_lines(path: str | os.PathLike[str]) -> Any:
    """The document of a file, or the list of its lines' documents; of neither, what is wrong with it as a document."""
    file = os.fspath(path)
    try:
        return read_json(path, file=file, is_own=False)
    except InputError:
        try:
            lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
            listed = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            listed = []
        if len(listed) < 2:
            raise
    return [read_json(entry, file=file) if isinstance(entry, Mapping) else entry for entry in listed]
