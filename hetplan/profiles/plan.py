"""plan.json: what is to run, how queries reach it, what is promised and what is proved (`docs/reference/files.md`).

A plan is untrusted input: names and numbers of a closed vocabulary, never a command or a path.
Unknown keys are refused where they would change what runs, and ignored where they only inform.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_serializer

from hetplan.errors import InputError
from hetplan.profiles.fields import Count, Id, Later, Model, NonNegative, PositiveCount, Real
from hetplan.profiles.plan_sections import (
    Claim,
    Dispatch,
    MatchingDispatch,
    Method,
    Notice,
    Promise,
    Remark,
    Route,
    SharesDispatch,
    Valid,
)
from hetplan.profiles.plan_summary import PlanSummary, Summary, plain_summary
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker

if TYPE_CHECKING:
    from pandas import DataFrame

    from hetplan.profiles.plan_parts import Bill, Commitment, Part
    from hetplan.profiles.plan_policy import PolicyTable
else:
    Bill = Annotated[Any, Later("hetplan.profiles.plan_parts:Bill")]
    Commitment = Annotated[Any, Later("hetplan.profiles.plan_parts:Commitment")]
    Part = Annotated[Any, Later("hetplan.profiles.plan_parts:Part")]
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


class InputHashes(Remark):
    """SHA-256 of what the plan was made from."""

    profile: str
    slo: str
    state: str | None = None
    measured: str | None = None
    traces: dict[str, str] = Field(default_factory=dict)


class Action(Model):
    """A step from what runs to what shall run; `after` lists the actions that must be done first."""

    id: PositiveCount
    do: Literal["start", "stop", "load", "unload", "replicate", "upgrade", "downgrade", "keep", "move", "route"]
    worker: Id | None = None
    load: Id | None = None
    count: PositiveCount | None = None
    host: Id | None = None
    ahead_s: NonNegative | None = Field(default=None, description="so long before the period it begins")
    after: tuple[PositiveCount, ...] = ()


class Period(Model):
    """A stretch of time with one set of workers: those of its `parts`, where the plan has such; `actions` lead to it
    from the period before (to the first from the last)."""

    id: Id
    start_s: NonNegative = 0.0
    end_s: NonNegative | None = None
    parts: tuple[Id, ...] | None = None
    actions: tuple[Action, ...] | None = None
    failures: dict[str, tuple[Id, ...]] | None = Field(default=None, description="parts that run after a failure")


class Binding(Remark):
    """A demand that limits the value, and what one unit more of it would bring."""

    block: str
    label: str
    price: Real
    unit: str


class Solve(Remark):
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


class Unserved(Remark):
    """Demand that the plan leaves unserved."""

    app: Id
    rate_qps: NonNegative
    why: str


@dataclass(frozen=True)
class PlanRow:
    """Machines of one type that run one model for an application; `hours` is "" where they are the same all day.

    `replicas` of the model are on each of them.
    """

    app: str
    model: str
    machine: str
    purchase: str
    hours: str
    count: int
    replicas: int = 1


class Plan(Model):
    """The whole plan."""

    format: str = "hetplan/plan/1.0"
    summary: PlanSummary | None = Field(default=None, description="what a person checks; verify recomputes it")
    requires: tuple[str, ...] = ()
    question: str
    method: Method
    status: Literal["optimal", "within-gap", "feasible", "best-of-measured", "heuristic", "not-simulated"] = "feasible"
    inputs: InputHashes
    valid: Valid = Field(default_factory=Valid)
    periods: tuple[Period, ...] = (Period(id="t0"),)
    parts: dict[Id, Part] | None = None
    commitments: tuple[Commitment, ...] | None = None
    bill: Bill | None = None
    workers: tuple[Worker, ...] = ()
    routing: dict[Id, tuple[Route, ...]] = Field(default_factory=dict)
    dispatch: dict[Id, Dispatch] = Field(default_factory=dict)
    policies: dict[Id, tuple[PolicyTable, ...]] = Field(default_factory=dict)
    tables: dict[Id, Table] = Field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    alternatives: tuple[dict[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    attachments: dict[str, str] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    claims: tuple[Claim, ...] = ()
    solves: tuple[Solve, ...] = ()
    digest: str | None = None

    @field_serializer("summary")
    def _plain(self, value: PlanSummary | None) -> Any:
        return None if value is None else plain_summary(value)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan in a file; nothing in it is believed: its form, features and digest are checked.

        >>> import hetplan as hp
        >>> from tempfile import TemporaryDirectory
        >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
        >>> plan = hp.solve(*files, options={"sizing": "fluid"}).require()
        >>> with TemporaryDirectory() as folder:
        ...     plan.write(f"{folder}/plan.json")
        ...     hp.Plan.read(f"{folder}/plan.json") == plan
        True
        """
        plan: Plan = import_module("hetplan.profiles.read_plan").read_plan(path)
        return plan

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the plan's file, whole or not at all; the same plan is the same bytes."""
        try:
            import_module("hetplan.profiles.plan_file").write_plan(self, path)
        except OSError as error:
            why, remedy = f"the plan cannot be written here: {error.strerror}", "Name a file in a folder that is there."
            raise InputError.one(file=os.fspath(path), why=why, remedy=remedy) from None

    def rows(self) -> list[PlanRow]:
        """What runs where, a row per application, model, machine type, purchase and hours.

        >>> import hetplan as hp
        >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
        >>> plan = hp.solve(*files, options={"sizing": "fluid"}).require()
        >>> [(row.machine, row.purchase, row.count) for row in plan.rows()]
        [('cpu4', 'spot', 4), ('cpu4', '', 6), ('t4', '', 3)]
        """
        if self.summary is None:
            return []
        if not self.summary.hours:
            return [
                PlanRow(one.app, one.model, one.machine, one.purchase, "", one.count, one.replicas)
                for one in self.summary.machines
            ]
        return [
            PlanRow(app, one.model, one.machine, one.purchase, hours.hours, one.count)
            for hours in self.summary.hours
            for app, groups in hours.apps.items()
            for one in groups
        ]

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: its summary, and what runs."""
        from hetplan.drawing.report import plan_fragment

        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.summary is None:
            return plan_fragment(document)
        from hetplan.profiles.summary_words import summary_text

        whole = Summary(**vars(self.summary), question=self.question, formulation=self.method.formulation)
        return plan_fragment(document, summary_text(whole))

    def to_pandas(self) -> DataFrame:
        """A row per load of a worker group; pandas is needed, and no part of hetplan."""
        from hetplan.drawing.tables import frame_of, load_rows

        return frame_of(load_rows(self.model_dump(mode="json", by_alias=True, exclude_none=True)))
