"""Operators that serve queries at a rate, counted again: replicas that carry it, and what waiting does to a percentile.

A query runs an operator with the share p of the samples that ran it, and takes S of them there, on its tier and with
its share of a GPU. So u = rate p E[S] replicas are busy on average: fewer than there are, or the queue grows without
end. Of k replicas a query waits longer than w with the chance C exp(-w / m), m = E[S] (v_a + v_s) / (2 (k - u)), with C
Erlang's chance that all are busy. A percentile by this formula (model ``stationary``) is put to the test: the waits of
operators that are on every way of a sample come on top of the longest one. Their sum is laid out on a grid of times,
rounded down. More than the percentile leaves may not be later than what is promised. What a simulation showed is its
own witness.

Where operators are led to the same loads, all their queries are counted there: rates, work and spreads add up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Plan
from hetplan.profiles.slo import App
from hetplan.verifier.report import Violation

__all__ = ["Flow", "Served", "check_stations", "flow_of", "loads_of", "rate_of"]

STEPS = 2000
"""Of the grid of times, up to what is promised."""
NEAR = 0.1
"""By so much more than the percentile leaves may be late by this count: its draws are a sample."""

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Served:
    """An application with a rate: which of its operators are stations, and what one takes of a sample, in ms."""

    name: str
    app: App
    pipeline: Pipeline
    stations: Sequence[str]
    took_ms: Callable[[str, Sample], float | None]
    beside: Callable[[str], Sequence[Flow]]
    """What comes to an operator's loads from other operators."""


@dataclass(frozen=True)
class Flow:
    """Queries that come to a station: how many a second, their time in ms, its square, the spread of their gaps."""

    rate: float
    mean: float
    second: float
    burst: float


def flow_of(app: App, took: Sequence[tuple[float | None, float]]) -> Flow:
    """What an application brings to an operator that takes so long (None: it does not run), each so likely."""
    whole, ran = sum(likely for _, likely in took), sum(likely for ms, likely in took if ms is not None)
    if ran <= 0.0:
        return Flow(0.0, 0.0, 0.0, 0.0)
    mean = sum(likely * ms for ms, likely in took if ms is not None) / ran
    second = sum(likely * ms * ms for ms, likely in took if ms is not None) / ran
    return Flow((rate_of(app) or 0.0) * ran / whole, mean, second, 1.0 / (app.demand.arrivals.shape or 1.0))


def rate_of(app: App) -> float | None:
    """The rate at which queries come, where they are no streams."""
    rate = app.demand.rate_qps
    return float(rate) if app.demand.streams is None and isinstance(rate, int | float) else None


def loads_of(plan: Plan, name: str, node: str) -> dict[str, int]:
    """The loads that serve an operator, its own and those that its queries are led to, and how many replicas."""
    led = {load for route in plan.routing.get(name, ()) if route.node == node for load in route.to}
    return {
        load.id: load.instances * worker.count
        for worker in plan.workers
        for load in worker.loads
        if load.id in led or (load.app == name and load.node == node)
    }


def check_stations(plan: Plan, served: Served, cases: Sequence[tuple[float, float, Sample]]) -> Iterator[Violation]:
    """Every operator has replicas enough, and what is promised by the formula leaves room to wait.

    `cases` are what a query may take without waiting, in ms, how likely that is, and of which sample it is.
    """
    waits = dict[str, tuple[float, float]]()
    for node in served.stations:
        mine = flow_of(served.app, [(served.took_ms(node, one), likely) for _, likely, one in cases])
        if mine.rate <= 0.0:
            continue
        flows = [mine, *served.beside(node)]
        rate = sum(one.rate for one in flows)
        mean = sum(one.rate * one.mean for one in flows) / rate
        second = sum(one.rate * one.second for one in flows) / rate
        load, count = rate * mean / 1000.0, sum(loads_of(plan, served.name, node).values())
        if load >= count:
            text = f"{node} of {served.name} has {count} replicas, of which {load:.6g} are busy at {rate:g} queries/s"
            yield Violation("overrun", f"dispatch.{served.name}", text)
            return
        burst = sum(one.rate * one.burst for one in flows) / rate
        spread = max(0.0, second / (mean * mean) - 1.0) if mean > 0 else 0.0
        waits[node] = _all_busy(load, count), mean * (burst + spread) / (2.0 * (count - load))
    for promise in plan.promises:
        judged = promise.app == served.name and promise.quantity == "response_ms" and promise.percentile is not None
        if not judged or not promise.model.startswith("stationary"):
            continue
        left = 1.0 - (promise.percentile or 0.0) / 100.0
        late = _late(served.pipeline, cases, waits, promise.value)
        if late > left * (1.0 + NEAR) + 1e-9:
            text = f"{late:.3g} of the queries of {served.name} are later than the {promise.value:.9g} ms promised"
            yield Violation("promise", "promises", f"{text} at p{promise.percentile:g}, by the waits of its operators")


def _all_busy(load: float, count: int) -> float:
    """The chance that a query finds all busy, from the terms load^j / j! on a scale that does not overflow."""
    terms = [
        j * math.log(load) - math.lgamma(j + 1) if load > 0 else (0.0 if j == 0 else -math.inf)
        for j in range(count + 1)
    ]
    most = max(terms)
    last = math.exp(terms[-1] - most) * count / (count - load)
    return last / (math.fsum(math.exp(term - most) for term in terms[:-1]) + last)


def _late(
    pipeline: Pipeline,
    cases: Sequence[tuple[float, float, Sample]],
    waits: Mapping[str, tuple[float, float]],
    most: float,
) -> float:
    """The share of queries later than `most` ms."""
    groups: dict[frozenset[str], list[tuple[float, float]]] = defaultdict(list)
    for ms, likely, sample in cases:
        groups[_on_every_way(pipeline, sample).intersection(waits)].append((ms, likely))
    late = max(0.0, 1.0 - sum(likely for _, likely, _ in cases))
    for nodes, members in groups.items():
        times, weights = np.array(members).T
        room = np.floor((most - times) / most * STEPS * (1.0 - 1e-9)).astype(int) + 1
        beyond = _beyond([waits[node] for node in sorted(nodes)], most / STEPS)
        late += float(weights @ np.where(room <= 0, (times > most * (1 + 1e-9)) * 1.0, beyond[np.clip(room, 0, STEPS)]))
    return late


def _beyond(waits: Sequence[tuple[float, float]], step_ms: float) -> Any:
    """The chance that the sum of these waits is at least 0, 1, 2, ... steps of the grid, each rounded down."""
    law = np.zeros(STEPS + 1)
    law[0] = 1.0
    for chance, mean_ms in waits:
        tail = chance * np.exp(-np.arange(STEPS + 2) * step_ms / mean_ms) if mean_ms > 0 else np.zeros(STEPS + 2)
        one = tail[:-1] - tail[1:]
        one[0] += 1.0 - chance
        law = np.convolve(law, one)[: STEPS + 1]
    return np.clip(1.0 - np.concatenate([[0.0], np.cumsum(law)[:-1]]), 0.0, 1.0)


def _on_every_way(pipeline: Pipeline, sample: Sample) -> frozenset[str]:
    """The operators of a sample before or after which all its others run."""
    ran = {node for node, took in sample["seconds"].items() if took is not None}
    after: dict[str, set[str]] = {node: {node} for node in ran}
    for _ in ran:
        for edge in pipeline.edges:
            if edge.from_ in ran and edge.to in ran:
                after[edge.from_] |= after[edge.to]
    return frozenset(n for n in ran if all(other in after[n] or n in after[other] for other in ran))
