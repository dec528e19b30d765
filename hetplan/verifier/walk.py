"""Follows queries step by step through a pipeline along a plan's routes; writes what comes of them into a flow.

Routes of a pipeline step are looked up by the path so far (the loads visited, root first): the route whose `prefix` is
the whole path, else the one whose `prefix` is the last load alone, else the one without a prefix. Of those that fit,
the one that names most outcomes of steps before it (`after`) wins, then the one that names the class.

A step with outcomes sends on, along the edges of each outcome, that outcome's share of its queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.pipelines import Edge, Pipeline
from hetplan.profiles.plan import Route
from hetplan.profiles.slo import App
from hetplan.verifier.demand import Classes, response_targets
from hetplan.verifier.flow import Flow, Steps
from hetplan.verifier.plan_index import Facts, slo_divisor
from hetplan.verifier.quality import path_quality
from hetplan.verifier.service import Service

__all__ = ["walk"]


@dataclass(frozen=True)
class _Queries:
    """Queries of one class on their way: a share `odds` of all, `rate` of them, which took `ms` so far.

    `part` is what their quality counts of the whole query's.
    """

    number: int
    odds: float
    rate: float
    part: float
    ms: float = 0.0
    path: tuple[str, ...] = ()
    steps: Steps = ()

    @property
    def outcomes(self) -> dict[str | None, str]:
        """What the answers of the steps so far came to."""
        return dict(self.steps)


@dataclass
class _Walk:
    """One application in one period, on its way through the pipeline."""

    facts: Facts
    name: str
    app: App
    pipeline: Pipeline
    classes: Classes
    shares: Mapping[int, list[tuple[str, float]]]
    services: Mapping[str, Service]
    targets: tuple[tuple[float, float], ...]
    divisor: float
    flow: Flow
    routes: dict[tuple[tuple[str, ...], str | None, int | None], list[Route]] = field(default_factory=dict)
    qualities: dict[tuple[tuple[str, ...], Steps], float] = field(default_factory=dict)
    mean: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for route in self.facts.plan.routing.get(self.name, ()):
            number = self.classes.find(route.when) if route.when else None
            self.routes.setdefault((route.prefix, route.node, number), []).append(route)

    def roots(self) -> list[str | None]:
        return [*sorted(self.pipeline.nodes.keys() - {edge.to for edge in self.pipeline.edges})]

    def outcomes(self, node: str | None, variant: str | None) -> dict[str, float]:
        """The shares of a step's outcomes among the answers of a variant."""
        known = self.pipeline.nodes[node].outcomes if node is not None else None
        return known.of(variant) if known is not None else {"": 1.0}

    def next_edges(self, node: str | None, outcome: str) -> list[Edge]:
        return [edge for edge in self.pipeline.edges if edge.from_ == node and edge.on in (None, outcome)]

    def ends(self, node: str | None) -> int:
        """How many last steps a query at this step comes to, by the outcomes that lead to most."""
        known = self.pipeline.nodes[node].outcomes if node is not None else None
        names = list(known.names) if known is not None else [""]
        return max(1, *(sum(self.ends(edge.to) for edge in self.next_edges(node, name)) for name in names))

    def route(self, queries: _Queries, node: str | None) -> Route | None:
        outcomes = queries.outcomes
        for prefix in (queries.path, queries.path[-1:], ()):
            fitting = [
                (len(route.after or {}), number is not None, route)
                for number in (queries.number, None)
                for route in self.routes.get((prefix, node, number), ())
                if all(outcomes.get(step) == outcome for step, outcome in (route.after or {}).items())
            ]
            if fitting:
                return max(fitting, key=lambda one: one[:2])[2]
        return None

    def visit(self, node: str | None, queries: _Queries) -> None:
        """Spread queries over the loads of a step."""
        route = self.route(queries, node)
        if route is None:
            where = f" at step {node}" if node is not None else ""
            after = f" after {' > '.join(queries.path)}" if queries.path else ""
            said = ", ".join(f"{step}: {outcome}" for step, outcome in queries.steps if outcome)
            text = f"queries of class {self.classes.name(queries.number)} have no route{where}{after}"
            self.flow.fault("unrouted", f"routing.{self.name}", f"{text} ({said})" if said else text)
            return
        for load, share in self.shares[id(route)]:
            if share > 0.0:
                part = replace(
                    queries, path=(*queries.path, load), odds=queries.odds * share, rate=queries.rate * share
                )
                self.serve(load, part)

    def serve(self, load: str, queries: _Queries) -> None:
        """Let one load serve them, and send on what it sends on."""
        service = self.services[load]
        seconds, latency_ms = service.seconds[queries.number], service.latency_ms[queries.number]
        if math.isnan(seconds) or math.isnan(latency_ms):
            text = f"no measured time of {load} for class {self.classes.name(queries.number)}"
            self.flow.fault("unmeasured", self.facts.seats[load].at, text)
            return
        if service.extrapolated[queries.number]:
            self.flow.extrapolated.add(service.table)
        self.flow.work[load] += queries.rate * seconds
        seat = self.facts.seats[load]
        queries = replace(queries, ms=queries.ms + latency_ms)
        for outcome, share in self.outcomes(seat.load.node, seat.load.variant).items():
            if share > 0.0:
                steps = (*queries.steps, (seat.load.node, outcome))
                self.send_on(
                    seat.load.variant,
                    replace(queries, steps=steps, odds=queries.odds * share, rate=queries.rate * share),
                )

    def send_on(self, variant: str | None, queries: _Queries) -> None:
        """What follows queries whose last step had one outcome."""
        edges = self.next_edges(*queries.steps[-1])
        ends = sum(self.ends(edge.to) for edge in edges)
        for edge in edges:
            fanout = edge.fanout
            if isinstance(fanout, dict):
                fanout = fanout.get(variant or "*", fanout.get("*", 1.0))
            part = queries.part * self.ends(edge.to) / ends
            self.visit(edge.to, replace(queries, rate=queries.rate * fanout, part=part))
        if not edges:
            self.arrive(queries)

    def arrive(self, queries: _Queries) -> None:
        """The end of a path."""
        flow = self.flow
        network_ms = self.app.network_ms_once + len(queries.path) * self.app.network_ms_per_hop
        flow.worst_ms = max(flow.worst_ms, queries.ms + network_ms)
        for limit_ms, _ in self.targets:
            if queries.ms * self.divisor + network_ms > limit_ms * (1.0 + FEASIBILITY):
                flow.late[limit_ms][queries.steps] += queries.odds
                flow.slow[limit_ms][queries.path] = queries.ms
        key = (queries.path, queries.steps)
        if key not in self.qualities:
            self.qualities[key] = path_quality(self.facts, self.pipeline, queries.path, queries.outcomes)
        self.mean.append(queries.odds * queries.part * self.qualities[key])


def walk(
    facts: Facts,
    name: str,
    pipeline: Pipeline,
    classes: Classes,
    shares: Mapping[int, list[tuple[str, float]]],
    services: Mapping[str, Service],
    flow: Flow,
) -> None:
    """Send each class from the roots of a pipeline to its ends; what comes of it is written into the flow."""
    app = facts.inputs.slo.apps[name]
    way = _Walk(
        facts, name, app, pipeline, classes, shares, services, response_targets(app), slo_divisor(facts.plan), flow
    )
    roots = way.roots()
    ends = sum(way.ends(root) for root in roots)
    for number, share in enumerate(classes.share):
        if share > 0.0:
            for root in roots:
                way.visit(root, _Queries(number, odds=share, rate=share, part=way.ends(root) / ends))
    if way.mean:
        flow.quality = math.fsum(way.mean)
