"""Reading a journal of measurements: JSON lines of which the first names the format, the last may be cut off.

Whoever measures writes it (`hetplan.measure.journal`); `load_inputs` reads one as the document of ``--measured``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.read_json import read_json

__all__ = ["FORMAT", "JournalContent", "document_of", "is_journal", "key_of", "read_journal", "read_measured"]

FORMAT = "hetplan/journal/1.0"


def key_of(knobs: Mapping[str, Any]) -> str:
    """A configuration as text: equal settings, equal text.

    >>> key_of({"size": 640, "model": "n"})
    '{"model":"n","size":640}'
    """
    return json.dumps(dict(knobs), sort_keys=True, separators=(",", ":"))


@dataclass
class JournalContent:
    """What stands in a journal, and how many bytes of it are whole lines."""

    of: str | None = None
    samples: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    plans: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    whole_bytes: int = 0
    cut_off: bool = False


def is_journal(content: bytes) -> bool:
    """Whether these are the bytes of a journal, by its first line.

    >>> is_journal(b'{"format":"hetplan/journal/1.0","of":null}')
    True
    """
    first = content.lstrip().partition(b"\n")[0]
    return first.startswith(b'{"format":') and b'"hetplan/journal/' in first


def read_journal(content: bytes, *, file: str) -> JournalContent:
    """All of it; a last line that was cut off is left out, any other damage refused."""
    found = JournalContent()
    for number, raw in enumerate(content.splitlines(keepends=True)):
        try:
            if not raw.endswith(b"\n"):
                raise ValueError("cut off")
            line = json.loads(raw)
            if not isinstance(line, dict):
                raise ValueError("no object")
        except ValueError:
            if found.whole_bytes + len(raw) < len(content):
                raise _damaged(file, number, "this line is no JSON, and others follow") from None
            if number == 0:
                raise _damaged(file, 0, f"a journal begins with its format, {FORMAT}") from None
            found.cut_off = True
            return found
        if number == 0:
            if line.get("format") != FORMAT:
                raise _damaged(file, 0, f"a journal begins with its format, {FORMAT}")
            found.of = line.get("of")
        else:
            _take(found, line, file, number)
        found.whole_bytes += len(raw)
    return found


def _take(found: JournalContent, line: Mapping[str, Any], file: str, number: int) -> None:
    try:
        at = (str(line["app"]), key_of(line["knobs"]))
        if "samples" in line:
            found.samples.setdefault(at, []).append(_batch(line["samples"]))
        else:
            found.plans[at] = {"knobs": line["knobs"], **line["plan"]}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _damaged(file, number, "neither samples nor a measured plan of an application") from None


def _batch(given: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of samples; raises where nothing that measures can have written it."""
    scores, costs = given["scores"], (given["input_bytes"], *given["seconds"].values(), *given["bytes"].values())
    finite = all(math.isfinite(number) for number in (*scores, *costs))
    if not scores or not finite or min(costs) < 0 or not isinstance(given["from"], int) or given["from"] < 0:
        raise ValueError("no batch of samples")
    return dict(given)


def document_of(content: JournalContent) -> dict[str, Any]:
    """The document that ``--measured`` reads: per application what was concluded of each configuration."""
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


def _damaged(file: str, number: int, why: str) -> InputError:
    return InputError.one(file=file, path=f"line {number + 1}", why=why, remedy="Name another file, or mend it.")
