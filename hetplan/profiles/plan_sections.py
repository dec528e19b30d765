"""Sections that a plan has, and each of its parts: how it was made, routes, rules, promises, claims, warnings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, NonNegative, PositiveCount, Real
from hetplan.profiles.plan_dispatch import (
    ChosenPlanDispatch,
    EarliestDispatch,
    FcfsDispatch,
    LeastWorkDispatch,
    MatchingDispatch,
    MostAccurateFirstDispatch,
    PathSharesDispatch,
    QueueSlackDispatch,
    RoundRobinDispatch,
    SharesDispatch,
    ThresholdDispatch,
)

__all__ = ["Claim", "Dispatch", "Method", "Notice", "Promise", "Remark", "Route", "Valid"]


class Remark(Model):
    """A section that only informs: keys that a newer hetplan adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False)


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


Dispatch = Annotated[
    SharesDispatch
    | ChosenPlanDispatch
    | MatchingDispatch
    | FcfsDispatch
    | ThresholdDispatch
    | EarliestDispatch
    | PathSharesDispatch
    | MostAccurateFirstDispatch
    | QueueSlackDispatch
    | LeastWorkDispatch
    | RoundRobinDispatch,
    Discriminator("rule"),
]
"""Per-query rules of the closed registry; a new question adds its own class here."""


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
