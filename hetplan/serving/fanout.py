"""How many calls of each operator a query makes, by the fanouts of its pipeline's edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hetplan.profiles.pipelines import Pipeline

__all__ = ["along", "brought", "most_calls", "visits"]


def visits(pipeline: Pipeline) -> dict[str, float]:
    """The mean number of calls of each operator."""
    of = brought(pipeline)
    return dict(zip(of, along(*_number_calls(of)), strict=True))


def most_calls(pipeline: Pipeline) -> dict[str, int]:
    """The largest number of calls: a mean that is no whole number is rounded up."""
    of = brought(pipeline)
    before, each = _number_calls(of)
    return {name: int(most) for name, most in zip(of, along(before, map(math.ceil, each)), strict=True)}


def along(before: Iterable[int], each: Iterable[float]) -> list[float]:
    """Of each operator the product on the way to it: `before` is the one whose calls bring its own (-1: called once).

    >>> along([-1, 0, 1], [1.0, 2.5, 2.0])
    [1.0, 2.5, 5.0]
    """
    found: list[float] = []
    for one, brings in zip(before, each, strict=True):
        found.append(brings * found[one] if one >= 0 else 1.0)
    return found


def brought(pipeline: Pipeline) -> dict[str, tuple[str | None, float]]:
    """Of each operator the one whose calls bring its own, and how many each brings; what follows comes after.

    Where branches meet it is none: there a fanout is refused, and a query calls the operator once.
    """
    found: dict[str, tuple[str | None, float]] = {}
    while len(found) < len(pipeline.nodes):
        for name in pipeline.nodes:
            into = [edge for edge in pipeline.edges if edge.to == name]
            if name not in found and all(edge.from_ in found for edge in into):
                each = into[0].fanout if len(into) == 1 else None
                found[name] = (into[0].from_, float(each)) if isinstance(each, float | int) else (None, 1.0)
    return found


def _number_calls(of: Mapping[str, tuple[str | None, float]]) -> tuple[list[int], list[float]]:
    places = {name: place for place, name in enumerate(of)}
    return [-1 if name is None else places[name] for name, _ in of.values()], [each for _, each in of.values()]
