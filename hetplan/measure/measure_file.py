"""measure.toml: what `hetplan profile` is to measure, and where. Trusted, for it names files and commands to run.

::

    format = "hetplan/measure/1.0"

    [machines.cpu-1]                    # this machine, as profiles shall call it; several are several ways to use it
    kind = "cpu"
    threads = 1                         # of the model; pinned to as many cores

    [repeats]                           # all may be left out
    p50_within = 0.02
    p99_within = 0.1
    through = "router"                  # the default; or "nothing": alone

    [models.small]
    task = "classify"
    onnx = "small.onnx"                 # or callable = "module:function", http = "http://...", command = ["...", "..."]
    axes = {batch = [1, 2, 4, 8]}
    quality = "labelled.npz"

    [engines.small]                     # a server of OpenAI's protocol, whose law is fitted to its streams
    url = "http://127.0.0.1:8000/v1/completions"
    name = "org/model"
    model = "talker"
    machine = "l4"
    kv_tokens = 40000

Files are named relative to the file's own folder. `metrics` and `pipelines` are written as in a profile; a task
names the metric of its models.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from hetplan.errors import Fault, InputError
from hetplan.profiles.fields import (
    Amount,
    Count,
    Fraction,
    Id,
    Key,
    Model,
    Named,
    PositiveAmount,
    PositiveCount,
    Real,
    wrong,
)
from hetplan.profiles.lowering import lower
from hetplan.profiles.pipeline_file import PipelineEntry
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.profile import Metric, Task
from hetplan.profiles.validate import validate

__all__ = [
    "FORMAT",
    "MeasuredEngine",
    "MeasuredMachine",
    "MeasuredModel",
    "Repeats",
    "Wish",
    "points_of",
    "read_wish",
]

FORMAT = "hetplan/measure/1.0"
_KINDS = ("onnx", "callable", "http", "command")
_MOST_CELLS = 10_000
_ONE_BY_ONE: dict[str, tuple[float, ...]] = {"batch": (1.0,)}


class MeasuredMachine(Model):
    """The machine that measures, as profiles call it, and how much of it a model may use."""

    kind: Key = "cpu"
    threads: PositiveCount = 1
    cores: tuple[Count, ...] = Field(default=(), description="which cores; default: the first ones this process has")
    pin: bool = True
    provider: Literal["cpu", "cuda"] = "cpu"
    node: str | None = Field(default=None, description="the node of a Ray cluster (--on ray) that it is")
    tier: Id | None = None
    relative_time: PositiveAmount | None = None
    startup_s: Amount = 0.0
    provides: dict[Key, Amount] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _enough_cores(self) -> MeasuredMachine:
        if self.cores and len(set(self.cores)) < self.threads:
            raise wrong(f"{self.threads} threads want as many cores", "List more, or lower threads.", at=("cores",))
        return self


class Repeats(Model):
    """When a cell has been measured often enough."""

    warm_up: Count = 5
    pause_ms: Amount = Field(default=0.0, description="rest between runs, as a server has between queries")
    rate_qps: PositiveAmount | None = Field(
        default=None, description="runs begin as queries of a Poisson process come, at once if one is due already"
    )
    through: Literal["router", "nothing"] = Field(
        default="router", description="measured behind a router that is started for it, or alone from this process"
    )
    busy: Annotated[Fraction, Field(gt=0)] = Field(
        default=0.5,
        description="over HTTP: the share of a server's time that it has work, where no rate or pause is said",
    )
    min_runs: PositiveCount = 30
    max_runs: PositiveCount = 5000
    max_s: PositiveAmount = 20.0
    most_waited: Fraction = Field(default=0.25, description="share of a run's time without a core; more is refused")
    p50_within: PositiveAmount | None = Field(default=0.02, description="half-width of its interval / value")
    p99_within: PositiveAmount | None = 0.1
    confidence: Annotated[Fraction, Field(gt=0, lt=1)] = 0.95

    @model_validator(mode="after")
    def _least_to_most(self) -> Repeats:
        if self.min_runs > self.max_runs:
            raise wrong(f"min_runs <= max_runs ({self.max_runs})", "Raise max_runs.", at=("min_runs",))
        if self.rate_qps is not None and self.pause_ms > 0.0:
            raise wrong("one of pause_ms and rate_qps", "Keep rate_qps: servers rest so.", at=("pause_ms",))
        return self


class MeasuredModel(Model):
    """One model, how it is run, and over which points of which axes."""

    task: Id
    family: Id | None = None
    on: tuple[Id, ...] = Field(default=(), description="machine types; default: all of them")
    onnx: str | None = None
    callable: str | None = None
    http: str | None = None
    command: tuple[Annotated[str, Strict()], ...] | None = None
    axes: dict[Key, tuple[Real, ...]] = Field(default_factory=lambda: dict(_ONE_BY_ONE))
    knobs: dict[Key, Any] = Field(default_factory=dict)
    at: dict[Key, Real] = Field(default_factory=dict, description="the point at which saturation_qps is stated")
    shapes: dict[str, tuple[int | str, ...]] = Field(default_factory=dict, description="onnx: per input, axes by name")
    integers_below: PositiveCount = Field(default=2, description="onnx: integer inputs are drawn below this")
    body: str | None = Field(default=None, description="http: a JSON file; a text $AXIS in it becomes the axis' value")
    headers: dict[str, str] = Field(default_factory=dict)
    timeout_s: PositiveAmount = 60.0
    quality: str | None = Field(default=None, description="an .npz file of inputs and labels")
    score: str = Field(default="top1", description='"top1", or "module:function" of (outputs, labels)')
    outside: Literal["refuse", "clamp", "linear"] = "refuse"

    @property
    def kind(self) -> str:
        """How it is run: onnx, callable, http or command."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @model_validator(mode="after")
    def _one_way(self) -> MeasuredModel:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise wrong(f"exactly one of {', '.join(_KINDS)}, not {found}", 'Write for instance onnx = "small.onnx".')
        if self.callable is not None and self.callable.count(":") != 1:
            raise wrong('a callable is "module:function"', "Name the module and the function.", at=("callable",))
        if self.command is not None and not self.command:
            raise wrong("a command is a list of words", 'Write ["python", "measure.py"].', at=("command",))
        if self.http is not None and not self.http.startswith(("http://", "https://")):
            raise wrong("an address of http or https", 'Write "http://127.0.0.1:8000/path".', at=("http",))
        if self.quality is not None and self.kind in ("http", "command"):
            remedy = 'A command says "score" in each answer.' if self.command is not None else "Measure it elsewhere."
            raise wrong("a labelled set is for onnx and callable", remedy, at=("quality",))
        if self.score != "top1" and self.score.count(":") != 1:
            raise wrong('"top1", or "module:function"', "Name the module and the function.", at=("score",))
        self._check_axes()
        return self

    def _check_axes(self) -> None:
        for name, axis in self.axes.items():
            if not axis or sorted(set(axis)) != list(axis) or axis[0] < 0:
                raise wrong("an axis lists numbers that grow", "Sort them, each once.", at=("axes", name))
            if name == "batch" and any(size < 1 or size != int(size) for size in axis):
                raise wrong("a batch is a whole number, 1 or more", "Write [1, 2, 4].", at=("axes", name))
        for name in self.at:
            if name not in self.axes or self.at[name] not in self.axes[name]:
                raise wrong(f"a point of the axes: {name} lists no such value", "Add it to the axis.", at=("at", name))
        if self.at and set(self.at) != set(self.axes):
            raise wrong("a value for every axis", f"Name {', '.join(self.axes)}.", at=("at",))


class MeasuredEngine(Model):
    """A server of OpenAI's protocol that makes text: where it is, what cannot be seen from outside, and what to try."""

    url: Annotated[str, Field(pattern=r"^http://[^/?#]+/\S+$")] = Field(description="of completions, with its path")
    name: str = Field(description="what the server calls its model")
    model: Id
    machine: Id
    task: Id = "chat"
    kv_tokens: PositiveCount = Field(description="room for KV, in tokens; a vLLM server says it when it starts")
    context_tokens: PositiveCount | None = None
    most_tokens: PositiveCount = Field(default=2048, description="the chunk that the server runs with")
    most_seqs: PositiveCount = 256
    tensor: PositiveCount = 1
    pipeline: PositiveCount = 1
    precision: Key | None = None
    load_s: Amount = 0.0
    input_tokens: tuple[PositiveCount, ...] = Field(
        default=(32, 200, 500, 1000, 1800),
        min_length=2,
        description="lengths of prompts; four and more tell pieces apart",
    )
    concurrency: tuple[PositiveCount, ...] = Field(default=(1, 4, 16), min_length=1)
    headers: dict[str, str] = Field(default_factory=dict)
    timeout_s: PositiveAmount = 120.0

    @property
    def longest(self) -> int:
        """The most tokens that a request may have."""
        return min(self.context_tokens or self.kv_tokens, self.kv_tokens)

    def stated(self) -> dict[str, Any]:
        """What a profile says of it besides its law."""
        names = ("kv_tokens", "context_tokens", "tensor", "pipeline", "precision")
        most = {"max_tokens": self.most_tokens, "max_seqs": self.most_seqs}
        return most | {name: getattr(self, name) for name in names}


class Wish(Model):
    """The whole file."""

    format: Literal["hetplan/measure/1.0"]
    machines: Named[MeasuredMachine] = Field(min_length=1)
    repeats: Repeats = Field(default_factory=Repeats)
    metrics: Named[Metric] = Field(default_factory=dict)
    tasks: Named[Task] = Field(default_factory=dict)
    models: Named[MeasuredModel] = Field(default_factory=dict)
    engines: Named[MeasuredEngine] = Field(default_factory=dict)
    pipelines: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _hangs_together(self) -> Wish:
        if not self.models and not self.engines:
            raise wrong("nothing is to be measured", "Add [models.NAME], or [engines.NAME].", at=("models",))
        listed = f"There are: {', '.join(self.machines)}."
        for name, engine in self.engines.items():
            if engine.machine not in self.machines:
                raise wrong(f"there is no machine type {engine.machine!r}", listed, at=("engines", name, "machine"))
        for name, model in self.models.items():
            for number, machine in enumerate(model.on):
                if machine not in self.machines:
                    raise wrong(f"there is no machine type {machine!r}", listed, at=("models", name, "on", number))
            cells = len(points_of(model.axes))
            if cells > _MOST_CELLS:
                at = ("models", name, "axes")
                raise wrong(f"at most {_MOST_CELLS} points, not {cells}", "Shorten the axes.", at=at)
        for name, task in self.tasks.items():
            if task.metric is not None and task.metric not in self.metrics:
                at = ("tasks", name, "metric")
                raise wrong(f"there is no metric {task.metric!r}", "Add it under [metrics].", at=at)
        tasks = {*self.tasks, *(model.task for model in self.models.values())}
        for name, pipeline in self.pipelines.items():
            try:
                said = PipelineEntry.model_validate(pipeline).model_dump(mode="json", by_alias=True, exclude_unset=True)
                nodes = Pipeline.model_validate(lower({"pipelines": {name: said}}).document["pipelines"][name]).nodes
            except ValueError as error:
                why = str(error).splitlines()[1:2] or ["as in a profile"]
                raise wrong(f"a pipeline as in a profile ({why[0]})", "Mend it.", at=("pipelines", name)) from None
            for node, step in nodes.items():
                if step.task is not None and step.task not in tasks:
                    none = f"no model is of task {step.task!r}"
                    raise wrong(none, "Add one, or [tasks.NAME].", at=("pipelines", name, "stages", node))
        return self

    def cells(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Every model, machine type and point, in the order of measuring: a model is loaded once per machine type."""
        for name, model in self.models.items():
            for machine in model.on or tuple(self.machines):
                for point in points_of(model.axes):
                    yield name, machine, point


def points_of(axes: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every point of a grid, the last axis (in alphabetical order, as tables want it) fastest.

    >>> points_of({"resolution": [1, 2], "batch": [4]})
    [{'batch': 4, 'resolution': 1}, {'batch': 4, 'resolution': 2}]
    """
    names = sorted(axes)
    return [dict(zip(names, values, strict=True)) for values in product(*(axes[name] for name in names))]


def read_wish(path: str | os.PathLike[str]) -> tuple[Wish, Path]:
    """The wish in a TOML file, and the folder that its file names are relative to; `InputError` with all faults."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise InputError.one(
            file=str(path), why=f"it cannot be read: {why}", remedy="Give a readable TOML file."
        ) from None
    wish = validate(Wish, content, file=str(path))
    faults = [
        Fault(str(path), f"$.models.{name}.{key}", str(value), "there is no such file", "Mend its name.")
        for name, model in wish.models.items()
        for key, value in (("onnx", model.onnx), ("quality", model.quality), ("body", model.body))
        if value is not None and not (file.parent / value).is_file()
    ]
    if faults:
        raise InputError(faults)
    return wish, file.parent
