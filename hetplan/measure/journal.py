"""The journal of measurements: one line of JSON per batch of samples, flushed to disk, so that a kill loses none.

The first line says what was measured and for which inputs; a journal of other inputs is refused. A last line that was
cut off by a crash is dropped, and said so. `measured_document` makes of it the document that ``--measured`` reads.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.canonical import digest

__all__ = ["FORMAT", "Journal", "key_of", "measured_document"]

FORMAT = "hetplan/journal/1.0"


def key_of(knobs: Mapping[str, Any]) -> str:
    """A configuration as text: equal settings, equal text."""
    return json.dumps(dict(sorted(knobs.items())), sort_keys=True, separators=(",", ":"))


class Journal:
    """Appends to a file (or only remembers, without one), and knows what an earlier run wrote."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, of: Any = None) -> None:
        self.path = None if path is None else Path(path)
        self.warnings: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self._samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._plans: dict[tuple[str, str], dict[str, Any]] = {}
        self._of = digest(of) if of is not None else None
        good = self._read() if self.path is not None and self.path.exists() else 0
        self._file: Any = None
        if self.path is not None:
            if self.path.exists():
                with open(self.path, "r+b") as file:
                    file.truncate(good)
            self._file = open(self.path, "ab")  # noqa: SIM115
            if good == 0:
                self._write({"format": FORMAT, "of": self._of})

    def samples(self, app: str, knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Batches of samples of a configuration that stand in the journal, in their order."""
        return list(self._samples.get((app, key_of(knobs)), []))

    def plans(self, app: str) -> list[dict[str, Any]]:
        """What was concluded of each configuration, in the order of measuring."""
        return [plan for (of, _), plan in self._plans.items() if of == app]

    def add_samples(self, app: str, knobs: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
        """Write down a batch of samples before anybody uses them."""
        line = {"app": app, "knobs": dict(knobs), "samples": dict(batch)}
        with self._lock:
            self._samples.setdefault((app, key_of(knobs)), []).append(dict(batch))
            self._write(line)

    def add_plan(self, app: str, knobs: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was concluded of a configuration."""
        with self._lock:
            known = self._plans.get((app, key_of(knobs)))
            self._plans[app, key_of(knobs)] = {"knobs": dict(knobs), **found}
            if known != self._plans[app, key_of(knobs)]:
                self._write({"app": app, "knobs": dict(knobs), "plan": dict(found)})

    def close(self) -> None:
        """Close the file; what was added is on disk already."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def document(self) -> dict[str, Any]:
        """The document that ``--measured`` reads: per application what was concluded of each configuration."""
        apps: dict[str, Any] = {}
        for (app, _), plan in self._plans.items():
            apps.setdefault(app, []).append(plan)
        return {"format": "hetplan/measured/1.0", "of": self._of, "apps": apps}

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _read(self) -> int:
        """Take in what is there; how many bytes of it are good."""
        assert self.path is not None
        content = self.path.read_bytes()
        good = 0
        for number, raw in enumerate(content.splitlines(keepends=True)):
            try:
                if not raw.endswith(b"\n"):
                    raise ValueError("cut off")
                line = json.loads(raw)
            except ValueError:
                if good + len(raw) < len(content):
                    raise _damaged(self.path, number, "this line is no JSON, and others follow") from None
                text = "the last line was cut off and is dropped"
                self.warnings.append(("W-journal", str(self.path), text))
                return good
            if number == 0:
                self._check(line)
            elif "samples" in line:
                self._samples.setdefault((line["app"], key_of(line["knobs"])), []).append(line["samples"])
            elif "plan" in line:
                self._plans[line["app"], key_of(line["knobs"])] = {"knobs": line["knobs"], **line["plan"]}
            good += len(raw)
        return good

    def _check(self, line: Any) -> None:
        if not isinstance(line, dict) or line.get("format") != FORMAT:
            assert self.path is not None
            raise _damaged(self.path, 0, f"a journal begins with its format, {FORMAT}")
        if self._of is not None and line.get("of") not in (None, self._of):
            raise InputError.one(
                file=str(self.path), path="$.of", value=line.get("of"),
                why="this journal was written for other inputs", remedy="Name another file, or measure anew.",
            )  # fmt: skip
        self._of = self._of or line.get("of")


def _damaged(path: Path, number: int, why: str) -> InputError:
    return InputError.one(file=str(path), path=f"line {number + 1}", why=why, remedy="Name another file, or mend it.")


def measured_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``--measured`` document of a journal file."""
    journal = Journal.__new__(Journal)
    journal.path, journal.warnings = Path(path), []
    journal._samples, journal._plans, journal._of = {}, {}, None
    journal._read()
    return journal.document()
