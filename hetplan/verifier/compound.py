"""The promise of a compound plan, recomputed: one plan per application, totals and machines not exceeded, sums right.

Candidates are compared with the wish: `dispatch.<app>` is a ``chosen-plan/1`` that repeats the candidate's demand, and
demands together stay within `limits.capacity`; on machines (`machines`, per tier) shares together stay within the GPUs
that one of them provides, and no more machines of a tier are in use than `limits.instances` allow. Operators of a found
plan are loads of workers: every operator of the pipeline once, one query at a time, in the tier and with the share that
the dispatch names; its one route sends all to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import ChosenPlanDispatch
from hetplan.profiles.profile import Hardware
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.verifier.batch_waits import LARGEST
from hetplan.verifier.calls import accuracy_in_service, call_outcomes, calls_at, check_bill, placement_fault
from hetplan.verifier.fanout import any_fans, several_at_most, times_called, why_not_counted
from hetplan.verifier.plan_index import gather
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import cost_nanos
from hetplan.verifier.stations import (
    Flow,
    Served,
    check_stations,
    flow_of,
    growth_by,
    is_limit,
    loads_of,
    promises_itself,
    rate_of,
)

__all__ = ["check", "check_found"]


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What a compound plan promises beyond the generic check; to be called on a plan whose references are sound."""
    found = [*_each_once(plan, inputs)]
    chosen = {app: rule for app, rule in plan.dispatch.items() if isinstance(rule, ChosenPlanDispatch)}
    for app, rule in plan.dispatch.items():
        if not isinstance(rule, ChosenPlanDispatch):
            found.append(Violation("dispatch", f"dispatch.{app}", "an application of this question has a chosen plan"))
    stated = {app: rule for app, rule in chosen.items() if rule.candidate is not None}
    wrong = [fault for app, rule in stated.items() for fault in _candidate(inputs.slo.apps[app], app, rule)]
    found += wrong
    if not wrong:
        found += _totals(inputs, stated)
        found += _machines(inputs, stated)
        found += _sums(plan, inputs, chosen)
        found += _means(plan, inputs, chosen)
    if inputs.profile.apis:
        found += check_bill(plan, inputs, cost_nanos=cost_nanos(gather(plan, inputs)))
    for app, rule in chosen.items():
        if rule.candidate is None:
            found += check_found(plan, inputs, app, rule)
    return found


def _each_once(plan: Plan, inputs: Inputs) -> Iterator[Violation]:
    left = [entry.app for entry in plan.unserved]
    for app in inputs.slo.apps:
        times = (app in plan.dispatch) + left.count(app)
        if times != 1:
            yield Violation("compound-served", f"apps.{app}", f"served and unserved {times} times, not once")
    terms = inputs.slo.objective
    if terms and terms[0] not in ("max goodput", "max served") and left:
        sought = "a front" if terms[0].startswith("front ") else terms[0].partition(" ")[2]
        yield Violation("compound-served", "unserved", f"{sought} is sought of all, and some are not served")


def _candidate(app: App, name: str, rule: ChosenPlanDispatch) -> Iterator[Violation]:
    at = f"dispatch.{name}"
    number = rule.candidate
    if number is None or number >= len(app.candidates):
        yield Violation("candidate", at, f"candidate {number}; there are {len(app.candidates)}")
        return
    wanted = app.candidates[number]
    if {k: float(f"{v:.12g}") for k, v in wanted.demand.items()} != dict(rule.demand):
        yield Violation("candidate", at, f"states the demand {dict(rule.demand)}, the wish has {dict(wanted.demand)}")
    if rule.label != wanted.label:
        yield Violation("candidate", at, f"is called {rule.label}, the wish calls it {wanted.label}")


def _totals(inputs: Inputs, stated: dict[str, ChosenPlanDispatch]) -> Iterator[Violation]:
    """Sums over all, against the limits (and tiers' machines, where demands are taken of their total)."""
    taken: dict[str, float] = defaultdict(float)
    for rule in stated.values():
        for key, amount in rule.demand.items():
            if key not in rule.machines or key in inputs.slo.limits.capacity:
                taken[key] += amount
    for key, amount in sorted(taken.items()):
        room, machines = inputs.slo.limits.capacity.get(key), _machine_count(inputs, key)
        if room is None and machines is not None:
            room = machines * _gpus(inputs, key)
        if room is not None and amount > room + FEASIBILITY * max(1.0, room):
            yield Violation("resource-limit", "dispatch", f"{amount:.9g} {key} in all, there is {room:g}")


def _hardware(inputs: Inputs, tier: str) -> dict[str, Hardware]:
    """The hardware of a tier; where only listed hardware may be used, what is listed of it, if anything is."""
    limits = inputs.slo.limits
    here = {name: one for name, one in inputs.profile.hardware.items() if one.tier == tier}
    return {name: one for name, one in here.items() if limits.only_listed and name in limits.instances} or here


def _machine_count(inputs: Inputs, tier: str) -> float | None:
    """How many machines of a tier the wish allows."""
    bounds, limits = [], inputs.slo.limits
    for name in _hardware(inputs, tier):
        most = limits.instances.get(name, (0, 0 if limits.only_listed else None))[1]
        stocks = [offer.stock for offer in inputs.profile.offers.values() if offer.hardware == name]
        known = [float(n) for n in (most, *(stocks if len(stocks) == 1 else [])) if n is not None]
        bounds.append(min(known) if known else math.inf)
    return None if not bounds or math.isinf(sum(bounds)) else sum(bounds)


def _gpus(inputs: Inputs, tier: str) -> float:
    """The GPUs of one machine of a tier; one, where the profile names none."""
    return max(one.provides.get("gpu", 1.0) for one in _hardware(inputs, tier).values())


def _machines(inputs: Inputs, stated: dict[str, ChosenPlanDispatch]) -> Iterator[Violation]:
    """What candidates put on machines of a tier."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    for name, rule in stated.items():
        for tier, machines in rule.machines.items():
            if len(machines) != 1 or tier not in rule.demand:
                yield Violation("machines", f"dispatch.{name}", f"a demand on {tier} is on one machine of it")
                continue
            if not _hardware(inputs, tier):
                yield Violation("machines", f"dispatch.{name}", f"{tier} is no tier with machines")
                continue
            load[tier, machines[0]] += rule.demand[tier]
    for (tier, machine), amount in sorted(load.items()):
        if amount > (gpus := _gpus(inputs, tier)) + FEASIBILITY:
            text = f"{amount:.9g} GPUs of machine {machine} of {tier} are taken, it has {gpus:g}"
            yield Violation("machines", "dispatch", text)
    for tier in sorted({tier for tier, _ in load}):
        used, room = len({machine for t, machine in load if t == tier}), _machine_count(inputs, tier)
        if room is not None and used > room:
            yield Violation("machines", "dispatch", f"{used} machines of {tier} are in use, there are {room:g}")


def _sums(plan: Plan, inputs: Inputs, chosen: dict[str, ChosenPlanDispatch]) -> Iterator[Violation]:
    """Goodput, the number served, what candidates cost, against what is promised and claimed."""
    goodput, cost = 0.0, 0
    for name, rule in chosen.items():
        app = inputs.slo.apps[name]
        weight = 1.0 if app.weight is None else app.weight
        if rule.candidate is not None:
            candidate = app.candidates[rule.candidate]
            weight = weight if candidate.weight is None else candidate.weight
            cost += candidate.price_per_hour or 0
        goodput += weight
    values = {"goodput": goodput, "served": float(len(chosen))}
    if all(app.candidates for app in inputs.slo.apps.values()):
        values["candidates_per_hour"] = cost / NANO
    for quantity, value in values.items():
        said = [promise.value for promise in plan.promises if promise.app is None and promise.quantity == quantity]
        if quantity == "candidates_per_hour" and not said and value == 0:
            continue
        if len(said) != 1 or abs(said[0] - value) > VALUE * max(1.0, abs(value)):
            text = f"{quantity} is {value:.12g}, promised is {said[0] if said else 'nothing'}"
            yield Violation("compound-sum", "promises", text)


def _means(plan: Plan, inputs: Inputs, chosen: dict[str, ChosenPlanDispatch]) -> Iterator[Violation]:
    """What is claimed of the mean quality, or latency, against what each application is promised.

    What is claimed of quality is by how much it misses the top of its range.
    """
    weights = {name: 1.0 if (w := inputs.slo.apps[name].weight) is None else w for name in chosen}
    total = sum(weights.values())
    parts = {name: w / total if total > 0 else 1.0 / len(weights) for name, w in weights.items()}
    for claim in plan.claims:
        if claim.about not in ("quality_short", "mean_latency_ms"):
            continue
        mean = sum(part * _promised_figure(plan, inputs, name, claim.about) for name, part in parts.items())
        if not abs(mean - claim.value) <= VALUE * max(1.0, abs(mean)):
            text = f"{claim.about} is {mean:.9g} by what is promised, claimed is {claim.value:.9g}"
            yield Violation("compound-sum", "claims", text)
    budget, cost = inputs.slo.limits.cost_per_hour, 0
    for name, rule in chosen.items():
        if rule.candidate is not None:
            cost += inputs.slo.apps[name].candidates[rule.candidate].price_per_hour or 0
    if budget is not None and cost > budget:
        text = f"candidates cost {cost / NANO:g} an hour, the limit is {budget / NANO:g}"
        yield Violation("cost-limit", "dispatch", text)


def _promised_figure(plan: Plan, inputs: Inputs, name: str, about: str) -> float:
    """Of an application, what it misses of the top quality; or its latency, of percentiles the nearest to its limit."""
    mine = [promise for promise in plan.promises if promise.app == name]
    if about == "quality_short":
        pipeline = inputs.profile.pipelines.get(inputs.slo.apps[name].pipeline or "")
        metric = inputs.profile.metrics.get((pipeline.metric if pipeline is not None else None) or "")
        low, high = metric.range if metric is not None else (0.0, 1.0)
        top = low if metric is not None and metric.better == "lower" else high
        return next((abs(top - promise.value) for promise in mine if promise.quantity == "quality"), math.nan)
    limits = {t.percentile: t.max_ms for t in inputs.slo.apps[name].targets if t.of == "response"}
    least = min(limits.values(), default=1.0)
    times = [
        promise.value * least / (limits.get(promise.percentile, least) if promise.percentile is not None else least)
        for promise in mine
        if promise.quantity == "response_ms"
    ]
    return max(times, default=math.nan)


# Plans found by search: operators, tiers, shares; latency and accuracy from the measurements
#
# Latency is the longest path through the operators: seconds on the reference x relative time of the tier, over the
# share of the GPU (a batched operator's time stays), and bytes over links between tiers, hop by hop where there is no
# direct link.
# A percentile is promised of the samples' own latencies: at most the order statistic below which, with the confidence
# of the options, the percentile lies. Of N streams each has every operator for itself.
# Without measurements only what the plan promises is compared with what is wished for.


def check_found(plan: Plan, inputs: Inputs, name: str, rule: ChosenPlanDispatch) -> Iterator[Violation]:
    """Every operator runs once, as the chosen plan says; what is promised is measured, and enough."""
    app = inputs.slo.apps[name]
    pipeline = inputs.profile.pipelines.get(app.pipeline or "")
    at = f"dispatch.{name}"
    if pipeline is None:
        yield Violation("chosen-plan", at, "neither a candidate nor a pipeline is chosen")
        return
    if any_fans(pipeline) and (why := why_not_counted(pipeline)):
        yield Violation("chosen-plan", at, f"calls of {name} cannot be counted: {why}")
        return
    wrong = [*_operators(plan, inputs, name, rule, pipeline)]
    yield from wrong
    mine = [promise for promise in plan.promises if promise.app == name]
    said = {promise.quantity: promise.value for promise in mine if promise.quantity != "response_ms"}
    times = {promise.percentile: promise.value for promise in mine if promise.quantity == "response_ms"}
    wanted = {target.percentile for target in app.targets if target.of == "response"}
    missing = [f"p{percentile:g} of response_ms" for percentile in sorted(wanted - times.keys())]
    for quantity in [*missing, *({"quality"} - said.keys())]:
        yield Violation("chosen-plan", "promises", f"no {quantity} of {name} is promised")
        return
    yield from _check_slo(inputs, app, pipeline, name, said, times)
    queued = rate_of(app) is not None
    by_load = plan.method.options.get("sizing") == "fluid"
    models = ("measured", "simulation") if by_load else ("stationary", "simulation")
    for one in mine:
        is_right = one.model.startswith(models) if queued else one.model == "measured"
        if one.quantity == "response_ms" and not is_right:
            what = "queries wait" if queued else "each stream has all operators for itself"
            yield Violation("promise-model", "promises", f"{what}: response_ms of {name} is promised by {one.model}")
        if one.quantity == "response_ms" and one.model.startswith("stationary") and any_fans(pipeline):
            text = f"response_ms of {name} is promised by a formula, which knows no calls that come together"
            yield Violation("promise-model", "promises", text)
        shown = one.quantity == "response_ms" and one.model.startswith("simulation")
        if shown and not is_limit(app, one) and not promises_itself(inputs, app):
            text = f"p{one.percentile or 0:g} of {one.value:g} ms is no limit that is wished for"
            yield Violation("promise-wish", "promises", text)
    if inputs.measured is not None and not wrong:
        stated = plan.method.options.get("confidence")
        chance = stated if isinstance(stated, float) and 0.5 < stated < 1 else 0.99
        yield from _check_measured(plan, inputs, name, said, {p: t for p, t in times.items() if p is not None}, chance)


def _operators(
    plan: Plan, inputs: Inputs, name: str, rule: ChosenPlanDispatch, pipeline: Pipeline
) -> Iterator[Violation]:
    at = f"dispatch.{name}"
    levels_of = pipeline.levels
    if pipeline.space is not None:
        first = {knob: levels[0] for knob, levels in levels_of.items()}
        if broken := pipeline.space.broken(rule.knobs, first):
            yield Violation("knob", at, broken)
    for knob, levels in levels_of.items():
        if rule.knobs.get(knob) not in levels:
            yield Violation("knob", at, f"{knob} is {rule.knobs.get(knob)}, no level of it")
    for extra in sorted((rule.placement.keys() | rule.share.keys()) - pipeline.nodes.keys()):
        yield Violation("operator", at, f"{extra} has a place or a share and is no operator of the pipeline")
    rated = rate_of(inputs.slo.apps[name]) is not None
    for node in pipeline.nodes:
        mine = loads_of(plan, name, node)
        here = [(load, worker) for worker in plan.workers for load in worker.loads if load.id in mine]
        if wrong := placement_fault(pipeline, rule, node, loads=len(here)):
            yield Violation("operator", at, wrong)
        if node in calls_at(pipeline, rule.knobs):
            continue
        times = sum(load.instances * worker.count for load, worker in here)
        each = several_at_most(pipeline, node) if any_fans(pipeline) else 1
        streams = max(1, times) if rated else (inputs.slo.apps[name].streams or 1) * each
        if times != streams or not here:
            text = f"operator {node} runs {times} times, not {streams} times"
            yield Violation("operator", at, text if streams > 1 else f"operator {node} runs {times} times, not once")
            continue
        wanted = {load.id: load.instances * worker.count / streams for load, worker in here}
        on = {edge.from_: edge.on for edge in pipeline.edges if edge.to == node and edge.on is not None}
        routes = [route.to for route in plan.routing.get(name, ()) if route.node == node and (route.after or {}) == on]
        if len(routes) != 1 or not _same(routes[0], wanted):
            yield Violation("operator", at, f"queries at {node} do not go to {', '.join(wanted)} by their streams")
        for load, worker in here:
            if load.app is None:
                yield Violation("operator", at, f"load {load.id} does not say whose operator it runs")
            most = _most_at_once(inputs, pipeline, node) if rated else 1
            yield from _as_chosen(inputs, pipeline, rule, (node, at), (load, worker), most)
        for other, step in _operators_of_the_same_loads(plan, inputs, name, node):
            if not rated or loads_of(plan, other, step).keys() != mine.keys():
                yield Violation("operator", at, f"{node} shares some replicas of {step} of {other}, and not all")


def _operators_of_the_same_loads(plan: Plan, inputs: Inputs, name: str, node: str) -> Iterator[tuple[str, str]]:
    """The other operators, of this application or another, whose queries come to loads of this one."""
    mine = loads_of(plan, name, node).keys()
    for other, rule in plan.dispatch.items():
        app = inputs.slo.apps.get(other)
        pipeline = inputs.profile.pipelines.get((app.pipeline if app is not None else None) or "")
        if pipeline is None or not isinstance(rule, ChosenPlanDispatch) or rule.candidate is not None:
            continue
        for step in pipeline.nodes:
            if (other, step) != (name, node) and mine & loads_of(plan, other, step).keys():
                yield other, step


def _flows_of_other_operators(plan: Plan, inputs: Inputs, name: str, node: str) -> list[Flow]:
    """What other operators bring to the loads of this one; nothing where no measurement says."""
    found = []
    for other, step in _operators_of_the_same_loads(plan, inputs, name, node):
        app, rule = inputs.slo.apps[other], plan.dispatch[other]
        assert isinstance(rule, ChosenPlanDispatch)
        pipeline = inputs.profile.pipelines[app.pipeline or ""]
        entry = next((e for e in inputs.measured["apps"].get(other, ()) if e.get("knobs") == dict(rule.knobs)), None)
        for samples in [] if entry is None or "seconds" not in entry else [_samples(entry)]:
            took = [(_took_ms(inputs, app, rule, pipeline, step, one), 1.0 / len(samples)) for one in samples]
            calls = times_called(pipeline, step) if any_fans(pipeline) else 1.0
            found.append(flow_of(app, took, calls))
    return found


def _most_at_once(inputs: Inputs, pipeline: Pipeline, node: str) -> int:
    """How many queries an operator may serve at once: as many as its table says."""
    name = pipeline.nodes[node].batches
    return 1 if name is None else len(growth_by(inputs.profile.tables[name], LARGEST))


def _growth(plan: Plan, inputs: Inputs, name: str, pipeline: Pipeline, node: str) -> Sequence[float]:
    """How batches grow at an operator, up to the largest that one of its loads serves."""
    mine, table = loads_of(plan, name, node), pipeline.nodes[node].batches
    most = max((load.serve.max_batch for one in plan.workers for load in one.loads if load.id in mine), default=1)
    return [1.0] if table is None else growth_by(inputs.profile.tables[table], most)


def _same(to: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return to.keys() == wanted.keys() and all(abs(to[load] - share) <= VALUE for load, share in wanted.items())


def _as_chosen(
    inputs: Inputs, pipeline: Pipeline, rule: ChosenPlanDispatch, where: tuple[str, str], seat: tuple[Load, Worker],
    most: int,
) -> Iterator[Violation]:  # fmt: skip
    """A load runs its operator as the chosen plan says, so many queries at once at most."""
    (node, at), (load, worker) = where, seat
    if load.serve != Serve(max_batch=load.serve.max_batch) or load.serve.max_batch > most:
        text = "one query at a time, as it was measured" if most == 1 else f"batches of {most} at most, as its table"
        yield Violation("operator", at, f"{node} does not serve {text}")
    tier = inputs.profile.hardware[worker.hardware].tier
    if rule.placement.get(node) != tier:
        yield Violation("operator", at, f"{node} is placed on {rule.placement.get(node)} and runs on {tier}")
    share = load.share.gpu if load.share is not None else None
    if rule.share.get(node) != share:
        yield Violation("operator", at, f"{node} has the share {rule.share.get(node)} and runs with {share}")
    if load.share is not None and share is not None and load.share.enforce != "mps":
        yield Violation("operator", at, f"{node} has a share of a GPU that {load.share.enforce} enforces, not mps")
    if any(load.knobs.get(knob) != rule.knobs.get(knob) for knob in pipeline.nodes[node].reads):
        yield Violation("operator", at, f"{node} runs with other knobs than the plan's")


def _check_slo(
    inputs: Inputs, app: App, pipeline: Pipeline, name: str, said: Mapping[str, float],
    times: Mapping[float | None, float],
) -> Iterator[Violation]:  # fmt: skip
    for target in app.targets:
        if target.of == "response" and times[target.percentile] > target.max_ms * (1.0 + FEASIBILITY):
            text = f"promises {times[target.percentile]:.9g} ms at p{target.percentile:g} to {name}"
            yield Violation("latency", f"dispatch.{name}", f"{text}, wanted are {target.max_ms:g}")
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    if app.quality is None:
        return
    least, most = app.quality.min, app.quality.max
    if metric is not None and metric.better == "lower":
        least = None
    if (least is not None and said["quality"] < least - VALUE) or (most is not None and said["quality"] > most + VALUE):
        yield Violation("quality", f"dispatch.{name}", f"promises a quality of {said['quality']:.9g} to {name}")


def _check_measured(
    plan: Plan, inputs: Inputs, name: str, said: Mapping[str, float], times: Mapping[float, float],
    chance: float,
) -> Iterator[Violation]:  # fmt: skip
    at, app, rule = f"dispatch.{name}", inputs.slo.apps[name], plan.dispatch[name]
    assert isinstance(rule, ChosenPlanDispatch)
    pipeline = inputs.profile.pipelines[app.pipeline or ""]
    plans = inputs.measured.get("apps", {}).get(name, ())
    entry = next((one for one in plans if one.get("knobs") == dict(rule.knobs)), None)
    if entry is None or "seconds" not in entry:
        yield Violation("unmeasured", at, f"these knobs of {name} are in no measurement")
        return
    if app.quality is not None and not entry.get("passes"):
        yield Violation("quality", at, f"the measurement of these knobs is no pass but {entry.get('verdict')}")
    doubts = {notice.at for notice in plan.warnings if notice.code == "W-undecided"}
    wished = app.quality is not None and app.quality.min is not None
    if wished and entry.get("verdict") == "undecided" and f"apps.{name}.quality" not in doubts:
        text = f"the accuracy of {name} is undecided by its measurements, and no W-undecided says so"
        yield Violation("undecided", "warnings", text)
    quality = accuracy_in_service(inputs, name, pipeline, rule.knobs, entry["mean"])
    if abs(quality - said["quality"]) > VALUE * max(1.0, abs(said["quality"])):
        yield Violation("promise", "promises", f"quality of {name} is {quality:.9g}, not {said['quality']:.9g}")
    try:
        samples = _samples(entry)
    except (LookupError, TypeError, AttributeError):
        yield Violation("unmeasured", at, f"what was recorded of the samples of {name} makes no sense")
        return
    wrong = [*_outcomes(plan, pipeline, name, samples)]
    yield from wrong
    if wrong:
        return
    try:
        cases = [
            (
                1000.0 * _latency_s(inputs, app, rule, pipeline, _without_operators(one, left), more),
                likely / len(samples),
                one,
            )
            for one in samples
            for more, left, likely in call_outcomes(inputs, pipeline, rule.knobs, one.get("rounds", ONCE))
        ]
    except LookupError as error:
        yield Violation("link", at, str(error))
        return
    each = sorted((ms, likely) for ms, likely, _ in cases)
    if rate_of(app) is not None:
        stations = [node for node in pipeline.nodes if rule.placement[node] not in inputs.profile.apis]
        took = partial(_took_ms, inputs, app, rule, pipeline)
        beside = partial(_flows_of_other_operators, plan, inputs, name)
        growth = partial(_growth, plan, inputs, name, pipeline)
        yield from check_stations(
            plan, Served(name, app, pipeline, stations, took, beside, growth, promises_itself(inputs, app)), cases
        )
    for percentile, value in sorted(times.items()):
        response = _percentile(each, len(samples), percentile / 100.0, chance)
        if response > value * (1.0 + VALUE):
            text = f"response of {name} is {response:.9g} ms at p{percentile:g}, promised are {value:.9g}"
            yield Violation("promise", "promises", text)


def _took_ms(
    inputs: Inputs, app: App, rule: ChosenPlanDispatch, pipeline: Pipeline, node: str, sample: Mapping[str, Any]
) -> float | None:
    """What an operator takes of a sample on its tier and with its share; None where it does not run."""
    seconds = sample["seconds"][node]
    if seconds is None:
        return None
    slow = _relative_time(inputs, app, rule.placement[node])
    share = rule.share.get(node, 1.0) if pipeline.nodes[node].share_law == "flops" else 1.0
    return float(1000.0 * seconds * slow / share)


def _outcomes(plan: Plan, pipeline: Pipeline, name: str, samples: list[Mapping[str, Any]]) -> Iterator[Violation]:
    """Each sample is one that a query may be, and loads say how often their answers came to each outcome."""
    if not any(node.outcomes is not None for node in pipeline.nodes.values()):
        return
    seen: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        ran = {node for node, took in sample["seconds"].items() if took is not None}
        for node in pipeline.nodes:
            into = [edge for edge in pipeline.edges if edge.to == node]
            after = {edge.to for edge in pipeline.edges if edge.from_ == node and edge.to in ran}
            known = pipeline.nodes[node].outcomes
            fits = [
                one
                for one in (known.measured if known is not None else ("",))
                if after == {edge.to for edge in pipeline.edges if edge.from_ == node and edge.on in (None, one)}
            ]
            wrong = (not into and node not in ran) or (node in ran and not (fits and all(e.from_ in ran for e in into)))
            if wrong:
                text = f"no query of {name} runs {', '.join(sorted(ran)) or 'nothing'}, and no other operators"
                yield Violation("unmeasured", f"dispatch.{name}", text)
                return
            if node in ran and known is not None:
                seen[node][fits[0]] += 1.0
    for worker in plan.workers:
        for load in worker.loads:
            counted = seen.get(load.node or "") if load.app == name else None
            if counted is None:
                continue
            stated, total = load.outcomes or {}, sum(counted.values())
            for one in sorted(stated.keys() | counted.keys()):
                if abs(stated.get(one, 0.0) - counted[one] / total) > FEASIBILITY:
                    said = f"states a share of {stated.get(one, 0.0):.6g} for {one}"
                    text = f"{said}, measured is {counted[one] / total:.6g}"
                    yield Violation("outcomes", f"workers.{worker.id}.loads.{load.id}", text)


ONCE: Mapping[str, int] = {}


def _without_operators(sample: Mapping[str, Any], left: frozenset[str]) -> Mapping[str, Any]:
    """A sample of which these operators are not called."""
    return sample if not left else {
        **sample, "seconds": {node: None if node in left else took for node, took in sample["seconds"].items()}
    }  # fmt: skip


def _samples(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What each sample took; the one record where all took the same, or nothing but means is known."""
    runs = entry.get("runs")
    if runs is None:
        return [entry]
    return [
        {
            "seconds": {node: values[k] for node, values in runs["seconds"].items()},
            "bytes": {node: values[k] for node, values in runs["bytes"].items()},
            "input_bytes": size,
            "rounds": {node: values[k] for node, values in runs.get("rounds", {}).items()},
        }
        for k, size in enumerate(runs["input_bytes"])
    ]


def _percentile(each: list[tuple[float, float]], samples: int, share: float, chance: float) -> float:
    """The least time (of these, in order, with their weights) that so many samples bound the percentile by.

    Where calls fail, what they weigh together is less than 1: the rest is never answered.
    """
    level = _rank(samples, share, chance) / samples if samples > 1 else share
    whole = math.fsum(weight for _, weight in each)
    if whole < share - VALUE:
        return math.inf
    reached = 0.0
    for time, weight in each:
        reached += weight
        if reached >= min(level, whole) - 1e-12:
            return time
    return each[-1][0]


def _rank(count: int, share: float, chance: float) -> int:
    """The first of `count` ordered samples that is above the quantile with this chance, else the last of them."""
    below = 0.0
    for rank in range(1, count + 1):
        # The chance that exactly rank - 1 samples lie below the quantile.
        ways = math.lgamma(count + 1) - math.lgamma(rank) - math.lgamma(count - rank + 2)
        likely = (rank - 1) * math.log(share) + (count - rank + 1) * math.log1p(-share) if 0 < share < 1 else -math.inf
        below += math.exp(ways + likely)
        if below >= chance:
            return rank
    return count


def _latency_s(
    inputs: Inputs,
    app: App,
    rule: ChosenPlanDispatch,
    pipeline: Pipeline,
    entry: Mapping[str, Any],
    more_ms: Mapping[str, float],
) -> float:
    """The longest path through the operators, where calls take `more_ms` for what failed; they are at an API's tier."""
    apis = inputs.profile.apis
    where = {node: apis[place].tier if place in apis else place for node, place in rule.placement.items()}
    ends: dict[str, float] = {}
    while len(ends) < len(pipeline.nodes):
        for node in pipeline.nodes:
            before = [edge.from_ for edge in pipeline.edges if edge.to == node]
            if node in ends or any(other not in ends for other in before):
                continue
            if entry["seconds"][node] is None or any(ends[other] < 0.0 for other in before):
                ends[node] = -1.0  # it did not run for this sample
                continue
            tier = where[node]
            home = inputs.profile.tiers[0]
            arrivals = [
                ends[other] + _link_s(inputs, app, where[other], tier, entry["bytes"][other]) for other in before
            ] or [_link_s(inputs, app, home, tier, entry.get("input_bytes", 0.0))]
            time = entry["seconds"][node] + more_ms.get(node, 0.0) / 1000.0
            if rule.placement[node] not in apis:
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
