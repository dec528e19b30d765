"""Collects all faults of the files, so that a user reads them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hetplan.errors import Fault, InputError
from hetplan.planner.terms import Obstacle
from hetplan.profiles.inputs import Inputs

__all__ = ["Faults"]


@dataclass
class Faults:
    """Collects faults; each names its file, field and value, why it is one, and what to do."""

    profile: str
    slo: str
    found: list[Fault] = field(default_factory=list)

    @classmethod
    def of(cls, inputs: Inputs) -> Faults:
        """An empty collection that knows the files' names."""
        return cls(inputs.files.get("profile", "profile.json"), inputs.files.get("slo", "slo.json"))

    def in_slo(self, path: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of the SLO file."""
        self.found.append(Fault(self.slo, path, str(value), why, remedy))

    def in_profile(self, path: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of the profile."""
        self.found.append(Fault(self.profile, path, str(value), why, remedy))

    def in_options(self, name: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of an option."""
        self.found.append(Fault("options", name, str(value), why, remedy))

    def obstacles(self, found: Iterable[Obstacle]) -> None:
        """What keeps the files from asking a question that was named; raises at once where anything does."""
        for one in found:
            say = self.in_profile if one.file == "profile" else self.in_slo
            say(one.path, one.why, one.remedy)
        self.settle()

    def also(self, error: InputError) -> None:
        """The faults that something read on the way has raised."""
        self.found.extend(error.faults)

    def settle(self) -> None:
        """Raise what was found, if anything was: a fault of several batches or loads once."""
        if self.found:
            raise InputError(dict.fromkeys(self.found))
