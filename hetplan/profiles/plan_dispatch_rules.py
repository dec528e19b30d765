"""The dispatch sections that few plans have: rules that pools name, rules of text, pipelines, compound plans, policies.

For pipelines: how queries go from step to step, and what becomes of late ones. For compound applications: which of its
plans an application got, and where its operators run. The tables of policies are in `plan_policy.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hetplan.profiles.fields import Count, Fraction, Id, Inside, Key, Model, NonNegative, Positive, Real, Xi

__all__ = [
    "BackupEntry",
    "ChosenPlanDispatch",
    "EarliestDispatch",
    "Estimate",
    "FcfsDispatch",
    "Further",
    "LeastWorkDispatch",
    "MostAccurateFirstDispatch",
    "PathSharesDispatch",
    "QueueSlackDispatch",
    "RoundRobinDispatch",
    "ThresholdDispatch",
    "WeightedLeastDispatch",
]


class FcfsDispatch(Model):
    """The oldest waiting query goes to a free instance, those of the first preferred hardware first (Ribbon)."""

    rule: Literal["fcfs/1"] = "fcfs/1"
    late: str | None = None
    prefer: tuple[Id, ...] = ()


class ThresholdDispatch(Model):
    """Queries above the threshold queue for the base hardware, the others for the rest (DeepRecSys)."""

    rule: Literal["threshold/1"] = "threshold/1"
    late: str | None = None
    threshold: NonNegative
    base: Id


class EarliestDispatch(Model):
    """On arrival a query queues where it is predicted to be done first (Clockwork)."""

    rule: Literal["earliest/1"] = "earliest/1"
    late: str | None = None
    slo_ms: Positive
    xi: Xi = 0.98
    predict: dict[str, Id] = Field(default_factory=dict, description='"variant@hardware" -> table')


class LeastWorkDispatch(Model):
    """A request for text goes to the instance with the least work outstanding, by the law of its engine.

    Only loads are asked whose emptiest prefill of this request takes at most `limit` times the target; where none is
    left, all are. What a request will make is not known: `output_tokens` is taken.
    """

    rule: Literal["least-work/1"] = "least-work/1"
    late: str | None = None
    ttft_ms: Positive | None = None
    limit: dict[Id, Positive] = Field(default_factory=dict, description="per load, of the target")
    output_tokens: Positive


class RoundRobinDispatch(Model):
    """Requests take turns over all instances, whatever they are."""

    rule: Literal["round-robin/1"] = "round-robin/1"
    late: str | None = None


class WeightedLeastDispatch(Model):
    """A request for text goes to the instance with the least (requests there + 1) / weight, as load balancers do.

    A load without a weight has 1.
    """

    rule: Literal["weighted-least/1"] = "weighted-least/1"
    late: str | None = None
    weight: dict[Id, Positive] = Field(default_factory=dict, description="per load")


class BackupEntry(Model):
    """A load with capacity left over: where a late request may still go."""

    to: Id
    node: Id
    left_qps: Positive
    latency_ms: Positive
    quality: Real


class PathSharesDispatch(Model):
    """Queries follow the routing shares of the path that they have taken so far (Loki).

    `keyed` says whether the shares depend on that path ("path") or on the step alone ("node").
    """

    rule: Literal["path-shares/1"] = "path-shares/1"
    late: str | None = None
    balancing: Inside = None
    keyed: Literal["path", "node"] = "path"
    budget_ms: dict[Id, Positive] = Field(default_factory=dict, description="time per step, queueing included")
    backup: tuple[BackupEntry, ...] = ()


class MostAccurateFirstDispatch(Model):
    """Routing filled most accurate first (Loki, Algorithm 1); it looks at no path, and may leave demand unserved.

    The shares in `routing` are what the algorithm gives for the planned rate, per load; `lost` is the share of all
    queries that it leaves unserved, `late` paths (pairs over the limit) included in `too_slow`.
    """

    rule: Literal["most-accurate-first/1"] = "most-accurate-first/1"
    late: str | None = None
    balancing: Inside = None
    budget_ms: dict[Id, Positive] = Field(default_factory=dict)
    backup: tuple[BackupEntry, ...] = ()
    lost: Fraction = 0.0
    too_slow: NonNegative = 0.0


class ChosenPlanDispatch(Model):
    """An application runs by one fixed plan: a stated candidate, or knobs with a placement and a share per operator.

    `candidate` counts the application's candidates from 0; `machines` gives, per tier, the GPU of each item of the plan
    in their order. `placement` maps operators to tiers; an operator without a share has its device to itself.
    """

    rule: Literal["chosen-plan/1"] = "chosen-plan/1"
    late: str | None = None
    candidate: Count | None = None
    label: str | None = None
    demand: dict[Key, NonNegative] = Field(default_factory=dict)
    machines: dict[Key, tuple[Count, ...]] = Field(default_factory=dict)
    knobs: dict[Key, Any] = Field(default_factory=dict)
    placement: dict[Id, Id] = Field(default_factory=dict)
    share: dict[Id, Fraction] = Field(default_factory=dict)


class Estimate(Model):
    """How the load is estimated while serving."""

    window_ms: Positive = 500.0


class QueueSlackDispatch(Model):
    """Each worker looks up its queue length and the slack of its oldest query in the table for the load (RAMSIS)."""

    rule: Literal["queue-slack/1"] = "queue-slack/1"
    late: Literal["serve", "drop"] | None = None
    balancing: Literal["round_robin", "shortest_queue", "shared_fifo", "random"] = "round_robin"
    estimate: Estimate = Field(default_factory=Estimate)


Further = (
    ChosenPlanDispatch
    | FcfsDispatch
    | ThresholdDispatch
    | EarliestDispatch
    | PathSharesDispatch
    | MostAccurateFirstDispatch
    | QueueSlackDispatch
    | LeastWorkDispatch
    | RoundRobinDispatch
    | WeightedLeastDispatch
)
"""The rules of this file."""
