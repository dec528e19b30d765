"""Where queries go when they follow the routing shares: flows through every load, latency and quality of every path.

Routes of a pipeline step are looked up by the path so far (the loads visited, root first): the route whose `prefix` is
the whole path, else the one whose `prefix` is the last load alone, else the one without a prefix.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.plan import Route
from hetplan.profiles.profile import Edge, Pipeline
from hetplan.profiles.slo import App
from hetplan.verifier.demand import Classes, classes_of, response_targets
from hetplan.verifier.facts import Facts
from hetplan.verifier.options import slo_divisor
from hetplan.verifier.quality import path_quality
from hetplan.verifier.report import Violation
from hetplan.verifier.service import Service, service_of

__all__ = ["Flow", "follow", "why_not_followed"]


@dataclass
class Flow:
    """What one query per second at the entrance of an application means for its loads, in one period.

    `work` is instances kept busy per load. Per last step of the pipeline, `late` is the share of queries on paths over
    a latency limit (ms) and `quality` the mean quality. `worst_ms` is the longest path. `faults` cut some path short.
    """

    work: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    late: dict[tuple[str | None, float], float] = field(default_factory=lambda: defaultdict(float))
    quality: dict[str | None, float] = field(default_factory=lambda: defaultdict(float))
    worst_ms: float = 0.0
    extrapolated: set[str] = field(default_factory=set)
    faults: dict[tuple[str, str], Violation] = field(default_factory=dict)

    def fault(self, code: str, at: str, text: str) -> None:
        """Note what ends a path early; of several alike, the first."""
        self.faults.setdefault((code, at), Violation(code, at, text))

    @property
    def mean_quality(self) -> float:
        """The mean over the last steps, each counting alike."""
        return sum(self.quality.values()) / len(self.quality) if self.quality else math.nan


def why_not_followed(facts: Facts, name: str) -> str:
    """Why an application's queries cannot be followed by routing shares alone ("" when they can)."""
    app = facts.inputs.slo.apps[name]
    if facts.plan.question == "policy" and name in facts.plan.policies:
        return "a policy decides at run time"
    if app.demand.streams is not None:
        return "it comes in streams"
    if app.candidates:
        return "its candidate plans are packed"
    if app.runs is not None and app.runs.pipeline is not None:
        pipeline = facts.inputs.profile.pipelines[app.runs.pipeline]
        arrows = [edge.to for edge in pipeline.edges]
        if len(set(arrows)) < len(arrows):
            return "its pipeline joins branches"
    return ""


@dataclass
class _Walk:
    """One application in one period, on its way through the pipeline."""

    facts: Facts
    name: str
    app: App
    pipeline: Pipeline | None
    classes: Classes
    routes: Mapping[tuple[int | None, tuple[str, ...], str | None], Route]
    shares: Mapping[int, list[tuple[str, float]]]
    services: Mapping[str, Service]
    targets: tuple[tuple[float, float], ...]
    divisor: float
    flow: Flow
    qualities: dict[tuple[str, ...], float] = field(default_factory=dict)

    def roots(self) -> list[str | None]:
        if self.pipeline is None:
            return [None]
        return [*sorted(self.pipeline.nodes.keys() - {edge.to for edge in self.pipeline.edges})]

    def next_edges(self, node: str | None) -> list[Edge]:
        return [edge for edge in self.pipeline.edges if edge.from_ == node] if self.pipeline is not None else []

    def route(self, number: int, path: tuple[str, ...], node: str | None) -> Route | None:
        keys = ((which, prefix, node) for prefix in (path, path[-1:], ()) for which in (number, None))
        return next((self.routes[key] for key in keys if key in self.routes), None)

    def visit(self, number: int, node: str | None, path: tuple[str, ...], odds: float, rate: float, ms: float) -> None:
        """Spread `rate` queries (a share `odds` of all) of one class, which took `ms` so far, over a step's loads."""
        route = self.route(number, path, node)
        if route is None:
            where = f" at step {node}" if node is not None else ""
            after = f" after {' > '.join(path)}" if path else ""
            text = f"queries of class {self.classes.name(number)} have no route{where}{after}"
            self.flow.fault("unrouted", f"routing.{self.name}", text)
            return
        for load, share in self.shares[id(route)]:
            if share > 0.0:
                self.serve(number, load, (*path, load), odds * share, rate * share, ms)

    def serve(self, number: int, load: str, path: tuple[str, ...], odds: float, rate: float, ms: float) -> None:
        """Let one load serve them, and send on what it sends on."""
        service = self.services[load]
        seconds, latency_ms = service.seconds[number], service.latency_ms[number]
        if math.isnan(seconds) or math.isnan(latency_ms):
            text = f"no measured time of {load} for class {self.classes.name(number)}"
            self.flow.fault("unmeasured", self.facts.seats[load].at, text)
            return
        if service.extrapolated[number]:
            self.flow.extrapolated.add(service.table)
        self.flow.work[load] += rate * seconds
        ms += latency_ms
        seat = self.facts.seats[load]
        edges = self.next_edges(seat.load.node)
        for edge in edges:
            fanout = edge.fanout
            if isinstance(fanout, dict):
                fanout = fanout.get(seat.load.variant or "*", fanout.get("*", 1.0))
            self.visit(number, edge.to, path, odds, rate * fanout, ms)
        if not edges:
            self.arrive(path, odds, ms)

    def arrive(self, path: tuple[str, ...], odds: float, ms: float) -> None:
        """The end of a path."""
        sink, flow = self.facts.seats[path[-1]].load.node, self.flow
        network_ms = len(path) * self.app.network_ms_per_hop
        flow.worst_ms = max(flow.worst_ms, ms + network_ms)
        for limit_ms, _ in self.targets:
            if ms * self.divisor + network_ms > limit_ms * (1.0 + FEASIBILITY):
                flow.late[sink, limit_ms] += odds
        if path not in self.qualities:
            self.qualities[path] = path_quality(self.facts, self.pipeline, path)
        flow.quality[sink] += odds * self.qualities[path]


def _spread(facts: Facts, name: str, period: str) -> Iterator[tuple[int, list[tuple[str, float]], float, str]]:
    """The routes' shares among loads of one period, with their sum."""
    for number, route in enumerate(facts.plan.routing.get(name, ())):
        here = [(load, share) for load, share in route.to.items() if facts.seats[load].worker.period == period]
        yield id(route), here, sum(share for _, share in here), f"routing.{name}[{number}]"


def follow(facts: Facts, name: str, period: str) -> Flow:
    """Send one query per second through the routing of an application, class by class."""
    app = facts.inputs.slo.apps[name]
    classes = classes_of(app)
    pipeline = facts.inputs.profile.pipelines[app.runs.pipeline] if app.runs is not None and app.runs.pipeline else None
    flow, shares = Flow(), {}
    for key, here, total, at in _spread(facts, name, period):
        shares[key] = here
        if abs(total - 1.0) > FEASIBILITY:
            flow.fault("share-sum", at, f"shares sum to {total:.9g} in period {period}, not to 1")
    used = {load for here in shares.values() for load, _ in here}
    walk = _Walk(
        facts,
        name,
        app,
        pipeline,
        classes,
        {
            (classes.find(route.when) if route.when else None, route.prefix, route.node): route
            for route in facts.plan.routing.get(name, ())
        },
        shares,
        {load: service_of(facts, facts.seats[load], classes) for load in used},
        response_targets(app),
        slo_divisor(facts.plan),
        flow,
    )
    for number, share in enumerate(classes.share):
        if share > 0.0:
            for root in walk.roots():
                walk.visit(number, root, (), share, share, 0.0)
    return flow
