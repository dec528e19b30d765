"""plan.json: what is to run, how queries reach it, what is promised and what is proved (`docs/formats.md`).

A plan is untrusted input to whoever reads it: names and numbers of a closed vocabulary, never a command or a path.
Unknown keys are refused where they would change what runs, and ignored where they only inform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Later, Model, NonNegative, PositiveCount, Real
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
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker

if TYPE_CHECKING:
    from pandas import DataFrame

    from hetplan.profiles.plan_policy import PolicyTable
else:
    PolicyTable = Annotated[Any, Later("hetplan.profiles.plan_policy:PolicyTable")]

__all__ = [
    "Action",
    "Binding",
    "Claim",
    "Dispatch",
    "InputHashes",
    "MatchingDispatch",
    "Method",
    "Notice",
    "Period",
    "Plan",
    "Promise",
    "Route",
    "SharesDispatch",
    "Solve",
    "Unserved",
    "Valid",
]


class _Remark(Model):
    """A section that only informs: keys that a newer hetplan adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False)


class Method(_Remark):
    """How the plan was made."""

    formulation: str
    like: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class InputHashes(_Remark):
    """SHA-256 of what the plan was made from."""

    profile: str
    slo: str
    state: str | None = None
    measured: str | None = None
    traces: dict[str, str] = Field(default_factory=dict)


class Valid(_Remark):
    """Within what the plan holds."""

    rate_qps: dict[Id, tuple[NonNegative, NonNegative | None]] = Field(default_factory=dict)
    offers: str | None = None


class Period(Model):
    """A stretch of time with one set of workers."""

    id: Id
    start_s: NonNegative = 0.0
    end_s: NonNegative | None = None


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


class Action(Model):
    """A step from what runs to what shall run; `after` lists the actions that must be done first."""

    id: PositiveCount
    do: Literal["start", "stop", "load", "unload", "replicate", "upgrade", "downgrade", "keep", "move", "route"]
    worker: Id | None = None
    load: Id | None = None
    count: PositiveCount | None = None
    host: Id | None = None
    after: tuple[PositiveCount, ...] = ()


class Promise(_Remark):
    """What the plan promises of one quantity of one application, and by which model."""

    app: Id | None = None
    quantity: str
    percentile: Real | None = None
    relation: Literal["<=", ">=", "="] = "<="
    value: Real
    interval: tuple[Real, Real] | None = None
    model: str
    basis: str | None = None
    seeds: Count | None = None
    extrapolated: bool | None = None


class Claim(_Remark):
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


class Binding(_Remark):
    """A demand that limits the value, and what one unit more of it would bring."""

    block: str
    label: str
    price: Real
    unit: str


class Solve(_Remark):
    """One entry of the proof log."""

    id: PositiveCount
    form: str
    about: str | None = None
    count: PositiveCount = 1
    rows: Count | None = None
    columns: Count | None = None
    size: dict[str, Count] = Field(default_factory=dict)
    solver: str
    status: str
    stop: str | None = None
    value: Real | None = None
    bound: Real | None = None
    vouched: str | None = None
    certified_bound: Real | None = None
    deterministic: bool = True
    why_not_deterministic: str | None = None
    proof: dict[str, Any] | None = None
    binding: tuple[Binding, ...] = ()
    recheck: str | None = None


class Unserved(_Remark):
    """Demand that the plan leaves unserved."""

    app: Id
    rate_qps: NonNegative
    why: str


class Notice(_Remark):
    """A warning: its code, where, and what it means."""

    code: str
    at: str = ""
    text: str


class Plan(Model):
    """The whole plan."""

    format: str = "hetplan/plan/1.1"
    requires: tuple[str, ...] = ()
    question: str
    method: Method
    status: Literal["optimal", "within-gap", "feasible", "best-of-measured", "heuristic"] = "feasible"
    inputs: InputHashes
    valid: Valid = Field(default_factory=Valid)
    periods: tuple[Period, ...] = (Period(id="t0"),)
    workers: tuple[Worker, ...] = ()
    routing: dict[Id, tuple[Route, ...]] = Field(default_factory=dict)
    dispatch: dict[Id, Dispatch] = Field(default_factory=dict)
    policies: dict[Id, tuple[PolicyTable, ...]] = Field(default_factory=dict)
    tables: dict[Id, Table] = Field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    promises: tuple[Promise, ...] = ()
    claims: tuple[Claim, ...] = ()
    solves: tuple[Solve, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    alternatives: tuple[dict[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    attachments: dict[str, str] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)
    digest: str | None = None

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: the fleet, the promises, and how good it is."""
        from hetplan.drawing.report import plan_fragment

        return plan_fragment(self.model_dump(mode="json", by_alias=True, exclude_none=True))

    def to_pandas(self) -> DataFrame:
        """A row per load of a worker group; pandas is needed, and no part of hetplan."""
        from hetplan.drawing.tables import frame_of, load_rows

        return frame_of(load_rows(self.model_dump(mode="json", by_alias=True, exclude_none=True)))
