"""Lines of JSON that a long computation keeps on disk, each whole and flushed before the next is begun.

What the lines mean is the reader's: a question is handed `keep_lines` and touches no file itself. A last line that a
crash cut off is left out, and goes when the next one is written; until then a file that is opened stays as it is. One
without any whole line is somebody else's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetplan.errors import InputError

__all__ = ["KeptLines", "keep_lines"]


class KeptLines:
    """What stands in a file, line by line, and a way to add to it."""

    def __init__(self, path: Path, content: bytes, what: str) -> None:
        self._path, self._what = path, what
        self._whole = content.rfind(b"\n") + 1
        self._torn = self._whole < len(content)
        if self._torn and not self._whole:
            raise self.refused(f"this is no {what}")
        self.lines: list[Any] = []
        for number, raw in enumerate(content[: self._whole].splitlines()):
            try:
                self.lines.append(json.loads(raw))
            except ValueError:
                raise self.refused(f"this is no {what}", line=number + 1) from None

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line; it is on disk when this returns."""
        written = json.dumps(line, separators=(",", ":"), allow_nan=False, default=float).encode() + b"\n"
        try:
            with open(self._path, "ab") as file:
                if self._torn:
                    file.truncate(self._whole)
                self._whole, self._torn = file.seek(0, os.SEEK_END), True
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
                self._torn = False
        except OSError as error:
            raise _unusable(self._path, self._what, error) from None
        self.lines.append(json.loads(written))

    def refused(self, why: str, remedy: str = "Name another file, or delete this one.", *, line: int = 1) -> InputError:
        """The error that says why the file is not what was hoped for."""
        return InputError.one(file=str(self._path), path=f"line {line}", why=why, remedy=remedy)


def keep_lines(path: str | Path, what: str) -> KeptLines:
    """The lines of a file, none where it is not there yet; `what` it is, in the words of its errors.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     keep_lines(f"{folder}/kept.jsonl", "list of sums").append({"sum": 3})
    ...     keep_lines(f"{folder}/kept.jsonl", "list of sums").lines
    [{'sum': 3}]
    """
    found = Path(path)
    try:
        content = found.read_bytes() if found.exists() else b""
    except OSError as error:
        raise _unusable(found, what, error) from None
    return KeptLines(found, content, what)


def _unusable(path: Path, what: str, error: OSError) -> InputError:
    why = f"the {what} cannot be used: {error.strerror}"
    return InputError.one(file=str(path), why=why, remedy="Name a file of yours.")
