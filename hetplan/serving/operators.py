"""Operators of compound plans: what they take, pass on and score, from the measurements that a plan was made from.

Where samples took different times, a query is of one of them, drawn alike: all operators then take what they took of
that sample, so that slow ones stay together. Links carry the mean number of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_further import ChosenPlanDispatch
from hetplan.profiles.slo import App

__all__ = ["Operator", "input_bytes", "is_operator", "operators_of", "samples_of"]


@dataclass(frozen=True)
class Operator:
    """One load: milliseconds per sample on its tier and with its share, bytes that it passes on, its accuracy.

    `each_ms` has them sample by sample, where they vary.
    """

    mean_ms: float
    bytes_out: float
    quality: float
    each_ms: tuple[float, ...] = ()


def samples_of(plan: Plan, inputs: Inputs, app_id: str) -> int:
    """How many samples of an application took different times; 0 where none did, or it runs no operators."""
    if not is_operator(plan, app_id):
        return 0
    return len(_measured(plan, inputs, app_id).get("runs", {}).get("input_bytes", ()))


def is_operator(plan: Plan, app_id: str | None) -> bool:
    """Whether an application runs by a plan that a search found: its loads are operators, not variants."""
    rule = plan.dispatch.get(app_id or "")
    return isinstance(rule, ChosenPlanDispatch) and rule.candidate is None


def operators_of(plan: Plan, inputs: Inputs) -> dict[str, Operator]:
    """By load: seconds on the reference x relative time of the tier, over the share of the GPU (batched ones without).

    The measured accuracy is that of the whole pipeline; the first of its last operators carries it.
    """
    found: dict[str, Operator] = {}
    for worker in plan.workers:
        hardware = inputs.profile.hardware[worker.hardware]
        for load in worker.loads:
            if load.app is None or load.node is None or not is_operator(plan, load.app):
                continue
            app, entry = inputs.slo.apps[load.app], _measured(plan, inputs, load.app)
            pipeline = inputs.profile.pipelines[(app.runs.pipeline if app.runs is not None else None) or ""]
            slow = 1000.0 * _relative_time(inputs, app, hardware.tier, hardware.relative_time)
            if pipeline.nodes[load.node].share_law == "flops" and load.share is not None and load.share.gpu:
                slow /= load.share.gpu
            inner = {edge.from_ for edge in pipeline.edges}
            last = next(node for node in pipeline.nodes if node not in inner)
            found[load.id] = Operator(
                mean_ms=entry["seconds"][load.node] * slow,
                bytes_out=float(entry["bytes"][load.node]),
                quality=float(entry["mean"]) if load.node == last else 1.0,
                each_ms=tuple(slow * s for s in entry.get("runs", {}).get("seconds", {}).get(load.node, ())),
            )
    return found


def input_bytes(plan: Plan, inputs: Inputs, app_id: str) -> float:
    """Bytes of a sample of an application, as measured."""
    return float(_measured(plan, inputs, app_id).get("input_bytes", 0.0)) if is_operator(plan, app_id) else 0.0


def _relative_time(inputs: Inputs, app: App, tier: str | None, stated: float | None) -> float:
    """Of the tier's hardware; on the first tier, of the application's own device."""
    if app.device is not None and app.device.relative_time is not None and tier == inputs.profile.tiers[0]:
        return app.device.relative_time
    return stated or 1.0


def _measured(plan: Plan, inputs: Inputs, app_id: str) -> Mapping[str, Any]:
    """What was measured of the knobs that an application runs with."""
    knobs = dict(getattr(plan.dispatch.get(app_id), "knobs", {}))
    if inputs.measured is None:
        raise InputError.one(
            file="--measured", why=f"the times of {app_id}'s operators are in its measurements",
            remedy="Give the journal, or the document, that the plan was made from.",
        )  # fmt: skip
    plans = inputs.measured.get("apps", {}).get(app_id, ())
    entry = next((one for one in plans if one.get("knobs") == knobs and "seconds" in one), None)
    if entry is None:
        raise InputError.one(
            file=inputs.files.get("measured", "measured"), path=f"$.apps.{app_id}", value=str(knobs),
            why="these knobs are in no measurement", remedy="Give the measurements that the plan was made from.",
        )  # fmt: skip
    found: Mapping[str, Any] = entry
    return found
