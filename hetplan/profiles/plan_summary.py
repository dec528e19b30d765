"""The summary that a plan begins with: what a person checks of it, as figures and names, without a word of prose.

`PlanSummary` is what the file holds: what needs the profile and the SLO to be known. `Summary` adds what a reader of
the plan takes from its other sections. `planner.summary` makes both, and `verify` makes the first anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal

from pydantic import ConfigDict

from hetplan.profiles.fields import HOURS_A_MONTH, Count, Real

__all__ = [
    "Bound",
    "Group",
    "HoursRow",
    "MachineRow",
    "PlanSummary",
    "PolicyRow",
    "Reserved",
    "SloRow",
    "Summary",
    "Worst",
    "per_month",
    "plain_summary",
]


@dataclass(frozen=True)
class Worst:
    """The worst of the situations that a plan was simulated in: its interval, the failure ("": none), the hours."""

    interval: tuple[Real, Real]
    failure: str = ""
    hours: str = ""


@dataclass(frozen=True)
class SloRow:
    """One limit of the SLO of one application, beside what was simulated of it.

    `basis` is "simulation", "measurement", "formula" (nothing was run) or "" (the plan says nothing about it).
    `verdict` is "met", "violated" or "undecided" where something was run, else "by formula" or "not simulated". Shares
    are of 1. `confidence` is how sure each end of the interval is, where both ends are not of 95% together.
    """

    app: str
    metric: str
    unit: str = ""
    relation: str = ""
    limit: Real | None = None
    interval: tuple[Real, Real] | None = None
    value: Real | None = None
    basis: str = ""
    verdict: str = ""
    seeds: Count | None = None
    confidence: Real | None = None
    note: str = ""
    worst: tuple[Worst, ...] = ()


@dataclass(frozen=True)
class MachineRow:
    """Identical machines, and what each of them runs for one application.

    Where machines change by the hour, `count` is the most of them, `least` the fewest, and money a mean. Of machines
    that nobody uses `app` is "".
    """

    machine: str
    count: Count
    model: str = ""
    app: str = ""
    purchase: str = ""
    least: Count | None = None
    stage: str = ""
    host: str = ""
    zone: str = ""
    standby: Count = 0
    on_same_machines: bool = False
    """Whether these are the machines of the row before, which run this too."""
    replicas: Count = 1
    batch: Count = 1
    chunk: Count | None = None
    gpu: Real | None = None
    share: Real | None = None
    utilization: Real | None = None
    cost_per_month: Real | None = None


@dataclass(frozen=True)
class PolicyRow:
    """One policy: the rate that it is for, what the queue model says of it, and what it gave in simulation."""

    app: str
    rate_qps: float
    goodput: float | None
    bound: float | None
    violation_rate: float | None
    utilization: float | None


@dataclass(frozen=True)
class Bound:
    """What no plan can better, in one respect, and who says so: `vouched` is that of the plan's claim."""

    objective: str
    sense: Literal["min", "max"]
    value: Real
    scope: str
    vouched: str
    bound: Real | None = None
    gap: Real | None = None


@dataclass(frozen=True)
class Reserved:
    """Machines that are paid for ahead."""

    count: Count
    machine: str
    days: Real


@dataclass(frozen=True)
class Group:
    """Machines of one type, bought alike, that run one model for an application; others use `shared` ones, too."""

    count: Count
    machine: str
    purchase: str = ""
    model: str = ""
    shared: bool = False


@dataclass(frozen=True)
class HoursRow:
    """The machines of each application in some hours, the share of spot machines, and money per hour."""

    hours: str
    apps: dict[str, tuple[Group, ...]]
    spot: Real | None = None
    cost_per_hour: Real | None = None


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """What a plan begins with; money per month is for 730 hours."""

    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)

    status: str
    """"optimal", "feasible" or "not simulated"; of an outcome also "not verified" and "a stated target is missed"."""
    cost_per_month: Real | None = None
    cost_per_hour: Real | None = None
    currency: str | None = None
    budget_per_hour: Real | None = None
    machine_count: Count = 0
    rates_qps: dict[str, tuple[Real, Real]] = field(default_factory=dict)
    """Application -> the lowest and the highest rate that the plan is for."""
    bounds: tuple[Bound, ...] = ()
    slo: tuple[SloRow, ...] = ()
    machines: tuple[MachineRow, ...] = ()
    hours: tuple[HoursRow, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    limits: tuple[tuple[str, Count, Count], ...] = ()
    """Machine type, how many run, how many may."""
    failures: tuple[str, ...] = ()
    survivors: Real | None = None
    """The least share of a rate that is planned for after a failure."""
    warnings: tuple[tuple[str, Count, str], ...] = ()
    """Code, how often, the first sentence with it."""
    next: str = ""
    """The command that goes on from here."""

    @property
    def simulated(self) -> tuple[SloRow, ...]:
        """The limits that something was run for."""
        return tuple(row for row in self.slo if row.basis in ("simulation", "measurement") and row.limit is not None)


@dataclass(frozen=True, kw_only=True)
class Summary(PlanSummary):
    """The summary with what the plan's other sections say."""

    question: str = ""
    formulation: str = ""
    made_here: bool = False
    proofs: Mapping[str, str] | None = None
    """What became of each bound where they were looked at again, by sense and objective; None where nobody did."""
    is_fluid: bool = False
    policies: tuple[PolicyRow, ...] = ()
    served: str = ""
    length_h: float | None = None
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cost_of_apps: Mapping[str, float] = field(default_factory=dict)
    cost_of_idle: float = 0.0
    cost_of_starts: float = 0.0
    savings: tuple[tuple[str, float], ...] = ()
    routing: Mapping[str, str] = field(default_factory=dict)
    interruptions: tuple[str, ...] = ()
    marginal: tuple[tuple[str, float, str], ...] = ()
    """One more of what, what that brings, of what."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """What leads from what runs to the plan, where something runs: how many actions of each kind."""
    unserved: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def per_month(per_hour: float) -> float:
    """Of an hour's money; a sum of prices is a hair off its decimal figure, which must not decide how it is rounded."""
    return round(per_hour * HOURS_A_MONTH, 6)


def plain_summary(value: Any) -> Any:
    """A record as plain data, without what is as it would be if nothing were said.

    >>> plain_summary(MachineRow("t4", 3, model="net", batch=1, standby=0))
    {'machine': 't4', 'count': 3, 'model': 'net'}
    """
    if is_dataclass(value):
        told = {one: getattr(value, one.name) for one in fields(value)}
        empty = (one for one in told if one.default_factory is not MISSING and not told[one])
        silent = {one.name for one in told if told[one] in (one.default, None)} | {one.name for one in empty}
        return {one.name: plain_summary(held) for one, held in told.items() if one.name not in silent}
    if isinstance(value, Mapping):
        return {key: plain_summary(held) for key, held in value.items()}
    return [plain_summary(one) for one in value] if isinstance(value, tuple) else value
