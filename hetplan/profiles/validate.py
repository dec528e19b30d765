"""From data to a model, or to every fault found, each in the file that it came from."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hetplan.errors import InputError
from hetplan.profiles.inputs import FileOf

__all__ = ["validate"]

M = TypeVar("M", bound=BaseModel)


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
