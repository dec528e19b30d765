"""Reading a journal of measurements (`hetplan.profiles.line_journal`) as the document of measurements.

It is written while measuring (`hetplan.measure.journal`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.line_journal import read_lines
from hetplan.profiles.read_json import read_json

__all__ = [
    "FORMAT",
    "JournalContent",
    "document_of",
    "is_journal",
    "journal_document",
    "key_of",
    "read_journal",
    "read_measured",
]

FORMAT = "hetplan/journal/1.0"
MOST = 1e15
"""More bytes than this, or seconds, no sample has."""


def key_of(knobs: Mapping[str, Any]) -> str:
    """A configuration as text: equal settings, equal text.

    >>> key_of({"size": 640, "model": "n"})
    '{"model":"n","size":640}'
    """
    return json.dumps(dict(knobs), sort_keys=True, separators=(",", ":"))


@dataclass
class JournalContent:
    """What a journal holds: per application and configuration the samples, and what was concluded of them.

    `live` are batches of samples from service. Once something was seen to have drifted, what was known of the
    application until then is in `old`: it is no longer relied upon.
    """

    of: str | None = None
    samples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    plans: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    live: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    old: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of_lines(cls, of: str | None, lines: Iterable[Mapping[str, Any]], *, file: str) -> JournalContent:
        """The content of lines; `InputError` where one is neither samples nor a measured plan."""
        found = cls(of)
        for number, line in enumerate(lines, start=2):
            try:
                at = (str(line["app"]), key_of(line["knobs"]))
                if "samples" in line:
                    found.samples.setdefault(at, []).append(_batch(line["samples"]))
                elif "live" in line:
                    found.live.setdefault(at, []).append(_live_batch(line["live"]))
                elif "drifted" in line:
                    found.drift(at[0])
                    if "plan" in line:
                        found.plans[at] = {"knobs": line["knobs"], **line["plan"]}
                else:
                    found.plans[at] = {"knobs": line["knobs"], **line["plan"]}
            except (AttributeError, KeyError, TypeError, ValueError):
                why = "neither samples nor a measured plan of an application"
                raise InputError.one(
                    file=file, path=f"line {number}", why=why, remedy="Name another file, or mend it."
                ) from None
        return found

    def drift(self, app: str) -> None:
        """Something of an application has drifted: what is known of it is old from now on."""
        for held in (self.samples, self.live):
            for at in [at for at in held if at[0] == app]:
                del held[at]
        for at in [at for at in self.plans if at[0] == app]:
            self.old[at] = self.plans.pop(at)


def is_journal(content: bytes) -> bool:
    """Whether these are the bytes of a journal, by its first line.

    >>> is_journal(b'{"format":"hetplan/journal/1.0","of":null}')
    True
    """
    first = content.lstrip().partition(b"\n")[0]
    return first.startswith(b'{"format":') and b'"hetplan/journal/' in first


def read_journal(content: bytes, *, file: str) -> JournalContent:
    """All of it; a last line that was cut off is left out, any other damage refused."""
    found = read_lines(content, file=file, what="journal", format=FORMAT)
    return JournalContent.of_lines(found.head.get("of"), found.lines, file=file)


def _batch(given: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of samples; raises where nothing that measures can have written it."""
    scores, costs = given["scores"], (given["input_bytes"], *given["seconds"].values(), *given["bytes"].values())
    finite = all(math.isfinite(number) for number in (*scores, *costs))
    if (
        not scores
        or not finite
        or not 0 <= min(costs) <= max(costs) <= MOST
        or not isinstance(given["from"], int)
        or given["from"] < 0
    ):
        raise ValueError("no batch of samples")
    return dict(given)


def _live_batch(given: Mapping[str, Any]) -> dict[str, Any]:
    """Samples from service; raises where they are none."""
    if not isinstance(given["samples"], list) or not isinstance(given["read"], int):
        raise ValueError("no samples from service")
    return dict(given)


def document_of(content: JournalContent) -> dict[str, Any]:
    """The document of measurements: per application what was concluded of each configuration."""
    apps: dict[str, Any] = {}
    for (app, _), plan in content.plans.items():
        apps.setdefault(app, []).append(plan)
    return {"format": "hetplan/measured/1.0", "of": content.of, "apps": apps}


def read_measured(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of a file of measurements, be it a journal or such a document already."""
    file = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = f"the measurements cannot be read: {error.strerror}"
        raise InputError.one(file=file, why=why, remedy="Check the path and who may read it.") from None
    document = document_of(read_journal(content, file=file)) if is_journal(content) else read_json(content, file=file)
    if not isinstance(document, dict) or not isinstance(document.get("apps"), dict) or not _lists(document["apps"]):
        why = "an object with the measured plans of every application under apps"
        raise InputError.one(file=file, path="$", why=why, remedy="Give a journal that --journal wrote.")
    return document


def _lists(apps: Mapping[str, Any]) -> bool:
    return all(isinstance(plans, list) for plans in apps.values())


def journal_document(source: object, name: str) -> dict[str, Any] | None:
    """The document of a journal of measurements (JSON lines), or None where the source is something else."""
    if isinstance(source, str | os.PathLike):
        try:
            source = Path(source).read_bytes()
        except OSError:
            return None
    return document_of(read_journal(source, file=name)) if isinstance(source, bytes) and is_journal(source) else None
