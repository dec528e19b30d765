"""Outcomes of steps that a plan names: of the loads that answer there, and of the routes that begin after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.plan import Route
from hetplan.profiles.workers import Load
from hetplan.verifier.report import Violation, unknown_reference

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Node, Pipeline

__all__ = ["of_load", "of_route"]


def of_load(at: str, load: Load, node: Node | None) -> Iterator[Violation]:
    """A load states how often its answers come to each outcome of its step, as it was measured."""
    stated = load.outcomes or {}
    if node is not None and node.outcomes is not None and node.outcomes.measured and load.variant is None:
        for name in sorted(stated.keys() - set(node.outcomes.measured)):
            yield unknown_reference(at, f"outcome of step {load.node}", name)
        return  # their shares are those of the measurements (`compound`)
    known = node.outcomes.of(load.variant) if node is not None and node.outcomes is not None else {}
    if node is not None and node.outcomes is not None and not known:
        yield Violation("outcomes", at, f"nothing says how often {load.variant} comes to each outcome of {load.node}")
        return
    for name in sorted(stated.keys() - known.keys()):
        yield unknown_reference(at, f"outcome of step {load.node or '-'}", name)
    for name, share in known.items():
        if abs(stated.get(name, 0.0) - share) > FEASIBILITY:
            text = f"states a share of {stated.get(name, 0.0):.6g} for the outcome {name}, measured is {share:.6g}"
            yield Violation("outcomes", at, text)
    if stated and abs(sum(stated.values()) - 1.0) > FEASIBILITY:
        yield Violation("outcomes", at, f"the shares of its outcomes sum to {sum(stated.values()):.9g}, not to 1")


def of_route(at: str, route: Route, pipeline: Pipeline | None) -> Iterator[Violation]:
    """The outcomes that a route is for are of steps before its own, and lead there."""
    into = {edge.to: edge for edge in reversed(pipeline.edges)} if pipeline is not None else {}
    before, node = {}, route.node
    while node in into and into[node].from_ not in before:
        edge = into[node]
        before[edge.from_] = edge.on
        node = edge.from_
    for step, outcome in (route.after or {}).items():
        known = pipeline.nodes[step].outcomes if pipeline is not None and step in pipeline.nodes else None
        if known is None or outcome not in known.names:
            yield unknown_reference(at, f"outcome of step {step}", outcome)
        elif step not in before or before[step] not in (None, outcome):
            yield Violation("route-outcome", at, f"no query comes to step {route.node} after {step}: {outcome}")
