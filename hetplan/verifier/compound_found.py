"""A plan found by search, recomputed: operators, tiers, shares; latency and accuracy from the measurements.

Latency is the longest path through the operators: seconds on the reference x relative time of the tier, over the share
of the GPU (a batched operator's time stays), and bytes over links between tiers, hop by hop where no direct link is.
Without measurements (``--measured``) only what the plan promises is compared with what is wished for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch import ChosenPlanDispatch
from hetplan.profiles.profile import Pipeline
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Serve
from hetplan.verifier.report import Violation

__all__ = ["check_found"]


def check_found(plan: Plan, inputs: Inputs, name: str, rule: ChosenPlanDispatch) -> Iterator[Violation]:
    """Every operator runs once, as the chosen plan says; what is promised is measured, and enough."""
    app = inputs.slo.apps[name]
    pipeline = inputs.profile.pipelines.get(app.runs.pipeline or "") if app.runs is not None else None
    at = f"dispatch.{name}"
    if pipeline is None:
        yield Violation("chosen-plan", at, "neither a candidate nor a pipeline is chosen")
        return
    wrong = [*_operators(plan, inputs, name, rule, pipeline)]
    yield from wrong
    said = {promise.quantity: promise.value for promise in plan.promises if promise.app == name}
    for quantity in ("response_ms", "quality"):
        if quantity not in said:
            yield Violation("chosen-plan", "promises", f"no {quantity} of {name} is promised")
            return
    yield from _wished(inputs, app, pipeline, name, said)
    if inputs.measured is not None and not wrong:
        yield from _measured(inputs, name, rule, pipeline, said)


def _operators(
    plan: Plan, inputs: Inputs, name: str, rule: ChosenPlanDispatch, pipeline: Pipeline
) -> Iterator[Violation]:
    at = f"dispatch.{name}"
    for knob, levels in pipeline.knobs.items():
        if rule.knobs.get(knob) not in levels:
            yield Violation("knob", at, f"{knob} is {rule.knobs.get(knob)}, no level of it")
    for extra in sorted((rule.placement.keys() | rule.share.keys()) - pipeline.nodes.keys()):
        yield Violation("operator", at, f"{extra} has a place or a share and is no operator of the pipeline")
    for node in pipeline.nodes:
        here = [
            (load, worker) for worker in plan.workers for load in worker.loads if load.app == name and load.node == node
        ]
        times = sum(load.instances * worker.count for load, worker in here)
        if times != 1:
            yield Violation("operator", at, f"operator {node} runs {times} times, not once")
            continue
        load, worker = here[0]
        if load.serve != Serve():
            yield Violation("operator", at, f"{node} does not serve one query at a time, as it was measured")
        if [route.to for route in plan.routing.get(name, ()) if route.node == node] != [{load.id: 1.0}]:
            yield Violation("operator", at, f"not all queries at {node} go to {load.id}")
        tier = inputs.profile.hardware[worker.hardware].tier
        if rule.placement.get(node) != tier:
            yield Violation("operator", at, f"{node} is placed on {rule.placement.get(node)} and runs on {tier}")
        share = load.share.gpu if load.share is not None else None
        if rule.share.get(node) != share:
            yield Violation("operator", at, f"{node} has the share {rule.share.get(node)} and runs with {share}")
        if any(load.knobs.get(knob) != rule.knobs.get(knob) for knob in pipeline.nodes[node].reads):
            yield Violation("operator", at, f"{node} runs with other knobs than the plan's")


def _wished(inputs: Inputs, app: App, pipeline: Pipeline, name: str, said: Mapping[str, float]) -> Iterator[Violation]:
    limits = [target.max_ms for target in app.latency if target.of == "response"]
    if limits and said["response_ms"] > min(limits) * (1.0 + FEASIBILITY):
        text = f"promises {said['response_ms']:.9g} ms to {name}, wanted are {min(limits):g}"
        yield Violation("latency", f"dispatch.{name}", text)
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    if app.quality is None:
        return
    least, most = app.quality.min, app.quality.max
    if metric is not None and metric.better == "lower":
        least = None
    if (least is not None and said["quality"] < least - VALUE) or (most is not None and said["quality"] > most + VALUE):
        yield Violation("quality", f"dispatch.{name}", f"promises a quality of {said['quality']:.9g} to {name}")


def _measured(
    inputs: Inputs, name: str, rule: ChosenPlanDispatch, pipeline: Pipeline, said: Mapping[str, float]
) -> Iterator[Violation]:
    at = f"dispatch.{name}"
    plans = inputs.measured.get("apps", {}).get(name, ())
    entry = next((one for one in plans if one.get("knobs") == dict(rule.knobs)), None)
    if entry is None or "seconds" not in entry:
        yield Violation("unmeasured", at, f"these knobs of {name} stand in no measurement")
        return
    if not entry.get("passes"):
        yield Violation("quality", at, f"the measurement of these knobs is no pass but {entry.get('verdict')}")
    if abs(entry["mean"] - said["quality"]) > VALUE * max(1.0, abs(said["quality"])):
        yield Violation("promise", "promises", f"quality of {name} is {entry['mean']:.9g}, not {said['quality']:.9g}")
    try:
        response = 1000.0 * _latency_s(inputs, inputs.slo.apps[name], rule, pipeline, entry)
    except LookupError as error:
        yield Violation("link", at, str(error))
        return
    if response > said["response_ms"] * (1.0 + VALUE):
        text = f"response of {name} is {response:.9g} ms, promised are {said['response_ms']:.9g}"
        yield Violation("promise", "promises", text)


def _latency_s(
    inputs: Inputs, app: App, rule: ChosenPlanDispatch, pipeline: Pipeline, entry: Mapping[str, Any]
) -> float:
    """The longest path through the operators."""
    ends: dict[str, float] = {}
    while len(ends) < len(pipeline.nodes):
        for node in pipeline.nodes:
            before = [edge.from_ for edge in pipeline.edges if edge.to == node]
            if node in ends or any(other not in ends for other in before):
                continue
            tier = rule.placement[node]
            home = inputs.profile.tiers[0]
            arrivals = [
                ends[other] + _link_s(inputs, app, rule.placement[other], tier, entry["bytes"][other])
                for other in before
            ] or [_link_s(inputs, app, home, tier, entry.get("input_bytes", 0.0))]
            time = entry["seconds"][node] * _relative_time(inputs, app, tier)
            if pipeline.nodes[node].share_law == "flops":
                time /= rule.share.get(node, 1.0)
            ends[node] = max(arrivals) + time
    return max(ends.values())


def _relative_time(inputs: Inputs, app: App, tier: str) -> float:
    if tier == inputs.profile.tiers[0] and app.device is not None and app.device.relative_time is not None:
        return app.device.relative_time
    hardware = [one for one in inputs.profile.hardware.values() if one.tier == tier]
    return hardware[0].relative_time or 1.0


def _link_s(inputs: Inputs, app: App, source: str, to: str, size: float) -> float:
    """Seconds from tier to tier, hop by hop where there is no link between the two; none within a tier."""
    links = [*(app.device.links if app.device is not None else ()), *inputs.profile.links]
    tiers = list(inputs.profile.tiers)
    low, high = sorted((tiers.index(source), tiers.index(to)))
    ends = {source, to}
    direct = [link for link in links if set(link.between) == ends]
    total = 0.0
    for pair in [(source, to)] if direct else pairwise(tiers[low : high + 1]):
        link = next((link for link in links if set(link.between) == set(pair)), None)
        if link is None:
            raise LookupError(f"no link joins {pair[0]} and {pair[1]}, over which the plan goes")
        total += size * 8e-6 / link.bandwidth_mbps + link.latency_ms / 1000.0
    return total
