"""Pipelines that join branches, recomputed step by step: shares per step, start times, additive accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.profile import Edge, Pipeline
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.facts import Facts
from hetplan.verifier.options import option, slo_divisor
from hetplan.verifier.report import Violation
from hetplan.verifier.service import service_of

__all__ = ["check_joins"]


def _order(pipeline: Pipeline) -> list[str]:
    left, order = dict.fromkeys(pipeline.nodes), list[str]()
    while left:
        ready = [node for node in left if not any(e.to == node and e.from_ in left for e in pipeline.edges)]
        order += ready
        for node in ready:
            del left[node]
    return order


def _factor(edge: Edge) -> float:
    fanout = edge.fanout
    return fanout if isinstance(fanout, float | int) else next(iter(fanout.values()), 1.0)


def check_joins(facts: Facts, app: str) -> Iterator[Violation]:
    """Shares, capacity, latency and quality of an application whose pipeline joins branches."""
    wish, rate = facts.inputs.slo.apps[app], facts.promised_rate(app) or 0.0
    assert wish.runs is not None
    assert wish.runs.pipeline is not None
    pipeline = facts.inputs.profile.pipelines[wish.runs.pipeline]
    routes = {route.node: route.to for route in facts.plan.routing[app]}
    gain: dict[str, float] = {}
    ended: dict[str, tuple[float, int]] = {}
    quality = 0.0
    share_kept = 1.0 - option(facts.plan, "headroom", 0.0)
    for node in _order(pipeline):
        before = [edge for edge in pipeline.edges if edge.to == node]
        gain[node] = gain[before[0].from_] * _factor(before[0]) if before else 1.0
        to = routes.get(node, {})
        if abs(sum(to.values()) - 1.0) > FEASIBILITY:
            text = f"shares at step {node} sum to {sum(to.values()):.9g}, not to 1"
            yield Violation("share-sum", f"routing.{app}", text)
        longest = 0.0
        for name, share in to.items():
            seat = facts.seats[name]
            service = service_of(facts, seat, classes_of(wish))
            busy, there = rate * gain[node] * share * service.seconds[0], share_kept * seat.worker.count
            if not busy <= there * (1.0 + FEASIBILITY):
                text = f"{name} keeps {busy:.6g} machines busy at the promised rate, {there:g} are there for it"
                yield Violation("capacity", f"workers.{seat.worker.id}", text)
            longest = max(longest, service.latency_ms[0])
            known = facts.inputs.profile.variants[seat.load.variant or ""].quality
            value = known.value if known is not None else math.nan
            quality += share * value * pipeline.quality.weights.get(node, 1.0)
        starts = [ended[edge.from_] for edge in before] or [(0.0, 0)]
        ended[node] = (max(ms for ms, _ in starts) + longest, max(hops for _, hops in starts) + 1)
    limit = min((ms for ms, _ in response_targets(wish)), default=math.inf)
    for node, (ms, hops) in ended.items():
        room = (limit - hops * wish.network_ms_per_hop) / slo_divisor(facts.plan)
        if ms > room * (1.0 + 1e-9):
            text = f"step {node} ends after {ms:.6g} ms of execution, {room:.6g} ms are left"
            yield Violation("slow-path", f"routing.{app}", text)
    for number, promise in enumerate(facts.plan.promises):
        if promise.app == app and promise.quantity == "quality" and promise.value > quality + VALUE:
            text = f"promises quality {promise.value:.9g}, recomputed it is {quality:.9g}"
            yield Violation("promise", f"promises[{number}]", text)
    if wish.quality is not None and wish.quality.min is not None and not quality >= wish.quality.min - VALUE:
        text = f"quality {quality:.6g} is below {wish.quality.min:g}"
        yield Violation("quality", f"routing.{app}", text)
