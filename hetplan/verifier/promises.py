"""Promises: recomputed where arithmetic can, and none that says more than its model knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Promise
from hetplan.verifier.facts import Facts, machines
from hetplan.verifier.money import cost_nanos, same_money
from hetplan.verifier.quantities import QUESTIONS, RECOMPUTED, is_known
from hetplan.verifier.report import Violation

__all__ = ["Computed", "check_extrapolation", "check_promises", "not_recomputed", "plan_figures", "worst_of"]

_ARITHMETIC = ("no-queueing", "fluid")
_MODELS = (*_ARITHMETIC, "stationary", "simulation", "measured")
_COUNTED = ("fluid_rate_qps", "quality", "service_ms")
"""What follows from the routing of an application that can be followed, so that no other model has a say in it."""


@dataclass(frozen=True)
class Computed:
    """What was recomputed of an application: quantity -> value; and which tables were read outside their grid."""

    values: Mapping[str, float]
    extrapolated: frozenset[str] = frozenset()


def worst_of(periods: Iterable[Computed]) -> Computed:
    """Of every quantity that is known in all periods, the worst: it holds for the whole."""
    parts = list(periods)
    known = set[str]().union(*(part.values for part in parts)).intersection(*(part.values for part in parts))
    worst = {name: (max if name.endswith("_ms") else min)(part.values[name] for part in parts) for name in known}
    return Computed(worst, frozenset[str]().union(*(part.extrapolated for part in parts)))


def plan_figures(facts: Facts) -> Computed:
    """What was recomputed of the plan as a whole."""
    servers = {period.id: 0 for period in facts.plan.periods}
    for worker in facts.plan.workers:
        servers[worker.period] += machines(worker)
    values = {"servers": float(max(servers.values()))}
    cost = cost_nanos(facts)
    if cost is not None:
        values["cost_per_hour"] = cost / NANO
    return Computed(values)


def _holds(promise: Promise, value: float) -> bool:
    slip = VALUE * max(abs(promise.value), abs(value))
    if promise.relation == "<=":
        return value <= promise.value + slip
    if promise.relation == ">=":
        return value >= promise.value - slip
    return abs(value - promise.value) <= slip


def _recomputed(facts: Facts, promise: Promise, at: str, computed: Computed) -> Iterator[Violation]:
    value = computed.values.get(promise.quantity)
    if value is None:
        if promise.app is not None and promise.quantity in RECOMPUTED:
            yield Violation("promise", at, f"promises {promise.quantity}, and there is nothing to recompute it from")
        return
    held = _holds(promise, value)
    if promise.quantity == "cost_per_hour" and held:
        cost = cost_nanos(facts)
        held = promise.relation != "=" or (cost is not None and same_money(cost, promise.value))
    if not held:
        said = f"{promise.quantity} {promise.relation} {promise.value:.12g}"
        yield Violation("promise", at, f"promises {said}, recomputed it is {value:.12g}")


def _family(promise: Promise) -> str:
    return promise.model.partition("/")[0]


def _model(facts: Facts, promise: Promise) -> Iterator[str]:
    """A model says only what it knows, and shows what it rests on."""
    model, options = _family(promise), facts.plan.method.options
    if model not in _MODELS:
        yield f"unknown model {promise.model}"
    if model in _ARITHMETIC and promise.percentile is not None:
        yield f"a percentile of {promise.quantity} by the model {promise.model}, which knows no queueing"
    if promise.percentile is not None and not promise.quantity.endswith("_ms"):
        yield f"a percentile of {promise.quantity}, which is no time"
    if model == "simulation" and (not promise.seeds or promise.interval is None):
        yield f"{promise.quantity} by simulation, without the seeds and the interval that it rests on"
    if model == "stationary" and facts.plan.question in QUESTIONS - {"policy"}:
        yield f"{promise.quantity} by the stationary model, which is one of policies"
    # Measurements come with the inputs, or are told of in words; a search may also have been handed a way to measure.
    told = facts.plan.inputs.measured or promise.basis or options.get("evaluator") == "evaluate"
    if model == "measured" and not told:
        yield f"{promise.quantity} is said to be measured, and nothing says what was"


def _honest(facts: Facts, promise: Promise, at: str) -> Iterator[Violation]:
    """What a promise may say by its model alone, and against the wish."""
    for text in _model(facts, promise):
        yield Violation("promise-model", at, text)
    of_app, arithmetic = promise.app is not None, _family(promise) in _ARITHMETIC
    question = facts.plan.question
    if question in QUESTIONS and not is_known(question, promise.quantity, of_app=of_app, arithmetic=arithmetic):
        of = f"of {promise.app}" if of_app else "of the plan as a whole"
        text = f"nobody knows {promise.quantity} {of} by the model {promise.model}"
        yield Violation("promise-quantity", at, text)
    if promise.interval is not None:
        low, high = promise.interval
        short = {"<=": high > promise.value, ">=": low < promise.value, "=": not low <= promise.value <= high}
        if low > high or short[promise.relation]:
            text = f"{promise.relation} {promise.value:g} is not what the interval {low:g} .. {high:g} shows"
            yield Violation("promise-interval", at, text)
    targets = facts.inputs.slo.apps[promise.app].latency if promise.app is not None else ()
    for target in targets:
        same = promise.quantity == f"{target.of}_ms" and promise.percentile == target.percentile
        if same and promise.value > target.max_ms:
            text = f"promises {promise.value:g} ms where {target.max_ms:g} ms are wanted"
            yield Violation("promise-target", at, text)


def _twice(facts: Facts) -> Iterator[Violation]:
    """Nothing is promised twice; only what a model of queues expects may stand beside what simulation shows."""
    seen: dict[tuple[object, ...], list[str]] = {}
    for number, promise in enumerate(facts.plan.promises):
        model = _family(promise)
        before = seen.setdefault((promise.app, promise.quantity, promise.percentile), [])
        if before and sorted([*before, model]) != ["simulation", "stationary"]:
            text = f"{promise.quantity} is promised above already, by the model {before[0]}"
            yield Violation("promise-twice", f"promises[{number}]", text)
        before.append(model)


def check_promises(facts: Facts, apps: Mapping[str, Computed], whole: Computed) -> list[Violation]:
    """Every promise; what can be recomputed, against that.

    `apps` holds the applications that could be followed; what keeps the others from it is told elsewhere.
    """
    found = list(_twice(facts))
    for number, promise in enumerate(facts.plan.promises):
        at = f"promises[{number}]"
        found += _honest(facts, promise, at)
        computed = whole if promise.app is None else apps.get(promise.app)
        if computed is None:
            continue
        if _family(promise) not in _ARITHMETIC:
            if promise.quantity in (whole.values if promise.app is None else _COUNTED):
                text = f"{promise.quantity} can be counted, and is said to be by the model {promise.model}"
                found.append(Violation("promise-model", at, text))
            continue
        found += _recomputed(facts, promise, at, computed)
        if computed.extrapolated and promise.extrapolated is not True:
            text = f"rests on extrapolated numbers ({', '.join(sorted(computed.extrapolated))}) and does not say so"
            found.append(Violation("extrapolated", at, text))
    return found


def not_recomputed(facts: Facts, whole: Computed) -> Iterator[str]:
    """Promises that nothing recomputes and no rule forbids: costs without prices, quantities of other packages."""
    for number, promise in enumerate(facts.plan.promises):
        if promise.app is None and promise.quantity == "cost_per_hour" and promise.quantity not in whole.values:
            yield f"promises[{number}]: not every price is known"
        elif facts.plan.question not in QUESTIONS and not any(
            is_known(facts.plan.question, promise.quantity, of_app=of_app, arithmetic=False) for of_app in (True, False)
        ):
            yield f"promises[{number}]: {promise.quantity} is a quantity of the question {facts.plan.question}"


def check_extrapolation(facts: Facts, apps: Mapping[str, Computed]) -> list[Violation]:
    """A number read outside its table's grid is told of."""
    told = {notice.at for notice in facts.plan.warnings if notice.code == "W-extrapolated"}
    used = frozenset[str]().union(*(computed.extrapolated for computed in apps.values()))
    return [
        Violation("extrapolated", f"tables.{name}", f"read outside the grid of {name}, and no warning says so")
        for name in sorted(used)
        if f"tables.{name}" not in told
    ]
