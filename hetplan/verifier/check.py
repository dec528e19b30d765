"""The generic check of a plan, whatever its question: everything that arithmetic can recompute from the inputs.

`follow` sends queries where the routing shares say: to the loads of an application's one step, or on their walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.validate import collector_at_rest
from hetplan.verifier.actions import check_actions
from hetplan.verifier.application_checks import (
    check_capacity,
    check_demand,
    check_late,
    check_latency,
    is_declined,
    largest_rates,
    undecided_limits,
)
from hetplan.verifier.demand import Classes, classes_of
from hetplan.verifier.flow import Flow, why_not_followed
from hetplan.verifier.plan_index import QUESTIONS, Facts, check_options, gather, quality_of, slo_divisor
from hetplan.verifier.promises import (
    Computed,
    check_claims,
    check_extrapolation,
    check_promises,
    not_recomputed,
    plan_figures,
    worst_of,
)
from hetplan.verifier.references import check_header, check_inputs, check_references, check_tables
from hetplan.verifier.report import Report, Violation
from hetplan.verifier.resources import check_cost, check_resources, not_provided
from hetplan.verifier.service import Service, service_of

__all__ = ["QuestionCheck", "Report", "Violation", "follow", "verify_plan"]


QuestionCheck = Callable[[Plan, Inputs], list[Violation]]

CHECKS = "inputs references options resources cost tables serving promises claims actions"
"""What is checked of every plan, in order."""

_NOTHING = Computed({"rate_qps": 0.0, "fluid_rate_qps": 0.0})
"""What an application gets that is not served."""


def verify_plan(plan: Plan, inputs: Inputs, question_check: QuestionCheck | None = None) -> Report:
    """Recompute what a plan says from profile, SLO and state; `question_check` adds the question's own promise.

    Broken references end the check early: nothing can be computed of things that are not there. Words are free: no text
    of a plan is checked. Bounds are proved again by the planner's program, which is not seen here.
    """
    with collector_at_rest():
        return _check_plan(plan, inputs, question_check)


def _check_plan(plan: Plan, inputs: Inputs, question_check: QuestionCheck | None) -> Report:
    found = [*check_inputs(plan, inputs), *check_header(plan)]
    references = check_references(plan, inputs)
    unchecked = question_check is None
    if references:
        return Report((*found, *references), ("inputs", "references"), unchecked=unchecked)
    facts = gather(plan, inputs)
    found += [*check_options(plan), *check_late(facts)]
    found += [*check_resources(facts), *check_cost(facts), *check_tables(plan, inputs)]
    open_limits = list[str]()
    skipped, computed = _check_serving(facts, found, open_limits)
    whole = plan_figures(facts)
    found += check_promises(facts, computed, whole)
    found += check_extrapolation(facts, computed)
    found += check_claims(facts, whole.values)
    found += check_actions(facts)
    skipped += [*not_recomputed(facts, whole), *not_provided(facts)]
    checked = list[str](CHECKS.split())
    if question_check is not None:
        found += question_check(plan, inputs)
        checked.append(plan.question)
    unsure = tuple(dict.fromkeys(open_limits))
    skipped += unsure
    return Report(tuple(dict.fromkeys(found)), tuple(checked), tuple(skipped), unchecked, undecided=unsure)


def _check_serving(
    facts: Facts, found: list[Violation], open_limits: list[str]
) -> tuple[list[str], dict[str, Computed]]:
    """Routing, latency, quality, capacity and demand, period by period; what was recomputed of each application."""
    why = {name: why_not_followed(facts, name) for name in facts.inputs.slo.apps}
    names = [name for name, reason in why.items() if not reason]
    computed: dict[str, list[Computed]] = {name: [_NOTHING] if is_declined(facts, name) else [] for name in names}
    for period in (period.id for period in facts.plan.periods):
        followed = {name: follow(facts, name, period) for name in names if not is_declined(facts, name)}
        found += [fault for flow in followed.values() for fault in flow.faults.values()]
        for name, flow in followed.items():
            if flow.faults:
                computed.pop(name, None)
        # What follows from flows that end nowhere would only bury the reason.
        flows = {name: flow for name, flow in followed.items() if not flow.faults}
        most = largest_rates(facts, flows)
        for name, flow in flows.items():
            found += check_latency(facts, name, flow)
            open_limits += undecided_limits(facts, name, flow)
            if facts.inputs.slo.apps[name].quality is not None:
                from hetplan.verifier.quality import check_quality

                found += check_quality(facts, name, flow.work, flow.quality)
            if name in computed:
                computed[name].append(Computed(_figures(facts, flow, most[name]), frozenset(flow.extrapolated)))
        found += check_capacity(facts, flows, period)
    for name in names:
        found += check_demand(facts, name)
    skipped = [f"{name}: {reason}" for name, reason in why.items() if reason]
    survive = facts.inputs.slo.limits.survive
    if survive.machines or survive.zones:  # fleets have a check of their own
        if facts.plan.question in QUESTIONS:
            found.append(Violation("survive", "slo.limits.survive", "only a fleet keeps it, and this plan is none"))
        else:
            skipped.append("limits.survive: what is left after losses is not computed")
    return skipped, {name: worst_of(parts) for name, parts in computed.items()}


def _figures(facts: Facts, flow: Flow, most: float) -> dict[str, float]:
    rate = {"rate_qps": most, "fluid_rate_qps": most} if math.isfinite(most) else {}
    quality = {} if math.isnan(flow.quality) else {"quality": flow.quality}
    runs = (facts.seats[load].run for load in flow.work)
    timed = all(run is not None and run.latency is not None for run in runs)  # a table of rates alone has no times
    times = {"response_ms": flow.worst_ms, "service_ms": flow.worst_ms} if timed else {}
    return {**rate, **quality, **times}


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
    if app.pipeline is None:
        _OneStep(facts, name, classes, shares, services, flow).spread()
        return flow
    from hetplan.verifier.walk import walk

    walk(facts, name, facts.inputs.profile.pipelines[app.pipeline], classes, shares, services, flow)
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
        for target in app.targets:
            if target.of == "response" and latency_ms * divisor + network_ms > target.max_ms * (1.0 + FEASIBILITY):
                flow.late[target.max_ms][(self.facts.seats[load].load.node, ""),] += odds
        return True
