"""Sections that a plan has, and each of its parts: how it was made, routes, rules, promises, claims, warnings.

Here are the dispatch rules that a pool has by default; the others are in `plan_dispatch_rules.py`, loaded when a plan
has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hetplan.profiles.fields import (
    Count,
    Fraction,
    Id,
    Inside,
    Key,
    Later,
    Model,
    NonNegative,
    OneOf,
    Positive,
    PositiveCount,
    Real,
    Xi,
)

if TYPE_CHECKING:
    from hetplan.profiles.plan_dispatch_rules import Further

__all__ = [
    "RULES",
    "Claim",
    "Dispatch",
    "MatchingDispatch",
    "Method",
    "Notice",
    "Promise",
    "Remark",
    "Route",
    "SharesDispatch",
    "Valid",
]


class Remark(Model):
    """A section that only informs: keys that a newer hetplan adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False, defer_build=True)


class Method(Remark):
    """How the plan was made."""

    formulation: str
    like: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class Valid(Remark):
    """Within what the plan holds."""

    rate_qps: dict[Id, tuple[NonNegative, NonNegative | None]] = Field(default_factory=dict)
    offers: str | None = None


class Route(Model):
    """Where queries of a class (`when`), at a pipeline step (`prefix`, `node`), go: shares of loads, summing to 1.

    With `after`, it holds for queries whose answer at these steps had these outcomes ({"small": "unsure"}). Of several
    routes that hold, the one with the longest `prefix` wins, then the one with the most in `after`, then in `when`.
    """

    when: dict[Key, Real] = Field(default_factory=dict)
    after: dict[Id, Id] | None = None
    prefix: tuple[str, ...] = ()
    node: Id | None = None
    to: dict[Id, Fraction]


class SharesDispatch(Model):
    """Queries follow the routing shares at random, and inside a group of servers as `balancing` says."""

    rule: Literal["shares/1"] = "shares/1"
    late: str | None = None
    balancing: Inside = None


class MatchingDispatch(Model):
    """Waiting queries are matched to instances at each event so that the weighted busy time is least (Kairos)."""

    rule: Literal["matching/1"] = "matching/1"
    late: str | None = None
    slo_ms: Positive
    xi: Xi = 0.98
    weight: dict[Id, Positive] = Field(default_factory=dict, description="C_j per hardware")
    penalty: Literal["paper", "absolute", "lexicographic"] = "paper"
    penalty_ms: Positive | None = Field(default=None, description="what a late pair costs, under penalty absolute")
    split_above: PositiveCount | None = Field(default=None, description="pools of more instances are divided")
    predict: dict[str, Id] = Field(default_factory=dict, description='"variant@hardware" -> table')


_FURTHER = "hetplan.profiles.plan_dispatch_rules:"
RULES: dict[str, Any] = {
    "shares/1": SharesDispatch,
    "chosen-plan/1": Annotated[Any, Later(_FURTHER + "ChosenPlanDispatch")],
    "matching/1": MatchingDispatch,
    "fcfs/1": Annotated[Any, Later(_FURTHER + "FcfsDispatch")],
    "threshold/1": Annotated[Any, Later(_FURTHER + "ThresholdDispatch")],
    "earliest/1": Annotated[Any, Later(_FURTHER + "EarliestDispatch")],
    "path-shares/1": Annotated[Any, Later(_FURTHER + "PathSharesDispatch")],
    "most-accurate-first/1": Annotated[Any, Later(_FURTHER + "MostAccurateFirstDispatch")],
    "queue-slack/1": Annotated[Any, Later(_FURTHER + "QueueSlackDispatch")],
    "least-work/1": Annotated[Any, Later(_FURTHER + "LeastWorkDispatch")],
    "round-robin/1": Annotated[Any, Later(_FURTHER + "RoundRobinDispatch")],
    "weighted-least/1": Annotated[Any, Later(_FURTHER + "WeightedLeastDispatch")],
}
"""Per-query rules of the closed registry; a new question adds its class here, and to `Further` for the type checker."""

if TYPE_CHECKING:
    Dispatch = SharesDispatch | MatchingDispatch | Further
else:
    Dispatch = Annotated[Any, OneOf("rule", RULES)]


class Promise(Remark):
    """What the plan promises of one quantity of one application, and by which model."""

    app: Id | None = None
    period: Id | None = None
    situation: str | None = None
    quantity: str
    percentile: Real | None = None
    relation: Literal["<=", ">=", "="] = "<="
    value: Real
    interval: tuple[Real, Real] | None = None
    model: str
    basis: str | None = None
    seeds: Count | None = None
    confidence: Fraction | None = None
    """How surely the promise holds, as far as the simulator tells: 1 less what it took up of the error budget."""
    extrapolated: bool | None = None


class Claim(Remark):
    """How good the plan is in one respect: its value, a bound on the best possible, and whose word that is."""

    about: str
    sense: Literal["min", "max"]
    value: Real
    bound: Real | None = None
    gap: NonNegative | None = None
    scope: Literal["problem", "relaxation", "restriction", "model", "none"]
    vouched: Literal["certified", "claimed", "none"]
    solve: PositiveCount | None = None
    note: str | None = None


class Notice(Remark):
    """A warning: its code, where, and what it means."""

    code: str
    at: str = ""
    text: str
