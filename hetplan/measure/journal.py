"""The journals of measurements: what was measured is on disk before anybody uses it, and is not measured again.

Both are files of JSON lines (`hetplan.profiles.line_journal`). `Journal` holds batches of samples of configurations
and what was concluded of them; it is a file of measurements. `CellJournal` holds the finished cells of a profile.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.canonical import digest
from hetplan.profiles.journal import FORMAT, JournalContent, document_of, key_of, read_journal
from hetplan.profiles.line_journal import LineJournal

__all__ = ["CellJournal", "Journal", "measured_document"]

SYNC_S = 1.0
"""How much measuring a power cut may cost, at most."""


class Journal:
    """Appends to a file (or only remembers, without one), and knows what an earlier run wrote.

    `of` is whatever the samples are samples of; a journal of something else is refused. One process at a time writes.
    What is sampled `beside` something else waits for its turn in a second file, FILE.waiting, which is gone when all
    had theirs: the journal has the order in which configurations were proposed, and a kill loses nothing.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, of: Any = None) -> None:
        wanted = digest(of) if of is not None else None
        self._file = LineJournal(path, what="journal", format=FORMAT, of=wanted, sync_s=SYNC_S, alone=True)
        self.path = self._file.path
        self.warnings: list[tuple[str, str, str]] = []
        if self._file.warning:
            self.warnings.append(("W-journal", str(self.path), self._file.warning))
        self._lock = threading.Lock()
        self._turns: set[_At] = set()
        self._waiting: dict[_At, list[dict[str, Any]]] = {}
        self._beside: LineJournal | None = None
        try:
            self._content = JournalContent.of_lines(
                self._file.head.get("of"), self._file.lines, file=str(self.path or "journal")
            )
            self._waits_in = Path(f"{self.path}.waiting")
            if self.path is not None and self._waits_in.exists():
                self._recall()
        except InputError:
            self._file.close()
            raise
        self._read = max((line["live"]["read"] for line in self._file.lines if "live" in line), default=0)

    def samples(self, app: str, knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Batches of samples of a configuration, in their order."""
        return list(self._content.samples.get((app, key_of(knobs)), []))

    def plan(self, app: str, knobs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was concluded of a configuration, if anything was."""
        return self._content.plans.get((app, key_of(knobs)))

    @property
    def held(self) -> int:
        """How many samples it holds."""
        return sum(len(batch["scores"]) for batches in self._content.samples.values() for batch in batches)

    def add_samples(self, app: str, knobs: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
        """Write down a batch of samples before anybody uses them."""
        line, at = {"app": app, "knobs": dict(knobs), "samples": dict(batch)}, (app, key_of(knobs))
        with self._lock:
            if at in self._turns and self.path is not None:
                self._beside = self._beside or self._begin_journal()
                self._beside.append(line)
                self._waiting.setdefault(at, []).append(line)
            else:
                self._release(at)
                self._file.append(line)
            self._content.samples.setdefault(at, []).append(dict(batch))

    def add_plan(self, app: str, knobs: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was concluded of a configuration."""
        plan = {"knobs": dict(knobs), **found}
        with self._lock:
            self._release((app, key_of(knobs)))
            if self._content.plans.get((app, key_of(knobs))) != plan:
                self._file.append({"app": app, "knobs": dict(knobs), "plan": dict(found)}, sync=True)
                self._content.plans[app, key_of(knobs)] = plan

    @contextmanager
    def beside(
        self, turns: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """While the block runs, samples of these configurations wait; what it is handed lets those of one in."""
        order = [(app, key_of(knobs)) for app, knobs in turns]

        def release(app: str, knobs: Mapping[str, Any]) -> None:
            with self._lock:
                self._release((app, key_of(knobs)))

        self._turns = set(order)
        try:
            yield release
        finally:
            self._turns = set()
            with self._lock:
                for at in order:
                    self._release(at)

    def _release(self, at: _At) -> None:
        """Let in what waits of a configuration; the file of what waits is gone once nothing does."""
        lines = self._waiting.pop(at, [])
        for number, line in enumerate(lines, start=1):
            self._file.append(line, sync=number == len(lines))
        if self._beside is not None and not self._waiting and not self._turns:
            self._beside.close()
            self._beside = None
            self._waits_in.unlink(missing_ok=True)

    def _begin_journal(self) -> LineJournal:
        of = self._file.head.get("of")
        return LineJournal(self._waits_in, what="part of a journal", format=FORMAT, of=of, sync_s=SYNC_S)

    def _recall(self) -> None:
        """What waited when an earlier run was killed: it is known, and waits on."""
        self._beside = self._begin_journal()
        lines, file = self._beside.lines, str(self._beside.path)
        JournalContent.of_lines(None, lines, file=file)  # refuses what is damaged
        for number, line in enumerate(lines, start=2):
            if "samples" not in line:
                raise self._beside.refused("samples that wait for their turn, and nothing else", line=number)
            at, batch = (line["app"], key_of(line["knobs"])), line["samples"]
            known = self._content.samples.setdefault(at, [])
            if all(batch["from"] != one["from"] for one in known):  # else it was let in already
                self._waiting.setdefault(at, []).append(line)
                known.append(batch)

    def live(self, app: str, knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Batches of samples from service since the last drift, in their order."""
        return list(self._content.live.get((app, key_of(knobs)), []))

    @property
    def read(self) -> int:
        """How many bytes of the file of samples from service are in here."""
        return self._read

    def add_live(self, app: str, knobs: Mapping[str, Any], samples: list[dict[str, Any]], read: int) -> None:
        """Write down samples from service; `read` is how far their file was read with them."""
        batch = {"samples": samples, "read": read}
        with self._lock:
            self._file.append({"app": app, "knobs": dict(knobs), "live": batch})
            self._content.live.setdefault((app, key_of(knobs)), []).append(batch)
            self._read = max(self._read, read)

    def drift(self, app: str, knobs: Mapping[str, Any], why: str, found: Mapping[str, Any] | None = None) -> None:
        """Something of an application has drifted: what is known is old; `found` is what these knobs come to now."""
        line = {"app": app, "knobs": dict(knobs), "drifted": why}
        with self._lock:
            self._file.append(line if found is None else {**line, "plan": dict(found)}, sync=True)
            self._content.drift(app)
            if found is not None:
                self._content.plans[app, key_of(knobs)] = {"knobs": dict(knobs), **found}

    def close(self) -> None:
        """Let others have the file; what was added is on disk already, and what waits and was not asked for goes in."""
        with self._lock:
            self._turns = set()
            for at in sorted(self._waiting) or [("", "")]:
                self._release(at)
        self._file.close()

    def known(self) -> dict[str, Any]:
        """The document with what is old, where nothing newer is known of a configuration."""
        with self._lock:
            content = JournalContent(self._content.of, plans={**self._content.old, **self._content.plans})
            return document_of(content)

    @property
    def drifted(self) -> bool:
        """Whether anything was seen to have drifted."""
        return bool(self._content.old)

    def document(self) -> dict[str, Any]:
        """The document of measurements: per application what was concluded of each configuration."""
        with self._lock:
            return document_of(self._content)


def measured_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of measurements of a journal file."""
    return document_of(read_journal(Path(path).read_bytes(), file=str(path)))


_At = tuple[str, str]
"""An application and its knobs as text."""


class CellJournal:
    """What was found of each cell, and of each variant's quality; without a path, only remembered.

    Each line says what it is of (the model's bytes, the machine, the stopping rule): a changed model is measured anew,
    the others are not.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._file = LineJournal(
            path, what="journal of `hetplan profile`", format="hetplan/profile-journal/1.0", alone=True
        )
        self._found: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(self._file.lines, start=2):
            if "of" not in line or "found" not in line:
                self.close()
                raise self._file.refused("this line says of no cell what was found", line=number)
            self._found[_key(line["of"])] = line["found"]

    def get(self, of: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was found of this, or None."""
        return self._found.get(_key(of))

    def add(self, of: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was found, before anybody relies on it."""
        self._file.append({"of": dict(of), "found": dict(found)}, sync=True)
        self._found[_key(of)] = dict(found)

    def close(self) -> None:
        """Let others have the file; what was added is on disk already."""
        self._file.close()


def _key(of: Mapping[str, Any]) -> str:
    return json.dumps(of, sort_keys=True, separators=(",", ":"))
