"""What the files say about APIs: their places, the operators that call them, their limits and their bill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.planner.forms.black_box import Placed
from hetplan.planner.forms.calls import Call, Calls
from hetplan.planner.request import Application
from hetplan.problems.compound.wish import Tier
from hetplan.problems.faults import Faults
from hetplan.profiles.apis import Api
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.serving.operators import calls_made

__all__ = ["api_limits", "api_places", "calls_of", "check_calls", "per_query", "taken", "with_apis"]

HOUR_S = 3600.0


def api_places(pipeline: Pipeline) -> tuple[Tier, ...]:
    """The APIs that a pipeline calls, as places beside the tiers: nobody's machines are used there."""
    names = dict.fromkeys(call.api for node in pipeline.nodes.values() for call in node.calls)
    return tuple(
        Tier(name=name, hardware="", relative_time=1.0, machines=math.inf, room={}, own=True) for name in names
    )


def check_calls(inputs: Inputs, app: Application, pipeline_id: str, faults: Faults) -> None:
    """Whether what is called can be paid for, and reached."""
    profile, pipeline = inputs.profile, inputs.profile.pipelines[pipeline_id]
    apis = [tier.name for tier in api_places(pipeline)]
    if not apis:
        return
    if app.rate_qps is None:
        why = f"{app.id} calls {apis[0]}, and an hour of calls costs what so many queries cost"
        faults.in_slo(f"$.apps.{app.id}.rate_qps", why, "Write how many queries per second come in all.")
    if not profile.offers:
        faults.in_profile(
            "$.offers", "calls are paid for in money, machines without offers count 1 each", "Add offers."
        )
    for name in apis:
        odd = [o for o, offer in profile.offers.items() if offer.currency != profile.apis[name].currency]
        if odd:
            why = f"offer {odd[0]} is in {profile.offers[odd[0]].currency}"
            at = f"$.apis.{name}.currency"
            faults.in_profile(at, why, "Use one currency.", value=profile.apis[name].currency)
    for name, node in pipeline.nodes.items():
        for number, call in enumerate(node.calls):
            for knob in call.where:
                if knob not in node.reads:
                    at = f"$.pipelines.{pipeline_id}.nodes.{name}.calls[{number}].where.{knob}"
                    faults.in_profile(at, f"{name} does not read {knob}", f'Add it to "reads" of {name}.')


def with_apis(placed: Placed, tiers: tuple[Tier, ...], apis: tuple[Tier, ...], inputs: Inputs) -> Placed:
    """Where operators may run, APIs among it: an API is at its tier, and takes what was measured."""
    if not apis:
        return placed
    names = [tier.name for tier in tiers]
    at = np.array([*range(len(tiers)), *(names.index(inputs.profile.apis[api.name].tier) for api in apis)])
    return replace(
        placed,
        relative_time=np.concatenate([placed.relative_time, np.ones(len(apis))]),
        price=np.concatenate([placed.price, np.zeros(len(apis))]),
        second_per_byte=placed.second_per_byte[np.ix_(at, at)],
        crossing_s=placed.crossing_s[np.ix_(at, at)],
    )


def calls_of(inputs: Inputs, app: Application, pipeline: Pipeline, order: tuple[str, ...], first: int) -> Calls | None:
    """The calls as the search knows them; APIs are the places from `first` on. Costs are those of one stream."""
    places = [tier.name for tier in api_places(pipeline)]
    knobs = list(pipeline.levels)
    queries = HOUR_S * (app.rate_qps or 0.0) / (app.streams or 1)
    made = []
    for number, name in enumerate(order):
        for call in pipeline.nodes[name].calls:
            api = inputs.profile.apis[call.api]
            where = tuple(
                (knobs.index(knob), frozenset(k for k, level in enumerate(pipeline.levels[knob]) if level in levels))
                for knob, levels in call.where.items()
            )
            made.append(
                Call(
                    number, first + places.index(call.api), where, per_hour=queries * api.price_of(call.tokens),
                    failures=api.failures, retries=api.retries, retry_s=api.retry_ms / 1000.0,
                    gap_s=0.0 if app.streams else api.gap_s(call.tokens),
                )
            )  # fmt: skip
    return Calls(tuple(made), first) if made else None


def api_limits(inputs: Inputs) -> dict[str, float]:
    """What APIs take at most, by the name of the field."""
    found = {}
    for name, api in inputs.profile.apis.items():
        for field in ("calls_per_s", "tokens_per_s"):
            if (most := getattr(api, field)) is not None:
                found[f"profile.apis.{name}.{field}"] = float(most)
    return found


def taken(
    apis: Mapping[str, Api], app: Application, pipeline: Pipeline, knobs: Mapping[str, Any], often: Mapping[str, float]
) -> dict[str, float]:
    """What an application takes of these limits: calls with those made again, tokens of those answered."""
    found: dict[str, float] = {}
    for name, call in calls_made(pipeline, knobs).items():
        rate = (app.rate_qps or 0.0) * often[name]
        api = apis[call.api]
        amounts = {"calls_per_s": rate * api.tried, "tokens_per_s": rate * (call.tokens.in_ + call.tokens.out)}
        for field, amount in amounts.items():
            key = f"profile.apis.{call.api}.{field}"
            if getattr(api, field) is not None:
                found[key] = found.get(key, 0.0) + amount
    return found


def per_query(
    apis: Mapping[str, Api], pipeline: Pipeline, knobs: Mapping[str, Any], often: Mapping[str, float]
) -> float:
    """What the calls of one query cost on average, all of them answered."""
    made = calls_made(pipeline, knobs).items()
    return math.fsum(often[name] * apis[call.api].price_of(call.tokens) for name, call in made)
