"""The journal of measurements: one line of JSON per batch of samples, flushed to disk, so that a kill loses none.

The first line says what was measured and for which inputs; a journal of other inputs is refused. A last line that was
cut off by a crash is dropped, and said so. The file is what ``--measured`` reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.canonical import digest
from hetplan.profiles.journal import FORMAT, JournalContent, document_of, key_of, read_journal

__all__ = ["Journal", "measured_document"]

SYNC_S = 1.0
"""How much measuring a power cut may cost, at most."""


class Journal:
    """Appends to a file (or only remembers, without one), and knows what an earlier run wrote.

    `of` is whatever the samples are samples of; a journal of something else is refused. One process at a time writes.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, of: Any = None) -> None:
        self.path = None if path is None else Path(path)
        self.warnings: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self._content = JournalContent(of=digest(of) if of is not None else None)
        self._file: Any = None
        self._synced = time.monotonic()
        if self.path is not None:
            self._file = _opened(self.path)
            try:
                self._take_in(self._file.read())
                self._file.truncate(self._content.whole_bytes)
                if self._content.whole_bytes == 0:
                    self._write({"format": FORMAT, "of": self._content.of})
            except InputError:
                self.close()
                raise

    def samples(self, app: str, knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Batches of samples of a configuration that stand in the journal, in their order."""
        return list(self._content.samples.get((app, key_of(knobs)), []))

    def plan(self, app: str, knobs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was concluded of a configuration, if anything was."""
        return self._content.plans.get((app, key_of(knobs)))

    @property
    def held(self) -> int:
        """How many samples stand in it."""
        return sum(len(batch["scores"]) for batches in self._content.samples.values() for batch in batches)

    def add_samples(self, app: str, knobs: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
        """Write down a batch of samples before anybody uses them."""
        with self._lock:
            self._write({"app": app, "knobs": dict(knobs), "samples": dict(batch)})
            self._content.samples.setdefault((app, key_of(knobs)), []).append(dict(batch))

    def add_plan(self, app: str, knobs: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was concluded of a configuration."""
        plan = {"knobs": dict(knobs), **found}
        with self._lock:
            if self._content.plans.get((app, key_of(knobs))) != plan:
                self._write({"app": app, "knobs": dict(knobs), "plan": dict(found)})
                self._content.plans[app, key_of(knobs)] = plan

    def close(self) -> None:
        """Close the file; what was added is on disk already."""
        if self._file is not None:
            # A line that could not be written was told then, and is tried once more here.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def document(self) -> dict[str, Any]:
        """The document that ``--measured`` reads: per application what was concluded of each configuration."""
        with self._lock:
            return document_of(self._content)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            try:
                self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")
                # Flushed, a line outlives this process whatever ends it; only a power cut asks for the (slow) disk.
                self._file.flush()
                if "plan" in line or time.monotonic() - self._synced >= SYNC_S:
                    os.fsync(self._file.fileno())
                    self._synced = time.monotonic()
            except OSError as error:
                raise InputError.one(
                    file=str(self.path), why=f"the journal cannot be written: {error.strerror}",
                    remedy="What it holds is kept: make room there, and give the same command again.",
                ) from None  # fmt: skip

    def _take_in(self, content: bytes) -> None:
        """What an earlier run wrote."""
        if not content:
            return
        found, wanted = read_journal(content, file=str(self.path)), self._content.of
        if wanted is not None and found.of not in (None, wanted):
            raise InputError.one(
                file=str(self.path), path="$.of", value=found.of,
                why="this journal was written for other inputs", remedy="Name another file, or measure anew.",
            )  # fmt: skip
        if found.cut_off:
            text = "the last line was cut off and is dropped"
            self.warnings.append(("W-journal", str(self.path), text))
        found.of = found.of or wanted
        self._content = found


def _opened(path: Path) -> Any:
    """The file for reading and appending, made where it is not there; held by this process alone."""
    if path.exists() and not path.is_file():
        raise InputError.one(
            file=str(path), why="the journal is a file, and this is none", remedy="Name a file of yours."
        )
    try:
        file = open(path, "a+b")  # noqa: SIM115
    except OSError as error:
        raise InputError.one(
            file=str(path), why=f"the journal cannot be written: {error.strerror}", remedy="Name a file of yours."
        ) from None
    if not _locked(file):
        file.close()
        raise InputError.one(
            file=str(path), why="another process is writing this journal", remedy="Wait for it, or name another file."
        )
    file.seek(0)
    return file


def _locked(file: Any) -> bool:
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


def measured_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``--measured`` document of a journal file."""
    return document_of(read_journal(Path(path).read_bytes(), file=str(path)))
