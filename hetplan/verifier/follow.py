"""Sends queries where the routing shares of an application say: to the loads of its one step, or on their walk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.plan import Route
from hetplan.verifier.demand import Classes, classes_of
from hetplan.verifier.facts import Facts, quality_of, slo_divisor
from hetplan.verifier.flow import Flow
from hetplan.verifier.service import Service, service_of

__all__ = ["follow"]


def follow(facts: Facts, name: str, period: str) -> Flow:
    """Send one query per second through the routing of an application, class by class."""
    app = facts.inputs.slo.apps[name]
    classes = classes_of(app)
    flow, shares = Flow(), dict[int, list[tuple[str, float]]]()
    for number, route in enumerate(facts.plan.routing.get(name, ())):
        here = [(load, share) for load, share in route.to.items() if facts.seats[load].worker.period == period]
        shares[id(route)], total = here, sum(share for _, share in here)
        if abs(total - 1.0) > FEASIBILITY:
            text = f"shares sum to {total:.9g} in period {period}, not to 1"
            flow.fault("share-sum", f"routing.{name}[{number}]", text)
    used = {load for here in shares.values() for load, _ in here}
    services = {load: service_of(facts, facts.seats[load], classes) for load in used}
    if app.runs is None or app.runs.pipeline is None:
        _OneStep(facts, name, classes, shares, services, flow).spread()
        return flow
    from hetplan.verifier.walk import walk

    walk(facts, name, facts.inputs.profile.pipelines[app.runs.pipeline], classes, shares, services, flow)
    return flow


@dataclass(frozen=True)
class _OneStep:
    """An application of one step, on which every path is a load."""

    facts: Facts
    name: str
    classes: Classes
    shares: Mapping[int, list[tuple[str, float]]]
    services: Mapping[str, Service]
    flow: Flow

    def spread(self) -> None:
        """Each class goes to the loads of its own route, else of the one for all classes."""
        routes: dict[int | None, Route] = {}
        for route in self.facts.plan.routing.get(self.name, ()):
            if not route.prefix and route.node is None and not route.after:
                routes.setdefault(self.classes.find(route.when) if route.when else None, route)
        mean = []
        for number in (number for number, odds in enumerate(self.classes.share) if odds > 0.0):
            found = routes.get(number, routes.get(None))
            if found is None:
                text = f"queries of class {self.classes.name(number)} have no route"
                self.flow.fault("unrouted", f"routing.{self.name}", text)
                continue
            for load, share in self.shares[id(found)]:
                odds = self.classes.share[number] * share
                if share > 0.0 and self.serve(load, number, odds):
                    mean.append(odds * quality_of(self.facts, self.facts.seats[load].load))
        if mean:
            self.flow.quality = math.fsum(mean)

    def serve(self, load: str, number: int, odds: float) -> bool:
        """Let a load serve a share of all queries, those of one class; whether it can."""
        service, flow = self.services[load], self.flow
        seconds, latency_ms = service.seconds[number], service.latency_ms[number]
        if math.isnan(seconds) or math.isnan(latency_ms):
            text = f"no measured time of {load} for class {self.classes.name(number)}"
            flow.fault("unmeasured", self.facts.seats[load].at, text)
            return False
        if service.extrapolated[number]:
            flow.extrapolated.add(service.table)
        flow.work[load] += odds * seconds
        app, divisor = self.facts.inputs.slo.apps[self.name], slo_divisor(self.facts.plan)
        network_ms = app.network_ms_once + app.network_ms_per_hop
        flow.worst_ms = max(flow.worst_ms, latency_ms + network_ms)
        for target in app.latency:
            if target.of == "response" and latency_ms * divisor + network_ms > target.max_ms * (1.0 + FEASIBILITY):
                flow.late[target.max_ms][(self.facts.seats[load].load.node, ""),] += odds
        return True
