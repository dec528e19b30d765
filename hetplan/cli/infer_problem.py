"""Which question files ask, found without sizing anything."""

from __future__ import annotations

from hetplan.api.solve import choose, pose
from hetplan.profiles.inputs import Inputs

__all__ = ["asked"]


def asked(inputs: Inputs) -> str:
    """The question that the files ask; what it misses in them is a fault, as it would be for `solve`."""
    choice = choose(inputs)
    # Nothing is to be sized here: that may take seconds.
    quick = {"sizing": "fluid"} if "sizing" in type(choice.options).model_fields else {}
    pose(inputs, choose(inputs, options=quick))
    return choice.problem.question
