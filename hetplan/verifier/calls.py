"""Calls of APIs in a compound plan, seen again: which operators are calls, their bill, their limits, their failures.

An operator is a call where its knobs are at levels that one of its `calls` names (the first that does); it is placed on
that API and on no machine. A call costs what its API asks per call and per token, each query makes each of its calls
once (or as often as was measured, and as edges with `fanout` say), and only calls that are answered are paid for. A
call that fails is made again, up to `retries` times: so calls count for sum f^k, k = 0 .. retries, against
`calls_per_s`, and a query of which one is never answered is late, and scores the worst of the metric's range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import product
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.profiles.apis import ApiCall
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import ChosenPlanDispatch
from hetplan.verifier.fanout import any_fans, largest_of, numbers_of_calls, times_called
from hetplan.verifier.report import Violation

__all__ = [
    "accuracy_in_service",
    "call_outcomes",
    "calls_at",
    "check_bill",
    "hourly_nanos",
    "placement_fault",
    "runs_per_query",
]

MILLION = 1_000_000


def calls_at(pipeline: Pipeline, knobs: Mapping[str, Any]) -> dict[str, ApiCall]:
    """The operators that are calls at these knobs."""
    found: dict[str, ApiCall] = {}
    for name, node in pipeline.nodes.items():
        fitting = [call for call in node.calls if all(knobs.get(k) in levels for k, levels in call.where.items())]
        if fitting:
            found[name] = fitting[0]
    return found


def placement_fault(pipeline: Pipeline, rule: ChosenPlanDispatch, node: str, *, loads: int) -> str:
    """What is wrong with an operator's place, where it or its place is an API; "" where nothing is."""
    apis = {call.api for one in pipeline.nodes.values() for call in one.calls}
    call, place = calls_at(pipeline, rule.knobs).get(node), rule.placement.get(node)
    if call is None:
        return f"{node} is placed on {place}, and is no call at these knobs" if place in apis else ""
    if place != call.api:
        return f"{node} is a call of {call.api} at these knobs, and is placed on {place}"
    if loads or node in rule.share:
        return f"{node} is a call of {call.api}, and is on machines as well"
    return ""


def _chosen_plans(plan: Plan, inputs: Inputs) -> Iterator[tuple[str, Pipeline, ChosenPlanDispatch, float]]:
    """Every application by a found plan: its pipeline, its choice, its queries per second."""
    for name, rule in plan.dispatch.items():
        app = inputs.slo.apps.get(name)
        if not isinstance(rule, ChosenPlanDispatch) or rule.candidate is not None or app is None:
            continue
        pipeline, rate = inputs.profile.pipelines.get(app.pipeline or ""), app.stated_qps
        if pipeline is not None:
            yield name, pipeline, rule, rate or 0.0


def runs_per_query(inputs: Inputs, app: str, pipeline: Pipeline, knobs: Mapping[str, Any]) -> dict[str, float]:
    """How often each operator runs for a query: once, where its measurements do not say otherwise.

    Without measurements nothing is known of what answers decide, and all count as run by all.
    """
    whole = {name: times_called(pipeline, name) for name in pipeline.nodes}
    if inputs.measured is None:
        return whole
    entries = inputs.measured.get("apps", {}).get(app, ())
    runs = next((one.get("runs") for one in entries if one.get("knobs") == dict(knobs)), None) or {}
    for name, each in runs.get("seconds", {}).items():
        whole[name] = times_called(pipeline, name) * sum(one is not None for one in each) / max(1, len(each))
    for name, each in runs.get("rounds", {}).items():
        whole[name] = times_called(pipeline, name) * sum(each) / max(1, len(each))
    return whole


def _query_nanos(inputs: Inputs, app: str, pipeline: Pipeline, rule: ChosenPlanDispatch) -> Decimal:
    """What the calls of one query cost, on average."""
    total, share = Decimal(0), runs_per_query(inputs, app, pipeline, rule.knobs)
    for name, call in calls_at(pipeline, rule.knobs).items():
        api = inputs.profile.apis[call.api]
        read, written = Decimal(repr(call.tokens.in_)), Decimal(repr(call.tokens.out))
        by_token = (api.price_per_million_in * read + api.price_per_million_out * written) / MILLION
        total += Decimal(repr(share[name])) * (api.price_per_call + by_token)
    return total


def hourly_nanos(plan: Plan, inputs: Inputs) -> int:
    """What an hour of all calls costs."""
    total = Decimal(0)
    for name, pipeline, rule, rate in _chosen_plans(plan, inputs):
        total += 3600 * Decimal(repr(rate)) * _query_nanos(inputs, name, pipeline, rule)
    return int(total.to_integral_value(ROUND_HALF_EVEN))


def check_bill(plan: Plan, inputs: Inputs, *, cost_nanos: int | None) -> Iterator[Violation]:
    """What calls cost per query, and what they take of the limits of their APIs."""
    wanted: dict[tuple[str | None, str], float] = {}
    taken: dict[tuple[str, str], float] = defaultdict(float)
    rates = [rate for name in plan.dispatch if (rate := inputs.slo.apps[name].stated_qps) is not None]
    for name, pipeline, rule, rate in _chosen_plans(plan, inputs):
        if (cost := _query_nanos(inputs, name, pipeline, rule)) > 0:
            wanted[name, "calls_per_query"] = float(cost) / NANO
        share = runs_per_query(inputs, name, pipeline, rule.knobs)
        for node, call in calls_at(pipeline, rule.knobs).items():
            api, made = inputs.profile.apis[call.api], rate * share[node]
            taken[call.api, "calls_per_s"] += made * sum(api.failures**k for k in range(api.retries + 1))
            taken[call.api, "tokens_per_s"] += made * (call.tokens.in_ + call.tokens.out)
    if wanted and sum(rates) > 0 and cost_nanos is not None:
        wanted[None, "cost_per_query"] = cost_nanos / NANO / (3600.0 * sum(rates))
    said = {(one.app, one.quantity): one.value for one in plan.promises if one.quantity.endswith("_per_query")}
    for (app, quantity), value in wanted.items():
        found = said.pop((app, quantity), None)
        if found is None or abs(found - value) > VALUE * value:
            text = f"{quantity}{f' of {app}' if app else ''} is {value:.9g}, promised is {found}"
            yield Violation("calls-bill", "promises", text)
    for app, quantity in said:
        text = f"{quantity} of {app or 'the plan'} is promised, and nothing is called"
        yield Violation("calls-bill", "promises", text)
    for (name, field), amount in sorted(taken.items()):
        most = getattr(inputs.profile.apis[name], field)
        if most is not None and amount > most * (1.0 + FEASIBILITY):
            yield Violation("api-limit", f"apis.{name}.{field}", f"{amount:.9g} are made, {name} takes {most:g}")


def _failures(
    inputs: Inputs, pipeline: Pipeline, knobs: Mapping[str, Any], rounds: Mapping[str, int]
) -> list[tuple[dict[str, float], float]]:
    """How the calls of a query of so many rounds may fail: milliseconds more by operator, and how likely that is."""
    cases: list[tuple[dict[str, float], float]] = [({}, 1.0)]
    for name, call in calls_at(pipeline, knobs).items():
        api = inputs.profile.apis[call.api]
        for _ in range(rounds.get(name, 1) if api.failures > 0 else 0):
            joined: dict[tuple[tuple[str, float], ...], float] = defaultdict(float)
            for (more, likely), k in product(cases, range(api.retries + 1)):
                longer = {**more, name: more.get(name, 0.0) + k * api.retry_ms}
                joined[tuple(sorted(longer.items()))] += likely * api.failures**k * (1.0 - api.failures)
            cases = [(dict(more), likely) for more, likely in joined.items()]
    return cases


def call_outcomes(
    inputs: Inputs, pipeline: Pipeline, knobs: Mapping[str, Any], rounds: Mapping[str, int]
) -> list[tuple[dict[str, float], frozenset[str], float]]:
    """What may come of a query: milliseconds more by operator, the operators that are not called, how likely it is.

    Where a query makes several calls of an operator, the one that takes longest counts.
    """
    if not any_fans(pipeline):
        return [(more, frozenset(), likely) for more, likely in _failures(inputs, pipeline, knobs, rounds)]
    of_one: dict[str, dict[float, float]] = {}
    for name in calls_at(pipeline, knobs):
        law: dict[float, float] = defaultdict(float)
        alone = {**dict.fromkeys(pipeline.nodes, 0), name: rounds.get(name, 1)}
        for more, likely in _failures(inputs, pipeline, knobs, alone):
            law[more.get(name, 0.0)] += likely
        of_one[name] = law
    found: dict[tuple[tuple[tuple[str, float], ...], frozenset[str]], float] = defaultdict(float)
    for calls, chance in numbers_of_calls(pipeline):
        cases: list[tuple[tuple[tuple[str, float], ...], float]] = [((), chance)]
        for name, law in of_one.items():
            slowest = largest_of(law, calls[name]).items()
            cases = [((*longer, (name, ms)), odds * likely) for longer, odds in cases for ms, likely in slowest]
        for longer, likely in cases:
            found[longer, frozenset(name for name, count in calls.items() if count == 0)] += likely
    return [(dict(longer), left, likely) for (longer, left), likely in found.items()]


def accuracy_in_service(
    inputs: Inputs, app: str, pipeline: Pipeline, knobs: Mapping[str, Any], accuracy: float
) -> float:
    """A measured accuracy with the queries of which a call is never answered, as many as there may be."""
    lost, share = 0.0, runs_per_query(inputs, app, pipeline, knobs)
    for name, call in calls_at(pipeline, knobs).items():
        api = inputs.profile.apis[call.api]
        lost += share[name] * api.failures ** (api.retries + 1)
    answered = max(0.0, 1.0 - lost)
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    low, high = metric.range if metric is not None else (0.0, 1.0)
    worst = high if metric is not None and metric.better == "lower" else low
    return answered * accuracy + (1.0 - answered) * worst
