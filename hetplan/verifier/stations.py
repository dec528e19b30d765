"""Operators that serve queries at a rate, counted again: replicas that carry it, and what waiting does to a percentile.

A query runs an operator with the share p of the samples that ran it, and takes S of them there, on its tier and with
its share of a GPU. So u = rate p E[S] replicas are busy on average: fewer than there are, or the queue grows without
end. Of k replicas a query waits longer than w with the chance C exp(-w / m), m = E[S] (v_a + v_s) / (2 (k - u)), with C
Erlang's chance that all are busy. A percentile by this formula (model ``stationary``) is put to the test: the waits of
operators that are on every way of a sample come on top of the longest one. Their sum is laid out on a grid of times,
rounded down. More than the percentile leaves may not be later than what is promised. What a simulation showed of a
limit is its own witness; of a percentile that is no limit it may not say less than the formula.

Where operators are led to the same loads, all their queries are counted there: rates, work and spreads add up.

Where an operator serves batches, k replicas are as one that is as fast as all of them once all are busy; until then
each has one query. A batch of n takes the mean of the longest of n samples, times what its table says of n. Of how much
longer a query is in a batch than alone, only those before it count here, and the fastest sample.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Plan, Promise
from hetplan.profiles.slo import App
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load
from hetplan.verifier.batch_waits import LARGEST, busy_and_waits
from hetplan.verifier.fanout import any_fans, times_called
from hetplan.verifier.report import Violation
from hetplan.verifier.service import nearest_statistic, read_table

__all__ = [
    "Flow",
    "Served",
    "check_stations",
    "flow_of",
    "growth_by",
    "is_limit",
    "loads_of",
    "one_model",
    "promises_itself",
    "rate_of",
]

STEPS = 2000
"""Of the grid of times, up to what is promised."""
NEAR = 0.1
"""By so much more than the percentile leaves may be late by this count: its draws are a sample."""

Sample = Mapping[str, Any]
Tail = Callable[[Any], Any]
"""The chance that a wait is longer than each of some times in ms."""


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
    growth: Callable[[str], Sequence[float]]
    """How many times as long as one query batches of 1, 2, ... take, up to those that the plan lets it serve."""
    itself: bool = False
    """A percentile itself is promised, and no limit on it: then it is no less than the formula says."""


@dataclass(frozen=True)
class Flow:
    """Queries that come to a station: how many a second, their time in ms, its square, the spread of their gaps."""

    rate: float
    mean: float
    second: float
    burst: float


def flow_of(app: App, took: Sequence[tuple[float | None, float]], calls: float = 1.0) -> Flow:
    """What an application brings to an operator that takes so long (None: it does not run), each so likely.

    `calls` is how often a query that runs it calls it.
    """
    whole, ran = sum(likely for _, likely in took), sum(likely for ms, likely in took if ms is not None)
    if ran <= 0.0:
        return Flow(0.0, 0.0, 0.0, 0.0)
    mean = sum(likely * ms for ms, likely in took if ms is not None) / ran
    second = sum(likely * ms * ms for ms, likely in took if ms is not None) / ran
    return Flow((rate_of(app) or 0.0) * calls * ran / whole, mean, second, 1.0 / (app.arrivals.shape or 1.0))


def rate_of(app: App) -> float | None:
    """The rate at which queries come, where they are no streams."""
    return app.stated_qps if app.streams is None else None


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
    waits = dict[str, Tail]()
    for node in served.stations:
        took = [(served.took_ms(node, one), likely) for _, likely, one in cases]
        calls = times_called(served.pipeline, node) if any_fans(served.pipeline) else 1.0
        mine = flow_of(served.app, took, calls)
        if mine.rate <= 0.0:
            continue
        flows = [mine, *served.beside(node)]
        rate = sum(one.rate for one in flows)
        mean = sum(one.rate * one.mean for one in flows) / rate
        second = sum(one.rate * one.second for one in flows) / rate
        load, count = rate * mean / 1000.0, sum(loads_of(plan, served.name, node).values())
        times, loose = _batches([(ms, likely) for ms, likely in took if ms is not None], served.growth(node))
        busy = load * times[-1] / len(times)
        if busy >= count:
            load = busy
            text = f"{node} of {served.name} has {count} replicas, of which {load:.6g} are busy at {rate:g} queries/s"
            yield Violation("overrun", f"dispatch.{served.name}", text)
            return
        burst = sum(one.rate * one.burst for one in flows) / rate
        spread = max(0.0, second / (mean * mean) - 1.0) if mean > 0 else 0.0
        if len(times) == 1:
            waits[node] = _single_tail(_all_busy(load, count), mean * (burst + spread) / (2.0 * (count - load)))
        else:
            least = min(ms for ms, _ in took if ms is not None)
            scale = mean / count * (burst + loose)
            waits[node] = _batch_tail(times, (load, count), scale, [least * (g - 1.0) for g in served.growth(node)])
    for promise in plan.promises:
        judged = promise.app == served.name and promise.quantity == "response_ms" and promise.percentile is not None
        shown = served.itself and not any_fans(served.pipeline) and not is_limit(served.app, promise)
        by_formula = promise.model.startswith("stationary") or shown
        if not judged or not by_formula:
            continue
        left = 1.0 - (promise.percentile or 0.0) / 100.0
        late = _late_share(served.pipeline, cases, waits, promise.value)
        if late > left * (1.0 + NEAR) + 1e-9:
            text = f"{late:.3g} of the queries of {served.name} are later than the {promise.value:.9g} ms promised"
            yield Violation("promise", "promises", f"{text} at p{promise.percentile:g}, by the waits of its operators")


def is_limit(app: App, promise: Promise) -> bool:
    """Whether what is promised is a limit that was stated."""
    same = (one.max_ms for one in app.targets if one.of == "response" and one.percentile == promise.percentile)
    return any(math.isclose(promise.value, ms, rel_tol=1e-9) for ms in same)


def promises_itself(inputs: Inputs, app: App) -> bool:
    """Whether a percentile itself may be promised: where latency is sought, alone or beside others, or no limit is."""
    sought = any("latency" in term.split() for term in inputs.slo.objective)
    return sought or not any(target.of == "response" for target in app.targets)


def growth_by(table: Table, most: int) -> list[float]:
    """How many times as long as one query batches of 1, 2, ... take, up to so many."""
    most = min(most, int(table.axes["batch"][-1]), LARGEST)
    times = read_table(table, nearest_statistic(table, "mean"), {"batch": np.arange(1.0, most + 1.0)}, most)[0]
    return [float(time / times[0]) for time in times]


def _batches(took: Sequence[tuple[float, float]], growth: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """How many times as long as one query batches take whose longest sample decides; the spread of the last's times."""
    whole, reached, last = sum(likely for _, likely in took), 0.0, 0.0
    first, second = np.zeros(len(growth)), np.zeros(len(growth))
    for ms, likely in sorted(took):
        reached += likely / whole
        part = np.array([min(reached, 1.0) ** n - last**n for n in range(1, len(growth) + 1)])
        first, second, last = first + part * ms, second + part * ms * ms, min(reached, 1.0)
    if len(growth) == 1 or first[0] <= 0.0:
        return (1.0,), 0.0
    times = tuple(float(time) for time in first * np.array(growth) / first[0])
    return times, max(0.0, float(second[-1] / first[-1] ** 2) - 1.0)


def _single_tail(chance: float, mean_ms: float) -> Tail:
    return lambda ms: chance * np.exp(-ms / mean_ms) if mean_ms > 0 else np.zeros(len(ms))


def _batch_tail(times: tuple[float, ...], busy: tuple[float, int], scale: float, more_ms: Sequence[float]) -> Tail:
    """How much longer than alone a query is where batches are served, for `load` of so many replicas (`busy`)."""
    load, count = busy
    often, (until, before, likely) = busy_and_waits(times, load * times[-1] / len(times) / count)
    below = 1.0
    for k in range(1, count):
        below = 1.0 + k * below / load if below < 1e250 else below
    chance = often / (often + (1.0 - often) * below)
    longer = until * scale + np.array(more_ms)[before.astype(int)]
    order = np.argsort(longer)
    beyond = np.concatenate([np.cumsum(likely[order][::-1])[::-1], [0.0]])
    return lambda ms: chance * beyond[np.searchsorted(longer[order], ms, side="right")]


def _all_busy(load: float, count: int) -> float:
    """The chance that a query finds all busy, from the terms load^j / j! on a scale that does not overflow."""
    terms = [
        j * math.log(load) - math.lgamma(j + 1) if load > 0 else (0.0 if j == 0 else -math.inf)
        for j in range(count + 1)
    ]
    most = max(terms)
    last = math.exp(terms[-1] - most) * count / (count - load)
    return last / (math.fsum(math.exp(term - most) for term in terms[:-1]) + last)


def _late_share(
    pipeline: Pipeline,
    cases: Sequence[tuple[float, float, Sample]],
    waits: Mapping[str, Tail],
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
        beyond = _sum_tail([waits[node] for node in sorted(nodes)], most / STEPS)
        late += float(weights @ np.where(room <= 0, (times > most * (1 + 1e-9)) * 1.0, beyond[np.clip(room, 0, STEPS)]))
    return late


def _sum_tail(waits: Sequence[Tail], step_ms: float) -> Any:
    """The chance that the sum of these waits is at least 0, 1, 2, ... steps of the grid, each rounded down."""
    law = np.zeros(STEPS + 1)
    law[0] = 1.0
    for beyond in waits:
        tail = beyond(np.arange(STEPS + 2) * step_ms)
        one = tail[:-1] - tail[1:]
        one[0] += 1.0 - tail[0]
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


def one_model(inputs: Inputs, load: Load, pipeline: Pipeline | None, node: str | None) -> bool:
    """Whether an operator may use the replicas of another's load: both are of one model, and need the same."""
    app = inputs.slo.apps.get(load.app or "")
    other = inputs.profile.pipelines.get((app.pipeline if app is not None else None) or "")
    mine = pipeline.nodes.get(node or "") if pipeline is not None else None
    theirs = other.nodes.get(load.node or "") if other is not None else None
    if mine is None or theirs is None or mine.model is None or load.variant is not None:
        return False
    alike = [(n.model, n.device, n.share_law, n.needs, n.outcomes and n.outcomes.names) for n in (mine, theirs)]
    return alike[0] == alike[1]
