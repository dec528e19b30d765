"""What was measured, as it is planned with: hardware, offers, variants, tables. Pipelines are in another file.

Files say it as `profile_file.py` has it; `lowering.py` leads from there to here.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import (
    Amount,
    Count,
    Currency,
    Id,
    Key,
    Later,
    Model,
    Money,
    Named,
    PositiveAmount,
    Real,
    Sha256,
    wrong,
)
from hetplan.profiles.places import Places
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import MOST_AT_ONCE

if TYPE_CHECKING:
    from hetplan.profiles.apis import Api as _Api
    from hetplan.profiles.engines import Engine as _Engine
    from hetplan.profiles.fleet_fields import Commit as _Commit
    from hetplan.profiles.fleet_fields import Zone as _Zone
    from hetplan.profiles.pipelines import Link as _Link
    from hetplan.profiles.pipelines import Pipeline as _Pipeline
else:
    _Api = Annotated[Any, Later("hetplan.profiles.apis:Api")]
    _Engine = Annotated[Any, Later("hetplan.profiles.engines:Engine")]
    _Commit = Annotated[Any, Later("hetplan.profiles.fleet_fields:Commit")]
    _Zone = Annotated[Any, Later("hetplan.profiles.fleet_fields:Zone")]
    _Link = Annotated[Any, Later("hetplan.profiles.pipelines:Link")]
    _Pipeline = Annotated[Any, Later("hetplan.profiles.pipelines:Pipeline")]

__all__ = [
    "Artifact",
    "Hardware",
    "Host",
    "Metric",
    "Offer",
    "Profile",
    "Quality",
    "Run",
    "Source",
    "Task",
    "Variant",
]


class Source(Model):
    """Where numbers come from; every table and quality may name one."""

    kind: Literal["measured", "published", "imported", "derived", "assumed"]
    tool: str | None = None
    host: str | None = None
    date: str | None = Field(default=None, pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$", description="as 2026-11-01")
    cite: str | None = None
    note: str | None = None


class Metric(Model):
    """A measure of quality: its direction, its range, how one sample of it is distributed."""

    better: Literal["higher", "lower"] = "higher"
    range: tuple[Real, Real] = (0.0, 1.0)
    kind: Literal["bernoulli", "continuous"] = "continuous"
    unit: str | None = None

    @model_validator(mode="after")
    def _low_below_high(self) -> Metric:
        if self.range[0] >= self.range[1]:
            raise wrong("a range is [least, most] with least < most", "Write for instance [0, 1].", at=("range",))
        return self


class Hardware(Model):
    """A type of machine: what one of it provides."""

    kind: Key
    gpu_type: Key | None = None
    tier: Id | None = None
    relative_time: PositiveAmount | None = Field(
        default=None, description="time here / time on the profile's reference"
    )
    startup_s: Amount = 0.0
    provides: dict[Key, Amount] = Field(default_factory=dict)


class Offer(Model):
    """A price at which a hardware can be had, and how many."""

    hardware: Id
    price_per_hour: Money
    currency: Currency = "USD"
    stock: Count | None = Field(default=None, description="null: as many as wanted")
    zone: Id | None = None
    per: Key | None = Field(default=None, description="the price is per unit of this resource, not per machine")
    interruptions_per_hour: Amount | None = None
    commit: _Commit | None = None


class Host(Model):
    """A machine that is there already, under an offer."""

    offer: Id


class Task(Model):
    """What variants do; variants of one task answer the same question."""

    metric: Id | None = None


class Quality(Model):
    """How good a variant's answers are, in its task's metric."""

    value: Real
    source: Id | None = None


class Artifact(Model):
    """Which file a variant is; hetplan never opens it."""

    kind: Key
    sha256: Sha256 | None = None


class Run(Model):
    """One way to run a variant: on this hardware, this fast, needing this much of it."""

    hardware: Id
    latency: Id | None = Field(default=None, description="a table of latency_ms")
    rate: Id | None = Field(default=None, description="a table of requests_per_s; exclusive with latency")
    engine: Id | None = Field(default=None, description="an engine that makes tokens; exclusive with both")
    at: dict[Key, Real] = Field(default_factory=dict, description="the table point at which the single figures hold")
    load_s: Amount = 0.0
    saturation_qps: PositiveAmount | None = None
    price_per_hour: Money | None = Field(default=None, description="a price of this run alone; wins over offers")
    needs: dict[Key, Amount] = Field(default_factory=dict)
    bytes_out: Id | None = Field(default=None, description="a table of bytes_out")
    slowdown: Id | None = Field(default=None, description="a table of slowdown over co_load")

    @model_validator(mode="after")
    def _one_speed(self) -> Run:
        if (self.latency, self.rate, self.engine).count(None) != 2:
            why = "a run says how fast it is, in one way: by times, by rates or by a law"
            raise wrong(why, "Write mean_ms, mean_qps or law, as it was measured.")
        if self.at.get("batch", 1.0) > MOST_AT_ONCE:
            raise wrong(f"a batch is {MOST_AT_ONCE} at most", "Check the number.", at=("at", "batch"))
        return self


class Variant(Model):
    """A model in one form: framework, precision, size, knob settings."""

    task: Id
    family: Id | None = None
    quality: Quality | None = None
    artifact: Artifact | None = None
    knobs: dict[Key, Any] = Field(default_factory=dict)
    runs: tuple[Run, ...] = ()

    @property
    def weights(self) -> str | None:
        """Which file it is, as a load names it."""
        return f"sha256:{self.artifact.sha256}" if self.artifact and self.artifact.sha256 else None

    @property
    def in_order(self) -> tuple[tuple[int, Run], ...]:
        """Its runs in one order, each with its place in the file: no plan hangs on how a file lists them."""
        return tuple(sorted(enumerate(self.runs), key=lambda one: (one[1].hardware, sorted(one[1].at.items()))))

    @model_validator(mode="after")
    def _distinct_runs(self) -> Variant:
        if len(self.runs) > 1:
            seen: list[tuple[str, dict[str, float]]] = []
            for number, run in enumerate(self.runs):
                if (run.hardware, run.at) in seen:
                    why, remedy = (
                        f"a second run on {run.hardware} at the same point",
                        "Keep one, or make it a model of its own.",
                    )
                    raise wrong(why, remedy, at=("runs", number))
                seen.append((run.hardware, run.at))
        return self


class Profile(Model):
    """All that was measured and what machines cost, as it is planned with; files say it as `profile_file.py` has it."""

    format: str = "hetplan/profile/1.0"
    sources: Named[Source] = Field(default_factory=dict)
    metrics: Named[Metric] = Field(default_factory=dict)
    reference: Id | None = None
    tiers: tuple[Id, ...] = ()
    hardware: Named[Hardware] = Field(default_factory=dict)
    offers: Named[Offer] = Field(default_factory=dict)
    zones: Named[_Zone] = Field(default_factory=dict)
    hosts: Named[Host] = Field(default_factory=dict)
    links: tuple[_Link, ...] = ()
    tasks: Named[Task] = Field(default_factory=dict)
    variants: Named[Variant] = Field(default_factory=dict)
    tables: Named[Table] = Field(default_factory=dict)
    apis: Named[_Api] = Field(default_factory=dict)
    engines: Named[_Engine] = Field(default_factory=dict)
    pipelines: Named[_Pipeline] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def places(self) -> Places:
        """Where its parts stand in the files; the reader fills it in, and it takes no part in comparisons."""
        return Places()

    def metric_of(self, task: str) -> Metric | None:
        """The metric of a task: a share of 1 where it names none; None where the profile lacks the task or metric."""
        if task not in self.tasks:
            return None
        named = self.tasks[task].metric
        return Metric() if named is None else self.metrics.get(named)
