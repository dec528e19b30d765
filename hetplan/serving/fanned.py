"""How many calls of each operator a query makes, by the fanouts of its pipeline's edges."""

from __future__ import annotations

import math
from collections.abc import Callable

from hetplan.profiles.pipelines import Pipeline

__all__ = ["most_calls", "visits"]


def visits(pipeline: Pipeline) -> dict[str, float]:
    """The mean number of calls: the product of the fanouts on the way."""
    return _along(pipeline, float)


def most_calls(pipeline: Pipeline) -> dict[str, int]:
    """The largest number of calls: a mean that is no whole number is rounded up."""
    return {name: int(most) for name, most in _along(pipeline, math.ceil).items()}


def _along(pipeline: Pipeline, of: Callable[[float], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    while len(found) < len(pipeline.nodes):
        for name in pipeline.nodes:
            into = [edge for edge in pipeline.edges if edge.to == name]
            if name not in found and all(edge.from_ in found for edge in into):
                # Branches that meet bring as many calls as one of them: a fanout other than 1 is refused there.
                found[name] = max(
                    (of(edge.fanout) * found[edge.from_] for edge in into if isinstance(edge.fanout, float | int)),
                    default=1.0,
                )
    return found
