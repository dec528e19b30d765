"""profile.json: what was measured. Hardware, offers, variants, tables, pipelines (`docs/formats.md`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, Money, NonNegative, Positive, Real
from hetplan.profiles.tables import Table

__all__ = [
    "Artifact",
    "Edge",
    "Hardware",
    "Host",
    "Link",
    "Metric",
    "Node",
    "Offer",
    "PathQuality",
    "Pipeline",
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
    date: str | None = None
    cite: str | None = None
    note: str | None = None


class Metric(Model):
    """A measure of quality: its direction, its range, how one sample of it is distributed."""

    better: Literal["higher", "lower"] = "higher"
    range: tuple[Real, Real] = (0.0, 1.0)
    kind: Literal["bernoulli", "continuous"] = "continuous"
    unit: str | None = None


class Hardware(Model):
    """A type of machine: what one of it provides."""

    kind: Key
    tier: Id | None = None
    relative_time: Positive | None = Field(default=None, description="time here / time on the profile's reference")
    startup_s: NonNegative = 0.0
    provides: dict[Key, NonNegative] = Field(default_factory=dict)


class Offer(Model):
    """A price at which a hardware can be had, and how many."""

    hardware: Id
    price_per_hour: Money
    currency: str = "USD"
    stock: Count | None = Field(default=None, description="null: as many as wanted")
    zone: Id | None = None
    per: Key | None = Field(default=None, description="the price is per unit of this resource, not per machine")
    interruptions_per_hour: NonNegative | None = None


class Host(Model):
    """A machine that is there already, under an offer."""

    offer: Id


class Link(Model):
    """A network link between two tiers."""

    between: tuple[Id, Id]
    bandwidth_mbps: Positive
    latency_ms: NonNegative = 0.0


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
    sha256: str | None = None


class Run(Model):
    """One way to run a variant: on this hardware, this fast, needing this much of it."""

    hardware: Id
    latency: Id | None = Field(default=None, description="a table of latency_ms")
    rate: Id | None = Field(default=None, description="a table of requests_per_s; exclusive with latency")
    at: dict[Key, Real] = Field(default_factory=dict, description="the table point at which the single figures hold")
    load_s: NonNegative = 0.0
    saturation_qps: Positive | None = None
    price_per_hour: Money | None = Field(default=None, description="a price of this run alone; wins over offers")
    needs: dict[Key, NonNegative] = Field(default_factory=dict)
    bytes_out: Id | None = Field(default=None, description="a table of bytes_out")
    slowdown: Id | None = Field(default=None, description="a table of slowdown over co_load")


class Variant(Model):
    """A model in one form: framework, precision, size, knob settings."""

    task: Id
    family: Id | None = None
    quality: Quality | None = None
    artifact: Artifact | None = None
    knobs: dict[Key, Any] = Field(default_factory=dict)
    runs: tuple[Run, ...] = ()


class Node(Model):
    """A step of a pipeline: a task for which a variant is chosen, or an operator with knobs."""

    task: Id | None = None
    device: Literal["cpu", "gpu"] | None = None
    reads: tuple[Key, ...] = ()
    share_law: Literal["flops", "batch"] = "flops"
    needs: dict[Key, NonNegative] = Field(default_factory=dict)


class Edge(Model):
    """What flows between two nodes: queries per query, by the variant upstream ("*" for any other), and bytes."""

    from_: Id = Field(alias="from")
    to: Id
    fanout: NonNegative | dict[str, NonNegative] = 1.0
    bytes: NonNegative | None = None


class PathQuality(Model):
    """How qualities along a path combine; a measured path ("d=yolo-n/c=rn50") wins over the rule."""

    rule: Literal["product", "additive", "table"] = "product"
    weights: dict[Id, NonNegative] = Field(default_factory=dict, description="per node, for rule additive")
    paths: dict[str, Real] = Field(default_factory=dict)


class Pipeline(Model):
    """A tree or DAG of steps that one query passes through."""

    nodes: dict[Id, Node]
    edges: tuple[Edge, ...] = ()
    quality: PathQuality = Field(default_factory=PathQuality)
    knobs: dict[Key, tuple[Any, ...]] = Field(default_factory=dict)
    metric: Id | None = None
    share_grid: tuple[Fraction, ...] = ()
    evaluator: Key | None = None
    strata: int | str | None = Field(default=None, description="a count, or the feature file that defines them")


class Profile(Model):
    """All that was measured, under one roof; several files merge into one."""

    format: str = "hetplan/profile/1.0"
    requires: tuple[str, ...] = ()
    sources: dict[Id, Source] = Field(default_factory=dict)
    metrics: dict[Id, Metric] = Field(default_factory=dict)
    reference: Id | None = None
    tiers: tuple[Id, ...] = ()
    hardware: dict[Id, Hardware] = Field(default_factory=dict)
    offers: dict[Id, Offer] = Field(default_factory=dict)
    hosts: dict[Id, Host] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    tasks: dict[Id, Task] = Field(default_factory=dict)
    variants: dict[Id, Variant] = Field(default_factory=dict)
    tables: dict[Id, Table] = Field(default_factory=dict)
    pipelines: dict[Id, Pipeline] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)


