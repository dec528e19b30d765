"""Which question files ask, found without sizing anything."""

from __future__ import annotations

from typing import get_args

from hetplan.front_door import choose, pose
from hetplan.profiles.inputs import Inputs

__all__ = ["asked"]


def asked(inputs: Inputs) -> str:
    """The question that the files ask; what it misses in them is a fault, as it would be for `solve`."""
    choice = choose(inputs)
    size = type(choice.options).model_fields.get("size")
    # Nothing is to be sized here: that may take seconds.
    quick = {"size": "planned"} if size is not None and "planned" in get_args(size.annotation) else {}
    pose(inputs, choose(inputs, options=quick))
    return choice.problem.question
