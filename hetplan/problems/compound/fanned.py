"""Edges with `fanout`: what the files may say of them, and how many calls of each operator they make."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.planner.forms.fans import Fans
from hetplan.problems.faults import Faults
from hetplan.profiles.pipelines import Pipeline
from hetplan.serving.fanned import brought, most_calls

__all__ = ["check_fans", "fans_of", "may_be_several"]

MOST_CALLS = 64
"""So many calls of an operator a query may make."""
MOST_CASES = 64
"""So many numbers of calls are told apart."""


def check_fans(pipeline_id: str, pipeline: Pipeline, faults: Faults) -> None:
    """Whether what follows calls that go side by side is known, and not too much."""
    at = f"$.pipelines.{pipeline_id}"
    before = len(faults.found)
    for number, edge in enumerate(pipeline.edges):
        here = f"{at}.edges[{number}].fanout"
        if not isinstance(edge.fanout, float | int):
            why = "an operator has no variants by which it could differ"
            faults.in_profile(here, why, "Write one number.", value=dict(edge.fanout))
        elif edge.fanout == 0.0:
            why = f"no query would come to {edge.to}"
            faults.in_profile(here, why, "Leave the edge out, and what follows it.", value=0)
    if len(faults.found) > before or all(edge.fanout == 1.0 for edge in pipeline.edges):
        return
    _of_steps(at, pipeline, faults)
    order = list(most_calls(pipeline))
    fans = fans_of(pipeline, order)
    if fans is None or len(faults.found) > before:
        return
    for name, most in zip(order, fans.widths.tolist(), strict=True):
        if most > MOST_CALLS:
            why = f"a query would make up to {most:.6g} calls of {name}, {MOST_CALLS} are the most"
            faults.in_profile(f"{at}.edges", why, "Lower the fanouts that lead there.")
            return
    cases = len(fans.counts(range(len(order))))
    if cases > MOST_CASES:
        why = f"queries differ in {cases} ways by how many calls they make, {MOST_CASES} are the most"
        faults.in_profile(f"{at}.edges", why, "Write whole numbers for fanouts that follow others.")


def _of_steps(at: str, pipeline: Pipeline, faults: Faults) -> None:
    """What steps may not be that are called several times, or not always."""
    odd = {edge.to for edge in pipeline.edges if edge.fanout != 1.0}
    while more := {edge.to for edge in pipeline.edges if edge.from_ in odd} - odd:
        odd |= more
    for name, node in pipeline.nodes.items():
        if name in odd and sum(edge.to == name for edge in pipeline.edges) > 1:
            why = f"branches meet at {name}, and a query may come there with another number of calls on each"
            faults.in_profile(f"{at}.nodes.{name}", why, "Write the step once after each branch, or fanouts after it.")
        if not may_be_several(pipeline, name):
            continue
        if node.outcomes is not None:
            why = f"a query makes several calls of {name}, and it was measured what one answer comes to"
            faults.in_profile(f"{at}.nodes.{name}.outcomes", why, "Decide before the calls go side by side.")
        if node.batches is not None:
            why = f"several calls of {name} come at once, and lines of batches are sized for queries that come singly"
            faults.in_profile(f"{at}.nodes.{name}.batches", why, "Leave it out: replicas serve them side by side.")


def may_be_several(pipeline: Pipeline, name: str) -> bool:
    """Whether a query may make several calls of an operator at once."""
    return most_calls(pipeline).get(name, 1) > 1


def fans_of(pipeline: Pipeline, order: Sequence[str]) -> Fans | None:
    """How calls follow calls, by operator; None where each is called once."""
    if all(edge.fanout == 1.0 for edge in pipeline.edges):
        return None
    of = [brought(pipeline)[name] for name in order]
    return Fans(tuple(-1 if one is None else order.index(one) for one, _ in of), tuple(each for _, each in of))
