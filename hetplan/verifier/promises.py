"""Promises: recomputed where arithmetic can, and none that says more than its model knows.

Which quantities promises and claims may be about is listed here: whose they are, which way is better, who recomputes
them. One that is not listed for a question of hetplan's own is one that nobody knows, and a promise of it is worth
nothing. What questions of other packages promise beyond this list is left to their own checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Promise
from hetplan.verifier.facts import Facts, machines
from hetplan.verifier.money import cost_nanos, same_money
from hetplan.verifier.report import Violation

__all__ = [
    "QUESTIONS",
    "RECOMPUTED",
    "Computed",
    "check_extrapolation",
    "check_promises",
    "is_claimable",
    "is_known",
    "not_recomputed",
    "plain_name",
    "plan_figures",
    "sense_of",
    "worst_of",
]


# Quantities


QUESTIONS = frozenset({"pool", "pipeline", "variants", "policy", "compound", "llm"})
"""Questions of which every quantity is listed here."""

RECOMPUTED = frozenset({"rate_qps", "fluid_rate_qps", "quality", "response_ms", "service_ms"})
"""What following the routing of an application gives."""

_OF_PLAN = frozenset({"servers", "cost_per_hour"})
_OWN_OF_PLAN = {
    "pipeline": frozenset({"moves"}),
    "variants": frozenset({"gross_cost_per_hour", "net_cost_per_hour"}),
    "compound": frozenset({"goodput", "served", "candidates_per_hour", "cost_per_query"}),
}
_OWN_OF_APP = {"compound": frozenset({"rounds_unserved", "calls_per_query"})}
_OF_TEXT = frozenset({"ttft_ms", "tpot_ms"})
_SHOWN_ONLY = frozenset({"goodput", "violations", "utilisation", "served"})
"""What simulation, measurement or a model of queues says of an application, and arithmetic does not."""

_SENSE = {
    **dict.fromkeys(("cost_per_hour", "gross_cost_per_hour", "candidates_per_hour", "packed_per_hour"), "min"),
    **dict.fromkeys(("servers", "moves"), "min"),
    **dict.fromkeys(("rate_qps", "fluid_rate_qps", "served_share", "goodput", "aged_goodput"), "max"),
    **dict.fromkeys(("quality", "least_quality", "quality_per_step", "accuracy_per_decision"), "max"),
}
_CLAIMED_ONLY = {
    "pipeline": frozenset({"least_quality", "quality_per_step", "served_share"}),
    "compound": frozenset({"aged_goodput", "packed_per_hour", "quality_short", "mean_latency_ms"}),
    "policy": frozenset({"accuracy_per_decision", "goodput", "quality"}),
}
_OF_DECISIONS = re.compile(r"accuracy_of_[0-9]+_decisions\Z")


def is_known(question: str, quantity: str, *, of_app: bool, arithmetic: bool) -> bool:
    """Whether a plan of this question may promise a quantity of an application, or of itself, by such a model."""
    if not of_app:
        return quantity in _OF_PLAN | _OWN_OF_PLAN.get(question, frozenset())
    shown = frozenset[str]() if arithmetic else _SHOWN_ONLY | (_OF_TEXT if question in ("llm", "pool") else frozenset())
    return quantity in RECOMPUTED | _OWN_OF_APP.get(question, frozenset()) | shown


def plain_name(about: str) -> str:
    """What a claim is about, without the part of the plan that it is of: ``goodput[group@400qps]``.

    >>> plain_name("goodput[images on a100@400qps]")
    'goodput'
    """
    return about.partition("[")[0]


def is_claimable(question: str, about: str) -> bool:
    """Whether a claim of this question may be about what the plan does not promise: the value of a program, say."""
    name = plain_name(about)
    own = name in _CLAIMED_ONLY.get(question, ())
    return own or (question == "policy" and _OF_DECISIONS.match(name) is not None)


def sense_of(about: str) -> str | None:
    """Which way is better, where that is known."""
    return _SENSE.get(plain_name(about))


# Promises


ROUNDED = 1e-11
_ARITHMETIC = ("no-queueing", "fluid")
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


def _honest(facts: Facts, promise: Promise, at: str) -> Iterator[Violation]:
    """What a promise may say by its model alone, and against the wish."""
    if promise.percentile is not None or _family(promise) not in _ARITHMETIC:
        from hetplan.verifier.promise_models import model_faults

        yield from (Violation("promise-model", at, text) for text in model_faults(facts, promise, QUESTIONS))
    of_app, arithmetic = promise.app is not None, _family(promise) in _ARITHMETIC
    question = facts.plan.question
    if question in QUESTIONS and not is_known(question, promise.quantity, of_app=of_app, arithmetic=arithmetic):
        of = f"of {promise.app}" if of_app else "of the plan as a whole"
        text = f"there is no quantity {promise.quantity} {of} by the model {promise.model}"
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
        # A plan file has 12 digits of a number: the limit itself may come out a little above.
        if same and promise.value > target.max_ms * (1.0 + ROUNDED):
            text = f"promises {promise.value:g} ms where {target.max_ms:g} ms are wanted"
            yield Violation("promise-target", at, text)


def _twice(facts: Facts) -> Iterator[Violation]:
    """Nothing is promised twice; only what a model of queues expects may be beside what simulation shows."""
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

    `apps` holds the applications that could be followed; what keeps the others from it is reported elsewhere.
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
    """A number read outside its table's grid has a warning."""
    warned = {notice.at for notice in facts.plan.warnings if notice.code == "W-extrapolated"}
    used = frozenset[str]().union(*(computed.extrapolated for computed in apps.values()))
    return [
        Violation("extrapolated", f"tables.{name}", f"read outside the grid of {name}, and no warning says so")
        for name in sorted(used)
        if f"tables.{name}" not in warned
    ]
