"""The dispatch sections of a plan: one class per rule of the closed registry (`hetplan.dispatch.rules`).

Here are the rules of pools; those of the other questions are in `plan_dispatch_further.py`, loaded when a plan has one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hetplan.profiles.fields import Id, Model, NonNegative, Positive, PositiveCount

__all__ = [
    "EarliestDispatch",
    "FcfsDispatch",
    "MatchingDispatch",
    "SharesDispatch",
    "ThresholdDispatch",
]

Xi = Annotated[float, Field(gt=0, le=1, description="the share of the target that a prediction may use up")]


class SharesDispatch(Model):
    """Queries follow the routing shares at random; nothing else is looked at."""

    rule: Literal["shares/1"] = "shares/1"
    late: str = "serve"


class MatchingDispatch(Model):
    """Waiting queries are matched to instances at each event so that the weighted busy time is least (Kairos)."""

    rule: Literal["matching/1"] = "matching/1"
    late: str = "serve"
    slo_ms: Positive
    xi: Xi = 0.98
    weight: dict[Id, Positive] = Field(default_factory=dict, description="C_j per hardware")
    penalty: Literal["paper", "absolute", "lexicographic"] = "paper"
    penalty_ms: Positive | None = Field(default=None, description="what a late pair costs, under penalty absolute")
    split_above: PositiveCount | None = Field(default=None, description="pools of more instances are divided")
    predict: dict[str, Id] = Field(default_factory=dict, description='"variant@hardware" -> table')


class FcfsDispatch(Model):
    """The oldest waiting query goes to a free instance, those of the first preferred hardware first (Ribbon)."""

    rule: Literal["fcfs/1"] = "fcfs/1"
    late: str = "serve"
    prefer: tuple[Id, ...] = ()


class ThresholdDispatch(Model):
    """Queries above the threshold queue for the base hardware, the others for the rest (DeepRecSys)."""

    rule: Literal["threshold/1"] = "threshold/1"
    late: str = "serve"
    threshold: NonNegative
    base: Id


class EarliestDispatch(Model):
    """On arrival a query queues where it is predicted to be done first (Clockwork)."""

    rule: Literal["earliest/1"] = "earliest/1"
    late: str = "serve"
    slo_ms: Positive
    xi: Xi = 0.98
    predict: dict[str, Id] = Field(default_factory=dict, description='"variant@hardware" -> table')
