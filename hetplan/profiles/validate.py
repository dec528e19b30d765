"""From data to a model, or to every fault found, each in the file that it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hetplan.errors import InputError

__all__ = ["FileOf", "Origins", "validate"]

M = TypeVar("M", bound=BaseModel)
Steps = tuple[str | int, ...]

FileOf = Callable[[Steps], str]
"""From a place (steps from the top) to the name of its file."""


@dataclass(frozen=True)
class Origins:
    """Which file a place of the merged document came from; the name of all files together where none is nearer."""

    everything: str
    origin: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def __call__(self, steps: tuple[str | int, ...]) -> str:
        """The file of a place, given by its steps from the top."""
        keys = tuple(str(step).lower() if number else str(step) for number, step in enumerate(steps[:2]))
        return self.origin.get(keys) or self.origin.get(keys[:1]) or self.everything


def validate(model_type: type[M], data: Any, *, file: str | FileOf, normalised: list[str] | None = None) -> M:
    """The model made of the data, or InputError with every fault found.

    `file` is the file's name, or a function from a place (steps from the top) to it where several files were merged.
    Ids that were not written in lower case are added to `normalised`.
    """
    context = {"normalised": [] if normalised is None else normalised}
    try:
        return model_type.model_validate(data, context=context)
    except ValidationError as error:
        from hetplan.profiles.validation_faults import located_faults

        raise InputError([fault for _, fault in located_faults(error, model_type, data, file)]) from None
