"""What a summary holds: records of figures and names, without a word of prose; `summary` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hetplan.profiles.fields import HOURS_A_MONTH

__all__ = [
    "Bound",
    "Group",
    "HoursRow",
    "MachineRow",
    "PolicyRow",
    "Reserved",
    "SloRow",
    "Summary",
    "Worst",
    "per_month",
]


@dataclass(frozen=True)
class Worst:
    """The worst of the situations that a plan was simulated in: its interval, the failure ("": none), the hours."""

    interval: tuple[float, float]
    failure: str = ""
    hours: str = ""


@dataclass(frozen=True)
class SloRow:
    """One limit of the SLO of one application, beside what was simulated of it.

    `basis` is "simulation", "measurement", "formula" (nothing was run) or "" (the plan says nothing about it). `word`
    is "met", "violated" or "undecided" where something was run, else "by formula" or "not simulated". Shares are of 1.
    """

    app: str
    metric: str
    unit: str = ""
    relation: str = ""
    limit: float | None = None
    interval: tuple[float, float] | None = None
    value: float | None = None
    basis: str = ""
    word: str = "not simulated"
    seeds: int | None = None
    note: str = ""
    worst: tuple[Worst, ...] = ()


@dataclass(frozen=True)
class MachineRow:
    """Identical machines, and what each of them runs for one application."""

    machine: str
    purchase: str
    count: int
    model: str
    app: str
    stage: str = ""
    host: str = ""
    zone: str = ""
    standby: int = 0
    on_same_machines: bool = False
    """Whether these are the machines of the row before, which run this too."""
    replicas: int = 1
    batch: int = 1
    chunk: int | None = None
    gpu: float | None = None
    share: float | None = None
    utilization: float | None = None
    per_month: float | None = None


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
    """What no plan can better, in one respect; `vouched` is "certified", "claimed", "none" or "not proved here"."""

    objective: str
    sense: str
    value: float
    bound: float | None
    gap: float | None
    scope: str
    vouched: str


@dataclass(frozen=True)
class Reserved:
    """Machines that are paid for ahead."""

    count: int
    machine: str
    days: float


@dataclass(frozen=True)
class Group:
    """Machines of one type, bought alike, that run one model for an application; others use `shared` ones, too."""

    count: int
    machine: str
    purchase: str
    model: str
    shared: bool = False


@dataclass(frozen=True)
class HoursRow:
    """The machines of each application in some hours, the share of spot machines, and money per hour."""

    hours: str
    apps: Mapping[str, tuple[Group, ...]]
    spot: float | None
    per_hour: float | None


@dataclass(frozen=True)
class Summary:
    """What a person checks of a plan; money per month is for 730 hours."""

    question: str
    formulation: str
    status: str
    """"optimal", "feasible" or "not simulated"; of an outcome also "not verified" and "a stated target is missed"."""
    made_here: bool
    is_fluid: bool
    currency: str | None
    per_hour: float | None
    budget_per_hour: float | None
    machine_count: int
    rates_qps: Mapping[str, tuple[float, float]]
    """Application -> the lowest and the highest rate that the plan is for."""
    bounds: tuple[Bound, ...]
    slo: tuple[SloRow, ...]
    machines: tuple[MachineRow, ...]
    policies: tuple[PolicyRow, ...] = ()
    served: str = ""
    hours: tuple[HoursRow, ...] = ()
    length_h: float | None = None
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reserved: tuple[Reserved, ...] = ()
    cost_of_apps: Mapping[str, float] = field(default_factory=dict)
    cost_of_idle: float = 0.0
    cost_of_starts: float = 0.0
    savings: tuple[tuple[str, float], ...] = ()
    routing: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    survivors: float | None = None
    """The least share of a rate that is planned for after a failure."""
    interruptions: tuple[str, ...] = ()
    limits: tuple[tuple[str, int, int], ...] = ()
    """Machine type, how many run, how many may."""
    marginal: tuple[tuple[str, float, str], ...] = ()
    """One more of what, what that brings, of what."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """What leads from what runs to the plan, where something runs: how many actions of each kind."""
    unserved: tuple[str, ...] = ()
    warnings: tuple[tuple[str, int, str], ...] = ()
    """Code, how often, the first sentence with it."""
    missing: tuple[str, ...] = ()

    @property
    def per_month(self) -> float | None:
        """Money per month."""
        return None if self.per_hour is None else per_month(self.per_hour)

    @property
    def simulated(self) -> tuple[SloRow, ...]:
        """The limits that something was run for."""
        return tuple(row for row in self.slo if row.basis in ("simulation", "measurement") and row.limit is not None)


def per_month(per_hour: float) -> float:
    """Of an hour's money; a sum of prices is a hair off its decimal figure, which must not decide how it is rounded."""
    return round(per_hour * HOURS_A_MONTH, 6)
