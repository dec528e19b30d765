"""Operators of compound plans: their times, bytes and scores, from the measurements behind the plan.

Where samples took different times, a query is of one of them, drawn alike: all operators then take what they took of
that sample, so that slow ones stay together. Where one call is followed by several, each takes that. Links carry the
mean number of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import ChosenPlanDispatch
from hetplan.profiles.slo import App
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.demand import points_of
from hetplan.serving.fanout import most_calls, visits
from hetplan.serving.system import Service
from hetplan.serving.table_points import answering_statistic
from hetplan.serving.times import law_of_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.profiles.apis import ApiCall
    from hetplan.profiles.pipelines import Pipeline
    from hetplan.profiles.profile import Profile

__all__ = [
    "ALONE", "Operator", "called_by", "calls_made", "growth_of", "input_bytes", "is_operator", "measured_of",
    "operator_at", "operators_of", "quality_at", "samples_of", "several_fail", "slowest_of", "times_of",
]  # fmt: skip

ALONE = (1.0,)
"""Of an operator that serves one query at a time."""
MOST_TOGETHER = 64
"""No more queries than these are served at once."""
FAILURES = 4000
"""Where calls of an API may fail, so many queries at least are drawn from: samples stand for several each."""


@dataclass(frozen=True)
class Operator:
    """One load: milliseconds per sample on its tier and with its share, bytes that it passes on, its accuracy.

    `each_ms` has them sample by sample, where they vary. A batch of n takes `growth[n - 1]` times as long.
    """

    mean_ms: float
    bytes_out: float
    quality: float
    each_ms: tuple[float, ...] = ()
    growth: tuple[float, ...] = ALONE


def samples_of(plan: Plan, inputs: Inputs, app_id: str) -> int:
    """How many samples of an application took different times; 0 where none did, or it runs no operators.

    Where its calls may fail, samples stand for several queries each.
    """
    if not is_operator(plan, app_id):
        return 0
    count = len(measured_of(plan, inputs, app_id).get("runs", {}).get("input_bytes", ()))
    failing = any(inputs.profile.apis[one.api].failures > 0 for one in called_by(plan, inputs, app_id).values())
    if not failing or several_fail(plan, inputs, app_id):
        return count
    return max(count, 1) * -(-FAILURES // max(count, 1))


def several_fail(plan: Plan, inputs: Inputs, app_id: str) -> bool:
    """Whether a query makes several calls side by side that may fail, each by its own luck."""
    pipeline, apis = pipeline_of(inputs.profile, inputs.slo.apps.get(app_id)), inputs.profile.apis
    most = {} if pipeline is None else most_calls(pipeline)
    return any(apis[one.api].failures > 0 and most[name] > 1 for name, one in called_by(plan, inputs, app_id).items())


def called_by(plan: Plan, inputs: Inputs, app_id: str) -> dict[str, ApiCall]:
    """The operators of an application that are calls of an API at the plan's knobs."""
    rule, pipeline = plan.dispatch.get(app_id), pipeline_of(inputs.profile, inputs.slo.apps.get(app_id))
    if pipeline is None or not isinstance(rule, ChosenPlanDispatch):
        return {}
    return calls_made(pipeline, rule.knobs)


def calls_made(pipeline: Pipeline, knobs: Mapping[str, Any]) -> dict[str, ApiCall]:
    """The operators that are calls at these knobs, each with its call: the first that fits."""
    fitting = ((name, [call for call in node.calls if call.made(knobs)]) for name, node in pipeline.nodes.items())
    return {name: calls[0] for name, calls in fitting if calls}


def quality_at(plan: Plan, inputs: Inputs, app_id: str, node: str) -> float:
    """What an operator's answers count: those that all queries begin with carry the accuracy of the whole pipeline.

    A query of which a call is never answered scores the worst that there is.
    """
    app = inputs.slo.apps[app_id]
    pipeline = inputs.profile.pipelines[app.pipeline or ""]
    later = [edge.to for edge in pipeline.edges]
    first = [name for name in pipeline.nodes if name not in later]
    # Every way begins with one of them; where ways meet, the steps' qualities are multiplied, and one has to carry it.
    if node not in (first if len(set(later)) == len(later) else first[:1]):
        return 1.0
    entry = measured_of(plan, inputs, app_id)
    mean, answered, runs = float(entry["mean"]), 1.0, entry.get("runs", {})
    several = visits(pipeline)
    for name, call in called_by(plan, inputs, app_id).items():
        ran = runs.get("rounds", {}).get(name) or [one is not None for one in runs.get("seconds", {}).get(name, [1.0])]
        answered -= several[name] * sum(ran) / len(ran) * inputs.profile.apis[call.api].given_up
    answered = max(0.0, answered)
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    low, high = metric.range if metric is not None else (0.0, 1.0)
    worst = high if metric is not None and metric.better == "lower" else low
    return mean if answered == 1.0 else answered * mean + (1.0 - answered) * worst


def is_operator(plan: Plan, app_id: str | None) -> bool:
    """Whether an application runs by a plan that a search found: its loads are operators, not variants."""
    rule = plan.dispatch.get(app_id or "")
    return isinstance(rule, ChosenPlanDispatch) and rule.candidate is None


def operators_of(plan: Plan, inputs: Inputs) -> dict[str, Operator]:
    """By load: seconds on the reference x relative time of the tier, over the share of the GPU (batched ones without).

    The measured accuracy is that of the whole pipeline (`quality_at`).
    """
    return {
        load.id: operator_at(plan, inputs, (load.app, load.node), load, worker)
        for worker in plan.workers
        for load in worker.loads
        if load.app is not None and load.node is not None and is_operator(plan, load.app)
    }


def operator_at(plan: Plan, inputs: Inputs, seat: tuple[str, str], load: Load, worker: Worker) -> Operator:
    """An application's operator, as it runs at a load."""
    app_id, node = seat
    app, entry, hardware = inputs.slo.apps[app_id], measured_of(plan, inputs, app_id), worker.hardware
    pipeline = inputs.profile.pipelines[app.pipeline or ""]
    tier, stated = inputs.profile.hardware[hardware].tier, inputs.profile.hardware[hardware].relative_time
    slow = 1000.0 * _relative_time(inputs, app, tier, stated)
    if pipeline.nodes[node].share_law == "flops" and load.share is not None and load.share.gpu:
        slow /= load.share.gpu
    return Operator(
        mean_ms=entry["seconds"][node] * slow,
        bytes_out=float(entry["bytes"][node]),
        quality=quality_at(plan, inputs, app_id, node),
        each_ms=tuple(slow * (s or 0.0) for s in entry.get("runs", {}).get("seconds", {}).get(node, ())),
        growth=growth_of(inputs.profile, pipeline, node),
    )


def growth_of(profile: Profile, pipeline: Pipeline, node: str) -> tuple[float, ...]:
    """How many times as long as one query batches of 1, 2, ... take at an operator."""
    name = pipeline.nodes[node].batches
    if name is None:
        return ALONE
    law, most = law_of_table(profile.tables[name]), int(profile.tables[name].axes["batch"][-1])
    stat = answering_statistic(law.statistics, "mean")
    times = [law.ms({}, size, stat) for size in range(1, min(most, MOST_TOGETHER) + 1)]
    return tuple(time / times[0] for time in times)


def slowest_of(each: NDArray[np.float64], weight: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Mean and mean square (rows) of the longest of 1, 2, ... draws (columns) from these times.

    >>> slowest_of(np.array([2.0, 4.0]), np.ones(2), 2).tolist()
    [[3.0, 3.5], [10.0, 13.0]]
    """
    order = np.argsort(each)
    below = np.cumsum(weight[order]) / weight.sum()
    part = np.diff(below[:, None] ** np.arange(1, most + 1), axis=0, prepend=0.0)
    return np.asarray(np.stack([each[order], each[order] ** 2]) @ part)


def times_of(plan: Plan, inputs: Inputs, app_id: str, operator: Operator, *, max_batch: int = 1) -> Service:
    """How long an operator takes of batches of each class of an application's queries: the slowest member's time."""
    each = np.resize(operator.each_ms or operator.mean_ms, (samples_of(plan, inputs, app_id), 1))
    classes = len(points_of(inputs.slo.apps[app_id].mix))
    return Service((each if each.size else np.full((classes, 1), operator.mean_ms)) * operator.growth[:max_batch])


def input_bytes(plan: Plan, inputs: Inputs, app_id: str) -> float:
    """Bytes of a sample of an application, as measured."""
    return float(measured_of(plan, inputs, app_id).get("input_bytes", 0.0)) if is_operator(plan, app_id) else 0.0


def _relative_time(inputs: Inputs, app: App, tier: str | None, stated: float | None) -> float:
    """Of the tier's hardware; on the first tier, of the application's own device."""
    if app.device is not None and app.device.relative_time is not None and tier == inputs.profile.tiers[0]:
        return app.device.relative_time
    return stated or 1.0


def measured_of(plan: Plan, inputs: Inputs, app_id: str) -> Mapping[str, Any]:
    """What was measured of the knobs that an application runs with."""
    knobs = dict(getattr(plan.dispatch.get(app_id), "knobs", {}))
    if inputs.measured is None:
        raise InputError.one(
            file="measured", why=f"the times of {app_id}'s operators are in its measurements",
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
