"""Calls that go side by side, seen again: an edge with `fanout` is followed by that many calls, on average.

A mean f is floor(f) calls, or one more with the chance f - floor(f), drawn for every call before it. All of them take
what was measured of one call; those that fail do so each by its own luck, and the query waits for the slowest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from hetplan.profiles.pipelines import Edge, Pipeline

__all__ = ["Law", "any_fans", "largest_of", "numbers_of_calls", "several_at_most", "times_called", "why_not_counted"]

Law = Mapping[float, float]
"""Values, each with its chance."""


def any_fans(pipeline: Pipeline) -> bool:
    """Whether an edge is followed by more calls than one, or by fewer."""
    return any(edge.fanout != 1.0 for edge in pipeline.edges)


def why_not_counted(pipeline: Pipeline) -> str:
    """What keeps calls from being counted; "" where nothing does."""
    odd: set[str] = set()
    for _ in pipeline.nodes:
        odd |= {edge.to for edge in pipeline.edges if edge.fanout != 1.0 or edge.from_ in odd}
    for edge in pipeline.edges:
        if not isinstance(edge.fanout, float | int) or edge.fanout <= 0.0:
            return f"what follows {edge.from_} is no number of calls of {edge.to}"
        if edge.to in odd and len(_into(pipeline, edge.to)) > 1:
            return f"branches with other numbers of calls meet at {edge.to}"
    for name in odd:
        if pipeline.nodes[name].outcomes is not None and several_at_most(pipeline, name) > 1:
            return f"several calls of {name} come to one outcome"
    return ""


def _into(pipeline: Pipeline, node: str) -> list[Edge]:
    return [edge for edge in pipeline.edges if edge.to == node]


def _mean(edge: Edge) -> float:
    return float(edge.fanout) if isinstance(edge.fanout, float | int) else math.nan


def times_called(pipeline: Pipeline, node: str) -> float:
    """How often a query calls an operator, on average: back from it to where queries come in."""
    into = _into(pipeline, node)
    return _mean(into[0]) * times_called(pipeline, into[0].from_) if into else 1.0


def several_at_most(pipeline: Pipeline, node: str) -> int:
    """How many calls of an operator a query makes at most."""
    into = _into(pipeline, node)
    return math.ceil(_mean(into[0])) * several_at_most(pipeline, into[0].from_) if into else 1


def numbers_of_calls(pipeline: Pipeline) -> list[tuple[dict[str, int], float]]:
    """How many calls of each operator there may be, and how likely that is."""
    found: list[tuple[dict[str, int], float]] = [({}, 1.0)]
    left = list(pipeline.nodes)
    while left:
        node = next(name for name in left if not any(edge.from_ in left for edge in _into(pipeline, name)))
        left.remove(node)
        into = _into(pipeline, node)
        more: list[tuple[dict[str, int], float]] = []
        for calls, chance in found:
            law: dict[int, float] = {0: 1.0} if into else {1: 1.0}
            for _ in range(calls[into[0].from_] if into else 0):
                law = _with_one_more(law, _mean(into[0]))
            more += [({**calls, node: count}, chance * likely) for count, likely in law.items() if likely > 0.0]
        found = more
    return found


def _with_one_more(law: Mapping[int, float], mean: float) -> dict[int, float]:
    """So many calls, and those that one more call before them brings."""
    rest = mean - math.floor(mean)
    then: dict[int, float] = defaultdict(float)
    for count, likely in law.items():
        then[count + math.floor(mean)] += likely * (1.0 - rest)
        then[count + math.floor(mean) + 1] += likely * rest
    return then


def largest_of(law: Law, calls: int) -> Law:
    """The largest of so many draws, one after the other; what is never answered stays so."""
    found: dict[float, float] = {0.0: 1.0}
    for _ in range(calls):
        then: dict[float, float] = defaultdict(float)
        for most, likely in found.items():
            for value, chance in law.items():
                then[max(most, value)] += likely * chance
        found = then
    return found
