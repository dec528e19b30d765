"""The journal of a profile run: one line of JSON per finished cell, on disk before the next begins.

A run that was killed goes on where it stopped: at most the cell that was under way is lost. A last line that was cut
off is dropped. Each line says what it is of (the model's bytes, the machine, the stopping rule), so a changed model is
measured anew while the others are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from hetplan.errors import InputError

__all__ = ["FORMAT", "CellJournal"]

FORMAT = "hetplan/profile-journal/1.0"


class CellJournal:
    """Lines by what they are of; without a path, only remembered."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lines: dict[str, dict[str, Any]] = {}
        self._file: IO[bytes] | None = None
        if path is None:
            return
        # Not "a+": the tail that a crash cut off has to be taken away.
        self._file = open(path, "r+b" if Path(path).exists() else "x+b")  # noqa: SIM115
        try:
            self._file.truncate(self._read(self._file.read(), str(path)))
        except InputError:
            self.close()
            raise
        self._file.seek(0, os.SEEK_END)
        if self._file.tell() == 0:
            self._write({"format": FORMAT})

    def get(self, of: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was found of this, or None."""
        return self._lines.get(_key(of))

    def add(self, of: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was found, before anybody relies on it."""
        self._write({"of": dict(of), "found": dict(found)})
        self._lines[_key(of)] = dict(found)

    def close(self) -> None:
        """Close the file; what was added is on disk already."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _read(self, content: bytes, file: str) -> int:
        """Take in what is there; how many bytes of it are whole."""
        whole = 0
        for number, raw in enumerate(content.splitlines(keepends=True), start=1):
            last = whole + len(raw) == len(content)
            try:
                line = json.loads(raw) if raw.endswith(b"\n") else None
            except ValueError:
                line = None
            if line is None and last:
                break
            if (
                not isinstance(line, dict)
                or (number == 1) != ("format" in line)
                or line.get("format", FORMAT) != FORMAT
            ):
                raise InputError.one(
                    file=file, path=f"line {number}", why="this is no journal of `hetplan profile`, or it is damaged",
                    remedy="Name another with --journal, or remove it to measure anew.",
                )  # fmt: skip
            if "of" in line:
                self._lines[_key(line["of"])] = line["found"]
            whole += len(raw)
        return whole


def _key(of: Mapping[str, Any]) -> str:
    return json.dumps(of, sort_keys=True, separators=(",", ":"))
