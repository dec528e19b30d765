"""What is named in a file and is nowhere: collected, so that every fault is said at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.lowering import offer_id
from hetplan.profiles.places import WRITTEN, FileOf, Places, Steps
from hetplan.profiles.profile import Profile

__all__ = ["Dangling", "known_ids"]

_SECTIONS = (
    "sources", "metrics", "hardware", "offers", "hosts", "tasks", "variants", "tables", "engines", "apis", "pipelines",
)  # fmt: skip


def known_ids(
    document: Mapping[str, object], set_aside: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, set[str]]:
    """The ids that a profile defines, per section, also of things that have faults of their own and were set aside."""
    found: dict[str, set[str]] = {}
    for section in _SECTIONS:
        held = document.get(section)
        found[section] = {str(name).lower() for name in held} if isinstance(held, Mapping) else set()
    for machine in (set_aside or {}).get("machines", ()):
        found["hardware"].add(machine.lower())
        found["offers"] |= {offer_id(machine), offer_id(machine, spot=True)}
    for model, said in (set_aside or {}).get("models", {}).items():
        found["variants"].add(model.lower())
        found["tasks"].add(str(said.get("task") or model).lower() if isinstance(said, Mapping) else model.lower())
    return found


class Dangling:
    """What is wrong in one set of inputs. `known` may name more than `profile` holds (things with faults).

    Places are those of what is planned with; `written` says where files have them.
    """

    def __init__(
        self, profile: Profile, known: Mapping[str, set[str]], file_of: FileOf, written: Places | None = None
    ) -> None:
        self.profile, self.known, self.file_of, self.written = profile, known, file_of, written or Places()
        self.found: list[tuple[Steps, object, str | tuple[str, str]]] = []
        """Places, what is there, and the section that has no such thing; or why it is wrong, and what to do."""
        self.absent: dict[str, list[tuple[Steps, str, str]]] = {}
        """Sections that files lack, and where things of them are named, with their kind: one cause, so one fault."""

    def fault(self, steps: Steps, value: object, why: str, remedy: str) -> None:
        """Collect a fault at a place."""
        self.found.append((steps, value, (why, remedy)))

    def must_know(self, section: str, name: str | None, *steps: str | int) -> None:
        """A fault unless the section has the name (None names nothing)."""
        if name is None or name in self.known[section]:
            return
        if self.known[section]:
            self.found.append((steps, name, section))
        else:
            self.absent.setdefault(WRITTEN.get(section, section), []).append((steps, name, section))

    def drain(self, *, said: Collection[str] = ()) -> Iterator[Fault]:
        """The faults so far, each once; of `said`, sections that are missing, enough has been said."""
        if self.found or self.absent:
            from hetplan.profiles.dangling_faults import faults_of

            absent = {section: places for section, places in self.absent.items() if section not in said}
            yield from faults_of(self.found, absent, self.known, self.file_of, self.written)
        self.found.clear()
        self.absent.clear()
