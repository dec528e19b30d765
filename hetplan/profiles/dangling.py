"""What is named in a file and is nowhere: collected, so that every fault is said at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from hetplan.errors import Fault
from hetplan.profiles.inputs import FileOf, Steps
from hetplan.profiles.json_path import closest, json_path, shortened
from hetplan.profiles.profile import Profile

__all__ = ["Dangling", "known_ids"]

_SECTIONS = (
    "sources", "metrics", "hardware", "offers", "hosts", "tasks", "variants", "tables", "engines", "apis", "pipelines",
)  # fmt: skip
_SINGULAR = {
    "sources": "source",
    "metrics": "metric",
    "offers": "offer",
    "hosts": "host",
    "tasks": "task",
    "tiers": "tier",
    "variants": "variant",
    "tables": "table",
    "engines": "engine",
    "apis": "API",
    "pipelines": "pipeline",
}
_MOST_SUGGESTIONS = 40
"""Looking for near names costs; a file with more dangling references has one cause, not many slips."""


def known_ids(document: Mapping[str, object]) -> dict[str, set[str]]:
    """The ids that a profile document defines, per section, also of things that have faults of their own."""
    found: dict[str, set[str]] = {}
    for section in _SECTIONS:
        held = document.get(section)
        found[section] = {str(name).lower() for name in held} if isinstance(held, Mapping) else set()
    return found


class Dangling:
    """The faults of one set of inputs. `known` may name more than `profile` holds (things with faults)."""

    def __init__(self, profile: Profile, known: Mapping[str, set[str]], file_of: FileOf) -> None:
        self.profile, self.known, self.file_of = profile, known, file_of
        self.faults: list[Fault] = []
        self.suggested = 0
        self.absent: dict[str, list[tuple[Steps, str]]] = {}
        """Sections that the profile lacks, and where they are named: one cause, so one fault."""

    def fault(self, steps: Steps, value: object, why: str, remedy: str) -> None:
        """Collect a fault at a place."""
        self.faults.append(
            Fault(file=self.file_of(steps), path=json_path(steps), value=shortened(value), why=why, remedy=remedy)
        )

    def must_know(self, section: str, name: str | None, *steps: str | int) -> None:
        """A fault unless the section has the name (None names nothing)."""
        if name is None or name in self.known[section]:
            return
        if not self.known[section]:
            self.absent.setdefault(section, []).append((steps, name))
            return
        self.suggested += 1
        near = closest(name, self.known[section]) if self.suggested <= _MOST_SUGGESTIONS else ""
        kind = _SINGULAR.get(section, section)
        add = f"{near}Or add it under {section}." if near else f"Add it under {section}."
        self.fault(steps, name, f"there is no {kind} {name!r} in the profile", add)

    def _missing(self, section: str, places: Sequence[tuple[Steps, str]]) -> Fault:
        """A section that is not there at all, by the first place that names something of it."""
        (steps, name), kind = places[0], _SINGULAR.get(section, section)
        why, remedy = f"there is no {kind} {name!r} in the profile", f"Add it under {section}."
        if len(places) > 1:
            why = f"the profile has no section {section!r}, and {len(places)} places, of which this is one, need it"
            remedy = f'Add "{section}" to the profile, or give the file that holds it as a second profile.'
        return Fault(file=self.file_of(steps), path=json_path(steps), value=shortened(name), why=why, remedy=remedy)

    def drain(self, *, said: Collection[str] = ()) -> Iterator[Fault]:
        """The faults so far, each once; of `said`, sections that are missing, enough has been said."""
        for section, places in self.absent.items():
            if section not in said:
                yield self._missing(section, places)
        yield from dict.fromkeys(self.faults)
        self.faults.clear()
        self.absent.clear()
