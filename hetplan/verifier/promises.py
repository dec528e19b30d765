"""Promises: recomputed where arithmetic can, and none that says more than its model knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from hetplan.planner.plan import Promise
from hetplan.planner.tolerances import VALUE
from hetplan.profiles.fields import NANO
from hetplan.verifier.facts import Facts, machines
from hetplan.verifier.money import cost_nanos, same_money
from hetplan.verifier.report import Violation

__all__ = ["Computed", "check_extrapolation", "check_promises", "plan_figures"]

_ARITHMETIC = ("no-queueing", "fluid")
_MODELS = (*_ARITHMETIC, "stationary", "simulation", "measured")


@dataclass(frozen=True)
class Computed:
    """What was recomputed of an application: quantity -> value; and which tables were read outside their grid."""

    values: Mapping[str, float]
    extrapolated: frozenset[str] = frozenset()

    def and_in(self, values: Mapping[str, float], extrapolated: Set[str]) -> Computed:
        """Another period beside: of every quantity the worse holds for the whole."""
        worse = {
            name: value if name not in self.values else (max if name.endswith("_ms") else min)(value, self.values[name])
            for name, value in values.items()
        }
        return Computed(worse, self.extrapolated | extrapolated)


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
        return
    held = _holds(promise, value)
    if promise.quantity == "cost_per_hour" and held:
        cost = cost_nanos(facts)
        held = promise.relation != "=" or (cost is not None and same_money(cost, promise.value))
    if not held:
        said = f"{promise.quantity} {promise.relation} {promise.value:.12g}"
        yield Violation("promise", at, f"promises {said}, recomputed it is {value:.12g}")


def _honest(facts: Facts, promise: Promise, at: str) -> Iterator[Violation]:
    """What a promise may say by its model alone, and against the wish."""
    model = promise.model.partition("/")[0]
    if model not in _MODELS:
        yield Violation("promise-model", at, f"unknown model {promise.model}")
    if model in _ARITHMETIC and promise.percentile is not None:
        text = f"a percentile of {promise.quantity} by the model {promise.model}, which knows no queueing"
        yield Violation("promise-model", at, text)
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


def check_promises(facts: Facts, apps: Mapping[str, Computed], whole: Computed) -> list[Violation]:
    """Every promise; those of arithmetic models against what was recomputed."""
    found: list[Violation] = []
    for number, promise in enumerate(facts.plan.promises):
        at = f"promises[{number}]"
        found += _honest(facts, promise, at)
        computed = whole if promise.app is None else apps.get(promise.app, Computed({}))
        if promise.model in _ARITHMETIC:
            found += _recomputed(facts, promise, at, computed)
        if computed.extrapolated and promise.extrapolated is not True and promise.model in _ARITHMETIC:
            text = f"rests on extrapolated numbers ({', '.join(sorted(computed.extrapolated))}) and does not say so"
            found.append(Violation("extrapolated", at, text))
    return found


def check_extrapolation(facts: Facts, apps: Mapping[str, Computed]) -> list[Violation]:
    """A number read outside its table's grid is told of."""
    told = {notice.at for notice in facts.plan.warnings if notice.code == "W-extrapolated"}
    used = frozenset[str]().union(*(computed.extrapolated for computed in apps.values()))
    return [
        Violation("extrapolated", f"tables.{name}", f"read outside the grid of {name}, and no warning says so")
        for name in sorted(used)
        if f"tables.{name}" not in told
    ]
