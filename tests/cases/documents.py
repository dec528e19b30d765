"""Building blocks of hand-written plans and their inputs, as plain data; and a way to spoil them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State

Json = dict[str, Any]
DROP = object()
"""Put in place of a value to remove its key or list entry."""


def latency(axes: Json, mean: Any, **more: Any) -> Json:
    return {"quantity": "latency_ms", "axes": axes, "mean": mean, **more}


def load(id: str, app: str | None, variant: str | None, **more: Any) -> Json:
    return {"id": id, "app": app, "variant": variant, **more}


def worker(id: str, hardware: str, offer: str | None, count: int, *loads: Json, **more: Any) -> Json:
    return {"id": id, "hardware": hardware, "offer": offer, "count": count, "loads": list(loads), **more}


def promise(quantity: str, relation: str, value: float, model: str, app: str | None = None, **more: Any) -> Json:
    return {"quantity": quantity, "relation": relation, "value": value, "model": model, "app": app, **more}


def documents(profile: Json, slo: Json, plan: Json, state: Json | None = None) -> Json:
    rules = sorted({dispatch["rule"] for dispatch in plan.get("dispatch", {}).values()})
    hashes = {"profile": "sha256:01", "slo": "sha256:02"} | ({"state": "sha256:03"} if state is not None else {})
    return {
        "digests": dict(hashes),
        "profile": {"format": "hetplan/profile/1.0", **profile},
        "slo": {"format": "hetplan/slo/1.0", **slo},
        "state": state,
        "plan": {
            "format": "hetplan/plan/1.0",
            "requires": rules,
            "status": "heuristic",
            "inputs": hashes,
            **plan,
        },
    }


def spoil(case: Json, edits: Mapping[str, Any]) -> Json:
    """A copy with values replaced: ``{"plan/workers/0/count": 2}``. A function gets the old value; DROP removes it."""
    spoilt = copy.deepcopy(case)
    for path, new in edits.items():
        *way, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split("/")]
        place: Any = spoilt
        for step in way:
            place = place[step]
        if new is DROP:
            del place[last]
        else:
            if isinstance(place, list) and last == len(place):
                place.append(None)
            place[last] = new(place[last]) if callable(new) else copy.deepcopy(new)
    return spoilt


def read(case: Json) -> tuple[Plan, Inputs]:
    """The documents as the verifier takes them."""
    state = State.model_validate(case["state"]) if case["state"] is not None else None
    inputs = Inputs(
        Profile.model_validate(case["profile"]),
        Slo.model_validate(case["slo"]),
        state,
        case.get("measured"),
        digests=case["digests"],
        trace_digests=case.get("traces", {}),
    )
    plan = case["plan"]
    return Plan.model_validate(plan if plan.get("valid") else {**plan, "valid": _as_promised(plan)}), inputs


def _as_promised(plan: Json) -> Json:
    """Up to which rates a plan holds that says nothing of it: as it promises."""
    rates: dict[str, Any] = {}
    for one in plan.get("promises", ()):
        if one["quantity"] == "rate_qps" and one["relation"] != "<=" and one.get("app"):
            rates.setdefault(one["app"], (0, max(one["value"], 0)))
    return {"rate_qps": rates}
