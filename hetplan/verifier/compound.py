"""The promise of a compound plan, recomputed: one plan per application, totals and machines not exceeded, sums right.

Candidates are compared with the wish: `dispatch.<app>` is a ``chosen-plan/1`` that repeats the candidate's demand, and
demands together stay within `limits.resources`; on machines (`machines`, per tier) shares together stay within the GPUs
that one of them provides, and no more machines of a tier are in use than `limits.instances` allow. Operators of a found
plan are loads of workers: every operator of the pipeline once, one query at a time, in the tier and with the share that
the dispatch names; its one route sends all to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch import ChosenPlanDispatch
from hetplan.profiles.profile import Hardware
from hetplan.profiles.slo import App
from hetplan.verifier.compound_found import check_found
from hetplan.verifier.report import Violation

__all__ = ["check"]


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
    if [term.min for term in inputs.slo.objective] == ["cost"] and left:
        yield Violation("compound-served", "unserved", "least cost is to serve all, and some are not served")


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
            if key not in rule.machines or key in inputs.slo.limits.resources:
                taken[key] += amount
    for key, amount in sorted(taken.items()):
        room, machines = inputs.slo.limits.resources.get(key), _machine_count(inputs, key)
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
                yield Violation("machines", f"dispatch.{name}", f"a demand on {tier} stands on one machine of it")
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
