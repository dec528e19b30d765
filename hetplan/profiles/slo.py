"""slo.json: what is wanted. Objectives, limits and, per application, latency, quality and demand (`docs/formats.md`).

It holds only the wish: how to answer it (formulation, solver, search budget) goes into options.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, Money, NonNegative, Positive, PositiveCount, Real
from hetplan.profiles.profile import Link

__all__ = [
    "App",
    "Arrivals",
    "Candidate",
    "Change",
    "Demand",
    "Device",
    "Horizon",
    "LatencyTarget",
    "WishLimits",
    "Mix",
    "Objective",
    "QualityTarget",
    "RateRange",
    "Runs",
    "Slo",
    "Survive",
    "TraceRef",
    "Violations",
]

Maximised = Literal["rate", "quality", "goodput", "served"]
Minimised = Literal["cost", "servers", "moves", "violations"]


class Objective(Model):
    """One term of a lexicographic objective: exactly one of `max` and `min`."""

    max: Maximised | None = None
    min: Minimised | None = None


class Survive(Model):
    """How many may fail at once with the promises still kept."""

    hosts: Count = 0
    zones: Count = 0


class WishLimits(Model):
    """What a plan may spend."""

    cost_per_hour: Money | None = None
    currency: str = "USD"
    moves: Count | None = None
    instances: dict[Id, tuple[Count, Count | None]] = Field(default_factory=dict, description="[least, most] per hardware")
    only_listed: bool = False
    resources: dict[Key, NonNegative] = Field(default_factory=dict, description="totals, where no machines are listed")
    survive: Survive = Field(default_factory=Survive)



class Change(Model):
    """What a change of the running state costs, and how much room to keep."""

    slack: Real = Field(default=1.05, ge=1, description="need / load")
    slack_qps: NonNegative | None = Field(default=None, description="an additive slack instead")
    load_weight_per_s: NonNegative = 0.1
    offline_below: Fraction = 0.4


class Horizon(Model):
    """Periods planned ahead."""

    period_s: Positive = 3600.0
    periods: PositiveCount = 1


class Runs(Model):
    """What an application may run: exactly one of variants, families, a task, a pipeline."""

    variants: tuple[Id, ...] | None = None
    families: tuple[Id, ...] | None = None
    task: Id | None = None
    pipeline: Id | None = None


class LatencyTarget(Model):
    """At this percentile, no more than this."""

    of: Literal["response", "ttft", "tpot"] = "response"
    percentile: Real = Field(gt=0, le=100)
    max_ms: Positive


class QualityTarget(Model):
    """A floor (or, for a metric where lower is better, a ceiling)."""

    min: Real | None = None
    max: Real | None = None


class Violations(Model):
    """The largest share of late answers."""

    max: Fraction


class RateRange(Model):
    """A range of rates to plan policies for."""

    low: Positive
    high: Positive


class Arrivals(Model):
    """How queries come. `shape` is for gamma, `rates_qps`/`stay_s` for mmpp, `peak`/`period_s` for diurnal."""

    process: Literal["poisson", "gamma", "mmpp", "diurnal", "empirical", "deterministic"] = "poisson"
    shape: Positive | None = None
    relative_rates: tuple[NonNegative, ...] | None = Field(default=None, description="mmpp: rate of each state / mean")
    stay_s: tuple[Positive, ...] | None = Field(default=None, description="mmpp: mean stay in each state")
    peak: Positive | None = Field(default=None, description="diurnal: peak / mean rate")
    period_s: Positive | None = Field(default=None, description="diurnal: length of a day")


class Mix(Model):
    """What queries are like: bins along table axes, and the share of each. Sizes between bins round up."""

    axes: tuple[Key, ...]
    bins: tuple[tuple[Real, ...], ...]
    share: tuple[NonNegative, ...] | None = Field(default=None, description="sums to 1; exclusive with observed")
    observed: tuple[tuple[Real, ...], ...] | None = Field(default=None, description="sizes seen; counted into bins")


class TraceRef(Model):
    """A recorded trace: a CSV file beside the SLO file, and what to do with it."""

    file: str
    sha256: str | None = None
    scale: Positive = 1.0
    compress: Positive = 1.0


class Demand(Model):
    """How much is asked for."""

    rate_qps: NonNegative | Literal["max"] | RateRange | None = None
    history_qps: tuple[NonNegative, ...] | None = None
    series: tuple[NonNegative, ...] | None = Field(default=None, description="a rate per period")
    streams: PositiveCount | None = None
    arrivals: Arrivals = Field(default_factory=Arrivals)
    mix: Mix | None = None
    trace: TraceRef | None = None


class Device(Model):
    """An application's own device, where it differs from the profile's."""

    relative_time: Positive | None = None
    links: tuple[Link, ...] = ()


class Candidate(Model):
    """A plan that a query may get, for packing without a search."""

    demand: dict[Key, NonNegative]
    weight: NonNegative | None = None
    price_per_hour: Money | None = None
    label: str | None = None


class App(Model):
    """One application: what it runs, how fast, how good, how much."""

    runs: Runs | None = None
    latency: tuple[LatencyTarget, ...] = ()
    quality: QualityTarget | None = None
    violations: Violations | None = None
    weight: NonNegative | None = None
    late: str = "serve"
    balancing: Literal["round_robin", "shortest_queue"] | None = None
    network_ms_per_hop: NonNegative = 0.0
    demand: Demand = Field(default_factory=Demand)
    lifetime_s: Positive | None = None
    deadline_s: Positive | None = Field(default=None, description="how soon a plan for this query is wanted")
    device: Device | None = None
    candidates: tuple[Candidate, ...] = ()


class Slo(Model):
    """The wish."""

    format: str = "hetplan/slo/1.0"
    requires: tuple[str, ...] = ()
    objective: tuple[Objective, ...] = ()
    limits: WishLimits = Field(default_factory=WishLimits)
    change: Change = Field(default_factory=Change)
    horizon: Horizon = Field(default_factory=Horizon)
    apps: dict[Id, App] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)
