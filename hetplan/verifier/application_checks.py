"""What is wanted and promised of an application, held against its flows: rates, latency, quality, losses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.operating_points import Verdict, judge, limits_of
from hetplan.profiles.workers import Worker
from hetplan.verifier.demand import classes_of, least_wanted, response_targets
from hetplan.verifier.flow import Flow
from hetplan.verifier.plan_index import Facts, option, runs_alike
from hetplan.verifier.report import Violation
from hetplan.verifier.service import service_of

__all__ = [
    "busy_machines",
    "check_capacity",
    "check_demand",
    "check_late",
    "check_latency",
    "is_declined",
    "largest_rates",
    "undecided_limits",
]


# Rates: whether the promised one can be carried, and the most that can


def busy_machines(worker: Worker, work: Mapping[str, float]) -> dict[str, float]:
    """Machines of a group kept busy by this work (instances, per load): in all, or per load where each has a queue."""
    taken = {load.id: work.get(load.id, 0.0) / load.instances for load in worker.loads}
    return {worker.id: sum(taken.values())} if worker.queue == "shared" else taken


def _work(flows: Mapping[str, Flow], rates: Mapping[str, float]) -> dict[str, float]:
    work: dict[str, float] = defaultdict(float)
    for name, flow in flows.items():
        for load, seconds in flow.work.items():
            work[load] += rates[name] * seconds
    return work


def _rates(facts: Facts, flows: Mapping[str, Flow]) -> dict[str, float]:
    return {name: facts.promised_rate(name) or 0.0 for name in flows}


def check_capacity(facts: Facts, flows: Mapping[str, Flow], period: str) -> Iterator[Violation]:
    """No group of workers has more to do, at the promised rates, than its machines can."""
    work = _work(flows, _rates(facts, flows))
    for worker in facts.plan.workers:
        if worker.period == period:
            for name, taken in busy_machines(worker, work).items():
                room = _to_be_used(facts, worker, name) if taken > 0.0 else 0.0
                if taken > room * (1.0 + FEASIBILITY):
                    text = f"{name} keeps {taken:.6g} machines busy at the promised rate, {room:g} are there for it"
                    yield Violation("capacity", f"workers.{worker.id}", text)


def _to_be_used(facts: Facts, worker: Worker, queue: str) -> float:
    """Machines of a group that may be busy: without the share, and the part of the servers, that are kept free.

    `spare` instances are kept free by all together that run the same as what the queue serves.
    """
    share, spare = 1.0 - option(facts.plan, "headroom", 0.0), option(facts.plan, "spare", 0.0)
    if not spare or not worker.loads:
        return share * worker.count
    load = next((load for load in worker.loads if load.id == queue), worker.loads[0])
    alike = facts.alike[runs_alike(worker, load)]
    return share * max(worker.count - spare * worker.count / max(alike, 1), 0.0)


def largest_rates(facts: Facts, flows: Mapping[str, Flow]) -> dict[str, float]:
    """The most that each application's shares carry while the others keep their promised rates, in one period."""
    rates = _rates(facts, flows)
    work = _work(flows, rates)
    most = dict.fromkeys(flows, math.inf)
    for name, flow in flows.items():
        for worker in {facts.seats[load].worker.id: facts.seats[load].worker for load in flow.work}.values():
            taken = busy_machines(worker, work)
            for queue, unit in busy_machines(worker, flow.work).items():
                if unit > 0.0:
                    others = taken[queue] - rates[name] * unit
                    most[name] = min(most[name], (_to_be_used(facts, worker, queue) - others) / unit)
    return most


def is_declined(facts: Facts, name: str) -> bool:
    """Whether the plan says that an application is not served at all, and says so of all that is wanted.

    Where the most is wanted, nothing is no answer.
    """
    wanted = least_wanted(facts.inputs.slo.apps[name])
    left = [entry.rate_qps for entry in facts.plan.unserved if entry.app == name]
    if wanted is None or name in facts.plan.routing or not left:
        return False
    return sum(left) >= wanted * (1.0 - FEASIBILITY)


_AS_WANTED = ("variants", "llm")
"""Questions whose plans have room for the rate that is wanted, and were looked at with no other."""
_STATING = ("pool", "pipeline", "variants", "llm")
"""Questions whose plans say up to which rate they hold (`policy` sees to its own): silence is taken for any rate."""


def check_demand(facts: Facts, name: str) -> Iterator[Violation]:
    """Something is promised to everyone, and it is what is wanted, less what is said to stay unserved."""
    wanted, promised = facts.inputs.slo.apps[name].stated_qps, facts.promised_rate(name)
    if promised is None and not is_declined(facts, name):
        yield Violation("promise-missing", "promises", f"no rate is promised to {name}")
        return
    unserved = sum(entry.rate_qps for entry in facts.plan.unserved if entry.app == name)
    served = promised or 0.0
    if wanted is not None and served + unserved < wanted * (1.0 - FEASIBILITY):
        text = f"{name} wants {wanted:.6g} queries/s; {served:.6g} are promised and {unserved:.6g} said to be unserved"
        yield Violation("demand", f"routing.{name}", text)
    as_wanted = unserved > 0.0 or facts.plan.question in _AS_WANTED
    if wanted is not None and as_wanted and served + unserved > wanted * (1.0 + FEASIBILITY):
        text = f"{served:.9g} qps of {name} are promised and {unserved:.9g} unserved, wanted are {wanted:.9g}"
        yield Violation("promise-wish", "promises", text)
    stated = facts.plan.question in _STATING and served > 0.0
    valid = facts.plan.valid.rate_qps.get(name, (0.0, None) if stated else (0.0, 0.0))
    if valid[1] is None or valid[1] > served * (1.0 + FEASIBILITY):
        text = f"holds up to {valid[1] if valid[1] is not None else 'any rate'}, promised are {served:.6g}"
        yield Violation("valid", f"valid.rate_qps.{name}", text)


# Latency targets; late queries


def _check_rate_tables(facts: Facts, name: str, flow: Flow) -> Iterator[Violation]:
    """A table of rates holds under the latencies that it was measured with: no longer ones than are wanted."""
    for load in flow.work:
        seat = facts.seats[load]
        if seat.run is None or seat.run.rate is None or seat.run.latency is not None:
            continue
        table = facts.inputs.profile.tables[seat.run.rate]
        for limit in () if table.points else limits_of(facts.inputs.slo.apps[name]):
            if judge(table.given, [limit]) is Verdict.REFUTED:
                found = ", ".join(f"{key} {value:g}" for key, value in table.given.items())
                yield Violation("latency", seat.at, f"its rates hold at {found}, wanted is {limit}")


def undecided_limits(facts: Facts, name: str, flow: Flow) -> Iterator[str]:
    """Limits of an application that the measurements of its rates neither keep nor break."""
    app = facts.inputs.slo.apps[name]
    for load in flow.work:
        seat = facts.seats[load]
        if seat.run is None or seat.run.rate is None:
            continue
        table = facts.inputs.profile.tables[seat.run.rate]
        for limit in limits_of(app):
            if table.points:
                classes = replace(classes_of(app), limits=(limit,))
                kept = service_of(facts, seat, classes, worst=Verdict.KEPT).seconds
                known = kept == service_of(facts, seat, classes).seconds
            else:
                known = judge(table.given, [limit]) is not Verdict.UNCHECKED
            if not known:
                yield f"{name}: no measurement of {seat.run.rate} says whether {limit}"


def check_latency(facts: Facts, name: str, flow: Flow) -> Iterator[Violation]:
    """The response targets of an application, by the statistic that the plan's options name."""
    yield from _check_rate_tables(facts, name, flow)
    targets = list(response_targets(facts.inputs.slo.apps[name]))
    # At the highest percentile the plan may use no more of what is left than it was asked to tolerate.
    tolerance = option(facts.plan, "allow_late", 0.0)
    targets[-1:] = [(limit_ms, min(left, tolerance)) for limit_ms, left in targets[-1:]]
    for limit_ms, allowed in targets:
        share, last = flow.late_share(limit_ms)
        if share > allowed + FEASIBILITY:
            where = f" up to step {last}" if last is not None else ""
            text = f"a share of {share:.6g}{where} takes longer than {limit_ms:g} ms, {allowed:g} may"
            yield Violation("latency", f"routing.{name}", text)


def check_late(facts: Facts) -> Iterator[Violation]:
    """What is done with late queries is what the wish says, by whatever rule the others are sent."""
    for name, rule in facts.plan.dispatch.items():
        wanted = facts.inputs.slo.apps[name].late
        if rule.late != wanted and (rule.late, wanted) != ("serve", None):  # as earlier plans said it
            text = f"late queries: {rule.late or 'nothing is said'}, the wish says {wanted or 'nothing'}"
            yield Violation("dispatch", f"dispatch.{name}", text)
