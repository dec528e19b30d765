"""What a plan with periods has beside other plans: parts that run in periods, commitments, a bill.

A *part* is what serves some applications, as the plan of its own question says it: workers, routes, rules, policies,
promises. Each period names the parts that run in it, and a part may run in several periods, so nothing is written
twice. `plan_periods` takes such a plan apart.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hetplan.profiles.fields import Id, Model, Money, NonNegative, PositiveCount, Real
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.profiles.plan_sections import Claim, Dispatch, Method, Notice, Promise, Route, Valid
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker

__all__ = ["SHARED", "SHARED_TOO", "Bill", "BillLine", "Commitment", "Lever", "Part"]


class Part(Model):
    """What serves some applications at some rates: the middle of a plan of `question`. Its workers name no period."""

    question: Id
    method: Method
    rate_qps: dict[Id, NonNegative] = Field(description="the applications, and the rates that it is planned for")
    valid: Valid = Field(default_factory=Valid)
    workers: tuple[Worker, ...] = ()
    routing: dict[Id, tuple[Route, ...]] = Field(default_factory=dict)
    dispatch: dict[Id, Dispatch] = Field(default_factory=dict)
    policies: dict[Id, tuple[PolicyTable, ...]] = Field(default_factory=dict)
    tables: dict[Id, Table] = Field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    claims: tuple[Claim, ...] = ()
    warnings: tuple[Notice, ...] = ()
    extensions: dict[str, Any] = Field(default_factory=dict)


class Commitment(Model):
    """So many machines of an offer, paid for ahead: `price_per_hour` each, `upfront` each at the start of a term."""

    offer: Id
    count: PositiveCount
    term_s: NonNegative
    upfront: Money = 0
    price_per_hour: Money


class BillLine(Model):
    """What a period's machines of one offer cost per hour for one application (or for none: committed, and idle)."""

    period: Id
    offer: Id
    app: Id | None = None
    committed: NonNegative = Field(default=0.0, description="machines that are paid for ahead")
    rented: NonNegative = Field(default=0.0, description="machines rented by the hour")
    cost_per_hour: Real
    starts_per_hour: Real = Field(default=0.0, description="of the cost: for machines while they start")


class Lever(Model):
    """The cheapest plan of one way to buy, each with all that those before it have: what it costs, what it saves."""

    name: str
    about: str
    cost_per_hour: Real | None = Field(default=None, description="mean over the horizon; null: no such plan exists")
    saves_per_hour: Real | None = Field(default=None, description="against the lever before it that has a plan")
    verified: bool = Field(default=False, description="whether the verifier found nothing wrong with this plan")
    kept: bool | None = Field(
        default=None,
        description="whether its parts were played on their machines, after each failure too, and all are in time; "
        "null: they were not played",
    )


SHARED = (
    "machines of an offer that are paid for ahead are shared out over the applications in proportion to the machines "
    "that they use in a period; those that nobody uses are on a line of their own"
)
SHARED_TOO = f"{SHARED}; a machine on which several applications run is shared out over them in equal parts"
"""How a bill shares machines out; the second where parts have several applications."""


class Bill(Model):
    """What the plan costs: means over the horizon, which comes `repeats` times."""

    currency: str
    hours: NonNegative
    repeats: PositiveCount
    cost_per_hour: Real
    cost_per_day: Real
    cost_per_month: Real = Field(description="of 730 hours")
    total: Real = Field(description="over all repeats of the horizon")
    apps: dict[Id, Real] = Field(default_factory=dict, description="per hour; what nobody uses is left out")
    offers: dict[Id, Real] = Field(default_factory=dict, description="per hour")
    idle_per_hour: Real = Field(default=0.0, description="committed machines while nobody uses them")
    starts_per_hour: Real = 0.0
    lines: tuple[BillLine, ...] = ()
    levers: tuple[Lever, ...] = ()
    shared: str = Field(default="", description="how machines that several applications use are shared out")
