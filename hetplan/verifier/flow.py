"""Where queries go when they follow the routing shares: flows through every load, latency and quality of every path.

Routes of a pipeline step are looked up by the path so far (the loads visited, root first): the route whose `prefix` is
the whole path, else the one whose `prefix` is the last load alone, else the one without a prefix. Of those that fit,
the one that names most outcomes of steps before it (`after`) wins, then the one that names the class.

A step with outcomes sends on, along the edges of each outcome, that outcome's share of its queries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.plan import Route
from hetplan.profiles.slo import App
from hetplan.verifier.demand import Classes, classes_of, response_targets
from hetplan.verifier.facts import Facts, quality_of, slo_divisor
from hetplan.verifier.report import Violation
from hetplan.verifier.service import Service, service_of

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Edge, Pipeline

__all__ = ["Flow", "follow", "why_not_followed"]

Steps = tuple[tuple[str | None, str], ...]
"""The steps of a path with the outcome of each, "" where a step has none."""


@dataclass
class Flow:
    """What one query per second at the entrance of an application means for its loads, in one period.

    `work` is instances kept busy per load. `late` holds, per latency limit (ms) and per way to an end, the share of
    queries that end there over the limit. `quality` is the mean quality (NaN where no query ends). `worst_ms` is the
    longest path. `faults` cut some path short.
    """

    work: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    late: dict[float, dict[Steps, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    quality: float = math.nan
    worst_ms: float = 0.0
    extrapolated: set[str] = field(default_factory=set)
    faults: dict[tuple[str, str], Violation] = field(default_factory=dict)

    def fault(self, code: str, at: str, text: str) -> None:
        """Note what ends a path early; of several alike, the first."""
        self.faults.setdefault((code, at), Violation(code, at, text))

    def late_share(self, limit_ms: float) -> tuple[float, str | None]:
        """The share of queries over a limit, and the step where most of them end.

        A query takes one outcome of a step: their shares add up. It takes all branches: the latest one counts.
        """
        return _worst_of(self.late.get(limit_ms, {}))


def _worst_of(ends: Mapping[Steps, float]) -> tuple[float, str | None]:
    branches: dict[str | None, dict[str, dict[Steps, float]]] = {}
    for steps, share in ends.items():
        if not steps:
            return share, None
        (node, outcome), rest = steps[0], steps[1:]
        branches.setdefault(node, {}).setdefault(outcome, {})[rest] = share
    found: list[tuple[float, str | None]] = [(0.0, None)]
    for node, outcomes in branches.items():
        parts = [_worst_of(below) for below in outcomes.values()]
        found.append((sum(share for share, _ in parts), max(parts, key=lambda part: part[0])[1] or node))
    return max(found, key=lambda one: one[0])


def why_not_followed(facts: Facts, name: str) -> str:
    """Why an application's queries cannot be followed by routing shares alone ("" when they can)."""
    app = facts.inputs.slo.apps[name]
    if facts.plan.question == "policy" and name in facts.plan.policies:
        return "a policy decides at run time"
    if any(
        seat.run is not None and seat.run.engine is not None for seat in facts.seats.values() if seat.load.app == name
    ):
        return "its requests are made token by token"
    if app.demand.streams is not None:
        return "it comes in streams"
    if app.candidates:
        return "its candidate plans are packed"
    if app.runs is not None and app.runs.pipeline is not None:
        pipeline = facts.inputs.profile.pipelines[app.runs.pipeline]
        if getattr(facts.plan.dispatch.get(name), "rule", "") == "chosen-plan/1":
            return "its operators take what was measured of them"
        arrows = [edge.to for edge in pipeline.edges]
        if len(set(arrows)) < len(arrows):
            return "its pipeline joins branches"
    return ""


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
    pipeline: Pipeline | None
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
        if self.pipeline is None:
            return [None]
        return [*sorted(self.pipeline.nodes.keys() - {edge.to for edge in self.pipeline.edges})]

    def outcomes(self, node: str | None, variant: str | None) -> dict[str, float]:
        """The shares of a step's outcomes among the answers of a variant."""
        known = self.pipeline.nodes[node].outcomes if self.pipeline is not None and node is not None else None
        return known.of(variant) if known is not None else {"": 1.0}

    def next_edges(self, node: str | None, outcome: str) -> list[Edge]:
        edges = self.pipeline.edges if self.pipeline is not None else ()
        return [edge for edge in edges if edge.from_ == node and edge.on in (None, outcome)]

    def ends(self, node: str | None) -> int:
        """How many last steps a query at this step comes to, by the outcomes that lead to most."""
        known = self.pipeline.nodes[node].outcomes if self.pipeline is not None and node is not None else None
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

    def quality(self, queries: _Queries) -> float:
        """The quality at the end of a path; NaN where nobody measured it."""
        if self.pipeline is None:
            return quality_of(self.facts, self.facts.seats[queries.path[0]].load)
        from hetplan.verifier.quality import path_quality

        return path_quality(self.facts, self.pipeline, queries.path, queries.outcomes)

    def arrive(self, queries: _Queries) -> None:
        """The end of a path."""
        flow = self.flow
        network_ms = self.app.network_ms_once + len(queries.path) * self.app.network_ms_per_hop
        flow.worst_ms = max(flow.worst_ms, queries.ms + network_ms)
        for limit_ms, _ in self.targets:
            if queries.ms * self.divisor + network_ms > limit_ms * (1.0 + FEASIBILITY):
                flow.late[limit_ms][queries.steps] += queries.odds
        key = (queries.path, queries.steps)
        if key not in self.qualities:
            self.qualities[key] = self.quality(queries)
        self.mean.append(queries.odds * queries.part * self.qualities[key])


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
        shares,
        {load: service_of(facts, facts.seats[load], classes) for load in used},
        response_targets(app),
        slo_divisor(facts.plan),
        flow,
    )
    roots = walk.roots()
    ends = sum(walk.ends(root) for root in roots)
    for number, share in enumerate(classes.share):
        if share > 0.0:
            for root in roots:
                walk.visit(root, _Queries(number, odds=share, rate=share, part=walk.ends(root) / ends))
    if walk.mean:
        flow.quality = math.fsum(walk.mean)
    return flow
