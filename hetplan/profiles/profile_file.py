"""The profile as a person writes it, format 1.0: machine types with their prices, models with their measurements.

What these models accept is put into the shape that is planned with (`profile.py`) by `lowering.py`. Here is what can be
said of one place alone: keys, types, ranges. Tools that write files have `new_files.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from hetplan.profiles.columns import TIMES, Columns
from hetplan.profiles.engines import LawNumbers, LawRange, Piece
from hetplan.profiles.fields import (
    Amount,
    Count,
    Currency,
    Fraction,
    Grid,
    Id,
    Key,
    Later,
    Model,
    Money,
    Named,
    PositiveAmount,
    PositiveCount,
    Real,
    wrong,
)
from hetplan.profiles.operating_points import OperatingPoint
from hetplan.profiles.profile import Artifact, Metric, Source

if TYPE_CHECKING:
    from hetplan.profiles.apis import Api as _Api
    from hetplan.profiles.fleet_fields import Zone as _Zone
    from hetplan.profiles.pipeline_file import PipelineEntry as _Pipeline
    from hetplan.profiles.pipelines import Link as _Link
else:
    _Api = Annotated[Any, Later("hetplan.profiles.apis:Api")]
    _Zone = Annotated[Any, Later("hetplan.profiles.fleet_fields:Zone")]
    _Pipeline = Annotated[Any, Later("hetplan.profiles.pipeline_file:PipelineEntry")]
    _Link = Annotated[Any, Later("hetplan.profiles.pipelines:Link")]

__all__ = ["Machine", "ModelEntry", "ProfileFile", "Reserved", "Run", "Spot", "ZonePrices"]


class Reserved(Model):
    """The price of machines that are paid for a whole term: cheaper, and paid whether they run or not."""

    term_days: PositiveAmount
    price_per_hour: Money | None = Field(default=None, description="or a discount")
    discount: Fraction | None = Field(default=None, description="share of price_per_hour that is saved")
    upfront: Money = Field(default=0, description="paid once per machine at the start of the term")

    @model_validator(mode="after")
    def _one_price(self) -> Reserved:
        if (self.discount is None) == (self.price_per_hour is None):
            raise wrong("exactly one of discount and price_per_hour", 'Write for instance "discount": 0.4.')
        return self


class _SpotParts(Model):
    stock: Count | None = Field(default=None, description="absent: as many as wanted")
    interruptions_per_hour: Amount = 0.0
    hosts: tuple[Id, ...] = Field(default=(), description="machines that are there already")


class Spot(_SpotParts):
    """The price of machines that may be reclaimed at any time."""

    price_per_hour: Money


class ZoneSpot(_SpotParts):
    """What differs for spot machines in one zone."""

    price_per_hour: Money | None = None


class _Prices(Model):
    price_per_hour: Money | None = Field(default=None, description="on demand; absent: not for rent on demand")
    stock: Count | None = Field(default=None, description="absent: as many as wanted")
    per: Key | None = Field(default=None, description="the price is for one unit of this resource, not for a machine")
    reserved: Reserved | None = None
    hosts: tuple[Id, ...] = Field(default=(), description="machines that are there already")


class ZonePrices(_Prices):
    """What differs in one zone from what is said of the machine type."""

    spot: ZoneSpot | None = Field(default=None, description="null: no spot machines there")


class Machine(_Prices):
    """A type of machine: what one of it provides, and at which prices it can be had."""

    kind: Key | None = Field(default=None, description="gpu, cpu, inferentia ...; by default gpu if it provides one")
    gpu_type: Key | None = Field(default=None, description="h100, t4 ...: which laws of the catalogue hold on it")
    provides: dict[Key, Amount] = Field(default_factory=dict, description="gpu, gpu_mem_gib, cpu_cores, own names ...")
    startup_s: Amount = 0.0
    tier: Id | None = None
    relative_time: PositiveAmount | None = Field(
        default=None, description="time here / time on the profile's reference"
    )
    spot: Spot | None = None
    zones: tuple[Id, ...] | Named[ZonePrices] = Field(
        default=(), description="zones with these prices; or zone: what differs there"
    )

    @model_validator(mode="after")
    def _priced(self) -> Machine:
        zones = self.zones if isinstance(self.zones, dict) else {}
        for at, one, price in (
            ((), self, [self.price_per_hour, *(zone.price_per_hour for zone in zones.values())]),
            *((("zones", name), zone, [self.price_per_hour, zone.price_per_hour]) for name, zone in zones.items()),
        ):
            if all(each is None for each in price):
                _refuse_without_price(one, at, has_spot=self.spot is not None)
        if self.hosts and self.zones:
            raise wrong("machines that are there are in one zone", "Name them under their zone.", at=("hosts",))
        if isinstance(self.zones, tuple) and len(set(self.zones)) < len(self.zones):
            raise wrong("different zones", "Name each once.", at=("zones",))
        return self


def _refuse_without_price(said: _Prices, at: tuple[str, ...], *, has_spot: bool) -> None:
    for key in ("stock", "per", "reserved", "hosts"):
        if getattr(said, key) and not (key == "per" and has_spot):
            remedy = 'Add "price_per_hour": 0 where nothing is paid.' if key == "hosts" else 'Add "price_per_hour".'
            raise wrong(f"{key} goes with a price on demand", remedy, at=(*at, key))


def _named_law(value: object) -> object:
    if isinstance(value, str) and not value.startswith("catalogue/"):
        why = "nine numbers, a list of pieces, or a name of the catalogue"
        raise wrong(why, "Write for instance catalogue/vllm/llama-3.1-8b/bf16.")
    return value


_Law = Annotated[
    Annotated[str, WithJsonSchema({"type": "string", "pattern": "^catalogue/"})] | LawNumbers | tuple[Piece, ...],
    BeforeValidator(_named_law),
]


class _Measured(Model):
    """What is said of a run; at a model, what all its runs share."""

    axes: dict[Key, tuple[Real, ...]] | None = Field(default=None, description="the points; for one axis, batch")
    batch: tuple[Real, ...] | None = Field(default=None, description="the sizes that were measured")
    mean_ms: Grid = Field(default=None, description="service time at each point")
    std_ms: Grid = None
    p50_ms: Grid = None
    p90_ms: Grid = None
    p95_ms: Grid = None
    p99_ms: Grid = None
    max_ms: Grid = None
    mean_qps: Grid = Field(default=None, description="in place of times: the rate at each point")
    max_qps: PositiveAmount | None = Field(default=None, description="throughput, where it is not batch / mean")
    samples: Grid = Field(default=None, description="how many measurements per point, or one number for all")
    outside: Literal["refuse", "clamp", "linear"] | None = Field(
        default=None, description="what is read beyond the points; by default nothing"
    )
    given: dict[Key, Amount] | None = Field(default=None, description="under which conditions it was measured")
    interval: Fraction | None = Field(default=None, description="confidence of the error bars, where there are any")
    points: tuple[OperatingPoint, ...] | None = Field(
        default=None,
        description="runs of a benchmark: the rates under limits are those of runs that meet them",
    )
    at: dict[Key, Real] | None = Field(default=None, description="the point of this run, where several are measured")
    load_s: Amount | None = Field(default=None, description="how long loading takes; 0 by default")
    needs: dict[Key, Amount] | None = Field(default=None, description="of one replica")
    price_per_hour: Money | None = Field(default=None, description="of a replica; wins over the machine's")
    bytes_out: Columns | None = Field(default=None, description="what it sends")
    slowdown: Columns | None = Field(default=None, description="how much slower it is beside others")
    source: Id | None = Field(default=None, description="where its numbers come from")
    law: _Law | None = Field(default=None, description="time of one iteration of a language model")
    basis: Literal["measured", "grid", "sibling", "efficiencies", "datasheet", "other engine"] | None = Field(
        default=None, description="where a law comes from"
    )
    error_mean: Amount | None = Field(default=None, description="how far the law is from its engine, on the mean")
    fit_error: tuple[Amount, Amount] | None = Field(default=None, description="mean and worst error of the fit itself")
    range: LawRange | None = Field(default=None, description="the largest iterations that were measured")
    kv_tokens: PositiveCount | None = Field(default=None, description="room for KV of one replica")
    kv_error: Amount | None = Field(default=None, description="by what share the room may be off")
    kv_bytes_per_token: PositiveAmount | None = None
    context_tokens: PositiveCount | None = Field(default=None, description="the longest input and output together")
    max_tokens: PositiveCount | None = Field(default=None, description="of one iteration; 8192 by default")
    max_seqs: PositiveCount | None = Field(default=None, description="sequences at once; 256 by default")
    tensor: PositiveCount | None = Field(default=None, description="GPUs over which each layer is split")
    pipeline: PositiveCount | None = Field(
        default=None, description="stages of layers: a replica has tensor x pipeline"
    )
    precision: Key | None = None
    role: Literal["both", "prefill", "decode"] | None = None
    schedule: Literal["chunked", "prefill-first"] | None = None
    reserves_kv: bool | None = Field(default=None, description="KV for the whole output is kept free at admission")
    request_ms: Amount | None = Field(default=None, description="what a request waits before its first iteration")
    overlap: Literal["measured", "assumed"] | None = Field(
        default=None, description="whether iterations with prefill beside decodes were measured"
    )

    @model_validator(mode="after")
    def _one_axis(self) -> _Measured:
        if self.axes is not None and self.batch is not None:
            raise wrong("axes, or batch where that is the only one", "Keep one of them.", at=("batch",))
        speeds = [
            next((key for key in keys if getattr(self, key) is not None), None)
            for keys in (TIMES.values(), ("mean_qps",), ("law",))
        ]
        stated = [key for key in speeds if key is not None]
        if len(stated) > 1:
            why = f"times, rates or a law, not both {' and '.join(stated)}"
            raise wrong(why, "Keep what was measured.", at=(stated[1],))
        return self


class Run(_Measured):
    """One way to run a model on a machine type: how fast, and what it needs."""

    like: Id | None = Field(default=None, description="a machine type: as there, but for what is said here")

    @model_validator(mode="after")
    def _own_times(self) -> Run:
        own = next((key for key in ("batch", "axes") if getattr(self, key) is not None), None)
        is_timed = any(getattr(self, key) is not None for key in (*TIMES.values(), "mean_qps"))
        if self.like is not None and own is not None and not is_timed:
            why = f"a run with {own} of its own has times of its own"
            raise wrong(why, f"Write mean_ms at these points, or leave {own} out.", at=(own,))
        return self


class ModelEntry(_Measured):
    """A model in one form (framework, precision, size), with its runs; what all of these share is said once, here."""

    task: Id | None = Field(default=None, description="models of one task can replace one another; by default its id")
    family: Id | None = None
    quality: Real | Annotated[dict[Id, Real], Field(min_length=1, max_length=1)] | None = Field(
        default=None, description="a number, or {metric: number}"
    )
    quality_source: Id | None = Field(default=None, description="where it is not the file's one source")
    artifact: Artifact | None = None
    knobs: dict[Key, Any] | None = None
    runs: Named[Run | tuple[Run, ...]] | None = Field(
        default=None, description="by machine type; absent with a law of the catalogue: wherever that holds"
    )


class FileSource(Source):
    """The source of all numbers of a file that name no other."""

    name: Id = "source"


class ProfileFile(Model):
    """What machines cost and how fast models are on them; several files make one profile."""

    format: str
    currency: Currency = Field(default="USD", description="of all prices")
    source: FileSource | None = Field(default=None, description="where all numbers come from that name no other")
    sources: Named[Source] | None = Field(default=None, description="several")
    machines: Named[Machine] = Field(default_factory=dict, description="types of machine and their prices")
    models: Named[ModelEntry] = Field(default_factory=dict, description="what can be served, and how fast where")
    measurements: str | tuple[str, ...] | None = Field(
        default=None, description="CSV files beside this one: model, machine, batch or axes, mean_ms, p99_ms ..."
    )
    pipelines: Named[_Pipeline] = Field(default_factory=dict)
    metrics: Named[Metric] = Field(
        default_factory=dict, description="only where lower is better, or the range is not 0 to 1"
    )
    zones: Named[_Zone] = Field(default_factory=dict, description="quotas")
    tiers: tuple[Id, ...] = Field(default=(), description="as device, edge, cloud")
    links: tuple[_Link, ...] = Field(default=(), description="the network between tiers")
    apis: Named[_Api] = Field(default_factory=dict, description="models of others, paid by call or token")
    reference: Id | None = Field(default=None, description="the machine type of relative_time")
    extensions: dict[str, Any] = Field(default_factory=dict, description="your own data")

    @model_validator(mode="after")
    def _one_source(self) -> ProfileFile:
        if self.source is not None and self.sources is not None:
            why = "source where there is one, sources where there are several"
            raise wrong(why, "Put the one among the several, by its name.", at=("source",))
        return self
