"""An append-only file of JSON lines: what long work keeps on disk, so that a kill loses at most the line under way.

The first line says the file's format and, by a digest, what its lines belong to; a file of another format or of other
inputs is refused and left as it is. Each line is whole and handed to the disk before `append` returns. A last line
that a crash cut off is dropped (`warning` says so) and goes from the file when the next line is written.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     journal = LineJournal(f"{folder}/sums.jsonl", what="list of sums", format="sums/1.0", of="inputs A")
...     journal.append({"sum": 3})
...     read_lines(open(f"{folder}/sums.jsonl", "rb").read(), file="sums.jsonl", what="list", format="sums/1.0")
Lines(head={'format': 'sums/1.0', 'of': 'inputs A'}, lines=[{'sum': 3}], whole_bytes=48, torn=False)
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hetplan.errors import InputError

__all__ = ["LineJournal", "Lines", "line_bytes", "read_lines"]


@dataclass(frozen=True, slots=True)
class Lines:
    """What a file holds: its first line, the others, how many bytes are whole lines, and whether one was cut off."""

    head: dict[str, Any]
    lines: list[dict[str, Any]]
    whole_bytes: int
    torn: bool


def line_bytes(line: Mapping[str, Any]) -> bytes:
    """A line as it is in the file."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False, default=float).encode() + b"\n"


def read_lines(content: bytes, *, file: str, what: str, format: str) -> Lines:
    """All whole lines; `InputError` where the file is another's, or damaged elsewhere than at its end."""
    *raws, rest = content.split(b"\n")
    found: list[dict[str, Any]] = []
    for number, raw in enumerate(raws, start=1):
        try:
            line = json.loads(raw)
        except ValueError:
            line = None
        if number == 1 and (not isinstance(line, dict) or line.get("format") != format):
            break
        if not isinstance(line, dict):
            raise _refused(file, number, f"this is no {what}, or it is damaged: the line is no JSON object")
        found.append(line)
    if not found:
        raise _refused(file, 1, f"this is no {what}, which begins with its format, {format}")
    return Lines(found[0], found[1:], len(content) - len(rest), bool(rest))


class LineJournal:
    """Lines on disk, and a way to add to them; without a path nothing is kept.

    `of` is the digest of what the lines belong to, `other` the words for what the lines of another digest belong to.
    A power cut costs at most what was written in the last `sync_s` seconds; nothing else costs a line. With `alone` no
    other process may have the file until `close`.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, *, what: str, format: str, of: str | None = None,
        other: str = "other inputs", sync_s: float = 0.0, alone: bool = False,
    ) -> None:  # fmt: skip
        self.path = None if path is None else Path(path)
        self.what = what
        self.head: dict[str, Any] = {"format": format} if of is None else {"format": format, "of": of}
        self.lines: list[dict[str, Any]] = []  # as they were when the file was opened
        self.warning = ""
        self._whole, self._torn = 0, False
        self._sync_s, self._synced = sync_s, time.monotonic()
        self._held: IO[bytes] | None = None
        if self.path is None:
            return
        content = self._open(alone)
        if not content:
            self._write(self.head, sync=False)
            return
        try:
            found = read_lines(content, file=str(self.path), what=what, format=format)
            if of is not None and found.head.get("of") not in (None, of):
                why = f"this {what} was written for {other}"
                raise self.refused(why, "Name another file, or remove this one to begin anew.")
        except InputError:
            self.close()
            raise
        self.head = {**found.head, **self.head}
        self.lines, self._whole, self._torn = found.lines, found.whole_bytes, found.torn
        if self._torn:
            self.warning = "the last line was cut off and is dropped"

    def append(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        """Write a line; it outlives this process once this returns, and a power cut too with `sync`."""
        if self.path is not None:
            self._write(line, sync=sync)

    def refused(self, why: str, remedy: str = "Name another file, or remove this one.", *, line: int = 1) -> InputError:
        """The error that says why the file is not what was hoped for."""
        return _refused(str(self.path), line, why, remedy)

    def close(self) -> None:
        """Let other processes have the file."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _open(self, alone: bool) -> bytes:
        assert self.path is not None
        try:
            if self.path.exists() and not self.path.is_file():
                raise InputError.one(
                    file=str(self.path),
                    why=f"the {self.what} is a file, and this is none",
                    remedy="Name a file of yours.",
                )
            if alone:
                self._held = open(self.path, "ab")  # noqa: SIM115
                if not _locked(self._held):
                    self.close()
                    raise InputError.one(
                        file=str(self.path), why=f"another process is writing this {self.what}",
                        remedy="Wait for it, or name another file.",
                    )  # fmt: skip
            return self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise self._unusable(error, "Name a file of yours.") from None

    def _write(self, line: Mapping[str, Any], *, sync: bool) -> None:
        assert self.path is not None
        written = line_bytes(line)
        try:
            with open(self.path, "ab") as file:
                if self._torn:
                    file.truncate(self._whole)
                self._whole, self._torn = file.seek(0, os.SEEK_END), True
                file.write(written)
                file.flush()
                if sync or time.monotonic() - self._synced >= self._sync_s:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
                self._torn = False
        except OSError as error:
            kept = "What it holds is kept: make room there, and give the same command again."
            raise self._unusable(error, kept if self._whole else "Name a file of yours.") from None

    def _unusable(self, error: OSError, remedy: str) -> InputError:
        why = f"the {self.what} cannot be written: {error.strerror}"
        return InputError.one(file=str(self.path), why=why, remedy=remedy)


def _refused(file: str, line: int, why: str, remedy: str = "Name another file, or remove this one.") -> InputError:
    return InputError.one(file=file, path=f"line {line}", why=why, remedy=remedy)


def _locked(file: IO[bytes]) -> bool:
    """Whether the file is this process's alone from now on (where the system knows such locks)."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
