"""What an apply keeps on disk: its record and its journal, and the lock that lets one command at a time change it.

Files survive a kill and a power cut: they are written whole or not at all, and on disk before anything relies on them.
The system itself lets go of the lock when its holder dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.target import ApplyFailed, DeploymentLocked
from hetplan.profiles.line_journal import LineJournal, line_bytes, read_lines
from hetplan.profiles.plan_file import write_atomically

__all__ = ["DeploymentLock", "Journal", "Record", "Unfinished", "sync_folder", "write_durably"]

_WHAT, _FORMAT = "journal of an apply", "hetplan/apply-journal/1.0"


def write_durably(path: Path, content: bytes) -> None:
    """Whole or not at all, and its name on disk too."""
    write_atomically(path, content)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A rename is safe only once the folder is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Record:
    """What was last brought about, to be gone back to when a later change fails: units and what the router followed."""

    plan: str
    period: str
    units: tuple[Mapping[str, Any], ...]
    apps: Mapping[str, Any]

    def bytes(self) -> bytes:
        """As a file."""
        return json.dumps({"format": "hetplan/record/1.0", **vars(self)}, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """The record of a file; None where there is none, or it is none (what runs is asked of the targets anyway)."""
        try:
            data = json.loads(path.read_text())
            return cls(data["plan"], data["period"], tuple(data["units"]), data["apps"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Unfinished:
    """An apply that was cut off: what it wanted, how many steps it had, and the last that it began and ended."""

    plan: str
    steps: int
    began: int
    ended: int

    def __str__(self) -> str:
        return f"an earlier apply of {self.plan[:19]}... was cut off after step {self.ended} of {self.steps}"


class Journal:
    """The steps of one apply, a line each, on disk before the step begins and after it ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: LineJournal | None = None

    def begin(self, plan: str, steps: int) -> None:
        """A new apply; what an earlier one left is forgotten."""
        write_durably(self.path, line_bytes({"format": _FORMAT}) + line_bytes({"plan": plan, "steps": steps}))
        self._lines = LineJournal(self.path, what=_WHAT, format=_FORMAT)

    def add(self, number: int, what: str, text: str) -> None:
        """A step begins, or has ended."""
        assert self._lines is not None
        try:
            self._lines.append({"step": number, "what": what, "text": text}, sync=True)
        except InputError as error:
            raise ApplyFailed(str(error)) from None

    def close(self) -> None:
        """The apply is over."""
        with suppress(FileNotFoundError):
            self.path.unlink()
            sync_folder(self.path.parent)

    def unfinished(self) -> Unfinished | None:
        """What a cut-off apply left behind. A last line that was not written whole did not happen."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        try:
            apply, *steps = read_lines(content, file=str(self.path), what=_WHAT, format=_FORMAT).lines
            began = max((one["step"] for one in steps if one["what"] == "begin"), default=0)
            ended = max((one["step"] for one in steps if one["what"] == "end"), default=0)
            return Unfinished(apply["plan"], apply["steps"], began, ended)
        except (InputError, KeyError, ValueError):
            return Unfinished("an unknown plan", 0, 0, 0)


class DeploymentLock:
    """Held within a `with` block; refuses at once, or after `wait_s`, naming who holds it."""

    def __init__(self, path: Path, *, holder: str, wait_s: float = 0.0) -> None:
        self._path, self._holder, self._wait_s = path, holder, wait_s
        self._file = -1

    def __enter__(self) -> DeploymentLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ApplyFailed(f"the state directory {self._path.parent} cannot be used: {error.strerror}") from None
        until = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    said = os.pread(self._file, 500, 0).decode(errors="replace").strip()
                    os.close(self._file)
                    raise DeploymentLocked(said or "unknown") from None
                time.sleep(0.05)
        os.ftruncate(self._file, 0)
        # On a full disk the lock holds without the name of its holder: `down` has to go on there.
        with suppress(OSError):
            os.pwrite(self._file, f"{self._holder}, process {os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
