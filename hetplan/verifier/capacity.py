"""Load against capacity: whether the promised rate can be carried, and the most that can."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.workers import Worker
from hetplan.verifier.demand import least_wanted, wanted_rate
from hetplan.verifier.facts import Facts
from hetplan.verifier.flow import Flow
from hetplan.verifier.options import option
from hetplan.verifier.report import Violation

__all__ = ["busy", "check_capacity", "check_demand", "declined", "largest_rates"]


def busy(worker: Worker, work: Mapping[str, float]) -> dict[str, float]:
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
    share = 1.0 - option(facts.plan, "headroom", 0.0)
    for worker in facts.plan.workers:
        if worker.period == period:
            for name, taken in busy(worker, work).items():
                room = share * worker.count
                if taken > room * (1.0 + FEASIBILITY):
                    text = f"{name} keeps {taken:.6g} machines busy at the promised rate, {room:g} are there for it"
                    yield Violation("capacity", f"workers.{worker.id}", text)


def largest_rates(facts: Facts, flows: Mapping[str, Flow]) -> dict[str, float]:
    """The most that each application's shares carry while the others keep their promised rates, in one period."""
    rates = _rates(facts, flows)
    work = _work(flows, rates)
    share = 1.0 - option(facts.plan, "headroom", 0.0)
    most = dict.fromkeys(flows, math.inf)
    for name, flow in flows.items():
        for worker in {facts.seats[load].worker.id: facts.seats[load].worker for load in flow.work}.values():
            taken = busy(worker, work)
            for queue, unit in busy(worker, flow.work).items():
                if unit > 0.0:
                    others = taken[queue] - rates[name] * unit
                    most[name] = min(most[name], (share * worker.count - others) / unit)
    return most


def declined(facts: Facts, name: str) -> bool:
    """Whether the plan says that an application is not served at all, and says so of all that is wanted.

    Where the most is wanted, nothing is no answer.
    """
    wanted = least_wanted(facts.inputs.slo.apps[name])
    left = [entry.rate_qps for entry in facts.plan.unserved if entry.app == name]
    if wanted is None or name in facts.plan.routing or not left:
        return False
    return sum(left) >= wanted * (1.0 - FEASIBILITY)


def check_demand(facts: Facts, name: str) -> Iterator[Violation]:
    """Something is promised to everyone, and it is what is wanted, less what is said to stay unserved."""
    wanted, promised = wanted_rate(facts.inputs.slo.apps[name]), facts.promised_rate(name)
    if promised is None and not declined(facts, name):
        yield Violation("promise-missing", "promises", f"no rate is promised to {name}")
        return
    unserved = sum(entry.rate_qps for entry in facts.plan.unserved if entry.app == name)
    served = promised or 0.0
    if wanted is not None and served + unserved < wanted * (1.0 - FEASIBILITY):
        text = f"{name} wants {wanted:.6g} queries/s; {served:.6g} are promised and {unserved:.6g} said to be unserved"
        yield Violation("demand", f"routing.{name}", text)
    valid = facts.plan.valid.rate_qps.get(name)
    if valid is not None and (valid[1] is None or valid[1] > served * (1.0 + FEASIBILITY)):
        yield Violation("valid", f"valid.rate_qps.{name}", f"holds up to {valid[1]}, promised are {served:.6g}")
