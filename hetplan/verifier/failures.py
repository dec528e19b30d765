"""Checks that a plan survives failures: with machines or zones lost, the rest serves the promised rates, rerouted.

Only for applications of one step; the routing of a pipeline is not solved again here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.verifier.demand import Classes, classes_of, response_targets
from hetplan.verifier.plan_index import Facts
from hetplan.verifier.report import Violation
from hetplan.verifier.service import Service, service_of

__all__ = ["check_survival", "not_computed"]


def _losses(facts: Facts, period: str) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Every worst case to be survived: in words, and as machines left per worker."""
    wanted = facts.inputs.slo.limits.survive
    workers = [worker for worker in facts.plan.workers if worker.period == period]
    full = {worker.id: worker.count + worker.standby for worker in workers}
    if wanted.machines:
        for lost in combinations_with_replacement(sorted(full), min(wanted.machines, sum(full.values()))):
            taken = Counter(lost)
            if all(count <= full[worker] for worker, count in taken.items()):
                yield f"machines of {', '.join(lost)}", {worker: full[worker] - taken[worker] for worker in full}
    zone = {worker.id: facts.inputs.profile.offers[worker.offer].zone for worker in workers if worker.offer is not None}
    zones = sorted({name for name in zone.values() if name is not None})
    if wanted.zones:
        for gone in combinations(zones, min(wanted.zones, len(zones))):
            left = {worker: 0 if zone.get(worker) in gone else count for worker, count in full.items()}
            yield f"zone {', '.join(gone)}", left


def _most(facts: Facts, name: str, classes: Classes, services: Mapping[str, Service], left: Mapping[str, int]) -> float:
    """The most queries per second that the machines left can serve in time, over all routings: a linear program."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    targets = response_targets(facts.inputs.slo.apps[name])
    limit_ms = targets[-1][0] if targets else math.inf
    network_ms = facts.inputs.slo.apps[name].network_ms_per_hop
    pairs = [
        (number, load)
        for load, service in services.items()
        for number, share in enumerate(classes.share)
        if share > 0.0
        and not math.isnan(service.seconds[number])
        and service.latency_ms[number] + network_ms <= limit_ms * (1.0 + FEASIBILITY)
    ]
    rooms = sorted(left)
    columns = [*range(len(pairs)), *[len(pairs)] * len(classes.share)]
    # Every class is served in its share of the rate (the last column); every group works as long as its machines are.
    balance: Any = coo_array(
        (
            [*[1.0] * len(pairs), *(-share for share in classes.share)],
            ([*(number for number, _ in pairs), *range(len(classes.share))], columns),
        ),
        shape=(len(classes.share), len(pairs) + 1),
    )
    work = [services[load].seconds[number] / facts.seats[load].load.instances for number, load in pairs]
    groups = [rooms.index(facts.seats[load].worker.id) for _, load in pairs]
    busy: Any = coo_array((work, (groups, range(len(pairs)))), shape=(len(rooms), len(pairs) + 1))
    cost = np.zeros(len(pairs) + 1)
    cost[-1] = -1.0
    # Serving nothing is always possible, and the machines bound what is: there is an optimum.
    answer = linprog(cost, busy, [left[room] for room in rooms], balance, np.zeros(len(classes.share)), method="highs")
    return -float(answer.fun or 0.0)


def _is_pipeline(facts: Facts, name: str) -> bool:
    return facts.inputs.slo.apps[name].pipeline is not None


def not_computed(facts: Facts, names: list[str]) -> Iterator[str]:
    """The applications whose losses are not looked at here."""
    for name in names:
        if _is_pipeline(facts, name):
            yield f"{name}: routes of a pipeline after losses are not computed"


def check_survival(facts: Facts, names: list[str], period: str) -> list[Violation]:
    """The promised rates hold after every loss that the wish names."""
    found: list[Violation] = []
    for name in names:
        if _is_pipeline(facts, name):
            continue
        classes = classes_of(facts.inputs.slo.apps[name])
        services = {
            seat.load.id: service_of(facts, seat, classes)
            for seat in facts.seats.values()
            if seat.load.app == name and seat.worker.period == period
        }
        promised = facts.promised_rate(name) or 0.0
        for words, left in _losses(facts, period):
            most = _most(facts, name, classes, services, left)
            if most < promised * (1.0 - FEASIBILITY):
                text = f"without {words} at most {most:.6g} queries/s of {name} are served, {promised:.6g} are promised"
                found.append(Violation("survive", f"periods.{period}", text))
    return found
