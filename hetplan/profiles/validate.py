"""From data to a model, or to every fault found, each in its file; and how many objects are made without sweeps."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hetplan.errors import InputError
from hetplan.profiles.places import FileOf

__all__ = ["collector_at_rest", "validate"]


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


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No sweeps meanwhile: of the 10^5 objects of a large plan none is garbage, yet sweeps double the time.

    For work that ends soon: what it leaves in circles waits until afterwards.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
