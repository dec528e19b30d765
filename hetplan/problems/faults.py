"""Every fault of the files of a wish, collected, so that a user reads all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetplan.errors import Fault, InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Pipeline

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

    def refuse_outcomes(self, pipeline_id: str, pipeline: Pipeline, plans: str) -> None:
        """A fault for every step whose outcomes these plans would not decide on."""
        for name, node in pipeline.nodes.items():
            if node.outcomes is not None:
                self.in_profile(
                    f"$.pipelines.{pipeline_id}.nodes.{name}.outcomes",
                    f"{plans} do not depend on what the answer of a step comes to",
                    "Drop the outcomes and every `on` of an edge, or ask a question that plans with them.",
                )

    def also(self, error: InputError) -> None:
        """The faults that something read on the way has raised."""
        self.found.extend(error.faults)

    def settle(self) -> None:
        """Raise what was found, if anything was."""
        if self.found:
            raise InputError(self.found)
