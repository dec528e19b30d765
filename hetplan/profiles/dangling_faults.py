"""What is named in a file and is nowhere, in words: where, and what was perhaps meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from hetplan.errors import Fault
from hetplan.profiles.json_path import closest, json_path, shortened
from hetplan.profiles.places import WRITTEN, FileOf, Places, Steps

__all__ = ["faults_of"]

_SINGULAR = {
    "hardware": "machine type",
    "sources": "source",
    "metrics": "metric",
    "offers": "offer",
    "hosts": "host",
    "tasks": "task",
    "tiers": "tier",
    "variants": "model",
    "tables": "table",
    "engines": "engine",
    "apis": "API",
    "pipelines": "pipeline",
}
_MOST_SUGGESTIONS = 40
"""Looking for near names costs; a file with more dangling references has one cause, not many slips."""


def faults_of(
    found: Sequence[tuple[Steps, object, str | tuple[str, str]]],
    absent: Mapping[str, Sequence[tuple[Steps, str, str]]],
    known: Mapping[str, set[str]],
    file_of: FileOf,
    written: Places,
) -> Iterator[Fault]:
    """First the sections that are not there at all, then each fault once."""
    for section, places in absent.items():
        yield _missing(section, [(written(steps), name, kind) for steps, name, kind in places], file_of)
    faults, suggested = [], 0
    for steps, value, what in found:
        if isinstance(what, str):
            suggested += 1
            what = _unknown(what, str(value), known[what] if suggested <= _MOST_SUGGESTIONS else ())
        faults.append(_fault(written(steps), value, *what, file_of))
    yield from dict.fromkeys(faults)


def _fault(steps: Steps, value: object, why: str, remedy: str, file_of: FileOf) -> Fault:
    return Fault(file=file_of(steps), path=json_path(steps), value=shortened(value), why=why, remedy=remedy)


def _unknown(section: str, name: str, known: Collection[str]) -> tuple[str, str]:
    """A section has no such name: why, and what to do."""
    near, kind = closest(name, known), _SINGULAR.get(section, section)
    section = WRITTEN.get(section, section)
    add = f"{near}Or add it under {section}." if near else f"Add it under {section}."
    return f"there is no {kind} {name!r} in the profile", add


def _missing(section: str, places: Sequence[tuple[Steps, str, str]], file_of: FileOf) -> Fault:
    """A section that is not there at all, by the first place that names something of it."""
    steps, name, of = places[0]
    kind = _SINGULAR.get(of, of)
    why, remedy = f"there is no {kind} {name!r} in the profile", f"Add it under {section}."
    if len(places) > 1:
        why = f"the profile has no section {section!r}, and {len(places)} places, of which this is one, need it"
        remedy = f'Add "{section}" to the profile, or give the file that holds it as a second profile.'
    return _fault(steps, name, why, remedy, file_of)
